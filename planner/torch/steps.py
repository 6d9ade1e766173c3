"""Steps: a plan's kernels in order as training runs them, with the quantizers that operands and results pass.

Made once of a plan; what they compute is `module`'s. Kernels are those of the reference interpreter
(`lowering.blocks`). Source: docs/specification.md, sections 3 and 8.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any, Final, TypeGuard

from planner.errors import InputError, unknown_name
from planner.interpreter.blocks import Floats, moved_f32_kind, stages_of
from planner.interpreter.calls import HTP
from planner.interpreter.kernels.htp import is_strided_depthwise
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block, needed_regions
from planner.lowering.products import PRODUCTS, Array, product_in
from planner.ops import defined
from planner.ops.operands import Operands
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.torch.arithmetic import FOLDED, HTP_STRIDED, SHIFTED, knows
from planner.torch.operators import FUNCTIONS

EVEN: Final = frozenset({"exact_even", "float32_even", "float32_qdq", "float32_spec", HTP})
"""Arithmetics that round ties to even; fixed point rounds them up, and averages away from zero."""
RESCALING: Final = FOLDED | SHIFTED | {"exact_even", "power_of_two"}
"""Arithmetics in which a rescale is one of integers."""
FLOATS: Final = frozenset({"float32_even", HTP})
"""Arithmetics whose means are computed in float32."""
PAIRS: Final = frozenset({"Add", "Mul", "Sub"})
"""Those of two stored operands that these have kernels of integers for."""
AVERAGES: Final = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
BYTE: Final = 8


@dataclass(frozen=True, slots=True)
class Read:
    """An operand: a value or a constant, through the quantizer of an edge; "" is as it is.

    Attributes:
      base: the edge that the value is on before, where integers of one grid become those of another.
      arithmetic: that they do by.
    """

    name: str
    edge: str = ""
    ties: str = "even"
    base: str = ""
    arithmetic: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operator: its operands, and the numbers of those that say shapes, indices and bounds."""

    op: Op
    reads: tuple[Read | None, ...]
    statics: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A term of a sum.

    Attributes:
      units: the edges whose scales make its step.
      factors: stored operands that are multiplied, in the order of `units`; (): what the operators computed.
      sign: -1 where it is subtracted.
    """

    units: tuple[str, ...]
    factors: tuple[Read, ...] = ()
    sign: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """Integers that a kernel adds up exactly, and how it brings them onto the grid of its result.

    Attributes:
      source: the result of the last operator that adds.
      trailing: axes behind the channels of the result.
      factor: of a Gemm.
      count: of a mean, the numbers that it is of.
      again: operators to run a second time in float64, each operand in its quantizer's steps: float32
        has room for sums of products of bytes, and of none that are wider.
      bias: of a real number or on a grid of its own, which is added to the scaled integers.
      is_operand: whether that is the third operand of `source`'s operator, not of an Add behind it.
    """

    source: str
    parts: tuple[Part, ...]
    arithmetic: str
    trailing: int = 0
    factor: float = 1.0
    count: int = 1
    again: tuple[tuple[Call, tuple[str, ...]], ...] = ()
    bias: Read | None = None
    is_operand: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Write:
    """The treatment of a result: the edges whose quantizers it passes.

    Attributes:
      sums: of the first of them, where its integers are known.
      activation: the Relu or Clip behind these.
      rescales: the arithmetic by which integers go from the first edge to a second.
    """

    name: str
    edges: tuple[str, ...] = ()
    ties: str = "even"
    sums: Sum | None = None
    activation: Call | None = None
    rescales: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A kernel, or float kernels in a row."""

    calls: tuple[Call, ...]
    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Maker:
    """Makes the steps of a plan.

    Attributes:
      edges: names of quantizers by value and type.
      bases: the type that consumers of each value start from, as far as steps are made.
    """

    model: Graph
    plan: Plan
    edges: Mapping[tuple[str, Uniform], str]
    bases: dict[str, PortTyped]

    def steps(self) -> Iterator[Step]:
        """Yield every step in order.

        Raises:
          UnknownName: an operator that training has no function of.
          InputError: an operator with a body.
        """
        pinned = self.plan.stored_pins
        self.bases.update((name, pinned.get(name)) for name in self.model.inputs)
        for stage in stages_of(self.model, self.plan, None, pinned, needed_regions(self.plan)):
            yield self._floats(stage) if isinstance(stage, Floats) else self._block(stage)

    def _floats(self, stage: Floats) -> Step:
        calls = tuple(self._call(op, {}, "") for op in stage.ops)
        writes = []
        for name in stage.outputs:
            pin = self.plan.stored_pins.get(name)
            self.bases[name] = pin
            writes.append(Write(name, () if pin is None else (self.edges[name, pin],)))
        return Step(calls, tuple(writes))

    def _block(self, block: Block) -> Step:
        ops = (*block.core, *(() if block.activation is None else (block.activation,)))
        calls = tuple(self._call(op, block.stored_kinds, block.arithmetic) for op in ops)
        ties = "even" if block.arithmetic in EVEN else "up"
        ties = "away" if ties == "up" and block.core[0].type in AVERAGES else ties
        # What only moves data of one type leaves it on its grid; bounds of a Clip are rounded onto it.
        stays = block.core[0].type != "Clip" and moved_f32_kind(block, self.model, eq) is not None
        sums = None if stays else self._sums(block, calls)
        activation = None if block.activation is None else calls[-1]
        writes = [Write(name) for name in block.others]
        for port in block.kernel.outputs:
            if not port.value:
                continue
            pin = self.plan.stored_pins.get(port.value, port.type)
            kinds = [] if stays else [port.type]
            kinds += [] if pin == port.type else [pin]
            edges = tuple(self.edges[port.value, kind] for kind in kinds if isinstance(kind, Uniform))
            self.bases[port.value] = pin
            by = block.arithmetic if _is_rescaled(port.type, pin, block.arithmetic) else ""
            writes.append(Write(port.value, edges, ties, sums if edges else None, activation, by))
        return Step(calls, tuple(writes))

    def _sums(self, block: Block, calls: Sequence[Call]) -> Sum | None:
        """The exact sums of a kernel whose arithmetic is known here; None where it computes in float."""
        types, y = tuple(op.type for op in block.core), block.y
        if y is None or not y.is_per_tensor or block.others or (block.row is not None and block.row.table):
            return None
        if types == ("GlobalAveragePool",):
            return self._mean(block)
        return self._product(block, calls) if types in PRODUCTS else self._terms(block, calls)

    def _mean(self, block: Block) -> Sum | None:
        op = block.core[0]
        x = block.stored_kinds.get((op.name, 0))
        sizes = (self.model.values[op.inputs[0]].shape or ())[2:]
        known = [size for size in sizes if isinstance(size, int)]
        if x is None or not x.is_per_tensor or len(known) < len(sizes) or block.arithmetic in FLOATS:
            return None
        if not knows(block.arithmetic):
            return None
        part = Part((self.edges[op.inputs[0], x],))
        return Sum(op.outputs[0], (part,), block.arithmetic, count=math.prod(known))

    def _terms(self, block: Block, calls: Sequence[Call]) -> Sum | None:
        """The terms of an operator that adds, subtracts or multiplies stored operands, element by element."""
        op, values, constants = block.core[0], self.model.values, self.model.constants
        rule = defined(op.type).terms if len(block.core) == 1 else None
        if rule is None or (block.arithmetic in FLOATS and op.type not in PAIRS):
            return None
        arrays = {name: constants[name].array for name in op.inputs if name in constants}
        terms = rule(Operands(op, lambda name: values[name].shape, arrays.get))
        kinds = {i: block.stored_kinds.get((op.name, i)) for i in range(len(op.inputs))}
        stored = {i: kind for i, kind in kinds.items() if kind is not None and kind.is_per_tensor}
        if terms is None or any(term.axes or term.windows is not None for term in terms):
            return None
        if stored.keys() != {i for term in terms for i in term.factors}:
            return None
        parts = []
        for term in terms:
            reads = tuple(read for i in term.factors if (read := calls[0].reads[i]) is not None)
            units = tuple(self.edges[op.inputs[i], stored[i]] for i in term.factors)
            parts.append(Part(units, reads, term.sign))
        results = [port.type for port in block.kernel.outputs if isinstance(port.type, Uniform)]
        storages = [kind.storage for kind in (*stored.values(), *results)]
        is_product = len(parts) == 1 and len(parts[0].units) > 1
        if not knows(block.arithmetic, len(parts), storages if is_product else ()):
            return None
        return Sum(op.outputs[0], tuple(parts), block.arithmetic)

    def _product(self, block: Block, calls: Sequence[Call]) -> Sum | None:
        found = product_in(self.model, block.core, block.kinds, self._known, block.arithmetic)
        if found is None or not knows(block.arithmetic):
            return None
        x, w = found.x, found.w
        if block.arithmetic == HTP and x.kind.storage.bits > BYTE:
            return None
        core, bias = calls[: len(block.core)], None
        if found.real_bias is not None:
            if found.alpha != 1.0:
                return None
            at = found.bias_at[1]
            bias = core[-1].reads[at]
            # Behind a MatMul, its Add adds.
            core = core[:1]
        part = Part((self.edges[x.value, x.kind], self.edges[w.value, w.kind]))
        shape = self.model.values[w.value].shape or ()
        sides = [size for size in shape if isinstance(size, int)]
        arithmetic = block.arithmetic
        results = [port.type for port in block.kernel.outputs if isinstance(port.type, Uniform)]
        if arithmetic == HTP and results:
            least = x.kind.scale * min(w.kind.scales) / results[0].scale
            arithmetic = HTP_STRIDED if is_strided_depthwise(found.op, sides, least) else HTP
        rank = len(shape) if found.is_conv else 2
        is_wide = x.kind.storage.bits + w.kind.storage.bits > 2 * BYTE
        again = []
        for call in core if is_wide and found.alpha == 1.0 else ():
            kinds = [block.stored_kinds.get((call.op.name, i)) for i in range(len(call.op.inputs))]
            named = zip(call.op.inputs, kinds, strict=True)
            again.append((call, tuple("" if kind is None else self.edges[n, kind] for n, kind in named)))
        return Sum(
            core[-1].op.outputs[0],
            (part,),
            arithmetic,
            rank - 2,
            found.alpha,
            again=tuple(again),
            bias=bias,
            is_operand=bias is not None and len(block.core) == 1,
        )

    def _known(self, name: str) -> Array | None:
        constant = self.model.constants.get(name)
        return None if constant is None else constant.array

    def _call(self, op: Op, kinds: Mapping[tuple[str, int], Uniform], arithmetic: str) -> Call:
        if op.type not in FUNCTIONS:
            raise unknown_name("operator for training", op.type, FUNCTIONS)
        if op.captures:
            raise InputError(f"{op.type} at {op.name!r} has a body, and training goes straight through")
        statics = tuple(map(self._static, op.inputs))
        reads = tuple(
            self._read(name, kinds.get((op.name, i)), arithmetic) for i, name in enumerate(op.inputs)
        )
        return Call(op, reads, statics)

    def _static(self, name: str) -> Any:
        """The numbers of a constant that says a shape, an index or a bound, as Python's, which compile."""
        array = self._known(name)
        if array is None or (self.model.values[name].is_float and array.size > 1):
            return None
        return array.tolist()

    def _read(self, name: str, kind: Uniform | None, arithmetic: str) -> Read | None:
        if not name or (name in self.model.constants and not self.model.values[name].is_float):
            return None
        base = self.bases.get(name)
        if kind is None or base == kind:
            return Read(name)
        ties = "even" if arithmetic in EVEN or not isinstance(base, Uniform) else "up"
        start = self.edges[name, base] if _is_rescaled(base, kind, arithmetic) else ""
        return Read(name, self.edges[name, kind], ties, start, arithmetic)


def _is_rescaled(base: PortTyped, kind: PortTyped, arithmetic: str) -> TypeGuard[Uniform]:
    """Whether integers of one type become those of another without becoming reals in between."""
    if not isinstance(base, Uniform) or not isinstance(kind, Uniform) or arithmetic not in RESCALING:
        return False
    return base.is_per_tensor and kind.is_per_tensor and base != kind
