"""Fixed point of 16 bits against the functions it stands for, and at the words where it could wrap."""

import numpy as np
import pytest

from planner.ir.arithmetic.words import divided_by_power, high_product, sigmoids, tanhs

WORDS = np.arange(-(1 << 15), 1 << 15)


def test_a_sigmoid_is_near_the_function():
    found = sigmoids()
    wanted = 32768 / (1 + np.exp(-WORDS / 4096))
    assert np.abs(found - wanted).max() < 7
    assert (found[0], found[1 << 15], found[-1]) == (11, 16384, 32756)


@pytest.mark.parametrize("bits", range(7))
def test_a_tangent_is_near_the_function_and_odd(bits):
    found = tanhs(bits)
    assert np.abs(found - 32768 * np.tanh(WORDS / 2 ** (15 - bits))).max() < 13
    np.testing.assert_array_equal(found[1:], -found[1:][::-1])
    assert found[1 << 15] == 0


def test_products_and_quotients_round_ties_as_they_say():
    ties = np.array([-3, -1, 1, 3]) << 14
    np.testing.assert_array_equal(high_product(ties, 1), [-1, 0, 1, 2])
    np.testing.assert_array_equal(divided_by_power(np.array([-3, -1, 1, 3]), 1), [-2, -1, 1, 2])
