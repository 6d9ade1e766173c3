"""Quantizers: every way a graph says "this value lives on that grid", found and put into one record.

QONNX Quant and BipolarQuant; QuantizeLinear, Clip, DequantizeLinear; the same with explicit Div, Add and
rounding before it; stored constants behind DequantizeLinear. Reads graphs, changes none. Source:
docs/formats.md.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from planner.formats.onnx.quantized.dialect import BIPOLAR, FLOAT_QUANT, QUANT
from planner.formats.onnx.quantized.formulas import ROUNDINGS, Array, bounds
from planner.formats.onnx.quantized.lowering import checked_rounding
from planner.formats.onnx.quantized.widths import attributes_of_ends as attributes_of_ends  # noqa: PLC0414 - kept name
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import FLOAT_STORAGE, full_range

ROUNDING_OPS: Final[Mapping[str, str]] = {"Ceil": "CEIL", "Floor": "FLOOR"}
_INTEGERS: Final = frozenset(f"{sign}{bits}" for sign in "iu" for bits in (2, 4, 8, 16, 32))
_FLOAT_FORMATS: Final[Mapping[tuple[float, ...], str]] = {
    (4.0, 3.0, 7.0, 448.0): "f8E4M3FN",
    (5.0, 2.0, 15.0, 57344.0): "f8E5M2",
}
_FLOATS: Final = frozenset({"f4E2M1FN", "f8E4M3FN", "f8E5M2"})


@dataclass(frozen=True, slots=True, eq=False)
class Quantizer:
    """A quantization with known parameters: `(clip(round(x / scale + zero_point)) - zero_point) * scale`.

    Attributes:
      scale, zero_point: as they broadcast against the tensor; the zero point as the file has it.
      low, high: ends of the stored integers, rounded.
      rounding: QONNX's name of the mode.
      rounds_first: ONNX rounds and then adds the zero point; QONNX adds first.
      bits, signed, narrow: QONNX's attributes; of other dialects those that give the same ends.
      is_bipolar: minus one and one alone.
      stored: element type the file stores it in, "" in QONNX.
    """

    scale: Array
    zero_point: Array
    low: Array
    high: Array
    bits: Array
    signed: bool
    narrow: bool
    rounding: str = "ROUND"
    rounds_first: bool = False
    is_bipolar: bool = False
    stored: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A quantizer in a graph.

    Attributes:
      last: index of the op that writes the result.
      source: the value quantized; "" where its stored integers are a constant.
      data: those integers.
      inner: ops before the last whose results nothing else needs, once this is replaced.
    """

    last: int
    source: str
    result: str
    quantizer: Quantizer
    data: Array | None = None
    inner: tuple[int, ...] = ()


@dataclass(slots=True)
class Reader:
    """A graph with the producer and the number of consumers of each value."""

    graph: Graph
    writer: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def array(self, name: str) -> Array | None:
        """The numbers of a constant, "" and others None."""
        constant = self.graph.constants.get(name)
        return None if constant is None else constant.array

    def op(self, name: str, *kinds: str) -> tuple[int, Op] | None:
        """The op that writes a value, if it is of one of these types."""
        at = self.writer.get(name)
        if at is None or self.graph.ops[at].type not in kinds:
            return None
        return at, self.graph.ops[at]


def reader_of(graph: Graph) -> Reader:
    """Index a graph."""
    reader = Reader(graph, counts=Counter(graph.outputs))
    for at, op in enumerate(graph.ops):
        reader.writer.update((out, at) for out in op.outputs if out)
        reader.counts.update(op.inputs)
        reader.counts.update(op.captures)
    return reader


def find_quantizers(graph: Graph) -> Iterator[Found]:
    """Every quantizer whose parameters are constants, in order of the op that writes its result."""
    reader = reader_of(graph)
    for at, op in enumerate(graph.ops):
        found = None
        if op.type in (QUANT, BIPOLAR, FLOAT_QUANT):
            quantizer = quantizer_of(op, reader)
            found = None if quantizer is None else Found(at, op.inputs[0], op.outputs[0], quantizer)
        elif op.type == "DequantizeLinear":
            found = _behind_dequantize(at, op, reader)
        elif op.type == "Mul":
            found = _behind_arithmetic(at, op, reader)
        if found is not None:
            yield found


