"""Blocks that are written anew in fixed point: their tensors, their ops, and the multiplications between.

Which block becomes what is `fixed_point_scales`'s to say. Source: there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import UnsupportedExport
from planner.formats.onnx.naming import unused
from planner.ir.graph import Constant, Graph, Op, Region, Shape, Value
from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import storage
from planner.lowering.blocks import Block
from planner.plans.records import KernelPlan, Port, PortTyped

Reals: TypeAlias = npt.NDArray[np.float64]
Operand: TypeAlias = tuple[str, PortTyped]
"""A tensor and the type in which it is read; no type within a block, and of floats."""

FACTOR_BITS: Final = 24
MOST_BITS: Final = 32


class Extent(NamedTuple):
    """The precision of a result that is rounded later: bounds as reals, and bits behind the point."""

    low: float
    high: float
    fraction: int


def is_plain(kind: PortTyped) -> bool:
    """Whether fixed point has a type as it is, or it is left alone."""
    if not isinstance(kind, Uniform) or kind.grid:
        return True
    is_power = len(set(kind.scales)) == 1 and math.frexp(kind.scales[0])[0] == 0.5
    return is_power and not any(kind.zero_points)


def fixed(kind: PortTyped) -> Uniform | None:
    """The type of the same integers, less their zero points, in powers of two; None of a float."""
    if not isinstance(kind, Uniform) or is_plain(kind):
        return kind if isinstance(kind, Uniform) else None
    low, high = steps_of(kind)
    store = kind.storage
    if any(kind.zero_points):
        bits = max((-low - 1 if low < 0 else 0).bit_length(), high.bit_length())
        store = storage(f"i{bits + 1}" if low < 0 else f"u{max(1, bits)}")
    return Uniform(store, (2.0 ** (math.frexp(max(kind.scales))[1] - 1),), (0,))


def steps_of(kind: Uniform) -> tuple[int, int]:
    """The fewest and most steps from zero that a type stores."""
    pairs = [*zip(kind.slice_ranges, kind.zero_points, strict=False)]
    return min(low - zero for (low, _), zero in pairs), max(high - zero for (_, high), zero in pairs)


def factors_of(kind: PortTyped) -> Reals:
    """The divisors of a value of a type, () or (slices,)."""
    to = fixed(kind)
    if is_plain(kind) or to is None or not isinstance(kind, Uniform):
        return np.ones(())
    return np.asarray(kind.scales if len(kind.scales) > 1 else kind.scale, np.float64) / to.scale


def factor_of(name: str, kind: PortTyped) -> float:
    """The same of an activation.

    Raises:
      UnsupportedExport: it has a scale per slice.
    """
    factors = factors_of(kind)
    if factors.size != 1:
        raise UnsupportedExport(
            f"{name!r} has a scale per slice; hls4ml accepts that of constants alone", hint="export qonnx"
        )
    return float(factors.reshape(()))


def _is_wider(kind: Uniform) -> bool:
    """Whether the fixed-point type of a type holds more steps than it."""
    to = fixed(kind)
    return to is not None and any(kind.zero_points) and steps_of(to) != steps_of(kind)


def extent_of(kind: Uniform, factor: float = 1.0) -> Extent:
    """The reals of a type times a factor, with as many bits below its step as factors have."""
    step = math.frexp(min(kind.scales) * factor)[1] - 1
    return Extent(kind.lo * factor, kind.hi * factor, FACTOR_BITS - step)


@dataclass(slots=True)
class Draft:
    """The parts written so far: values and constants beside the graph's, and the place of each value.

    Attributes:
      taken: names that are in use.
      pinned: the type from which the users of a value start, where a fact says so.
      types: of each value where it is defined, as the plan has it.
      names: of the tensors that hold values divided by their factors; a value keeps its name for its reals.
      views: the same tensors on other types, by value and type.
      inputs, extents, factors: as `fixed_point_scales.FixedPoint` has them.
    """

    graph: Graph
    pinned: Mapping[str, PortTyped]
    taken: set[str]
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    made: list[Block] = field(default_factory=list)
    types: dict[str, PortTyped] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    views: dict[Operand, str] = field(default_factory=dict)
    inputs: dict[str, Uniform] = field(default_factory=dict)
    extents: dict[str, Extent] = field(default_factory=dict)
    factors: dict[str, Uniform] = field(default_factory=dict)

    def fresh(self, name: str, shape: Shape | None = None) -> str:
        """A new value, float32."""
        found = unused(name, self.taken)
        self.values[found] = Value(found, shape, "f32")
        return found

    def beside(self, name: str, what: str) -> str:
        """A new value of another one's shape."""
        return self.fresh(f"{name}/{what}", self.graph.values[name].shape)

    def store(self, name: str, array: Reals) -> str:
        """A new constant, float32."""
        found = self.fresh(name, array.shape)
        self.constants[found] = Constant(np.asarray(array, np.float32))
        return found

    def rounded(self, name: str, array: Reals, bits: int) -> Operand:
        """A new constant on the finest grid of so many bits that holds it."""
        largest = float(np.abs(array).max(initial=0.0)) or 1.0
        scale = 2.0 ** (math.frexp(largest)[1] - bits + 1)
        return self.store(name, array), Uniform(storage(f"i{bits}"), (scale,), (0,))

    def seen(self, name: str, kind: PortTyped) -> Operand:
        """An activation divided by the factor of a type that it is read in; in its reals without one."""
        if not isinstance(kind, Uniform):
            return self.real(name), None
        if name in self.graph.inputs:
            self.inputs.setdefault(name, kind)
        own = self.types.get(name)
        is_within = own == kind or not _is_wider(kind)
        if is_within and factor_of(name, own) == factor_of(name, kind):
            return self.names.get(name, name), fixed(kind)
        if (name, kind) not in self.views:
            self.views[name, kind] = self._multiplied(name, kind, self.beside(name, "fixed"))
        return self.views[name, kind], fixed(kind)

    def real(self, name: str) -> str:
        """The tensor of an activation in its reals."""
        if self.names.get(name, name) == name:
            return name
        if (name, None) not in self.views:
            # An input's own name is that of what the model is given, whatever its pin.
            result = self.beside(name, "real") if name in self.graph.inputs else name
            self.views[name, None] = self._multiplied(name, None, result)
        return self.views[name, None]

    def pin(self, name: str) -> None:
        """Put a value on the grid of its fixed type, from which its consumers start."""
        kind, own = self.pinned.get(name), self.types.get(name)
        if not isinstance(kind, Uniform) or kind == own:
            return
        if is_plain(kind) and is_plain(own):
            self.types[name] = kind  # what is written under the value's own name is on its pin's grid
            return
        if name in self.graph.inputs:
            self.inputs[name] = kind
        result = name if is_plain(kind) else self.beside(name, "pinned")
        self.names[name] = self._multiplied(name, kind, result)
        self.types[name] = kind

    def cut(self, name: str, tensor: str, kind: PortTyped) -> str:
        """A rounded tensor, cut at the ends of its type where fixed point has them farther out."""
        to = fixed(kind)
        if not isinstance(kind, Uniform) or to is None or not _is_wider(kind):
            return tensor
        result = self.beside(name, "cut")
        part = Part(self, f"{result}/Clip")
        ends = [self.store(f"{result}/end", np.asarray(end * to.scale)) for end in steps_of(kind)]
        clip = Op(part.name, "Clip", (), (result,))
        part.append(clip, [(tensor, to), *((end, None) for end in ends)])
        region = Region(part.name, "Clip", (tensor,), (result,))
        ports = (Port(f"{part.name}.out[0]", result, to),)
        self.made.append(part.block(region, KernelPlan(part.name, "Clip", None, None, (), ports)))
        return result

    def _multiplied(self, name: str, kind: PortTyped, result: str) -> str:
        """A block of its own that takes a value from its factor to another type's, and onto its grid."""
        own, source = self.types.get(name), self.names.get(name, name)
        part = Part(self, f"{result}/scaling")
        extent = extent_of(own) if kind is None and isinstance(own, Uniform) else None
        factor = factor_of(name, own) / factor_of(name, kind)
        part.multiply((source, fixed(own)), np.asarray(factor), result, extent)
        port = Port(f"{part.name}.out[0]", result, fixed(kind))
        region = Region(part.name, "Mul", (source,), (result,))
        self.made.append(part.block(region, KernelPlan(part.name, "Mul", None, None, (), (port,))))
        return self.cut(name, result, kind)


