"""Parameter texts: scales and zero points as types write them, in braces or as one dense constant.

A sub-channel type of very many blocks has them as MLIR writes big constants:
`!quant.uniform<i4:f32:{0:32, 1:1}, dense<"0x..."> : tensor<64x2048xf32>>`. The bytes are little endian,
row-major over the grid; where a zero point is not 0, `, dense<"0x..."> : tensor<64x2048xi8>` follows.
A decoder of 3 GB has 23 million scales: decimal texts of them take half a gigabyte and minutes.
Source: MLIR, dense elements in hexadecimal.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

MANY: Final = 1 << 16
"""Scales from which on a type is written so."""
_FLOAT_OF: Final[Mapping[str, np.dtype[Any]]] = {"f32": np.dtype("<f4"), "f64": np.dtype("<f8")}
_INTEGERS: Final[Mapping[str, np.dtype[Any]]] = {
    f"i{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)
}
_DENSE: Final = re.compile(
    r'dense<"0x([0-9A-Fa-f]*+)"> : tensor<([0-9]{1,18}(?:x[0-9]{1,18})*+)x([fi][0-9]{1,2}+)>', re.ASCII
)


def float_text(value: float) -> str:
    """Shortest decimal text that reads back as the same double, always with a decimal point."""
    text = repr(float(value))
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"


def pair_text(scale: float, zero_point: int) -> str:
    """`scale` or `scale:zero_point`, the default 0 dropped."""
    return f"{float_text(scale)}:{zero_point}" if zero_point else float_text(scale)


def nested_text(items: Sequence[str], grid: Sequence[int]) -> str:
    """Nest row-major `items` in braces by the shape `grid`."""
    level = list(items)
    for size in reversed(grid):
        level = ["{" + ", ".join(level[i : i + size]) + "}" for i in range(0, len(level), size)]
    return level[0]


def dense_parameters(
    scales: Sequence[float], zero_points: Sequence[int], expressed: str, grid: Sequence[int]
) -> str:
    """The text of scales, and of zero points where one is not 0."""
    kind = expressed if expressed in _FLOAT_OF else "f32"
    text = _dense(np.asarray(scales, _FLOAT_OF[kind]), kind, grid)
    low, high = min(zero_points), max(zero_points)
    if low == high == 0:
        return text
    fits = (
        name
        for name, dtype in _INTEGERS.items()
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max
    )
    name = next(fits)
    return f"{text}, {_dense(np.asarray(zero_points, _INTEGERS[name]), name, grid)}"


def _dense(array: np.ndarray, kind: str, grid: Sequence[int]) -> str:
    return f'dense<"0x{array.tobytes().hex()}"> : tensor<{"x".join(map(str, grid))}x{kind}>'


def read_parameters(body: str) -> tuple[list[float], tuple[int, ...], tuple[int, ...]] | None:
    """Scales, zero points and grid of such a text; None where it is none."""
    first = _DENSE.match(body)
    scales = None if first is None else _numbers(first, _FLOAT_OF)
    if first is None or scales is None:
        return None
    grid = tuple(map(int, first[2].split("x")))
    if first.end() == len(body):
        return scales.tolist(), (0,) * len(scales), grid
    second = _DENSE.fullmatch(body, first.end() + 2) if body.startswith(", ", first.end()) else None
    zeros = None if second is None or second[2] != first[2] else _numbers(second, _INTEGERS)
    return None if zeros is None else (scales.tolist(), tuple(zeros.tolist()), grid)


def _numbers(found: re.Match[str], kinds: Mapping[str, np.dtype[Any]]) -> np.ndarray | None:
    dtype = kinds.get(found[3])
    count = 1
    for size in found[2].split("x"):
        count *= int(size)
    if dtype is None or len(found[1]) != 2 * count * dtype.itemsize:
        return None
    return np.frombuffer(bytes.fromhex(found[1]), dtype)
