"""What IREE computes of an exported plan, compiled with its default flags, is what `evaluate` computes."""

import os
from pathlib import Path

import numpy as np
import pytest

import planner
from tests.conftest import ROOT
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles.in_iree import BACKENDS, run

MODELS = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))


def results(tmp_path, model, samples, sample):
    """For each form and backend: what `evaluate` says and what IREE gave, or its error."""
    stats = planner.calibrate(model, samples)
    model = planner.annotate(model, stats=stats)
    programs, told = [], []
    for form, target in (("tosa", "tosa-int8"), ("stablehlo-int", "stablehlo")):
        plan = planner.plan(model, target)
        text = planner.export(model, plan, form).decode()
        arguments = fed(model, plan, sample) if form == "tosa" else [sample[name] for name in model.inputs]
        evaluation = planner.evaluate(model, plan, sample)
        for backend in BACKENDS:
            programs.append((text, arguments, backend))
            told.append((form, backend, plan, evaluation))
    for (form, backend, plan, evaluation), (got, _) in zip(told, run(tmp_path, programs), strict=True):
        assert not isinstance(got, str), f"{form} on {backend}: {got}"
        if form == "tosa":
            pairs = [(wanted, array) for _, wanted, array in agreed(evaluation, plan, got)]
        else:
            pairs = [
                (evaluation.outputs[name], array) for name, array in zip(model.outputs, got, strict=True)
            ]
        yield form, backend, pairs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf-tiny/ad01_fp32", "vision/mnist"])
def test_real_models_are_equal_to_evaluate(tmp_path, name):
    path = MODELS / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"no {path}")
    model = planner.load_model(path)
    random = np.random.default_rng(0)
    shape = {
        key: [size if isinstance(size, int) else 1 for size in model.values[key].shape]
        for key in model.inputs
    }
    samples = [{key: random.random(shape[key]).astype(np.float32) for key in model.inputs} for _ in range(5)]
    for form, backend, pairs in results(tmp_path, model, samples[:4], samples[4]):
        for wanted, array in pairs:
            np.testing.assert_array_equal(array.reshape(wanted.shape), wanted, err_msg=f"{form} on {backend}")
