"""Operators one by one: the file of each row and of small float models, read again."""

from itertools import islice

import numpy as np
import pytest

import planner
from planner.formats.litert.reader.read import READERS
from planner.interpreter.models import ModelRunner, run_model
from tests.formats.litert.reader.by_hand import Hand
from tests.formats.litert.reader.files import of_floats, of_rows
from tests.formats.litert.writer.running import told
from tests.formats.litert.writer.test_operators import ALL, REFUSED
from tests.oracles import litert

AS_FLOATS = {
    # Indices of an ARG_MAX are reshaped as integers that no row has.
    "ArgMax-1": ["Reshape"],
    # A table in bytes under float ops is written as the look-up of its rows and of their scales, and read so.
    "Gather-2": ["Gather", "Cast", "Gather", "mul"],
}


@pytest.mark.parametrize("part", range(12))
def test_a_row_is_read_as_it_was_written(part):
    for name, item in islice(of_rows().items(), part, None, 12):
        graph = planner.load_model(item.file)
        assert graph.notes == (), name
        plan = planner.plan(graph, "litert-int8")
        rows = [plan.row_of(kernel.name) for kernel in plan.kernels_in_order if kernel.row]
        is_hybrid = any(row.dynamic is not None for row in rows)
        # Around a hybrid kernel, which reads and gives floats, images are turned as floats.
        moved = {"Transpose"} if is_hybrid else set()
        floats = [kernel.kernel for kernel in plan.kernels_in_order if kernel.row is None]
        floats = [kernel for kernel in floats if kernel not in moved]
        assert floats == AS_FLOATS.get(name, []), name
        assert (plan.cost, len(plan.rescales)) == (0.0, 0), name
        before, after = told(item.file).counts, told(planner.export(graph, plan, "litert")).counts
        assert after <= before, name


@pytest.mark.parametrize("name", [name for name in ALL if name not in REFUSED])
def test_a_float_operator_is_read(name):
    graph, sample, data = of_floats()[name]
    read = planner.load_model(data)
    assert read.notes == ()
    wanted, got = ModelRunner(graph).run(sample), run_model(data, sample)
    for key, array in wanted.items():
        np.testing.assert_allclose(got[key], array, rtol=1e-5, atol=1e-5)
    again = planner.export(read, planner.plan(read, "litert-int8"), "litert")
    assert sum(told(again).counts.values()) <= sum(told(data).counts.values())


def test_every_operator_that_is_written_is_read():
    written = {name for item in of_rows().values() for name, _ in told(item.file).operators}
    written |= {name for _, _, data in of_floats().values() for name, _ in told(data).operators}
    assert written <= READERS.keys()


def by_hand(name):
    """A file of one operator that our exporter writes otherwise, and a sample."""
    rng, hand = np.random.default_rng(3), Hand()
    if name == "NOT_EQUAL":
        places = [hand.tensor((2, 3), "INT32"), hand.tensor((2, 3), "INT32")]
        hand.operator(name, 1, places, [hand.tensor((2, 3), "BOOL")], "NotEqualOptions")
        sample = {f"t{i}": rng.integers(0, 2, (2, 3), np.int32) for i in places}
    elif name == "EMBEDDING_LOOKUP":
        rows = rng.normal(size=(5, 4)).astype(np.float32)
        places = [hand.tensor((3,), "INT32"), hand.tensor((5, 4), "FLOAT32", rows.tobytes())]
        hand.operator(name, 1, places, [hand.tensor((3, 4), "FLOAT32")])
        sample = {"t0": np.array([4, 0, 4], np.int32)}
    elif name.startswith("MIRROR_PAD"):
        scales = ("INT8", None, (0.5,), (-3,)) if "stored" in name else ("FLOAT32",)
        amounts = np.array([[2, 1], [0, 0], [1, 3]], np.int32)
        places = [hand.tensor((2, 2, 3), *scales), hand.tensor((3, 2), "INT32", amounts.tobytes())]
        places.append(hand.tensor((5, 2, 7), *scales))
        hand.operator("MIRROR_PAD", 1, places[:2], places[2:], "MirrorPadOptions", {"Mode": 1})
        x = rng.normal(size=(2, 2, 3)) * 20
        sample = {"t0": x.astype(np.int8 if "stored" in name else np.float32)}
    else:
        places = [hand.tensor((4, 5), "FLOAT32"), hand.tensor((2, 3), "FLOAT32"), hand.tensor((2,), "INT32")]
        hand.operator(name, 1, places, [hand.tensor((4, 5), "FLOAT32")], "DynamicUpdateSliceOptions")
        arrays = [rng.normal(size=shape).astype(np.float32) for shape in ((4, 5), (2, 3))]
        sample = {"t0": arrays[0], "t1": arrays[1], "t2": np.array([3, -1], np.int32)}
    given = [place for place in range(len(hand.tensors)) if f"t{place}" in sample]
    return hand.file(given, [len(hand.tensors) - 1]), sample


@pytest.mark.parametrize(
    "name", ["NOT_EQUAL", "EMBEDDING_LOOKUP", "MIRROR_PAD", "MIRROR_PAD stored", "DYNAMIC_UPDATE_SLICE"]
)
def test_an_operator_of_others_is_read(name, tmp_path):
    """A slice that is written at computed places is a ScatterND, which LiteRT has no operator for."""
    data, sample = by_hand(name)
    graph = planner.load_model(data)
    assert graph.notes == ()
    plan = planner.plan(graph, "litert-int8")
    is_written = name != "DYNAMIC_UPDATE_SLICE"
    files = [data, planner.export(graph, plan, "litert")] if is_written else [data]
    found = litert.run(tmp_path, [(file, [sample]) for file in files])
    ours = planner.evaluate(graph, plan, sample).outputs
    for (each,) in found:
        for key, array in each.items():
            np.testing.assert_array_equal(ours[key], array)