@dataclass(slots=True)
class Part:
    """The ops of one block as they are written anew.

    Attributes:
      kinds: types in which ops read what is outside, by op and position.
      step: of the products that its sums consist of; 0 where there are none.
    """

    draft: Draft
    name: str
    ops: list[Op] = field(default_factory=list)
    kinds: dict[tuple[str, int], PortTyped] = field(default_factory=dict)
    outputs: list[Port] = field(default_factory=list)
    step: float = 0.0

    def append(self, op: Op, operands: Sequence[Operand]) -> None:
        """Write an op that reads these."""
        self.kinds |= {(op.name, i): kind for i, (_, kind) in enumerate(operands) if kind is not None}
        self.ops.append(replace(op, inputs=tuple(name for name, _ in operands)))

    def multiply(self, source: Operand, factors: Reals, result: str, extent: Extent | None) -> None:
        """Write the product of a tensor and factors that broadcast to it.

        Args:
          extent: of the product, where no type says it.
        """
        draft, name = self.draft, f"{self.name}/Mul{len(self.ops)}"
        if extent is not None:
            draft.extents[name] = extent
        # The smallest of several factors keeps as many significant bits, as far as a word has them.
        spread = math.frexp(float(factors.max() / factors.min()))[1] - 1
        number = draft.rounded(f"{name}/factor", factors, min(FACTOR_BITS + 1 + spread, MOST_BITS))
        if factors.ndim < 2:
            self.append(Op(name, "Mul", (), (result,)), [source, number])
            return
        # A factor per channel of an image: hls4ml takes no constant of as many axes in a Mul.
        (_, kind), flat = number, factors.reshape(-1)
        if isinstance(kind, Uniform):
            draft.factors[name] = kind
        stems = (
            ("factors", flat),
            ("offset", 0 * flat),
            ("mean", 0 * flat),
            ("variance", np.ones_like(flat)),
        )
        others = [(draft.store(f"{name}/{stem}", array), None) for stem, array in stems]
        self.append(Op(name, "BatchNormalization", (), (result,), {"epsilon": 0.0}), [source, *others])

    def scaled(self, operand: Operand, factor: float, extent: Extent | None) -> Operand:
        """A tensor times a factor; the tensor itself where that is 1."""
        if factor == 1.0:
            return operand
        result = self.draft.fresh(f"{self.name}/product")
        self.multiply(operand, np.asarray(factor), result, extent)
        return result, None

    def scale_result(self, index: int, factors: Reals, result: str, extent: Extent | None) -> None:
        """Multiply a result of the last op, under the name `result`."""
        op = self.ops[-1]
        own = result if np.all(factors == 1.0) else self.draft.fresh(f"{self.name}/product")
        self.ops[-1] = replace(op, outputs=(*op.outputs[:index], own, *op.outputs[index + 1 :]))
        if own != result:
            self.multiply((own, None), factors, result, extent)

    def block(self, region: Region, kernel: KernelPlan) -> Block:
        """The block of these ops."""
        reads = {
            op.inputs[i]: kind
            for op in self.ops
            for i in range(len(op.inputs))
            if (kind := self.kinds.get((op.name, i)))
        }
        inputs = tuple(Port(f"{kernel.name}.in[{i}]", *read) for i, read in enumerate(reads.items()))
        ops = tuple(self.ops)
        return Block(replace(region, ops=ops), replace(kernel, inputs=inputs), ops, None, self.kinds)
