"""Sparse constants: every layout of levels is the tensor that the runtime's DENSIFY makes of it."""

from itertools import product

import numpy as np
import pytest

import planner
from planner.errors import ModelError
from planner.interpreter.models import run_model
from tests.formats.litert.reader.by_hand import Hand, Sparse
from tests.oracles import litert

DENSE, SPARSE = "dense", "sparse"
LAYOUTS = {
    "rows": ((0, 1), (), (), (DENSE, SPARSE)),
    "columns": ((1, 0), (), (), (DENSE, SPARSE)),
    "rows and columns": ((0, 1), (), (), (SPARSE, SPARSE)),
    "dense behind sparse": ((0, 1), (), (), (SPARSE, DENSE)),
    "blocks of columns": ((0, 1, 2), (1,), (4,), (DENSE, SPARSE, DENSE)),
    "blocks of both": ((0, 1, 2, 3), (0, 1), (2, 4), (DENSE, SPARSE, DENSE, DENSE)),
    "blocks of both, turned": ((0, 1, 3, 2), (0, 1), (2, 4), (SPARSE, SPARSE, DENSE, DENSE)),
}


def weights(seed=0):
    """Eight by twelve, three quarters of them zero in blocks."""
    rng = np.random.default_rng(seed)
    kept = np.kron(rng.random((4, 3)) < 0.4, np.ones((2, 4)))
    return (rng.normal(size=(8, 12)) * kept).astype(np.float32)


def stored(array, layout):
    """The sparse form of a matrix: numbers, and what the file says of its levels."""
    order, blocks, sizes, formats = layout
    inner = [dict(zip(blocks, sizes, strict=True)).get(axis, 1) for axis in range(array.ndim)]
    parts = [size for axis, one in enumerate(inner) for size in (array.shape[axis] // one, one)]
    axes = [*range(0, 2 * array.ndim, 2), *(2 * axis + 1 for axis in blocks)]
    rest = [axis for axis in range(2 * array.ndim) if axis not in axes]
    apart = array.reshape(parts).transpose([*axes, *rest]).reshape([parts[axis] for axis in axes])
    apart = apart.transpose(order)
    places, levels = [()], []
    for size, form in zip(apart.shape, formats, strict=True):
        if form == DENSE:
            levels.append((size, None, None))
            places = [(*place, index) for place, index in product(places, range(size))]
            continue
        found = [[index for index in range(size) if np.any(apart[(*place, index)])] for place in places]
        ends = np.cumsum([0, *map(len, found)])
        levels.append((0, ends.tolist(), [index for row in found for index in row]))
        places = [(*place, index) for place, row in zip(places, found, strict=True) for index in row]
    numbers = np.asarray([apart[place] for place in places], np.float32)
    return numbers, Sparse(tuple(order), tuple(blocks), tuple(levels))


def product_file(numbers, sparse, bits=8):
    """A fully connected layer of sparse weights."""
    hand = Hand(index_bits=bits)
    hand.tensor((1, 12), "FLOAT32")
    hand.tensor((8, 12), "FLOAT32", numbers.tobytes(), sparse=sparse)
    hand.tensor((8, 12), "FLOAT32")
    hand.tensor((1, 8), "FLOAT32")
    hand.operator("DENSIFY", 1, (1,), (2,))
    hand.operator("FULLY_CONNECTED", 1, (0, 2, -1), (3,), "FullyConnectedOptions")
    return hand.file([0], [3])


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_what_the_runtime_reads(name, bits, tmp_path):
    whole = weights()
    data = product_file(*stored(whole, LAYOUTS[name]), bits)
    x = np.random.default_rng(1).normal(size=(1, 12)).astype(np.float32)
    graph = planner.load_model(data)
    assert not graph.notes
    (constant,) = [item.array for item in graph.constants.values() if item.array.size == whole.size]
    np.testing.assert_array_equal(constant if constant.shape == whole.shape else constant.T, whole)
    own = run_model(data, {"t0": x})
    np.testing.assert_allclose(own["t3"], x @ whole.T, rtol=1e-5, atol=1e-6)
    if bits == 8:
        (found,) = litert.run(tmp_path, [(data, [{"t0": x}])], kernels="optimized")
        assert not isinstance(found, str), found
        np.testing.assert_allclose(own["t3"], found[0]["t3"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("order", "blocks", "levels", "said"),
    [
        ((0, 0), (), ((8, None, None), (12, None, None)), "axes"),
        ((0,), (), ((8, None, None),), "levels"),
        ((0, 1), (), ((7, None, None), (12, None, None)), "a level of 7"),
        ((0, 1), (), ((8, None, None), (0, [0, 1], [0])), "rows or indices"),
        ((0, 1), (), ((8, None, None), (0, [0, 1, 2, 3, 4, 5, 6, 7, 9], [0] * 8)), "rows or indices"),
        ((0, 1), (), ((8, None, None), (0, [0, 2, 1, 3, 4, 5, 6, 7, 8], [0] * 8)), "rows or indices"),
        ((0, 1), (), ((8, None, None), (0, list(range(9)), [12] * 8)), "rows or indices"),
        ((0, 1), (), ((8, None, None), (0, None, None)), "rows or indices"),
        ((0, 1, 2), (1,), ((8, None, None), (2, None, None), (5, None, None)), "blocks"),
        ((0, 1, 2), (2,), ((8, None, None), (3, None, None), (4, None, None)), "blocks"),
        ((0, 1), (), ((8, None, None), (0, list(range(9)), [1] * 8)), "8 bytes|32 hold it"),
    ],
)
def test_levels_that_do_not_fit_are_refused(order, blocks, levels, said):
    data = product_file(np.zeros(2, np.float32), Sparse(order, blocks, levels))
    with pytest.raises(ModelError, match=said):
        planner.load_model(data)


def test_a_level_is_not_larger_than_the_file():
    hand = Hand()
    hand.tensor((1, 1), "FLOAT32")
    hand.tensor((1, 1), "FLOAT32")
    levels = ((200_000, None, None), (0, [0, 0], []))
    hand.tensor((200_000, 1), "FLOAT32", bytes(4), sparse=Sparse((0, 1), (), levels))
    hand.operator("LOGISTIC", 1, (0,), (1,))
    with pytest.raises(ModelError, match=r"has a level of 200000 for 1 places"):
        planner.load_model(hand.file([0], [1]))
