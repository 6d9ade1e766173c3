"""Words: fixed point of 16 bits, products, quotients and three functions, as gemmlowp has them.

A word with `b` bits in front of the point has 15 - b behind it. Functions come as tables of all 65,536 words,
each computed as its kernel computes one. Source: gemmlowp, fixedpoint.h; measured in docs/litert.md.
"""

import math
from functools import cache
from typing import Final

import numpy as np

from planner.ir.arithmetic.rescaling import Integers

_WORD: Final = 1 << 15


def high_product(values: Integers, factor: int | Integers) -> Integers:
    """The upper half of twice a product, rounded half up."""
    product = values * factor
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    # A division in C drops what is behind the point.
    return np.asarray(np.sign(nudged) * (np.abs(nudged) >> 15))


def divided_by_power(values: Integers, power: int) -> Integers:
    """Values over a power of two, rounded half away from zero."""
    if power <= 0:
        return values << -power
    rest, half = values & ((1 << power) - 1), ((1 << power) - 1) >> 1
    return np.asarray((values >> power) + (rest > half + (values < 0)))


@cache
def sigmoids() -> Integers:
    """Sigmoids of all words with 3 bits in front of the point, in words with none."""
    words = np.arange(-_WORD, _WORD)
    above = _doubled(_reciprocal(_exponential(-np.abs(words), 3)), 1)
    return np.where(words == 0, _WORD // 2, np.where(words > 0, above, _WORD - 1 - above))


@cache
def tanhs(bits: int) -> Integers:
    """Hyperbolic tangents of all words with so many bits in front of the point, in words with none."""
    words = np.arange(-_WORD, _WORD)
    # Read with one bit more in front of the point, the same word is twice the number.
    below = _exponential(-np.abs(words), bits + 1)
    found = _doubled(_wrapped(_reciprocal(below) - _fixed(1.0, 2)), 2)
    return np.where(words == 0, 0, np.where(words < 0, -found, found))


def _exponential(words: Integers, bits: int) -> Integers:
    """`exp` of words that are not positive, with so many bits in front of the point.

    A polynomial for the rest modulo 1/4, times a constant for each bit of the whole quarters.
    """
    point = 15 - bits
    quarter = 1 << (point - 2)
    rest = (words & (quarter - 1)) - quarter
    found, whole = _near_zero(rest << bits), rest - words
    for exponent in range(-2, min(bits, 5)):
        is_set = (whole >> (point + exponent)) & 1
        found = np.where(is_set == 1, high_product(found, _fixed(math.exp(-(2.0**exponent)), 0)), found)
    if bits > 5:
        found = np.where(words < -(32 << point), 0, found)
    return np.where(words == 0, _WORD - 1, found)


def _near_zero(words: Integers) -> Integers:
    """`exp` over [-1/4, 0): four terms around -1/8."""
    at = words + (1 << 12)
    square = high_product(at, at)
    cube, fourth = high_product(square, at), high_product(square, square)
    inner = high_product(divided_by_power(fourth, 2) + cube, _fixed(1 / 3, 0)) + square
    middle = _fixed(math.exp(-1 / 8), 0)
    return _saturated(middle + high_product(at + divided_by_power(inner, 1), middle))


def _reciprocal(words: Integers) -> Integers:
    """`2 / (1 + x)` of words in [0, 1), with 2 bits in front of the point: three steps of Newton's."""
    half = (words + _WORD) >> 1
    found = _fixed(48 / 17, 2) + high_product(half, _fixed(-32 / 17, 2))
    for _ in range(3):
        error = _fixed(1.0, 2) - high_product(half, found)
        found = _wrapped(found + _doubled(high_product(found, error), 2))
    return found


def _fixed(real: float, bits: int) -> int:
    """A number as a word with so many bits in front of the point, rounded from one of 32 bits."""
    wide = math.floor(abs(real) * 2.0 ** (31 - bits) + 0.5)
    found = (wide + (1 << 15)) >> 16
    return found if real >= 0 else -found


def _doubled(words: Integers, times: int) -> Integers:
    return _saturated(words << times)


def _wrapped(words: Integers) -> Integers:
    return np.asarray(words, np.int64).astype(np.int16).astype(np.int64)


def _saturated(words: Integers) -> Integers:
    return np.clip(words, -_WORD, _WORD - 1)
