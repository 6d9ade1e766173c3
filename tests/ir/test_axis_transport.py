"""Types per axis and block through data movement: each element keeps the scale and zero point of its slice.

The oracle gives every element its own scale, and moves those as the elements move.
"""

import numpy as np
import pytest

from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.types.axis_transport import moved_types
from planner.ir.types.qtypes import Uniform, storage
from planner.ops import find_movements
from planner.ops.operands import operands_of
from planner.ops.steps import FILLED, apply
from tests.ops.test_indices import CASES

TRIES = 40
FOLLOWED = (
    *("Concat", "Dropout", "Flatten", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Transpose"),
    "Unsqueeze",
)
"""Operators through which one type in ten is followed at least, so that the test sees some."""


def sliced(random, shape, cut):
    """A type with a scale for each slice along one axis, or for each block of two elements along it."""
    axis = int(random.integers(len(shape)))
    count = shape[axis] // 2 if cut == "block" else shape[axis]
    scales = tuple(float(np.float32(one)) for one in random.uniform(0.1, 1.0, count))
    zeros = (
        tuple(int(one) for one in random.integers(-9, 9, count)) if random.random() < 0.5 else (0,) * count
    )
    if cut == "axis":
        return Uniform(storage("i8"), scales, zeros, "f32", axis)
    grid = tuple(count if i == axis else 1 for i in range(len(shape)))
    return Uniform(storage("i8"), scales, zeros, "f32", None, ((axis, 2),), grid)


def spread(kind, shape):
    """Scale and zero point of every element, as one number."""
    grid = kind.grid or tuple(len(kind.scales) if i == kind.axis else 1 for i in range(len(shape)))
    told = (np.asarray(kind.scales) + 100 * np.asarray(kind.zero_points)).reshape(grid)
    for axis, size in enumerate(shape):
        told = np.repeat(told, size // told.shape[axis], axis)
    return told


def tried(name, cut):
    """Random ops on values with such types: the types of results, and what each element should have."""
    random = np.random.default_rng(sum(map(ord, name)))
    for _ in range(TRIES):
        case = CASES[name](random)
        if not case.shape or (cut == "block" and any(size % 2 for size in case.shape)):
            continue
        read = [f"x{i}" for i in range(case.operands)]
        made = [f"y{i}" for i in range(case.results)]
        numbers = {f"c{i}": np.asarray(one) for i, one in enumerate(case.numbers) if one is not None}
        names = (*read, *("" if one is None else f"c{i}" for i, one in enumerate(case.numbers)))
        op = Op("op", name, names, tuple(made), case.attributes)
        values = {one: Value(one, case.shape, "f32") for one in read}
        values |= {one: Value(one, None, "f32") for one in made}
        values |= {one: Value(one, array.shape, "i64") for one, array in numbers.items()}
        constants = {one: Constant(array) for one, array in numbers.items()}
        graph = Graph("m", values, (op,), tuple(read), tuple(made), constants)
        kind = sliced(random, case.shape, cut)
        types = {one: kind if random.random() < 0.5 else sliced(random, case.shape, cut) for one in read}
        found = moved_types(op, types, graph)
        for result, movement in zip(made, find_movements(operands_of(op, graph)), strict=True):
            told = [spread(types[read[i]], case.shape) for i in movement.operands]
            yield (found or {}).get(result), apply(movement, told, FILLED)


@pytest.mark.parametrize("cut", ["axis", "block"])
@pytest.mark.parametrize("name", CASES)
def test_each_element_keeps_the_type_of_its_slice(name, cut):
    """A type is the right one, or none."""
    for kind, told in tried(name, cut):
        if kind is not None:
            own = spread(kind, told.shape)
            # What fills is the real 0 in whatever slice it lies.
            assert ((own == told) | (told == FILLED)).all()


@pytest.mark.parametrize("name", FOLLOWED)
def test_types_are_followed_where_slices_stay_whole(name):
    found = [kind for kind, _ in tried(name, "axis")]
    assert 10 * sum(kind is not None for kind in found) >= len(found)
