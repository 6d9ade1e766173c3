"""Every row of the targets that TOSA's arithmetic serves, as a small program: the reference model against ours."""

import numpy as np
import pytest

import planner
from planner.tryout.kit import TOLERANCE, make_kit
from tests.exporters.tosa.running import agreed
from tests.oracles import tosa

# By target: kernels whose rows TOSA cannot compute, or has no operator for, and the words that say so.
REFUSED = {
    "tosa-int8": {
        "Resize-3": "runs Resize in float",
        "Resize-4": "runs Resize in float",
        "matmul-2": "RESCALE multiplies by 16 bits only",
    },
}


@pytest.mark.parametrize("target", ["tosa-int8"])
def test_every_row_computes_what_the_interpreter_does(target, tmp_path):
    kit = make_kit(planner.load_target(target), form="tosa")
    refused = {item.name: item.refusal for item in kit.items if item.file is None}
    assert refused.keys() == REFUSED[target].keys()
    for name, words in REFUSED[target].items():
        assert words in refused[name]
        assert "tosa accepts" in refused[name]
    items = [item for item in kit.items if item.file is not None]
    jobs = [(item.file, [[item.inputs[name] for name in item.plan.graph.inputs]]) for item in items]
    for item, found in zip(items, tosa.run(tmp_path, jobs), strict=True):
        assert not isinstance(found, str), f"{item.name}: {found}"
        for name, got in zip(item.plan.graph.outputs, found[0], strict=True):
            wanted = item.expected[name]
            np.testing.assert_array_equal(got, wanted, item.name)
