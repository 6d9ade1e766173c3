"""Every real model on every shipped target, computed: the interpreter takes each plan, near the float."""

import numpy as np
import pytest

import planner
from benchmarks.samples import SAMPLERS, Draw
from benchmarks.target_matrix import target_ids
from planner.interpreter.models import run_model

LEAST_DB = 6.0
"""ultraface's worst on three samples is 7.5 dB; a plan that computes something else has none."""

CONDITIONED = {("ultraface_slim320_op13", "dpuczdx8g"): "equalize,absorb,correct"}
"""What is done to the weights before: 42 convolutions with one power of two a tensor leave 3.4 dB without."""

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_target_computes_it(name, models):
    (path,) = models.glob(f"*/{name}.onnx")
    model = planner.load_model(path)
    calibration, held_out = (SAMPLERS[name](Draw(path, 8, held_out=held)) for held in (False, True))
    stats = planner.calibrate(model, calibration)
    ready = planner.annotate(model, stats=stats)
    wanted = [run_model(path, sample) for sample in held_out[:3]]
    for target in target_ids():
        its = ready
        if methods := CONDITIONED.get((name, target)):
            fine = planner.condition(model, methods, target=target, stats=stats, samples=calibration).model
            its = planner.annotate(fine, stats=planner.calibrate(fine, calibration))
        plan = planner.plan(its, target)
        found = [planner.evaluate(its, plan, sample).outputs for sample in held_out[:3]]
        assert decibel(wanted, found) > LEAST_DB, (name, target)


def decibel(wanted, found):
    """10 log10 of signal over noise, over all float outputs of all samples."""
    pairs = [
        (array.astype(np.float64), np.asarray(other[key], np.float64))
        for one, other in zip(wanted, found, strict=True)
        for key, array in one.items()
        if array.dtype.kind == "f"
    ]
    noise = sum(float(np.square(a - b).sum()) for a, b in pairs)
    signal = sum(float(np.square(a).sum()) for a, _ in pairs)
    return np.inf if noise == 0 else 10 * np.log10(signal / noise)