def quantizer_of(op: Op, reader: Reader) -> Quantizer | None:
    """Read a Quant, BipolarQuant or FloatQuant; None where a parameter is not known, or no float of ours."""
    arrays = [reader.array(name) for name in op.inputs[1:]]
    if any(array is None for array in arrays):
        return None
    if op.type == BIPOLAR:
        return bipolar_quantizer(np.asarray(arrays[0]))
    if op.type == FLOAT_QUANT:
        return _float_quantizer(op, [np.asarray(array) for array in arrays])
    scale, zero, bits = (np.asarray(array) for array in arrays)
    return integer_quantizer(
        scale,
        zero,
        bits,
        signed=bool(op.attributes["signed"]),
        narrow=bool(op.attributes["narrow"]),
        rounding=checked_rounding(op),
    )


def _float_quantizer(op: Op, arrays: list[Array]) -> Quantizer | None:
    scale, *format_of = arrays
    name = _FLOAT_FORMATS.get(tuple(array.item() for array in format_of if array.size == 1))
    if name is None or checked_rounding(op) not in ("ROUND", "HALF_EVEN") or not op.attributes["saturation"]:
        return None
    limit = np.asarray(FLOAT_STORAGE[name], np.float32)
    none, eight = np.zeros((), np.float32), np.asarray(8, np.float32)
    return Quantizer(scale, none, -limit, limit, eight, signed=True, narrow=False, stored=name)


def integer_quantizer(
    scale: Array, zero: Array, bits: Array, *, signed: bool, narrow: bool, rounding: str = "ROUND"
) -> Quantizer:
    """The record of a QONNX Quant."""
    low, high = (np.asarray(ROUNDINGS[rounding](end)) for end in bounds(bits, signed=signed, narrow=narrow))
    is_bipolar = signed and bool(np.all(bits == 1))
    if is_bipolar:
        low, high = np.asarray(-1, np.float32), np.asarray(1, np.float32)
    return Quantizer(
        scale, zero, np.asarray(low), np.asarray(high), bits, signed, narrow, rounding, is_bipolar=is_bipolar
    )


def bipolar_quantizer(scale: Array) -> Quantizer:
    """The record of a BipolarQuant."""
    one = np.asarray(1, np.float32)
    return Quantizer(
        scale, np.zeros((), np.float32), -one, one, one, signed=True, narrow=False, is_bipolar=True
    )


def _behind_dequantize(at: int, op: Op, reader: Reader) -> Found | None:
    """The quantizer that ends in this DequantizeLinear."""
    grid = _grid(op, reader, halves=True)
    dtype = reader.graph.values[op.inputs[0]].dtype
    if grid is None or dtype not in _INTEGERS | _FLOATS:
        return None
    name, ends, inner = _clipped(op.inputs[0], dtype, reader)
    shaped = _spread(grid[0], op, reader), _spread(grid[1], op, reader)
    stored = reader.array(name)
    if stored is not None:
        return Found(at, "", op.outputs[0], _on_grid(shaped, ends, dtype), stored, inner)
    made = reader.op(name, "QuantizeLinear")
    # A pair on reals in float16 rounds twice: no type says so of what is computed.
    if made is None or _grid(op, reader) is None:
        return None
    first, quantize = made
    own = _grid(quantize, reader)
    if own is None or reader.graph.values[quantize.inputs[0]].dtype != "f32":
        return None
    # Scale 1 and no zero point: the quantizer only converts, and the arithmetic is spelled out before it.
    if np.all(own[0] == 1) and not own[1].any():
        spelled = _explicit(
            at,
            op.outputs[0],
            quantize.inputs[0],
            grid=shaped,
            ends=ends,
            inner=(*inner, first),
            reader=reader,
        )
        if spelled is not None:
            return spelled
    if not _same(own, grid) or quantize.attributes.get("axis", 1) != op.attributes.get("axis", 1):
        return None
    quantizer = _on_grid(shaped, ends, dtype, rounds_first=True)
    return Found(at, quantize.inputs[0], op.outputs[0], quantizer, inner=(*inner, first))


