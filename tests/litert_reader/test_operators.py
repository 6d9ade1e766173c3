"""Operators one by one: the file of each row and of small float models, read again."""

from itertools import islice

import numpy as np
import pytest

import planner
from planner.interpreter.models import ModelRunner, run_model
from planner.litert_reader.read import READERS
from tests.exporters.litert.running import told
from tests.exporters.litert.test_operators import ALL, REFUSED
from tests.litert_reader.files import of_floats, of_rows

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
        floats = [kernel.kernel for kernel in plan.kernels_in_order if kernel.row is None]
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
