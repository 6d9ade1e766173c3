"""Element types: ONNX's enum, our names (`f32`, `i64`, `bool`), and numpy's dtypes.

Our names and numpy's dtypes of numbers are `ir.dtypes`; text comes as objects.
Source: onnx.proto, `TensorProto.DataType`.
"""

from typing import Any, Final

import numpy as np
from onnx import TensorProto

from planner.errors import ModelError
from planner.ir.dtypes import NUMPY as NUMBERS
from planner.ir.dtypes import UNKNOWN

_TABLE: Final = (
    ("f32", "FLOAT"),
    ("u8", "UINT8"),
    ("i8", "INT8"),
    ("u16", "UINT16"),
    ("i16", "INT16"),
    ("i32", "INT32"),
    ("i64", "INT64"),
    ("string", "STRING"),
    ("bool", "BOOL"),
    ("f16", "FLOAT16"),
    ("f64", "DOUBLE"),
    ("u32", "UINT32"),
    ("u64", "UINT64"),
    ("c64", "COMPLEX64"),
    ("c128", "COMPLEX128"),
    ("bf16", "BFLOAT16"),
    ("f8E4M3FN", "FLOAT8E4M3FN"),
    ("f8E4M3FNUZ", "FLOAT8E4M3FNUZ"),
    ("f8E5M2", "FLOAT8E5M2"),
    ("f8E5M2FNUZ", "FLOAT8E5M2FNUZ"),
    ("f8E8M0FNU", "FLOAT8E8M0"),
    ("u4", "UINT4"),
    ("i4", "INT4"),
    ("f4E2M1FN", "FLOAT4E2M1"),
    ("u2", "UINT2"),
    ("i2", "INT2"),
)

NARROW_BITS: Final = {"u4": 4, "i4": 4, "f4E2M1FN": 4, "u2": 2, "i2": 2}
ENUMS: Final[dict[str, int]] = {
    name: int(getattr(TensorProto, enum)) for name, enum in _TABLE if hasattr(TensorProto, enum)
}
NAMES: Final[dict[int, str]] = {number: name for name, number in ENUMS.items()}
NUMPY: Final[dict[str, np.dtype[Any]]] = {
    name: NUMBERS[name] if name in NUMBERS else np.dtype(np.object_) for name in ENUMS
}
_OF_NUMPY: Final = {dtype: name for name, dtype in NUMPY.items()}


def dtype_of(array: np.ndarray) -> str:
    """Our name of an array's element type.

    Raises:
      ModelError: an element type ONNX does not have.
    """
    if array.dtype.kind in "SU":
        return "string"
    name = _OF_NUMPY.get(array.dtype) or _OF_NUMPY.get(array.dtype.newbyteorder("="))
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
