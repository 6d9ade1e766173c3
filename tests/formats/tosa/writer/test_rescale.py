"""RESCALE of the reference model and ours: both roundings, every shift, 32 and 48 bits in."""

import numpy as np
import pytest

from planner.formats.common.layouts import plain
from planner.formats.mlir.generic import module_text
from planner.formats.tosa.writer.operations import Program, Tensor
from planner.formats.tosa.writer.scaling import Factor, rescale
from planner.ir.arithmetic.rescaling import apply_scale_16, apply_scale_32
from tests.oracles import tosa

SHIFTS = np.arange(2, 63)


def written(element: str, factor: Factor, rows: int, zeros: tuple[int, int], result: str) -> bytes:
    """One RESCALE of (rows, channels)."""
    program = Program()
    x = program.argument("x", (rows, len(factor.shifts)), element)
    y = rescale(program, x, factor, zeros, result, "y")
    return module_text([program.function("main", [y], "")]).encode()


def values(rng: np.random.Generator, rows: int, bits: int) -> np.ndarray:
    """Integers of every magnitude that each shift may be given: -2^(shift - 1) to 2^(shift - 1) - 1."""
    limits = np.left_shift(1, np.minimum(SHIFTS - 1, bits - 1))
    found = rng.integers(-limits, limits, (rows, len(SHIFTS)))
    small = rng.integers(-300, 300, (rows, len(SHIFTS)))
    found = np.where(rng.random(found.shape) < 0.5, found, np.clip(small, -limits, limits - 1))
    found[0], found[1] = -limits, limits - 1
    return found


def factors(rng: np.random.Generator, bits: int, *, double_round: bool) -> Factor:
    """A multiplier for every shift; powers of two meet ties."""
    top = 1 << (bits - 1)
    multipliers = rng.integers(top >> 1, top, len(SHIFTS))
    multipliers[::3] = top >> 1
    return Factor(multipliers, SHIFTS, double_round=double_round)


def check(folder, rows: int, seeds: int) -> None:
    jobs, expected = [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x = values(rng, rows, 32)
        for double_round in (False, True):
            factor = factors(rng, 32, double_round=double_round)
            exact = apply_scale_32(x, factor.multipliers, factor.shifts, double_round=double_round)
            for zeros, result in (((0, 0), "i32"), ((0, 5), "i8"), ((0, 0), "i16")):
                bounds = np.iinfo(f"int{result[1:]}")
                jobs.append((written("i32", factor, rows, zeros, result), [[x.astype(np.int32)]]))
                expected.append(np.clip(exact + zeros[1], bounds.min, bounds.max))
    for got, wanted in zip(tosa.run(folder, jobs), expected, strict=True):
        assert not isinstance(got, str), got
        np.testing.assert_array_equal(got[0][0], wanted)


def test_thousands_of_values(tmp_path):
    check(tmp_path, 100, 1)


@pytest.mark.soak
def test_a_million_values_for_each_rounding(tmp_path):
    check(tmp_path, 4200, 4)


def test_sixteen_bit_multipliers_of_48_bit_values(tmp_path):
    rng = np.random.default_rng(0)
    factor = factors(rng, 16, double_round=False)
    limits = np.left_shift(1, np.minimum(SHIFTS + 14, 47))
    x = rng.integers(-limits, limits, (100, len(SHIFTS)))
    wanted = apply_scale_16(x, factor.multipliers, factor.shifts)
    program = Program()  # the reference model takes no argument of 48 bits
    y = rescale(program, program.tensor(x, "i48", plain(2)), factor, (0, 0), "i32", "y")
    data = module_text([program.function("main", [y], "")]).encode()
    got = tosa.run(tmp_path, [(data, [[]])])[0]
    assert not isinstance(got, str), got
    np.testing.assert_array_equal(got[0][0], wanted)


@pytest.mark.parametrize(
    ("element", "zeros", "result"),
    [("i8", (-128, 127), "i8"), ("i8", (17, 0), "i16"), ("i16", (0, -3), "i8"), ("i8", (-5, 0), "i32")],
)
def test_zero_points_move_and_results_saturate(element, zeros, result, tmp_path):
    bounds, ends = np.iinfo(f"int{element[1:]}"), np.iinfo(f"int{result[1:]}")
    x = np.arange(bounds.min, bounds.max + 1).reshape(-1, 1)
    factor = Factor(np.asarray([3 << 29]), np.asarray([31]), double_round=True)
    exact = apply_scale_32(x - zeros[0], factor.multipliers, factor.shifts, double_round=True) + zeros[1]
    data = written(element, factor, len(x), zeros, result)
    got = tosa.run(tmp_path, [(data, [[x.astype(bounds.dtype)]])])[0]
    assert not isinstance(got, str), got
    np.testing.assert_array_equal(got[0][0], np.clip(exact, ends.min, ends.max))


def test_a_transpose_and_the_way_back_are_one_operation():
    program = Program()
    x = program.argument("x", (1, 2, 3, 4), "i8")
    last = program.ordered(x, (0, 2, 3, 1))
    assert program.ordered(last, plain(4)) == x
    assert program.ordered(x, (0, 2, 3, 1)) == last
    text = module_text([program.function("main", [last], "")])
    assert text.count("tosa.transpose") == 1


def test_a_transpose_of_ones_is_a_reshape():
    program = Program()
    x = program.argument("x", (1, 2, 1, 1), "i8")
    last = program.ordered(x, (0, 2, 3, 1))
    assert last == Tensor(last.name, (1, 1, 1, 2), "i8", (0, 2, 3, 1))
    text = module_text([program.function("main", [last], "")])
    assert "tosa.reshape" in text
    assert "tosa.transpose" not in text
