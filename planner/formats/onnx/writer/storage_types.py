"""Storage types: the element type in which an ONNX file holds a stored tensor, and its range.

Source: ONNX operator pages QuantizeLinear, DequantizeLinear.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.constants.quantize import array_dtype
from planner.errors import UnsupportedExport
from planner.ir.types.qtypes import FLOAT_STORAGE, Uniform, full_range

Array = npt.NDArray[Any]


def held_dtype(kind: Uniform) -> np.dtype[Any]:
    """The type a tensor of the file has: ONNX dequantizes no 64-bit integers, so biases have 32."""
    return np.dtype(np.int32) if kind.storage.bits > 32 else array_dtype(kind.storage)


def whole_range(kind: Uniform) -> tuple[int, int]:
    """The least and the greatest number of the type that a tensor of the file has."""
    if kind.storage.float_name:
        limit = FLOAT_STORAGE[kind.storage.float_name]
        return -limit, limit
    dtype = held_dtype(kind)
    return full_range(8 * dtype.itemsize, signed=dtype.kind == "i")


def fits(stored: Array, kind: Uniform) -> bool:
    """Whether the integer type of the file holds the stored integers of a constant."""
    low, high = whole_range(kind)
    return not stored.size or bool(low <= stored.min() and stored.max() <= high)


def held(stored: Array, value: str, kind: Uniform) -> Array:
    """Stored integers of a constant in the integer type of the file.

    Raises:
      UnsupportedExport: a number that does not fit.
    """
    if kind.storage.bits <= 32:
        return stored
    if not fits(stored, kind):
        raise UnsupportedExport(
            f"constant {value!r} stored as {kind.storage} needs more than 32 bits; ONNX dequantizes 32",
            hint="a coarser weight scale makes its numbers smaller",
        )
    return stored.astype(held_dtype(kind), copy=False)


def axis_of(kind: Uniform) -> Mapping[str, int]:
    """The attribute of Q and DQ nodes that says along which axis the scales lie."""
    return {} if kind.axis is None else {"axis": kind.axis}


def dtype_text(kind: Uniform) -> str:
    """The element type of a stored tensor, as values have it: `i8`, `f8E4M3FN`."""
    if kind.storage.float_name:
        return kind.storage.float_name
    dtype = held_dtype(kind)
    return f"{'i' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}"


ONNX_FLOATS: Final = {"bf16": 16, "f16": 10, "f32": 1, "f64": 11}
