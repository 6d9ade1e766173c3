"""Matmul: exact integer accumulators of MatMul, Gemm and their quantized forms.

Sums of products of (stored - zero point), computed by a float32 or float64 GEMM wherever a bound on the
actual operands proves every partial sum exact, else in int64. No scales: `requantize` follows.
Gemm is this with transposed arrays and a bias. Not modelled: x86 without VNNI saturates pairs of u8 x i8
products in 16 bits (a target's `weight_pairs: 128` avoids that); every other CPU sums exactly.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_FLOAT32_EXACT: Final = 1 << 24
_FLOAT64_EXACT: Final = 1 << 53


def exact_dtype(bound: int) -> type[np.floating[Any] | np.int64]:
    """The fastest type whose sums stay exact while no partial sum exceeds `bound` in magnitude."""
    if bound < _FLOAT32_EXACT:
        return np.float32
    return np.float64 if bound < _FLOAT64_EXACT else np.int64


def accumulator_dtype(bound: int) -> type[np.signedinteger[Any]]:
    """int32 where `bound` fits it, else int64."""
    return np.int32 if bound < 1 << 31 else np.int64


def largest(stored: Array, zero_point: int | Array = 0) -> int:
    """The largest magnitude of (stored - zero point), never less than the truth."""
    if stored.size == 0:
        return 0
    zero = np.asarray(zero_point)
    low = int(stored.min()) - int(zero.max())
    high = int(stored.max()) - int(zero.min())
    return max(abs(low), abs(high))


def matmul_accumulate(
    a: Array, a_zero_point: int, b: Array, b_zero_point: int | Array = 0, bias: Array | None = None
) -> Array:
    """`(a - a_zero_point) @ (b - b_zero_point) + bias`, exact.

    Args:
      a: stored integers (..., M, K), any integer type.
      a_zero_point: stored.
      b: stored integers (..., K, N), batches broadcast as numpy's matmul.
      b_zero_point: stored, one number or (N,).
      bias: int32, broadcastable to (..., M, N); None: no bias.

    Returns:
      (..., M, N), int32 where no sum can leave 32 bits, else int64 (ONNX Runtime wraps there: `wrap_int32`).
    """
    bound = a.shape[-1] * largest(a, a_zero_point) * largest(b, b_zero_point)
    dtype = exact_dtype(bound)
    product = np.matmul(shifted(a, a_zero_point, dtype), shifted(b, b_zero_point, dtype))
    if bias is None:
        return np.asarray(product).astype(accumulator_dtype(bound))
    total = accumulator_dtype(bound + largest(bias))
    return np.asarray(product).astype(total) + bias.astype(total)


def shifted(stored: Array, zero_point: int | Array, dtype: type[Any]) -> Array:
    """(stored - zero point) in `dtype`, without a wrap."""
    converted = stored.astype(dtype)
    zero = np.asarray(zero_point)
    if not zero.any():
        return converted
    return np.asarray(converted - zero.astype(dtype))
