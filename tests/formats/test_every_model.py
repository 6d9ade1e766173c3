"""Every model of the folder is written in the formats for compilers.

Whether what is written runs is asked next to each format; here a model must not be lost unnoticed.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import planner
from tests.plans.recorded import MODELS as NAMES

MODELS = Path(os.environ.get("QPLAN_MODELS", "../shared/models"))
TARGETS = {"stablehlo": "stablehlo", "stablehlo-int": "stablehlo", "tosa": "tosa-int8"}
# Sizes that a model leaves open and cannot be 1.
SIZES = {
    "silero_vad_16k_op15": {"input": (1, 576), "state": (2, 1, 128)},
    "stories260k_decode": {"attention_mask": (1, 2)},
}
VALUES = {"sr": 16000}
LARGE = {"bert_l4_h256", "mobilenetv2_100", "squeezenet_real_fp32", "unet_b32_128"}


def sized(path, count=1):
    """A model with the sizes that it leaves open, and samples of it."""
    model, fixed = planner.load_model(path), SIZES.get(path.stem, {})
    values = {
        name: replace(value, shape=fixed.get(name, value.shape)) for name, value in model.values.items()
    }
    model, random = replace(model, values=values), np.random.default_rng(0)
    samples = [{name: _numbers(model.values[name], random) for name in model.inputs} for _ in range(count)]
    return model, samples


def _numbers(value, random):
    shape = [size if isinstance(size, int) else 1 for size in value.shape]
    whole = np.full(shape, VALUES.get(value.name, 1), np.int64)
    return random.normal(size=shape).astype(np.float32) if value.is_float else whole


def planned(path, target):
    model, samples = sized(path)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    return ready, planner.plan(ready, target)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.soak if n.split("/")[1] in LARGE else ()) for n in NAMES],
)
def test_a_model_is_written(name):
    path = MODELS / f"{name}.onnx"
    if not path.is_file():
        pytest.skip(f"no {path}: set QPLAN_MODELS")
    plans = {}
    for form, target in TARGETS.items():
        plans[target] = plans.get(target) or planned(path, target)
        assert planner.export(*plans[target], form)


def test_the_list_has_every_model_of_the_folder():
    if not MODELS.is_dir():
        pytest.skip(f"no {MODELS}: set QPLAN_MODELS")
    assert {str(path.relative_to(MODELS).with_suffix("")) for path in MODELS.glob("*/*.onnx")} == set(NAMES)
