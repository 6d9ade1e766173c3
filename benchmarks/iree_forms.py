"""Which form IREE compiles, and whether it gives what `evaluate` gives: by model, form and backend.

Compiled with the compiler's default flags in `.oracles/iree` (`make oracles`). Stored integers have to be
equal; floats are compared too, as a softmax behind the integers is the compiler's own.

    python -m benchmarks.iree_forms [NAME ...]
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import planner
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles.in_iree import BACKENDS, run

ROOT = Path(__file__).resolve().parents[1]
MODELS = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
FILES = {
    "digits": ROOT / "examples" / "digits" / "digits.onnx",
    "ad01": MODELS / "mlperf-tiny" / "ad01_fp32.onnx",
    "mnist": MODELS / "vision" / "mnist.onnx",
    "resnet8": MODELS / "mlperf-tiny" / "pretrainedResnet.onnx",
    "ultraface": MODELS / "vision" / "ultraface_slim320_op13.onnx",
    "vww": MODELS / "mlperf-tiny" / "vww_96_float.onnx",
}
FORMS = (("tosa", "tosa-int8", None), ("stablehlo-int", "stablehlo", "exact_even"))
"""Form, target, and the arithmetic that the form computes in where it is not each row's own."""


def samples(model: Any, count: int) -> list[Mapping[str, np.ndarray]]:
    """Uniform samples, 0 to 1; open dimensions are 1."""
    random = np.random.default_rng(0)
    shapes = {
        name: [d if isinstance(d, int) else 1 for d in model.values[name].shape] for name in model.inputs
    }
    return [
        {name: random.random(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def rows(name: str, folder: str) -> Iterator[str]:
    """Lines of the table for one model."""
    model = planner.load_model(FILES[name])
    *given, sample = samples(model, 5)
    model = planner.annotate(model, stats=planner.calibrate(model, given))
    for form, target, arithmetic in FORMS:
        plan = planner.plan(model, target)
        text = planner.export(model, plan, form).decode()
        arguments = fed(model, plan, sample) if form == "tosa" else [sample[key] for key in model.inputs]
        evaluation = planner.evaluate(model, plan, sample, arithmetic=arithmetic)
        programs = [(text, arguments, backend) for backend in BACKENDS]
        for backend, (got, seconds) in zip(BACKENDS, run(folder, programs, skips=False), strict=True):
            if isinstance(got, str):
                yield f"| {name} | `{form}` | {backend} | refused: {got} | |"
                continue
            pairs = (
                [(wanted, array) for _, wanted, array in agreed(evaluation, plan, got)]
                if form == "tosa"
                else list(zip((evaluation.outputs[key] for key in model.outputs), got, strict=True))
            )
            off = max(
                float(np.abs(array.reshape(wanted.shape).astype(np.float64) - wanted).max())
                for wanted, array in pairs
            )
            told = "equal" if off == 0 else f"{off:.1e} off"
            yield f"| {name} | `{form}` | {backend} | {told} | {seconds:.0f} s |"


def main() -> None:
    """Print the table."""
    print("| model | form | backend | results | compiled in |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or FILES:
            for row in rows(name, folder):
                print(row, flush=True)


if __name__ == "__main__":
    main()
