"""Shares of the taps of convolutions: counted by hand, and by running an op on ones."""

import numpy as np
import pytest

from planner.interpreter.kernels.conv import conv_accumulate, conv_transpose_accumulate
from planner.ir.graph import Op
from planner.ops.geometry.windows import conv_geometry
from planner.weight_conditioning.taps import tap_shares

CASES = [
    ("Conv", {}, (1, 1, 5), (3,)),
    ("Conv", {"pads": (1, 1)}, (1, 1, 4), (3,)),
    ("Conv", {"pads": (2, 0), "strides": (2,), "dilations": (2,)}, (1, 1, 7), (2,)),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": (2, 2)}, (1, 1, 6, 5), (3, 3)),
    ("Conv", {"pads": (1, 2, 0, 1), "strides": (1, 3)}, (1, 1, 4, 9), (2, 4)),
    ("ConvTranspose", {"strides": (2, 2)}, (1, 1, 3, 3), (2, 2)),
    ("ConvTranspose", {"strides": (2,), "pads": (1, 1), "output_padding": (1,)}, (1, 1, 4), (3,)),
    ("ConvTranspose", {"strides": (1, 2), "dilations": (2, 1), "pads": (0, 1, 1, 0)}, (1, 1, 4, 3), (3, 3)),
]


def of(kind, attributes):
    return Op("op", kind, ("x", "w"), ("y",), attributes)


def test_a_border_is_met_less_often():
    """Four outputs: the first misses the tap on its left, the last the one on its right."""
    shares = tap_shares(of("Conv", {"pads": (1, 1)}), (1, 1, 4), (3,))
    assert shares.tolist() == [0.75, 1.0, 0.75]


def test_strides_spread_a_transposed_convolution():
    shares = tap_shares(of("ConvTranspose", {"strides": (2,)}), (1, 1, 3), (2,))
    assert shares.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("case", CASES)
def test_shares_are_the_mean_of_the_op_on_ones(case):
    """A weight of one tap alone gives, on an input of ones, that tap's share on average."""
    kind, attributes, shape, kernel = case
    accumulate = {"Conv": conv_accumulate, "ConvTranspose": conv_transpose_accumulate}[kind]
    geometry = conv_geometry(attributes, shape[2:], kernel)
    shares = tap_shares(of(kind, attributes), shape, kernel)
    assert shares.shape == kernel
    for tap in np.ndindex(*kernel):
        weight = np.zeros((1, 1, *kernel), np.int8)
        weight[0, 0][tap] = 1
        ones = np.ones(shape, np.int8)
        result = accumulate(ones, 0, weight, geometry=geometry)
        assert shares[tap] == pytest.approx(float(np.mean(result)), abs=1e-12), tap


def test_unknown_sizes_see_no_border():
    assert (
        tap_shares(of("Conv", {"pads": (1, 1, 1, 1)}), (1, 1, None, 4), (3, 3)).tolist()
        == [[0.75, 1.0, 0.75]] * 3
    )
    shares = tap_shares(of("ConvTranspose", {"strides": (4,)}), (1, 1, "n"), (4,))
    assert shares.tolist() == [0.25] * 4
