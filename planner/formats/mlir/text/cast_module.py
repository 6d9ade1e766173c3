"""The user's own module with a plan's types: as casts around its ops, or as the types of its values.

The text is edited, not printed anew: what a plan says nothing of comes out byte for byte, and so do
signatures of functions, attributes, locations and constants. Source: MLIR quantization RFC, "Model
constraints" and "Export: materializing quantization".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np
from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from planner.errors import ModelError, PlanFormatError, QTypeError
from planner.formats.mlir.casts import CastOp, DequantizeCastOp, QuantizeCastOp, StatisticsOp
from planner.formats.mlir.dialect import RegionOp
from planner.formats.mlir.integrity import misfit
from planner.formats.mlir.stablehlo_ops import expressed_type
from planner.formats.mlir.text.module_edit import TextEdit
from planner.formats.mlir.text.own_casts import OwnCasts
from planner.formats.mlir.text.read_module import read_module
from planner.formats.mlir.text.read_structure import op_name
from planner.formats.mlir.text.spelling import is_ours, type_text
from planner.formats.mlir.types import UniformType, element_of, uniform_of, with_element
from planner.formats.mlir.verbatim_types import as_qtype, as_written
from planner.formats.stablehlo.reader.program import read_hlo_model
from planner.formats.tosa.reader.program import read_tosa_model
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import FloatType, QType, Uniform
from planner.ir.types.written_scales import written_scales

Form: TypeAlias = Literal["attributes", "casts", "types"]
Hop: TypeAlias = UniformType | None
"""A type that a value goes through, as it is spelled; None for reals."""
Written: TypeAlias = CastOp | StatisticsOp
"""Ops that state a constraint: the user's own, they stay."""
REALS_ONLY: Final = frozenset({"arith", "complex", "linalg", "math", "scf", "shape", "vector"})
"""Dialects whose ops upstream verifies to compute with plain numbers: they stand between casts."""


@dataclass(frozen=True, slots=True)
class CastModule:
    """A module with the types of a plan.

    Attributes:
      text: of the module.
      left: ports of the plan that it does not show: of ops in functions that are called, or in ops with
        regions; of types that upstream's dialect has not, or that express another float than the tensor;
        of ops between casts, where the text gives an operand or a result another quantized element type.
    """

    text: str
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypedPort:
    """A port of a kernel, and the type it has; None for float."""

    address: str
    value: str
    type: Uniform | FloatType | None


@dataclass(frozen=True, slots=True)
class Types:
    """The types of a plan.

    Attributes:
      graph: that was planned.
      values: types that consumers of values start from: fixed types, else those their kernels give.
      inputs, outputs: ports by kernel.
      numbers: constants, where others than the module's are to be written.
    """

    graph: Graph
    values: Mapping[str, Uniform | FloatType | None]
    inputs: Mapping[str, Sequence[TypedPort]]
    outputs: Mapping[str, Sequence[TypedPort]]
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)


def cast_module(text: str, plan: Types, form: Form = "casts") -> CastModule:
    """Put a plan's types into the module that it was made of.

    As `casts`, a value with a type goes through `quant.qcast` and `quant.dcast` where it is defined; an op
    that reads it in another type reads a second pair behind that. As `types`, operands and results of ops in
    generic form have the quantized element types themselves, and casts stand where two of them meet: behind
    arguments and constants, at rescales, around ops in custom form or with regions, and in front of `return`.
    As `attributes`, an op in generic form says in `qplan.in` and `qplan.out` what types its kernel's ports
    have, `none` for those in float and inside the kernel; nothing else of the text changes.
    Arguments and results of functions keep their types in all. A type that the module states is written with
    its digits: `0.05`, not the float32 nearest to it.

    Args:
      text: a module of plain ops with one public function, as `load_model` reads it; of StableHLO programs
        see the format `stablehlo`, of TOSA programs `tosa`.

    Raises:
      ModelError: text that is no such module.
      PlanFormatError: a plan of another model.
    """
    if read_hlo_model(text) is not None:
        raise ModelError(
            "a StableHLO program is planned as other ops than it has",
            hint="export the plan as stablehlo or stablehlo-int",
        )
    if read_tosa_model(text) is not None:
        raise ModelError("a TOSA program is planned as other ops than it has", hint="export the plan as tosa")
    module = read_module(text)
    if module.parser is None:  # it is set by `read_module`
        raise ModelError("the module was not parsed from text")
    if any(isinstance(value.owner, RegionOp) for value in module.names):
        raise ModelError(
            "a module of qplan.region ops holds types in its specs; plan.mlir has those of the plan"
        )
    values: dict[str, SSAValue] = {}
    for value, name in module.names.items():
        values.setdefault(name, value)  # casts and calls give a value further names
    strange = next((name for name in (*plan.graph.inputs, *plan.graph.outputs) if name not in values), None)
    if strange is not None:
        raise PlanFormatError(
            f"the plan is of another model: it has a value {strange!r}, this module has none"
        )
    work = _Typing(TextEdit(text, module.parser), values, module.names, plan, form)
    work.run()
    known = module.graph.constants
    for name, array in plan.numbers.items():
        held = known[name].array if name in known else None
        if held is not None and held.shape == array.shape and not np.array_equal(held, array, equal_nan=True):
            work.renumber(name, array)
    return CastModule(work.edit.written(), tuple(work.left()))


