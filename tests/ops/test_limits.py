"""Limits of operands: the cases next to each bound, taken and refused."""

import numpy as np
import pytest

from planner.ir.graph import Op
from planner.ops import OPERATORS
from planner.ops.operands import Operands

# Operator, shapes of its operands, attributes, numbers of operands by place, and words of what is refused.
CASES = [
    ("DepthToSpace", [(1, 4, 3, 5)], {"blocksize": 2}, {}, ""),
    ("DepthToSpace", [(1, 2, 4, 4)], {"blocksize": 2}, {}, "blocks of 2 x 2 do not divide"),
    ("DepthToSpace", [(1, 6, 4, 4)], {"blocksize": 2}, {}, "blocks of 2 x 2 do not divide"),
    ("DepthToSpace", [(1, None, 4, 4)], {"blocksize": 2}, {}, ""),
    ("SpaceToDepth", [(1, 3, 4, 6)], {"blocksize": 2}, {}, ""),
    ("SpaceToDepth", [(1, 4, 4, 5)], {"blocksize": 2}, {}, "blocks of 2 x 2 do not divide"),
    ("Concat", [(1, 2), (1, 2)], {"axis": 1}, {}, ""),
    ("Concat", [(1, 2), (1, 2)], {"axis": -2}, {}, ""),
    ("Concat", [(1, 2), (1, 2)], {"axis": 2}, {}, "axis 2 of an operand of 2 dimensions"),
    ("Concat", [(1, 2), (1, 2)], {"axis": -3}, {}, "axis -3 of an operand of 2 dimensions"),
    ("Gather", [(3, 2), (2,)], {"axis": 0}, {1: [-3, 2]}, ""),
    ("Gather", [(3, 2), (2,)], {"axis": 0}, {1: [0, 3]}, "index 3"),
    ("Gather", [(3, 2), (2,)], {"axis": 0}, {1: [-4, 0]}, "index -4"),
    ("Gather", [(3, 2), (2,)], {"axis": 1}, {1: [1, 2]}, "index 2"),
    ("Gather", [(2, 3), (2,)], {"axis": 1}, {1: [1, 2]}, ""),
    ("Gather", [(3, 2), (2,)], {"axis": -1}, {1: [1, 2]}, "index 2"),
    ("Conv", [(1, 4, 5, 5), (6, 2, 3, 3)], {"group": 2}, {}, ""),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3)], {"group": 2}, {}, "group"),
    ("Conv", [(1, 4, 5, 5), (5, 2, 3, 3)], {"group": 2}, {}, "group"),
    ("Pad", [(2, 3), (4,)], {}, {1: [0, -1, 0, -2]}, ""),
    ("Pad", [(2, 3), (4,)], {}, {1: [0, -2, 0, -2]}, "pads [0, -2, 0, -2] leave -1 of dimension 1"),
    ("Pad", [(2, 3), (4,)], {}, {1: [-1, 0, -2, 0]}, "pads [-1, 0, -2, 0] leave -1 of dimension 0"),
    ("Pad", [(2, 3), (4,)], {}, {1: [-2, -3, 0, 0]}, ""),
    ("Pad", [(None, 3), (4,)], {}, {1: [-9, 0, 0, 0]}, ""),
    ("Pad", [(2, 3), (2,), (), (1,)], {}, {1: [-9, -9], 3: [1]}, ""),
    *(
        (kind, [(2, 3)], {"axis": axis}, {}, f"axis {axis} of an operand of 2 dimensions" if refused else "")
        for kind, least, most in (
            ("LayerNormalization", -2, 1),
            ("Softmax", -2, 2),
            ("Flatten", -2, 2),
            ("OneHot", -3, 2),
        )
        for axis, refused in ((least, False), (most, False), (least - 1, True), (most + 1, True))
    ),
    ("Softmax", [None], {"axis": 9}, {}, ""),
    ("Softmax", [(2, 3)], {}, {}, ""),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3), (6,)], {}, {}, ""),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3), (5,)], {}, {}, "a bias of 5 numbers for 6 channels"),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3), (None,)], {}, {}, ""),
    ("Conv", [(1, 4, 5, 5), (6, None, 3, 3)], {}, {}, ""),
    ("Conv", [(1, None, 5, 5), (6, 3, 3, 3)], {}, {}, ""),
    ("Conv", [(4,), (6, 3, 3, 3)], {}, {}, "a window of 2 dimensions over 0"),
    ("Conv", [(1, 4, 5, 5), (6, 4)], {}, {}, "a window of 0 dimensions over 2"),
    ("Conv", [None, (6, 4, 3, 3)], {}, {}, ""),
    ("Conv", [(1, 3, 5, 5), (6, 4, 3, 3)], {}, {}, "3 channels, its weight [6, 4, 3, 3] takes 4 in 1 groups"),
    (
        "Conv",
        [(1, 4, 5, 5), (5, 2, 3, 3)],
        {"group": 2},
        {},
        "2 groups of 5 channels, which they do not divide",
    ),
    (
        *("Conv", [(1, 4, 5, 5), (6, 4, 3, 3)], {"kernel_shape": (3, 2)}, {}),
        "kernel_shape [3, 2] of a weight [6, 4, 3, 3]",
    ),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3)], {"kernel_shape": (3, 3)}, {}, ""),
    ("Conv", [(1, 4, 5, 3), (6, 4, 5, 3)], {}, {}, ""),
    ("Conv", [(1, 4, 5, 3), (6, 4, 6, 3)], {}, {}, "a window 6 wide over dimension 2, which is 5 wide"),
    ("Conv", [(1, 4, 5, 3), (6, 4, 5, 4)], {}, {}, "a window 4 wide over dimension 3, which is 3 wide"),
    ("Conv", [(1, 4, 5, 5), (6, 4, 3, 3)], {"dilations": (2, 2)}, {}, ""),
    ("Conv", [(1, 4, 5, 4), (6, 4, 3, 3)], {"dilations": (2, 2)}, {}, "a window 5 wide over dimension 3"),
    ("Conv", [(1, 4, 5, 4), (6, 4, 3, 3)], {"dilations": (2, 2), "pads": (0, 1, 0, 0)}, {}, ""),
    ("Conv", [(1, 4, 5, 4), (6, 4, 3, 3)], {"dilations": (2, 2), "pads": (0, 0, 0, 1)}, {}, ""),
    (
        *("Conv", [(1, 4, 4, 4), (6, 4, 7, 3)], {"pads": (1, 0, 1, 0)}, {}),
        "a window 7 wide over dimension 2, which is 6 wide",
    ),
    ("Conv", [(1, 4, 5, 5), (6, 4, 7, 7)], {"auto_pad": "SAME_UPPER"}, {}, ""),
    ("Conv", [(1, 4, None, 5), (6, 4, 7, 3)], {}, {}, ""),
    ("ConvInteger", [(1, 4, 5, 5), (6, 4, 3, 3), (1,), (1,)], {}, {}, ""),
    ("ConvInteger", [(1, 4, 5, 5), (6, 3, 3, 3)], {}, {}, "takes 3 in 1 groups"),
    ("ConvInteger", [(1, 4, 5, 5), (6, 4, 6, 3)], {}, {}, "a window 6 wide over dimension 2"),
    ("QLinearConv", [(1, 4, 5, 5), (), (), (6, 4, 3, 3)], {}, {}, ""),
    ("QLinearConv", [(1, 4, 5, 5), (), (), (6, 3, 3, 3)], {}, {}, "takes 3 in 1 groups"),
    ("QLinearConv", [(1, 4, 5, 5), (), (), (6, 4, 3, 6)], {}, {}, "a window 6 wide over dimension 3"),
    ("ConvTranspose", [(1, 4, 5, 5), (4, 3, 3, 3), (6,)], {"group": 2}, {}, ""),
    (
        "ConvTranspose",
        [(1, 4, 5, 5), (4, 3, 3, 3), (3,)],
        {"group": 2},
        {},
        "a bias of 3 numbers for 6 channels",
    ),
    ("ConvTranspose", [(1, 3, 5, 5), (4, 3, 3, 3)], {}, {}, "its input has 3 channels"),
    ("ConvTranspose", [(1, 3, 5, 5), (3, 3, 3, 3)], {"group": 2}, {}, "2 groups of 3 channels"),
    ("ConvTranspose", [(1, 4, 2, 2), (4, 3, 3, 3)], {}, {}, ""),
    ("MaxPool", [(1, 4, 5, 5)], {"kernel_shape": (5, 5)}, {}, ""),
    ("MaxPool", [(1, 4, 5, 5)], {"kernel_shape": (5, 6)}, {}, "a window 6 wide over dimension 3"),
    ("MaxPool", [(1, 4, 5, 5)], {"kernel_shape": (5,)}, {}, "a window of 1 dimensions over 2"),
    ("MaxPool", [(1, 4, 5, 5)], {"kernel_shape": (6, 6), "pads": (9, 9)}, {}, ""),
    ("GatherND", [(3, 2), (2, 2)], {}, {1: [[2, 1], [-3, -2]]}, ""),
    ("GatherND", [(3, 2), (1, 2)], {}, {1: [[1, 2]]}, "index 2 into dimension 1, which has 2 entries"),
    ("GatherND", [(3, 2), (1, 1)], {}, {1: [[3]]}, "index 3 into dimension 0, which has 3 entries"),
    ("GatherND", [(3, 2), (3, 1)], {"batch_dims": 1}, {1: [[1], [-2], [0]]}, ""),
    ("GatherND", [(3, 2), (3, 1)], {"batch_dims": 1}, {1: [[1], [2], [0]]}, "index 2 into dimension 1"),
    ("GatherND", [(3, 2), (1, 3)], {}, {1: [[9, 9, 9]]}, ""),
    ("GatherND", [(3, None), (1, 2)], {}, {1: [[0, 9]]}, ""),
    ("GatherND", [(3, 2), (0, 2)], {}, {1: np.zeros((0, 2))}, ""),
    (
        "ScatterND",
        [(3, 2), (1, 1), (1, 2)],
        {},
        {1: [[-4]]},
        "index -4 into dimension 0, which has 3 entries",
    ),
    ("Gather", [(3, 2), ()], {"axis": 5}, {1: 9}, "axis 5 of an operand of 2 dimensions"),
    ("GatherElements", [(3, 2), (1, 2)], {"axis": 1}, {1: [[0, 2]]}, "index 2 into dimension 1"),
    ("Reshape", [(2, 6), (2,)], {}, {1: [3, 4]}, ""),
    ("Reshape", [(2, 6), (2,)], {}, {1: [3, 5]}, "[2, 6] has 12 elements, the shape [3, 5] holds 15"),
    ("Reshape", [(2, None), (2,)], {}, {1: [3, 5]}, ""),
    ("GroupNormalization", [(1, 6, 2), (6,), (6,)], {"num_groups": 3}, {}, ""),
    ("GroupNormalization", [(1, 6, 2), (6,), (6,)], {"num_groups": 4}, {}, "4 groups of 6 channels"),
    (
        *("GroupNormalization", [(1, 6, 2), (3,), (6,)], {"num_groups": 3}, {}),
        "a scale of shape [3] for 6 channels",
    ),
    (
        "GroupNormalization",
        [(1, 6, 2), (6,), (3,)],
        {"num_groups": 3},
        {},
        "a bias of shape [3] for 6 channels",
    ),
    ("GroupNormalization", [(1, None, 2), (3,), (3,)], {"num_groups": 3}, {}, ""),
    ("InstanceNormalization", [(1, 6, 2), (6,), (6,)], {}, {}, ""),
    ("InstanceNormalization", [(1, 6, 2), (1,), (6,)], {}, {}, "a scale of shape [1] for 6 channels"),
    ("InstanceNormalization", [(1, 6, 2), (None,), (6, 1)], {}, {}, "a bias of shape [6, 1] for 6 channels"),
    ("InstanceNormalization", [(6,), (5,), (5,)], {}, {}, ""),
    ("PRelu", [(1, 4, 5), (4, 1)], {}, {}, ""),
    ("PRelu", [(1, 4, 5), (5,)], {}, {}, ""),
    ("PRelu", [(1, 4, None), (4, 3)], {}, {}, ""),
    ("PRelu", [(1, 4, 5), (4,)], {}, {}, "a slope of shape [4] does not broadcast to [1, 4, 5]"),
    ("PRelu", [(4, 5), (1, 4, 1)], {}, {}, "a slope of shape [1, 4, 1] does not broadcast to [4, 5]"),
    ("PRelu", [(4, 5), None], {}, {}, ""),
    *(
        case
        for kind, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1))
        for case in (
            (kind, [(7, 1, 3), (1, gates * 5, 3), (1, gates * 5, 5), (1, gates * 10)], {}, {}, ""),
            (
                *(kind, [(7, 1, 3), (2, gates * 5, 3), (2, gates * 5, 5), (2, gates * 10)]),
                *({"direction": "bidirectional"}, {}, ""),
            ),
            (
                kind,
                [(7, 1, 3), (1, gates * 5, 4), (1, gates * 5, 5)],
                {},
                {},
                f"W is [1, {gates * 5}, 4]; 5 states",
            ),
            (kind, [(7, 1, 3), (2, gates * 5, 3), (1, gates * 5, 5)], {}, {}, "states in 1 directions take"),
            (kind, [(7, 1, 3), (1, gates * 5, 3), (1, gates * 5, 5), (1, gates * 5)], {}, {}, "B is"),
            (kind, [(7, 1, 3), (1, gates * 5, 3), (1, gates * 5, 5)], {"hidden_size": 4}, {}, "; 4 states"),
            (kind, [(7, 1, 3), (1, gates * 5, 3), None], {"hidden_size": 5}, {}, ""),
            (kind, [(7, 1, None), (1, None, 4), (1, gates * 5, 5)], {}, {}, ""),
            (kind, [(7, 1, 3), (9, 9, 9), None], {}, {}, ""),
        )
    ),
    ("Resize", [(1, 1), (), (2,)], {}, {2: [1, 2]}, ""),
    (
        "Resize",
        [(1, 1), (), (2,)],
        {},
        {2: [1, 0]},
        "its scales are [1, 0]; accepted: finite numbers above 0",
    ),
    ("Resize", [(1, 1), (), (2,)], {}, {2: [1, -1]}, "its scales are [1, -1]"),
    ("Resize", [(1, 1), (), (2,)], {}, {2: [1, np.inf]}, "its scales are [1.0, inf]"),
    ("Resize", [(1, 1), (), (0,)], {}, {2: []}, ""),
]


