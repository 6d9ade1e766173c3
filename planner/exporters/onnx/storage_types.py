"""Storage types: the integer type in which an ONNX file holds a stored tensor, and its range.

Source: ONNX operator pages QuantizeLinear, DequantizeLinear.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.constants.quantize import stored_dtype
from planner.errors import UnsupportedExport
from planner.ir.types.qtypes import Uniform

Array = npt.NDArray[Any]


def held_dtype(kind: Uniform) -> np.dtype[Any]:
    """The integer type a tensor of the file has: ONNX dequantizes no 64-bit one, so biases have 32."""
    return np.dtype(np.int32) if kind.storage.bits > 32 else stored_dtype(kind.storage)


@lru_cache(maxsize=32)
def whole_range(dtype: np.dtype[Any]) -> np.iinfo[Any]:
    """The least and the greatest number of an integer type."""
    return np.iinfo(dtype)


def fits(stored: Array, kind: Uniform) -> bool:
    """Whether the integer type of the file holds the stored integers of a constant."""
    bounds = whole_range(held_dtype(kind))
    return not stored.size or bool(bounds.min <= stored.min() and stored.max() <= bounds.max)


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
    """The element type of a stored tensor, as values have it: `i8`."""
    dtype = held_dtype(kind)
    return f"{'i' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}"


ONNX_FLOATS: Final = {"bf16": 16, "f16": 10, "f32": 1, "f64": 11}
