"""StableHLO ops on quantized types as integer and float ops: `stablehlo-legalize-quant-to-math`.

Three steps. Ops that compute become dequantize, float op, quantize; sums and products of integers stay
integers (`quant_to_math_dots`). Casts become `(stored - zero_point) * scale` and `rint(clamp(x / scale +
zero_point))` in the expressed type. Then quantized types become their storages everywhere, which ops that
only move data do not notice. Dead ops go, and no op of chlo comes. Source: StableHLO specification,
"Quantization computations"; docs/specification.md, 9.4.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from xdsl.builder import Builder
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, TensorType
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.formats.mlir.casts import DequantizeCastOp, QuantizeCastOp, StorageCastOp
from planner.formats.mlir.passes.dead_code import sweep
from planner.formats.mlir.passes.qdq_to_quantized import (
    DEQUANTIZE,
    ELEMENTWISE,
    LINEAR,
    QUANTIZE,
    WHOLE,
    decompose,
    is_quantized,
    is_same,
)
from planner.formats.mlir.passes.quant_to_math_dots import lower_product
from planner.formats.mlir.passes.quant_to_math_sums import lower_choice, lower_sum
from planner.formats.mlir.passes.quantize_formulas import DIGITS
from planner.formats.mlir.places import StuckAt
from planner.formats.mlir.stablehlo_ops import (
    I32,
    I64,
    PREFIX,
    Known,
    Sharing,
    bitcast,
    constant,
    convert,
    float_type,
    is_ranked,
    is_static,
    items_of,
    name_of,
    parameters,
    put,
    rounded_scales,
    stored_type,
)
from planner.formats.mlir.types import element_of, uniform_of
from planner.formats.mlir.verbatim_types import WrittenUniform

MOVEMENT: Final = frozenset(
    f"{PREFIX}{name}"
    for name in [
        "all_gather",
        "all_to_all",
        "broadcast",
        "broadcast_in_dim",
        "case",
        "collective_permute",
        "composite",
        "concatenate",
        "dynamic_broadcast_in_dim",
        "dynamic_gather",
        "dynamic_pad",
        "dynamic_reshape",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "if",
        "map",
        "optimization_barrier",
        "pad",
        "real_dynamic_slice",
        "reduce",
        "reduce_scatter",
        "reduce_window",
        "reshape",
        "reverse",
        "scatter",
        "select_and_scatter",
        "slice",
        "sort",
        "transpose",
        "while",
    ]
)
"""Ops that give stored integers on as they are: their operands and results have one quantized type."""
_SEVERAL: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "all_gather",
        "all_to_all",
        "optimization_barrier",
        "reduce",
        "reduce_scatter",
        "reduce_window",
        "sort",
        "while",
    )
)
"""Data-movement operators on several values at once: result i is of operand i, and of its initial value."""
_BODIES: Final = frozenset({f"{PREFIX}{name}" for name in ("case", "composite", "if", "map")})
"""Ops whose bodies decide how types change."""
_UNREAD: Final = frozenset({f"{PREFIX}bitcast_convert", f"{PREFIX}constant", f"{PREFIX}get_dimension_size"})
_PASSING: Final = frozenset({f"{PREFIX}return", "func.call", "func.func", "func.return"})
_WIDER: Final = (("f32", builtin.f32), ("f64", builtin.f64))
_ALSO: Final = frozenset({f"{PREFIX}is_finite"})


def quant_to_math(module: builtin.ModuleOp) -> None:
    """Lower every quantized op and type of a module.

    Raises:
      StuckAt: an op that needs the quantized types of its operands or results: a custom call, a
        send, a tuple; a shape of unknown rank; a storage of floats; sub-channel types of dynamic shapes.
    """
    known: Known = {}
    for op in list(module.walk()):
        if is_quantized(op):
            _compute(op, known)
    known = {}
    for op in list(module.walk()):
        if is_quantized(op):
            _cast(op, known)
    for op in module.walk():
        _check(op)
    for op in list(module.walk()):
        _store(op)
    sweep(module)


def _compute(op: Operation, known: Known) -> None:
    """Rewrite an op that computes until only casts and ops that move data have quantized types."""
    for value in (*op.operands, *op.results):
        _check_type(op, value.type)
    name = name_of(op)
    lower = _LOWERINGS.get(name)
    if lower is not None and lower(op, known):
        return
    moves = name in MOVEMENT and name not in _SEVERAL and not op.regions
    if name in ELEMENTWISE or name in _DECOMPOSED or (moves and _changes_type(op)):
        decompose(op)


def _changes_type(op: Operation) -> bool:
    """Whether a result of an op has another quantized type than the operand it is moved from."""
    name = name_of(op)
    if name in _BODIES:
        return False
    if name not in _SEVERAL:
        return not _is_one([*op.operands, *op.results])
    count = len(op.results)
    # Variadic ops pair result i with operands i, n + i, ...: its values and its initial one.
    groups = [[result, *op.operands[i::count]] for i, result in enumerate(op.results)]
    return not all(_is_one(group) for group in groups)


def _is_one(values: Sequence[SSAValue]) -> bool:
    kinds = [kind for value in values if (kind := uniform_of(value.type)) is not None]
    return all(is_same(kind, kinds[0]) for kind in kinds[1:])


def _check_type(op: Operation, kind: Attribute) -> None:
    uniform = uniform_of(kind)
    if uniform is None:
        return
    if uniform.storage.is_float:
        raise StuckAt(op, f"{name_of(op)}: {uniform} stores floats; only integer storages are lowered")
    if not is_ranked(kind):
        raise StuckAt(op, f"{name_of(op)}: {kind} has no rank, which StableHLO ops need")
    if float_type(uniform.expressed) is None:
        raise StuckAt(
            op, f"{name_of(op)}: {uniform} expresses {uniform.expressed}; f16, bf16, f32, f64 are lowered"
        )
    if uniform.blocks is not None and not is_static(kind):
        raise StuckAt(op, f"{name_of(op)}: {kind} has blocks and a dynamic shape; blocks need known sizes")


def _cast(op: Operation, known: Known) -> None:
    """Rewrite a cast as arithmetic on stored integers."""
    build, name = Sharing(op, known), name_of(op)
    if isinstance(op, StorageCastOp):
        value = bitcast(build, op.input, op.result.type)
        Rewriter.replace_op(op, [], [value])
        return
    if name not in (QUANTIZE, DEQUANTIZE) and not isinstance(op, QuantizeCastOp | DequantizeCastOp):
        return
    value, wanted = op.operands[0], op.results[0].type
    source, target = uniform_of(value.type), uniform_of(wanted)
    if source is not None:
        value = dequantized(build, value, source)
    if target is not None:
        value = quantized(build, value, target, wanted)
    Rewriter.replace_op(op, [], [value])


def dequantized(build: Builder, value: SSAValue, uniform: WrittenUniform) -> SSAValue:
    """Give `(stored - zero_point) * scale` of a quantized value, in its expressed type."""
    real = float_type(uniform.expressed) or builtin.f32
    stored = bitcast(build, value, stored_type(value.type))
    if any(uniform.zero_points):
        # A difference of two n-bit integers has n + 1 bits.
        wide = I64 if uniform.storage.bits >= _I32_BITS - 1 else I32
        stored = convert(build, stored, wide)
        zeros = parameters(build, uniform.zero_points, uniform, stored, wide)
        stored = put(build, "subtract", [stored, zeros], stored.type)
    result = convert(build, stored, real)
    scales = parameters(build, rounded_scales(uniform), uniform, result, real)
    return put(build, "multiply", [result, scales], result.type)


def quantized(build: Builder, value: SSAValue, uniform: WrittenUniform, wanted: Attribute) -> SSAValue:
    """Give `rint(clamp(value / scale + zero_point))` of reals, of a quantized type.

    The clamp and the rounding are in a type whose digits hold every stored value; NaN is left to `convert`.
    """
    real = float_type(uniform.expressed) or builtin.f32
    value = convert(build, value, real)
    scales = parameters(build, rounded_scales(uniform), uniform, value, real)
    steps = put(build, "divide", [value, scales], value.type)
    if any(uniform.zero_points):
        zeros = parameters(build, uniform.zero_points, uniform, steps, real)
        steps = put(build, "add", [steps, zeros], steps.type)
    store = uniform.storage
    # The specification adds the zero point first, then clamps, then rounds half to even; ONNX rounds first.
    element = _rounding_type(steps.type, store.qmin, store.qmax)
    steps = convert(build, steps, element)
    low, high = (constant(build, [bound], element, ()) for bound in (store.qmin, store.qmax))
    steps = put(build, "clamp", [low, steps, high], steps.type)
    steps = put(build, "round_nearest_even", [steps], steps.type)
    return bitcast(build, convert(build, steps, element_of(stored_type(wanted))), wanted)


_I32_BITS: Final = 32


def _rounding_type(kind: Attribute, qmin: int, qmax: int) -> Attribute:
    """The narrowest float, from that of the values on, that holds every stored value."""
    own = element_of(kind)
    for name, element in ((str(own), own), *_WIDER):
        if DIGITS[name] >= DIGITS[str(own)] and max(-qmin, qmax) <= 1 << DIGITS[name]:
            return element
    return builtin.f64


def _check(op: Operation) -> None:
    """Refuse an op that has quantized types and is none that integers pass through."""
    name = name_of(op)
    if not is_quantized(op) or name in _PASSING or name in _UNREAD:
        return
    if name not in MOVEMENT:
        raise StuckAt(op, f"{name} reads or gives quantized values, and has no meaning on stored integers")
    if _changes_type(op):
        raise StuckAt(op, f"{name} changes the quantized type of what it moves")


def _store(op: Operation) -> None:
    """Give every value, signature and constant of an op its storage type."""
    blocks = [block for region in op.regions for block in region.blocks]
    for value in (*op.results, *(argument for block in blocks for argument in block.args)):
        kind = stored_type(value.type)
        if kind != value.type:
            Rewriter.replace_value_with_new_type(value, kind)
    if isinstance(op, func.FuncOp):
        header = op.function_type
        op.properties["function_type"] = builtin.FunctionType.from_lists(
            [stored_type(kind) for kind in header.inputs], [stored_type(kind) for kind in header.outputs]
        )
    elif name_of(op) == f"{PREFIX}constant":
        _store_constant(op)
    elif name_of(op) == f"{PREFIX}bitcast_convert" and stored_type(op.operands[0].type) == op.results[0].type:
        Rewriter.replace_op(op, [], [op.operands[0]])


def _store_constant(op: Operation) -> None:
    """Let a constant's numbers be of the type of its result, `ui8` where they were written as `i8`."""
    kind: Any = op.results[0].type
    value = items_of(op).get("value")
    if not isinstance(value, DenseIntOrFPElementsAttr) or value.get_type() == kind:
        return
    home = op.properties if "value" in op.properties else op.attributes
    home["value"] = DenseIntOrFPElementsAttr(TensorType(kind.element_type, kind.get_shape()), value.data)


_DECOMPOSED: Final = LINEAR | WHOLE | _ALSO
_LOWERINGS: Final[Mapping[str, Callable[[Operation, Known], bool]]] = {
    f"{PREFIX}add": lower_sum,
    f"{PREFIX}clamp": lower_choice,
    f"{PREFIX}convolution": lower_product,
    f"{PREFIX}dot": lower_product,
    f"{PREFIX}dot_general": lower_product,
    f"{PREFIX}maximum": lower_choice,
    f"{PREFIX}minimum": lower_choice,
    f"{PREFIX}select": lower_choice,
    f"{PREFIX}subtract": lower_sum,
}
"""Integer lowerings, tried first; each says whether it applied."""
