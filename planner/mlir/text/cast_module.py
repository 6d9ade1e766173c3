"""The user's own module with a plan's types as casts: `quant.qcast` and `quant.dcast` around its ops.

The text is edited, not printed anew: what a plan says nothing of comes out byte for byte, and so do
signatures, attributes, locations and constants. Source: MLIR quantization RFC, "Model constraints".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from xdsl.dialects import func
from xdsl.ir import Operation, SSAValue

from planner.errors import ModelError, PlanFormatError
from planner.ir.graph import Graph
from planner.ir.types.qtypes import FloatType, QType, Uniform
from planner.mlir.dialect import RegionOp
from planner.mlir.integrity import misfit
from planner.mlir.parse import TextParser
from planner.mlir.text.read_module import read_module
from planner.mlir.text.spelling import is_ours
from planner.mlir.types import UniformType, element_of, uniform_of, with_element
from planner.mlir.verbatim_types import as_qtype
from planner.stablehlo_reader.program import read_hlo_model

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|//[^\n]*|%[\w$.-]+(?:#\d+)?')
_NAME: Final = re.compile(r"%[\w$.-]+")


@dataclass(frozen=True, slots=True)
class CastModule:
    """A module with the casts of a plan.

    Attributes:
      text: of the module.
      left: ports of the plan that no cast shows: of ops in functions that are called, or in ops with regions;
        of types that upstream's dialect has not, or that express another float than their tensor holds.
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
      values: types of values where they are defined.
      inputs, outputs: ports by kernel.
    """

    graph: Graph
    values: Mapping[str, Uniform | FloatType | None]
    inputs: Mapping[str, Sequence[TypedPort]]
    outputs: Mapping[str, Sequence[TypedPort]]


def cast_module(text: str, plan: Types) -> CastModule:
    """Put casts around the ops of the module that a plan was made of.

    A value with a type goes through `quant.qcast` and `quant.dcast` where it is defined; an op that reads it
    in another type reads a second pair behind that. Arguments and results of functions keep their types. A
    type that the module states is written with its digits: `0.05`, not the float32 nearest to it.

    Args:
      text: a module of plain ops with one public function, as `load_model` reads it; of StableHLO programs
        see the format `stablehlo`.

    Raises:
      ModelError: text that is no such module.
      PlanFormatError: a plan of another model.
    """
    if read_hlo_model(text) is not None:
        raise ModelError(
            "a StableHLO program is planned as other ops than it has",
            hint="export the plan as stablehlo or stablehlo-int",
        )
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
    edit = _Edit(text, module.parser, values, module.names, plan)
    left = tuple(edit.kernels())
    edit.returns()
    return CastModule(edit.written(), left)


@dataclass
class _Edit:
    """Casts that are needed, and what each op reads instead."""

    text: str
    parser: TextParser
    values: Mapping[str, SSAValue]
    names: Mapping[SSAValue, str]
    plan: Types
    reads: dict[int, dict[str, str]] = field(default_factory=dict)
    casts: dict[str, list[str]] = field(default_factory=dict)
    made: dict[tuple[str, Uniform], str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    stated: dict[QType, UniformType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken = set(_NAME.findall(self.text))
        for value in self.names:
            kind = element_of(value.type)
            if isinstance(kind, UniformType):
                self.stated.setdefault(as_qtype(kind.data), kind)

    def kernels(self) -> Iterator[str]:
        """Connect the inputs of all kernels; give the ports that cannot be."""
        regions = {region.name: region for region in self.plan.graph.regions}
        for kernel, ports in self.plan.inputs.items():
            for port in ports:
                readers = [op for op in regions[kernel].ops if port.value in op.inputs]
                owners = [self.values[op.outputs[0]].owner for op in readers if op.outputs[0] in self.values]
                done = port.value in self.values and len(owners) == len(readers) > 0
                for owner in owners:
                    done = done and isinstance(owner, Operation) and self.connect(owner, port)
                if port.type is not None and not done:
                    yield port.address
            for port in self.plan.outputs[kernel]:
                if port.type is not None and (port.value not in self.values or not self.fits(port)):
                    yield port.address

    def connect(self, op: Operation, port: TypedPort) -> bool:
        """Let an op read a port's value in the port's type; False where there is no such cast."""
        kinds = {value.type for value in op.operands if self.names.get(value) == port.value}
        if (
            op.regions
            or isinstance(op, func.CallOp)
            or kinds != {self.values[port.value].type}
            or not self.fits(port)
        ):
            return False
        defined = self.type_of(port.value)
        wanted = port.type if isinstance(port.type, Uniform) else defined
        if wanted is not None:
            self.read(op, port.value, wanted)
        return True

    def returns(self) -> None:
        """Let the function return what the types leave of its results."""
        for value, name in self.names.items():
            defined = self.type_of(name) if value.type == self.values[name].type else None
            if defined is None:
                continue
            for use in value.uses:
                if isinstance(use.operation, func.ReturnOp):
                    self.read(use.operation, name, defined)

    def fits(self, port: TypedPort) -> bool:
        """Whether casts say the type of a port, and that of its value."""
        return all(
            kind is None or self.is_castable(port.value, kind)
            for kind in (
                port.type,
                self.plan.values.get(port.value),
            )
        )

    def is_castable(self, name: str, kind: Uniform | FloatType | None) -> bool:
        if not isinstance(kind, Uniform) or is_ours(kind) or name not in self.values:
            return False
        tensor = self.values[name].type
        uniform = uniform_of(UniformType(kind))
        return (
            str(element_of(tensor)) == kind.expressed and uniform is not None and not misfit(uniform, tensor)
        )

    def type_of(self, name: str) -> Uniform | None:
        """The type of a value where it is defined, if a cast says it."""
        kind = self.plan.values.get(name)
        return kind if isinstance(kind, Uniform) and self.is_castable(name, kind) else None

    def read(self, op: Operation, name: str, kind: Uniform) -> None:
        reals = self.reals(name, kind)
        tokens = [self.parser.tokens[value] for value in op.operands if self.names.get(value) == name]
        self.reads.setdefault(id(op), {}).update(dict.fromkeys(tokens, reals))

    def reals(self, name: str, kind: Uniform) -> str:
        """The SSA name of a value's reals once they went through a type."""
        if (name, kind) not in self.made:
            value = self.values[name]
            defined = self.type_of(name)
            source = self.parser.tokens[value]
            if defined is not None and kind != defined:
                source = self.reals(name, defined)
            element = self.stated.get(kind, UniformType(kind))
            real, stored = str(value.type), str(with_element(value.type, element))
            quantized, back = self.fresh(name, "q"), self.fresh(name, "d")
            self.casts.setdefault(name, []).extend(
                (
                    f"{quantized} = quant.qcast {source} : {real} to {stored}",
                    f"{back} = quant.dcast {quantized} : {stored} to {real}",
                )
            )
            self.made[name, kind] = back
        return self.made[name, kind]

    def fresh(self, name: str, suffix: str) -> str:
        stem = re.sub(r"[^\w$.-]", "_", self.parser.tokens[self.values[name]][1:])
        stem = f"v{stem}" if stem[0].isdigit() else stem
        count, found = 0, f"%{stem}_{suffix}"
        while found in self.taken:
            count += 1
            found = f"%{stem}_{suffix}{count}"
        self.taken.add(found)
        return found

    def written(self) -> str:
        """The text with all edits in it."""
        edits: list[tuple[int, int, str]] = []
        for key, names in self.reads.items():
            start, end = self.parser.starts[key], self.parser.ends[key]
            edits.extend(
                (match.start(), match.end(), names[match[0]])
                for match in _TOKEN.finditer(self.text, start, end)
                if match[0] in names
            )
        for name, lines in self.casts.items():
            edits.append(self.insertion(self.values[name], lines))
        parts, at = [], 0
        for start, end, new in sorted(edits):
            parts += [self.text[at:start], new]
            at = end
        return "".join([*parts, self.text[at:]])

    def insertion(self, value: SSAValue, lines: list[str]) -> tuple[int, int, str]:
        """Where the casts of a value go: behind its op, or in front of the first of the block it enters."""
        owner = value.owner
        if isinstance(owner, Operation):
            start = self.parser.starts[id(owner)]
            at = start + len(self.text[start : self.parser.ends[id(owner)]].rstrip())
            indent = self.indent(self.parser.starts[id(owner)])
            return at, at, "".join(f"\n{indent}{line}" for line in lines)
        first = next(iter(owner.ops))
        at = self.parser.starts[id(first)]
        return at, at, "".join(f"{line}\n{self.indent(at)}" for line in lines)

    def indent(self, at: int) -> str:
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip())]