def problems(kind, shapes, attributes, numbers, opset=21):
    names = [f"x{i}" for i in range(len(shapes))]
    arrays = {f"x{i}": np.asarray(array) for i, array in numbers.items()}
    op = Op("op", kind, tuple(names), ("y",), attributes)
    sizes = dict(zip(names, shapes, strict=True))
    if kind == "Reshape":
        sizes["y"] = tuple(numbers[1])
    known = Operands(op, sizes.get, arrays.get, opset)
    return [text for limit in OPERATORS[kind].limits for text in limit(known)]


def test_a_group_norm_had_a_factor_for_each_group_before_opset_21():
    shapes = [(1, 6, 2), (3,), (3,)]
    assert problems("GroupNormalization", shapes, {"num_groups": 3}, {}, 20) == []
    assert problems("GroupNormalization", [(1, 6, 2), (6,), (3,)], {"num_groups": 3}, {}, 20) == [
        "a scale of shape [6] for 3 groups"
    ]
    assert len(problems("GroupNormalization", shapes, {"num_groups": 3}, {}, 21)) == 2


def test_every_limit_is_met_and_passed():
    limits = {limit for operator in OPERATORS.values() for limit in operator.limits}
    for refused in (False, True):
        kinds = {kind for kind, *_, words in CASES if bool(words) == refused}
        assert {limit for kind in kinds for limit in OPERATORS[kind].limits} == limits


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "numbers", "refused"),
    CASES,
    ids=[f"{i}_{c[0]}" for i, c in enumerate(CASES)],
)
def test_what_lies_beside_a_limit(kind, shapes, attributes, numbers, refused):
    found = problems(kind, shapes, attributes, numbers)
    assert bool(found) == bool(refused), found
    assert not refused or any(refused in text for text in found), found