def _behind_arithmetic(at: int, op: Op, reader: Reader) -> Found | None:
    """The quantizer that ends in `Mul(Sub(DequantizeLinear(q, 1, 0), zero_point), scale)`."""
    scale = reader.array(op.inputs[1]) if len(op.inputs) == 2 else None
    shift = reader.op(op.inputs[0], "Sub")
    if scale is None or shift is None or scale.dtype != np.float32:
        return None
    at_shift, subtract = shift
    zero, made = reader.array(subtract.inputs[1]), reader.op(subtract.inputs[0], "DequantizeLinear")
    if zero is None or made is None:
        return None
    at_real, real = made
    unit = _grid(real, reader)
    if unit is None or not np.all(unit[0] == 1) or unit[1].any():
        return None
    dtype = reader.graph.values[real.inputs[0]].dtype
    name, ends, inner = _clipped(real.inputs[0], dtype, reader)
    whole = (*inner, at_real, at_shift)
    stored = reader.array(name)
    if stored is not None:
        return Found(at, "", op.outputs[0], _on_grid((scale, zero), ends, dtype), stored, whole)
    quantize = reader.op(name, "QuantizeLinear")
    own = None if quantize is None else _grid(quantize[1], reader)
    if quantize is None or own is None or not np.all(own[0] == 1) or own[1].any():
        return None
    return _explicit(
        at,
        op.outputs[0],
        quantize[1].inputs[0],
        grid=(scale, zero),
        ends=ends,
        inner=(*whole, quantize[0]),
        reader=reader,
    )


def _explicit(
    at: int,
    result: str,
    v: str,
    *,
    grid: tuple[Array, Array],
    ends: tuple[int, int],
    inner: tuple[int, ...],
    reader: Reader,
) -> Found | None:
    """Read `round(x / scale + zero_point)` before a QuantizeLinear of scale 1."""
    scale, zero = grid
    start = v
    signs = _signs(v, reader)
    if signs is not None:
        quantizer = bipolar_quantizer(scale)
        return Found(at, signs[0], result, quantizer, inner=(*inner, *signs[1]))
    # Backwards from QuantizeLinear: rounding, then the zero point's Add, then the Div by the scale.
    mode = "ROUND"
    rounded = reader.op(v, *ROUNDING_OPS)
    if rounded is not None:
        mode, v, inner = ROUNDING_OPS[rounded[1].type], rounded[1].inputs[0], (*inner, rounded[0])
    added = reader.op(v, "Add")
    offset = None if added is None else reader.array(added[1].inputs[1])
    if added is not None and offset is not None and _are_alike(offset, zero):
        zero, v, inner = offset, added[1].inputs[0], (*inner, added[0])
    elif zero.any():
        return None
    divided = reader.op(v, "Div")
    step = None if divided is None else reader.array(divided[1].inputs[1])
    if divided is not None and step is not None and _are_alike(step, scale):
        scale, v, inner = step, divided[1].inputs[0], (*inner, divided[0])
    elif not np.all(scale == 1):
        return None
    if v == start:
        return None
    quantizer = _on_grid((scale, zero), ends, "", rounding=mode)
    return Found(at, v, result, quantizer, inner=inner)


def _signs(v: str, reader: Reader) -> tuple[str, tuple[int, ...]] | None:
    """The operand of `Where(x >= 0, 1, -1)`."""
    chosen = reader.op(v, "Where")
    if chosen is None:
        return None
    plus, minus = (reader.array(name) for name in chosen[1].inputs[1:])
    asked = reader.op(chosen[1].inputs[0], "GreaterOrEqual")
    if plus is None or minus is None or asked is None or not (np.all(plus == 1) and np.all(minus == -1)):
        return None
    zero = reader.array(asked[1].inputs[1])
    if zero is None or zero.any():
        return None
    return asked[1].inputs[0], (chosen[0], asked[0])