@dataclass
class _Typing:
    """The types that each op reads and gives, and the casts between them."""

    edit: TextEdit
    values: Mapping[str, SSAValue]
    names: Mapping[SSAValue, str]
    plan: Types
    form: Form
    kernels: dict[Operation, Region] = field(default_factory=dict)
    given: dict[SSAValue, UniformType] = field(default_factory=dict)
    made: dict[tuple[SSAValue, tuple[Hop, ...]], str] = field(default_factory=dict)
    stated: dict[QType, UniformType] = field(default_factory=dict)
    own: OwnCasts = field(default_factory=OwnCasts)

    def __post_init__(self) -> None:
        for value in self.names:
            kind = element_of(value.type)
            if isinstance(kind, UniformType):
                self.stated.setdefault(as_qtype(kind.data), kind)
        for region in self.plan.graph.regions:
            if region.name in self.plan.inputs:
                self.kernels |= {owner: region for owner in self.owners(region) if owner is not None}

    def owners(self, region: Region) -> list[Operation | None]:
        """The op of the text for each op of a kernel; None for one inside a function that is called.

        That of an Identity may be a second `quant.qcast` of a value.
        """
        found: list[Operation | None] = []
        for op in region.ops:
            value = self.values.get(op.outputs[0]) if op.outputs else None
            owner = None if value is None else value.owner
            is_copy = isinstance(owner, QuantizeCastOp) and op.type == "Identity"
            is_own = isinstance(owner, Operation) and not isinstance(owner, Written | func.CallOp)
            found.append(owner if isinstance(owner, Operation) and (is_own or is_copy) else None)
        return found

    def run(self) -> None:
        """Make all edits."""
        if self.form == "attributes":
            for op in self.kernels:
                self.attribute(op)
            return
        for op in self.kernels:
            self.define(op)
        for value in self.names:
            cast = value.owner
            if not isinstance(cast, QuantizeCastOp | DequantizeCastOp) or cast in self.kernels:
                continue
            source = cast.input
            if self.names.get(source) == self.names[value]:
                self.own.add(
                    value, source, (*self.needed(cast, 0, source, _spelling(source))[0], _spelling(value))
                )
        for value in self.names:
            for use in list(value.uses):
                self.read(use.operation, use.index, value)

    def define(self, op: Operation) -> None:
        """Give the results of an op the types of its kernel."""
        if not self.is_typed(op):
            return
        texts = {}
        for i, value in enumerate(op.results):
            kind = self.made_as(value)
            if kind is not None and kind != _stated(value):
                self.given[value] = self.spelled(kind)
                texts[i] = self.type_text(value, self.given[value])
        if texts:
            self.edit.types(op, {}, texts)

    def attribute(self, op: Operation) -> None:
        """Give an op attributes of its ports' types."""
        if not self.has_attributes(op):
            return
        region = self.kernels[op]
        reads = [
            self.wanted(op, i, self.names[value]) if self.names.get(value) in region.inputs else None
            for i, value in enumerate(op.operands)
        ]
        gives = [self.plan_type(region, value) for value in op.results]
        if any(kind is not None for kind in (*reads, *gives)):
            self.edit.attributes(op, {"qplan.in": self.listed(reads), "qplan.out": self.listed(gives)})

    def plan_type(self, region: Region, value: SSAValue) -> Uniform | FloatType | None:
        ports = self.plan.outputs[region.name]
        return next((port.type for port in ports if port.value == self.names.get(value)), None)

    def listed(self, kinds: Sequence[Uniform | FloatType | None]) -> str:
        """Types of ports as an array attribute; `none` for a port in the tensor's own reals."""
        written = written_scales(self.plan.graph)
        told = [written.of(kind) if isinstance(kind, Uniform) else kind for kind in kinds]
        return f"[{', '.join('none' if kind is None else type_text(kind) for kind in told)}]"

    def has_attributes(self, op: Operation) -> bool:
        """Whether the types of an op's ports can be said in attributes of it."""
        is_kernel = op in self.kernels and not isinstance(op, Written)
        return is_kernel and not op.regions and self.edit.is_generic(op)

    def is_typed(self, op: Operation) -> bool:
        """Whether the types of an op's operands and results are changed."""
        return (
            self.form == "types"
            and self.has_attributes(op)
            and op_name(op).partition(".")[0] not in REALS_ONLY
        )

    def made_as(self, value: SSAValue) -> Uniform | None:
        """The type that the kernel of a value gives it, if it can be shown."""
        owner = value.owner
        region = None if isinstance(owner, Written | Block) else self.kernels.get(owner)
        kind = None if region is None else self.plan_type(region, value)
        return kind if isinstance(kind, Uniform) and self.is_castable(value, kind) else None

    def defined(self, value: SSAValue) -> Uniform | None:
        """The type that consumers of a value start from; a constant is stored in the types it is read in."""
        name = self.names[value]
        kind = self.plan.values.get(name)
        if name in self.plan.graph.constants or not self.is_castable(value, kind):
            return None
        return kind if isinstance(kind, Uniform) else None

    def wanted(self, op: Operation, index: int, name: str) -> Uniform | FloatType | None:
        """The type that an op of a kernel reads an operand in."""
        region = self.kernels.get(op)
        ports = [port for port in self.plan.inputs[region.name] if port.value == name] if region else []
        if not ports:
            return None
        before = sum(self.names.get(value) == name for value in op.operands[:index])
        return ports[min(before, len(ports) - 1)].type

    def read(self, op: Operation, index: int, value: SSAValue) -> None:
        """Let an op read a value in its type."""
        first, own = self.values[self.names[value]], _spelling(value)
        is_alike = expressed_type(first.type) == expressed_type(value.type)
        is_reader = op in self.kernels or not isinstance(op, Written)
        if isinstance(value.owner, Written) and is_alike and is_reader:
            value = first
        hops, last = self.needed(op, index, value, own)
        if hops or last != own:
            token = self.through(value, hops, op, index)
            if token != self.edit.parser.tokens[op.operands[index]]:
                self.edit.operand(op, index, token)
        if last != own:
            self.edit.types(op, {index: self.type_text(value, last)}, {})

    def needed(self, op: Operation, index: int, value: SSAValue, own: Hop) -> tuple[tuple[Hop, ...], Hop]:
        """The types that a value is cast to in front of an op, and the one that the op has it in.

        Args:
          own: the type that the text has there.
        """
        hops: list[Hop] = []
        now = self.given.get(value, _spelling(value))
        for kind in self.way(op, index, value):
            if isinstance(kind, Uniform) and self.is_castable(value, kind) and kind != _meant(now):
                now = _go(hops, now, self.spelled(kind))
        wanted = self.wanted(op, index, self.names[value])
        is_shown = isinstance(wanted, Uniform) and self.is_castable(value, wanted) and self.is_typed(op)
        last = self.spelled(wanted) if is_shown and isinstance(wanted, Uniform) else own
        if last != own and _meant(own) == wanted and value not in self.given:
            last = own  # the text says it with other digits
        _go(hops, now, last)
        is_copy = op in self.kernels and isinstance(op, QuantizeCastOp)
        if is_copy and hops[-2:] == [_spelling(op.results[0]), None]:
            del hops[-2:]  # the cast itself rounds so
        return tuple(hops), last

    def way(self, op: Operation, index: int, value: SSAValue) -> Iterator[Uniform | FloatType | None]:
        """The types that a value has on its way to an op: where it is computed, fixed and read.

        A cast of the text states the fixed type, so it reads the computed one; one that stands for a kernel
        of its own reads like one, and what that computes is cast.
        """
        name, region = self.names[value], self.kernels.get(op)
        if region is not None and name not in region.inputs:
            return  # inside the kernel
        made = self.made_as(value) if value not in self.given else None
        is_cast = isinstance(op, QuantizeCastOp) and region is None
        # A cast of the text to the type that is computed is the cast to it.
        if made is None or not is_cast or self.spelled(made) != _spelling(op.results[0]):
            yield made
        if isinstance(op, Written) and region is None:
            return
        yield self.defined(value)
        yield self.wanted(op, index, name)
        if isinstance(op, Written) and region is not None:
            yield self.plan_type(region, op.results[0])

    def through(self, value: SSAValue, hops: tuple[Hop, ...], op: Operation, index: int) -> str:
        """The SSA name of a value behind casts, one a hop: the text's own as far as it has them."""
        source, count = self.own.found(value, hops, op, index)
        token = self.edit.parser.tokens[source]
        now = hops[count - 1] if count else self.given.get(value, _spelling(value))
        for end in range(count + 1, len(hops) + 1):
            key, to = (source, hops[count:end]), hops[end - 1]
            if key not in self.made:
                verb = "dcast" if to is None else "qcast"
                self.made[key] = self.edit.fresh(value, verb[0])
                kinds = f"{self.type_text(value, now)} to {self.type_text(value, to)}"
                self.edit.line(source, f"{self.made[key]} = quant.{verb} {token} : {kinds}")
            token, now = self.made[key], to
        return token

    def type_text(self, value: SSAValue, kind: Hop) -> str:
        """Write the type of a value in a type, or in reals."""
        if kind is None:
            return str(expressed_type(value.type))
        return str(with_element(value.type, kind))

    def spelled(self, kind: Uniform) -> UniformType:
        """A type as the text spells it, or with the digits that it gives the scales elsewhere."""
        if kind not in self.stated:
            found = written_scales(self.plan.graph).of(kind)
            told = replace(as_written(kind), scales=found.written) if found.written else kind
            self.stated[kind] = UniformType(told)
        return self.stated[kind]

    def is_castable(self, value: SSAValue, kind: Uniform | FloatType | None) -> bool:
        """Whether upstream has casts of a value to a type."""
        if not isinstance(kind, Uniform) or is_ours(kind):
            return False
        tensor = expressed_type(value.type)
        uniform = uniform_of(UniformType(kind))
        return (
            str(element_of(tensor)) == kind.expressed and uniform is not None and not misfit(uniform, tensor)
        )

    def left(self) -> Iterator[str]:
        """The ports that are not shown."""
        for region in self.plan.graph.regions:
            owners = list(zip(region.ops, self.owners(region), strict=True))
            for port in self.plan.inputs.get(region.name, ()):
                reads = [owner for op, owner in owners if port.value in op.inputs]
                shown = bool(reads) and all(
                    owner is not None and self.shows(port, owner, reads=True) for owner in reads
                )
                if port.type is not None and not shown:
                    yield port.address
            for port in self.plan.outputs.get(region.name, ()):
                makers = [owner for op, owner in owners if port.value in op.outputs]
                maker = makers[0] if makers else None
                if port.type is not None and not self.shows(port, maker, reads=False):
                    yield port.address

    def shows(self, port: TypedPort, owner: Operation | None, *, reads: bool) -> bool:
        """Whether casts say the type of a port, and that of its value; or attributes of its op do."""
        if self.form == "attributes":
            return owner is not None and self.has_attributes(owner)
        value, defined = self.values.get(port.value), self.plan.values.get(port.value)
        if value is None or not all(
            kind is None or self.is_castable(value, kind) for kind in (port.type, defined)
        ):
            return False
        if owner is None or isinstance(owner, Written) or self.is_typed(owner):
            return True
        ends = [
            end for end in (owner.operands if reads else owner.results) if self.names.get(end) == port.value
        ]
        return all(_stated(end) in (None, port.type) for end in ends)  # the text's own types stay

    def renumber(self, name: str, array: np.ndarray) -> None:
        """Write the numbers of a constant anew."""
        value = self.values[name]
        owner = value.owner
        if (
            _stated(value) is not None
            or not isinstance(owner, Operation)
            or not self.edit.numbers(owner, array)
        ):
            raise PlanFormatError(
                f"the numbers of {name!r} were changed, and its text has no place for others"
            )


def _spelling(value: SSAValue) -> Hop:
    """The quantized element type of a value as the text spells it; None for reals."""
    kind = element_of(value.type)
    return kind if isinstance(kind, UniformType) else None


def _stated(value: SSAValue) -> Uniform | None:
    """The quantized element type that a value has in the text."""
    return _meant(_spelling(value))


def _meant(kind: Hop) -> Uniform | None:
    """The type of ours that a spelling means."""
    if kind is None:
        return None
    try:
        found = as_qtype(kind.data)
    except QTypeError:
        return None
    return found if isinstance(found, Uniform) else None


def _go(hops: list[Hop], now: Hop, to: Hop) -> Hop:
    """Add the casts from one type to another."""
    if now != to:
        hops += [to] if now is None or to is None else [None, to]
    return to
