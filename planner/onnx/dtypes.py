"""Element types: ONNX's enum, our names (`f32`, `i64`, `bool`), and numpy's dtypes.

A table and its readings; formats narrower than a byte or unknown to numpy come from ml_dtypes.
Source: onnx.proto, `TensorProto.DataType`.
"""

from typing import Any, Final

import ml_dtypes
import numpy as np
from onnx import TensorProto

from planner.errors import ModelError

_TABLE: Final[tuple[tuple[str, str, Any], ...]] = (
    ("f32", "FLOAT", np.float32),
    ("u8", "UINT8", np.uint8),
    ("i8", "INT8", np.int8),
    ("u16", "UINT16", np.uint16),
    ("i16", "INT16", np.int16),
    ("i32", "INT32", np.int32),
    ("i64", "INT64", np.int64),
    ("string", "STRING", np.object_),
    ("bool", "BOOL", np.bool_),
    ("f16", "FLOAT16", np.float16),
    ("f64", "DOUBLE", np.float64),
    ("u32", "UINT32", np.uint32),
    ("u64", "UINT64", np.uint64),
    ("c64", "COMPLEX64", np.complex64),
    ("c128", "COMPLEX128", np.complex128),
    ("bf16", "BFLOAT16", ml_dtypes.bfloat16),
    ("f8E4M3FN", "FLOAT8E4M3FN", ml_dtypes.float8_e4m3fn),
    ("f8E4M3FNUZ", "FLOAT8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
    ("f8E5M2", "FLOAT8E5M2", ml_dtypes.float8_e5m2),
    ("f8E5M2FNUZ", "FLOAT8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
    ("f8E8M0FNU", "FLOAT8E8M0", ml_dtypes.float8_e8m0fnu),
    ("u4", "UINT4", ml_dtypes.uint4),
    ("i4", "INT4", ml_dtypes.int4),
    ("f4E2M1FN", "FLOAT4E2M1", ml_dtypes.float4_e2m1fn),
    ("u2", "UINT2", ml_dtypes.uint2),
    ("i2", "INT2", ml_dtypes.int2),
)
_KNOWN: Final = [(name, enum, dtype) for name, enum, dtype in _TABLE if hasattr(TensorProto, enum)]

UNKNOWN: Final = ""
NARROW_BITS: Final = {"u4": 4, "i4": 4, "f4E2M1FN": 4, "u2": 2, "i2": 2}
ENUMS: Final[dict[str, int]] = {name: int(getattr(TensorProto, enum)) for name, enum, _ in _KNOWN}
NAMES: Final[dict[int, str]] = {number: name for name, number in ENUMS.items()}
NUMPY: Final[dict[str, np.dtype[Any]]] = {name: np.dtype(dtype) for name, _, dtype in _KNOWN}
_OF_NUMPY: Final = {dtype: name for name, dtype in NUMPY.items()}


def dtype_of(array: np.ndarray) -> str:
    """Our name of an array's element type.

    Raises:
      ModelError: an element type ONNX does not have.
    """
    if array.dtype.kind in "SU":
        return "string"
    name = _OF_NUMPY.get(array.dtype.newbyteorder("="))
    if name is None:
        raise ModelError(f"ONNX has no element type for numpy's {array.dtype}")
    return name


def enum_of(name: str) -> int:
    """ONNX's number of an element type.

    Raises:
      ModelError: a name that is none of the table.
    """
    if name == UNKNOWN:
        return int(TensorProto.UNDEFINED)
    if name not in ENUMS:
        raise ModelError(f"ONNX has no element type {name!r}; it has {', '.join(sorted(ENUMS))}")
    return ENUMS[name]


def byte_size(dtype: str, elements: int) -> int:
    """Bytes that so many elements take in a file."""
    bits = NARROW_BITS.get(dtype)
    if bits:
        return (elements * bits + 7) // 8
    return elements * (NUMPY[dtype].itemsize if dtype in NUMPY else 4)
