"""StableHLO ops on xDSL: making them in generic form, their types, constants and broadcasts.

xDSL has no definitions of them here: an op is its name, operands, results and attributes, and only
StableHLO's own verifier checks it. Source: StableHLO specification.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

import numpy as np
from xdsl.builder import Builder
from xdsl.dialects import builtin
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType, Signedness, TensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint

from planner.formats.mlir.types import element_of, uniform_of, with_element
from planner.formats.mlir.verbatim_types import WrittenStorage, WrittenUniform

Tensor: TypeAlias = "TensorType[Any]"

PREFIX: Final = "stablehlo."
I32: Final = IntegerType(32)
I64: Final = IntegerType(64)
_SHARED: Final = "broadcast_in_dim"
_FLOATS: Final[Mapping[str, Attribute]] = {
    "bf16": builtin.bf16,
    "f16": builtin.f16,
    "f32": builtin.f32,
    "f64": builtin.f64,
}
_NUMPY: Final[Mapping[str, Any]] = {"f32": np.float32, "f64": np.float64}


@lru_cache(maxsize=256)
def _kind(name: str) -> type[Operation]:
    return builtin.UnregisteredOp.with_name(name)


Known: TypeAlias = "dict[Block | None, dict[Any, SSAValue]]"
"""Constants and their broadcasts that a block has already, by content and type."""


class Sharing(Builder):
    """Inserts before an op; constants and broadcasts of them are made once in a block.

    Ops are to be visited in order, so that shared ops stand before all their consumers.
    """

    def __init__(self, op: Operation, known: Known) -> None:
        super().__init__(InsertPoint.before(op))
        self.known = known.setdefault(op.parent, {})

    def once(
        self,
        name: str,
        operands: Sequence[SSAValue],
        kind: Attribute,
        properties: Mapping[str, Attribute],
    ) -> SSAValue:
        """Insert an op of one result, or give the result of the same op before."""
        key = name, tuple(operands), kind, tuple(properties.items())
        if key not in self.known:
            self.known[key] = self.insert(make(name, operands, [kind], properties)).results[0]
        return self.known[key]


def make(
    name: str,
    operands: Sequence[SSAValue],
    results: Sequence[Attribute],
    properties: Mapping[str, Attribute] | None = None,
    regions: Sequence[Region] = (),
) -> Operation:
    """Make an op of a dialect we hold no definitions of, `stablehlo.add`."""
    return _kind(name).create(
        operands=operands, result_types=results, properties=properties or {}, regions=regions
    )


def put(
    build: Builder,
    name: str,
    operands: Sequence[SSAValue],
    kind: Attribute,
    properties: Mapping[str, Attribute] | None = None,
) -> SSAValue:
    """Insert a StableHLO op of one result and give that."""
    if isinstance(build, Sharing) and name == _SHARED:
        return build.once(PREFIX + name, operands, kind, properties or {})
    return build.insert(make(PREFIX + name, operands, [kind], properties)).results[0]


def name_of(op: Operation) -> str:
    """The name of an op, also of one that xDSL does not know."""
    given = op.attributes.get("op_name__")
    return given.data if isinstance(given, builtin.StringAttr) else op.name


def items_of(op: Operation) -> dict[str, Attribute]:
    """Attributes of an op, inherent ones and others alike."""
    found = {**op.attributes, **op.properties}
    found.pop("op_name__", None)
    return found


def like(op: Operation, operands: Sequence[SSAValue], results: Sequence[Attribute]) -> Operation:
    """Make the same op of other types; its regions move into it."""
    regions = [op.detach_region(region) for region in tuple(op.regions)]
    made = make(name_of(op), operands, results, op.properties, regions)
    made.attributes.update(op.attributes)
    return made


@lru_cache(maxsize=256)
def foreign(name: str, text: str, *, opaque: bool = False) -> Attribute:
    """An attribute of a dialect unknown here: `#name<text>`, or `#dialect<rest text>` (opaque)."""
    kind = builtin.UnregisteredAttr.with_name_and_type(name, is_type=False)
    return kind(name, False, opaque, text)


def is_ranked(kind: Attribute) -> bool:
    """Whether a type is a tensor of known rank."""
    return isinstance(kind, TensorType)


def shape_of(kind: Attribute) -> tuple[int, ...]:
    """The shape of a ranked tensor; negative sizes are unknown."""
    return tuple(cast("Tensor", kind).get_shape())


def is_static(kind: Attribute) -> bool:
    """Whether all sizes of a ranked tensor are known."""
    return min(shape_of(kind), default=0) >= 0


def float_type(expressed: str) -> Attribute | None:
    """The float type of a name; None where constants of it cannot be written here."""
    return _FLOATS.get(expressed)


@lru_cache(maxsize=64)
def storage_type(store: WrittenStorage) -> IntegerType:
    """The integers that hold a storage: `i8` or `ui8`."""
    return IntegerType(store.bits, Signedness.SIGNLESS if store.signed else Signedness.UNSIGNED)


def stored_type(kind: Attribute) -> Attribute:
    """The type with stored integers for quantized elements; any other type as it is."""
    uniform = uniform_of(kind)
    if uniform is None or uniform.storage.is_float:
        return kind
    return with_element(kind, storage_type(uniform.storage))


def expressed_type(kind: Attribute) -> Attribute:
    """The type with reals for quantized elements; any other type as it is."""
    uniform = uniform_of(kind)
    real = None if uniform is None else float_type(uniform.expressed)
    return kind if real is None else with_element(kind, real)


def dense(numbers: Sequence[float], element: Attribute, shape: Sequence[int]) -> Attribute:
    """A dense attribute: as many numbers as the shape has, or one for all."""
    kind: Any = TensorType(element, shape)
    if isinstance(element, IntegerType):
        numbers = [_normal(int(number), element) for number in numbers]
    return DenseIntOrFPElementsAttr.from_list(kind, list(numbers))


def _normal(number: int, element: IntegerType) -> int:
    bits = element.width.data
    if element.signedness.data is Signedness.UNSIGNED:
        return number % (1 << bits)
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def constant(build: Builder, numbers: Sequence[float], element: Attribute, shape: Sequence[int]) -> SSAValue:
    """Insert a constant, or share one: as many numbers as the shape has, or one for all."""
    key = tuple(numbers), element, tuple(shape)
    if not isinstance(build, Sharing):
        return _constant(build, *key)
    if key not in build.known:
        build.known[key] = _constant(build, *key)
    return build.known[key]


def _constant(
    build: Builder, numbers: tuple[float, ...], element: Attribute, shape: tuple[int, ...]
) -> SSAValue:
    made = make(
        f"{PREFIX}constant", [], [_tensor(element, shape)], {"value": _dense(numbers, element, shape)}
    )
    return build.insert(made).results[0]


@lru_cache(maxsize=1024)
def _tensor(element: Attribute, shape: tuple[int, ...]) -> Tensor:
    return TensorType(element, shape)


@lru_cache(maxsize=1024)
def _dense(numbers: tuple[float, ...], element: Attribute, shape: tuple[int, ...]) -> Attribute:
    return dense(numbers, element, shape)


@lru_cache(maxsize=256)
def _axes(axes: tuple[int, ...]) -> Attribute:
    return longs(axes)


def longs(numbers: Sequence[int]) -> Attribute:
    """`array<i64: ..>`."""
    return builtin.DenseArrayBase.from_list(I64, list(numbers))


def convert(build: Builder, value: SSAValue, element: Attribute) -> SSAValue:
    """Convert elements; those of the type already stay."""
    if element_of(value.type) == element:
        return value
    return put(build, "convert", [value], with_element(value.type, element))


def bitcast(build: Builder, value: SSAValue, kind: Attribute) -> SSAValue:
    """Insert a `bitcast_convert` where the types differ."""
    return value if kind == value.type else put(build, "bitcast_convert", [value], kind)


def full(build: Builder, numbers: Sequence[float], like_: SSAValue, element: Attribute) -> SSAValue:
    """One number, spread over the shape of a value, which may be dynamic."""
    kind = with_element(like_.type, element)
    scalar = constant(build, numbers, element, ())
    return scalar if kind == scalar.type else _spread(build, scalar, (), like_, kind)


def sizes(build: Builder, value: SSAValue) -> SSAValue:
    """The shape of a ranked value as a tensor of i32."""
    parts = []
    one = TensorType(I32, [1])
    for axis, size in enumerate(shape_of(value.type)):
        if size >= 0:
            parts.append(constant(build, [size], I32, (1,)))
            continue
        dimension = {"dimension": builtin.IntegerAttr(axis, I64)}
        scalar = put(build, "get_dimension_size", [value], TensorType(I32, []), dimension)
        parts.append(put(build, "reshape", [scalar], one))
    if len(parts) == 1:
        return parts[0]
    first = {"dimension": builtin.IntegerAttr(0, I64)}
    return put(build, "concatenate", parts, TensorType(I32, [len(parts)]), first)


def parameters(
    build: Builder, numbers: Sequence[float], uniform: WrittenUniform, like_: SSAValue, element: Attribute
) -> SSAValue:
    """Scales or zero points of a type, spread over the shape of a value of it."""
    if len(set(numbers)) == 1:
        return full(build, numbers[:1], like_, element)
    kind = with_element(like_.type, element)
    if uniform.axis is None:
        return _blocks(build, numbers, uniform, kind, element)
    row = constant(build, numbers, element, (len(numbers),))
    return _spread(build, row, (uniform.axis,), like_, kind)


def _spread(
    build: Builder, value: SSAValue, axes: tuple[int, ...], like_: SSAValue, kind: Attribute
) -> SSAValue:
    along = {"broadcast_dimensions": _axes(axes)}
    if is_static(kind):
        return put(build, "broadcast_in_dim", [value], kind, along)
    return put(build, "dynamic_broadcast_in_dim", [value, sizes(build, like_)], kind, along)


def _blocks(
    build: Builder, numbers: Sequence[float], uniform: WrittenUniform, kind: Attribute, element: Attribute
) -> SSAValue:
    """Spread numbers of a grid of blocks: each dimension becomes (blocks, size), and both one again."""
    grid = constant(build, numbers, element, uniform.grid)
    shape = shape_of(kind)
    wide = [part for count, size in zip(uniform.grid, shape, strict=True) for part in (count, size // count)]
    places = {"broadcast_dimensions": longs(range(0, 2 * len(shape), 2))}
    spread = put(build, "broadcast_in_dim", [grid], TensorType(element, wide), places)
    return put(build, "reshape", [spread], kind)


def rounded_scales(uniform: WrittenUniform) -> tuple[float, ...]:
    """Scales as values of the expressed type where numpy holds it; else as written."""
    kind = _NUMPY.get(uniform.expressed)
    return uniform.scales if kind is None else tuple([float(kind(scale)) for scale in uniform.scales])
