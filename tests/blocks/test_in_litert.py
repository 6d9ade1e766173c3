"""Blocks on `litert-int8`: GELU, HARD_SWISH and SOFTMAX of the runtime, whatever ops the model writes."""

import numpy as np
import pytest

import planner
from tests.blocks.spellings import BLOCKS, CASES, NO_GAIN, model_of, samples
from tests.blocks.test_spellings import planned
from tests.oracles import litert

SERVED = [case for case in CASES if case[0] in ("Gelu", "HardSwish", "Softmax")]
FLOAT = [case for case in CASES if case[0] in ("LayerNormalization", "RMSNormalization")]


@pytest.mark.parametrize(("kernel", "name"), SERVED)
def test_a_row_of_the_operator_serves_each_spelling(kernel, name):
    _, plan = planned(model_of(BLOCKS[kernel][name]), "litert-int8")
    assert sorted(one.kernel for one in plan.kernels.values() if one.row) == sorted(
        [kernel, "fully_connected", "fully_connected"]
    )


@pytest.mark.parametrize(("kernel", "name"), FLOAT)
def test_a_norm_is_float_as_a_whole(kernel, name):
    _, plan = planned(model_of(BLOCKS[kernel][name]), "litert-int8")
    assert [one.kernel for one in plan.kernels.values() if one.row is None] == [kernel]


def test_a_norm_without_a_gain_is_float_as_a_whole():
    _, plan = planned(model_of(NO_GAIN), "litert-int8")
    assert [one.kernel for one in plan.kernels.values() if one.row is None] == ["LayerNormalization"]


def test_files_are_what_the_runtime_computes(tmp_path):
    """Each spelling's file gives the integers of the interpreter, to the last."""
    inputs = samples(3, seed=9)
    jobs, expected = [], []
    for kernel, name in SERVED:
        ready, plan = planned(model_of(BLOCKS[kernel][name]), "litert-int8")
        jobs.append((planner.export(ready, plan, "litert"), inputs))
        expected.append([planner.evaluate(ready, plan, one).outputs["output"] for one in inputs])
    for (_, name), found, wanted in zip(SERVED, litert.run(tmp_path, jobs), expected, strict=True):
        assert not isinstance(found, str), found
        for outputs, output in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(outputs["output"], output, err_msg=name)
