"""Every row of the targets in TOSA's arithmetic, as a small program: the reference model against ours."""

import numpy as np
import pytest

import planner
from planner.target_tests.probe_kit import make_kit
from tests.oracles import tosa

# By target: kernels whose rows TOSA cannot compute, or has no operator for, and the words that say so.
REFUSED = {
    "tosa-int8": {
        "matmul-2": "RESCALE multiplies by 16 bits only",
    },
    "litert-int8": {
        **dict.fromkeys(
            ("conv2d-2", "depthwise_conv2d-2", "transpose_conv-2", "batch_matmul-2"), "in litert_16"
        ),
        **dict.fromkeys(("AveragePool-3", "AveragePool-6", "ReduceMean-1", "ReduceMean-2"), "does in litert"),
        **dict.fromkeys(("Resize-2", "Resize-4", "Softmax-2"), "does in litert"),
        "GatherND-1": "runs GatherND in float",
        "LSTM-1": "16-bit gates of LiteRT",
        "l2_normalization-1": "runs LpNormalization in float",
    },
    "ethos-u55": {},
    "teaching-npu": {},
}
# Computed in float32 by the plan itself: sums, exponentials and reciprocals have no last bit in common.
NEARLY = {"LogSoftmax", "Softmax"}


@pytest.mark.parametrize(
    "target",
    ["tosa-int8", *(pytest.param(name, marks=pytest.mark.soak) for name in REFUSED if name != "tosa-int8")],
)
def test_every_row_computes_what_the_interpreter_does(target, tmp_path):
    kit = make_kit(planner.load_target(target), form="tosa")
    # A row's further choices of types are told by a number behind a dot.
    refused = {item.name.partition(".")[0]: item.refusal for item in kit.items if item.file is None}
    recurrent = {name for name in refused if name.startswith(("GRU-", "LSTM-"))} - REFUSED[target].keys()
    assert all("no TOSA operators compute" in refused.pop(name) for name in recurrent)
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
            np.testing.assert_allclose(got, wanted, rtol=0, atol=item.kernel in NEARLY, err_msg=item.name)
            assert np.count_nonzero(got != wanted) <= 0.05 * wanted.size, item.name
