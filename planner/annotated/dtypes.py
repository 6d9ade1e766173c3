"""Element types: our names (MLIR's, unsigned as `u8`) and numpy's."""

from collections.abc import Mapping
from typing import Final

import ml_dtypes
import numpy as np

NUMPY_DTYPES: Final[Mapping[str, np.dtype]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "bool": np.dtype(np.bool_),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i4": np.dtype(ml_dtypes.int4),
    "i64": np.dtype(np.int64),
    "i8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u4": np.dtype(ml_dtypes.uint4),
    "u64": np.dtype(np.uint64),
    "u8": np.dtype(np.uint8),
}
