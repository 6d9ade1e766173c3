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
    ("Pad", [(2, 3), (4,)], {}, {1: [0, -2, 0, -2]}, "pads"),
]


def problems(kind, shapes, attributes, numbers):
    names = [f"x{i}" for i in range(len(shapes))]
    arrays = {f"x{i}": np.asarray(array, np.int64) for i, array in numbers.items()}
    op = Op("op", kind, tuple(names), ("y",), attributes)
    known = Operands(op, dict(zip(names, shapes, strict=True)).get, arrays.get)
    return [text for limit in OPERATORS[kind].limits for text in limit(known)]


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "numbers", "refused"),
    CASES,
    ids=[f"{i}_{c[0]}" for i, c in enumerate(CASES)],
)
def test_what_lies_beside_a_limit(kind, shapes, attributes, numbers, refused):
    found = problems(kind, shapes, attributes, numbers)
    assert bool(found) == bool(refused), found
    assert not refused or any(refused in text for text in found), found
