"""Element types of numbers: our names (MLIR's, unsigned as `u8`) and numpy's; text (`string`) is not here."""

from collections.abc import Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np

NUMPY: Final[Mapping[str, np.dtype[Any]]] = {
    name: np.dtype(kind)
    for name, kind in (
        ("bf16", ml_dtypes.bfloat16),
        ("bool", np.bool_),
        ("c128", np.complex128),
        ("c64", np.complex64),
        ("f16", np.float16),
        ("f32", np.float32),
        ("f4E2M1FN", ml_dtypes.float4_e2m1fn),
        ("f64", np.float64),
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
        ("f8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
        ("f8E5M2", ml_dtypes.float8_e5m2),
        ("f8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
        ("f8E8M0FNU", ml_dtypes.float8_e8m0fnu),
        ("i16", np.int16),
        ("i2", ml_dtypes.int2),
        ("i32", np.int32),
        ("i4", ml_dtypes.int4),
        ("i64", np.int64),
        ("i8", np.int8),
        ("u16", np.uint16),
        ("u2", ml_dtypes.uint2),
        ("u32", np.uint32),
        ("u4", ml_dtypes.uint4),
        ("u64", np.uint64),
        ("u8", np.uint8),
    )
}

UNKNOWN: Final = ""
"""The type of a value of which none is known."""