def _clipped(name: str, dtype: str, reader: Reader) -> tuple[str, Any, tuple[int, ...]]:
    """A stored tensor before its Clips, the ends they leave of its type, and the Clips."""
    if dtype in _FLOATS:
        return name, (-FLOAT_STORAGE[dtype], FLOAT_STORAGE[dtype]), ()
    low, high = full_range(int(dtype[1:]), signed=dtype[0] == "i")
    inner: tuple[int, ...] = ()
    while True:
        made = reader.op(name, "Clip")
        if made is None:
            return name, (low, high), inner
        ends = [reader.array(item) for item in (*made[1].inputs[1:3], "", "")[:2]]
        named = [item for item in made[1].inputs[1:3] if item]
        # A computed bound is known at run time only: the search ends in front of it.
        if len(named) != sum(end is not None for end in ends):
            return name, (low, high), inner
        if ends[0] is not None:
            low = max(low, int(ends[0]))
        if ends[1] is not None:
            high = min(high, int(ends[1]))
        name, inner = made[1].inputs[0], (*inner, made[0])


def _grid(op: Op, reader: Reader, *, halves: bool = False) -> tuple[Array, Array] | None:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear, where they are constants.

    Args:
      halves: whether scales in float16 count; their numbers are given in float32.
    """
    scale = _scale(op.inputs[1], reader)
    zero = reader.array(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else None
    if scale is None or (zero is None and len(op.inputs) > 2 and op.inputs[2]):
        return None
    if scale.dtype != np.float32 and not (halves and scale.dtype == np.float16):
        return None
    scale = scale.astype(np.float32, copy=False)
    return scale, np.zeros(scale.shape, np.int32) if zero is None else zero


def _scale(name: str, reader: Reader) -> Array | None:
    """The numbers of a scale: a constant, or one that is quantized itself, per tensor (NVFP4's blocks)."""
    made = reader.op(name, "DequantizeLinear")
    if made is None:
        return reader.array(name)
    stored, factor = (reader.array(item) for item in made[1].inputs[:2])
    zero = reader.array(made[1].inputs[2]) if len(made[1].inputs) > 2 else None
    if stored is None or factor is None or factor.size != 1 or factor.dtype != np.float32:
        return None
    if len(made[1].inputs) > 2 and (zero is None or zero.astype(np.float32).any()):
        return None
    return np.asarray(stored.astype(np.float32) * factor.reshape(()))


def _spread(parameters: Array, op: Op, reader: Reader) -> Array:
    """Parameters along an axis or in blocks, as they broadcast against the tensor."""
    shape = reader.graph.values[op.inputs[0]].shape
    if parameters.size == 1 or shape is None:
        return parameters.reshape(()) if parameters.size == 1 else parameters
    axis, block = op.attributes.get("axis", 1) % len(shape), op.attributes.get("block_size", 0)
    if block and parameters.ndim == len(shape):
        wide = np.repeat(parameters, block, axis=axis)
        return wide[tuple(slice(0, dim) if isinstance(dim, int) else slice(None) for dim in shape)]
    return parameters.reshape([-1 if i == axis else 1 for i in range(len(shape))])


def _are_alike(a: Array, b: Array) -> bool:
    """Whether parameters are the same wherever they are spread to."""
    try:
        return bool(np.all(a == b))
    except ValueError:
        return False


def _same(a: tuple[Array, Array], b: tuple[Array, Array]) -> bool:
    return all(x.shape == y.shape and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def _on_grid(
    grid: tuple[Array, Array],
    ends: tuple[Any, Any],
    dtype: str,
    *,
    rounds_first: bool = False,
    rounding: str = "ROUND",
) -> Quantizer:
    low, high = ends
    known = None if dtype in _FLOATS else attributes_of_ends(int(low), int(high), rounding)
    bits, signed, narrow = known or (np.asarray(0, np.float32), low < 0, False)
    zero = grid[1].astype(np.float32) if dtype not in _FLOATS else np.zeros(grid[1].shape, np.float32)
    return Quantizer(
        grid[0],
        zero,
        np.asarray(low, np.float64),
        np.asarray(high, np.float64),
        bits,
        signed,
        narrow,
        rounding,
        rounds_first=rounds_first,
        stored=dtype,
    )
