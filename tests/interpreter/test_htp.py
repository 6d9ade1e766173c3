"""The arithmetic of Qualcomm's HTP: the page's function, and facts that the library showed."""

import re
from pathlib import Path

import numpy as np
import pytest

from planner.interpreter.kernels.htp import Sums, onto_grid
from planner.ir.types.qtypes import Uniform, storage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arithmetic.md"


def page_function():
    (text,) = re.findall(r"## HTP\n.*?```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(text, names)  # noqa: S102
    return names["htp"]


def of(store, zero):
    return Uniform(storage(store), (1.0,), (zero,))


@pytest.mark.parametrize("bits", [8, 16])
def test_the_page_says_what_is_computed(bits):
    htp, rng = page_function(), np.random.default_rng(bits)
    for _ in range(200):
        zx, zy = (int(zero) for zero in rng.integers(0, 1 << bits, 2))
        taps, bias = int(rng.integers(-3000, 3000)), int(rng.integers(-1 << 16, 1 << 16))
        products = int(rng.integers(-1 << (bits + 10), 1 << (bits + 10)))
        ratio = np.float32(rng.uniform(2.0**-14, 2.0**-3))
        sums = Sums(*(np.asarray(n) for n in (products + bias - zx * taps, bias, taps)))
        found = onto_grid(sums, np.asarray([ratio]), of(f"u{bits}", zx), of(f"u{bits}", zy))
        wanted = htp(products, bias, taps, float(ratio), zx, zy, bits)
        assert int(found[0]) == min(max(wanted, 0), (1 << bits) - 1)


def test_a_weight_of_one_leaves_multiples_of_256():
    x = np.arange(0, 65536, 77)
    sums = Sums(x, np.zeros((), np.int64), np.ones((), np.int64))
    found = onto_grid(sums, np.ones(1, np.float32), of("u16", 0), of("u16", 0))
    np.testing.assert_array_equal(found, x // 256 * 256)


@pytest.mark.parametrize(("total", "stored"), [(7 * 8 - 1, 0), (7 * 8, 1), (19 * 8 - 1, 1), (1206 * 8, 97)])
def test_thresholds_that_the_library_showed(total, stored):
    """At a ratio of 0.01: sums lose three bits, and the multiplier is 1311 / 1024."""
    sums = Sums(np.asarray([total]), np.zeros((), np.int64), np.zeros((), np.int64))
    found = onto_grid(sums, np.asarray([0.01], np.float32), of("u8", 0), of("u8", 0))
    assert int(found[0]) == stored
