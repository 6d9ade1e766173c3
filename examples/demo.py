"""`make demo`: the digits model on three devices, from a float file to integer files that onnxruntime runs.

Usage: `python examples/demo.py [OUT]`; OUT is `out/demo` by default.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from rich import box
from rich.console import Console
from rich.table import Table

import planner
from planner.errors import UnsupportedExport
from planner.report.totals import totals

DIGITS: Final = Path(__file__).resolve().parent / "digits"
TARGETS: Final = ("onnxruntime-cpu", "litert-int8", "teaching-npu")
FORMATS: Final = ("onnx-qdq", "onnx-qoperator")


@dataclass(frozen=True, slots=True)
class Result:
    """One exported file, judged on the test images.

    Attributes:
      accuracy: share of the images it reads right; `float_accuracy` of the float model.
      worst_class: how many images more it gets wrong of the digit it harms most.
      sqnr: of the probabilities against the float model's, dB.
      size: bytes.
      refused: why this format cannot say the plan; the other figures are then 0.
    """

    target: str
    format: str
    integer: int
    kernels: int
    rescales: int
    float_accuracy: float
    accuracy: float = 0.0
    worst_class: int = 0
    sqnr: float = 0.0
    size: int = 0
    refused: str = ""


def predict(model: bytes, images: np.ndarray) -> np.ndarray:
    """Run an ONNX file; the digit it reads in each image, shape `(N,)`."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"image": images})[0]).argmax(axis=1)


def run_target(name: str, out: Path) -> list[Result]:
    """Plan the digits model for one target, write everything into `out`, and judge the files."""
    test = np.load(DIGITS / "test.npz")
    images, labels = test["image"], test["label"]
    float_right = predict((DIGITS / "digits.onnx").read_bytes(), images) == labels

    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    ready = planner.correct_biases(planner.annotate(model, stats=stats), name, stats)
    plan = planner.plan(ready, name)
    planner.check(plan, ready, planner.load_target(name))

    count = totals(plan)
    comparisons: dict[str, Any] = {}
    results = []
    out.mkdir(parents=True, exist_ok=True)
    for format_ in FORMATS:
        head = (name, format_, count.integer, count.kernels, count.rescales, float(float_right.mean()))
        try:
            data = planner.export(ready, plan, format_)
        except UnsupportedExport as error:
            results.append(Result(*head, refused=str(error)))
            continue
        (out / f"{format_}.onnx").write_bytes(data)
        comparisons[format_] = planner.compare(model, data, [{"image": images}])
        right = predict(data, images) == labels
        worse = max(int(float_right[labels == k].sum() - right[labels == k].sum()) for k in range(10))
        sqnr = comparisons[format_].worst_sqnr
        results.append(Result(*head, float(right.mean()), worse, sqnr, len(data)))
    (out / "plan.json").write_text(plan.to_json(), encoding="utf-8")
    (out / "plan.mlir").write_text(plan.to_mlir(), encoding="utf-8")
    (out / "report.html").write_text(planner.write_report(plan, comparisons), encoding="utf-8")
    return results


def run(out: Path) -> list[Result]:
    """Run the whole demo into a folder."""
    return [result for name in TARGETS for result in run_target(name, out / name)]


def table(results: Sequence[Result]) -> Table:
    """Lay the results out for a person."""
    size = (DIGITS / "digits.onnx").stat().st_size
    shown = Table(
        "device",
        "file",
        "digits read right",
        "worst digit",
        "kernels quantized",
        "rescales",
        "SQNR",
        "size",
        title=f"digits.onnx: {results[0].float_accuracy:.1%} right in float, {size / 1024:.0f} kB",
        box=box.SIMPLE_HEAD,
    )
    for result in results:
        head = (result.target, f"{result.format}.onnx")
        counts = (f"{result.integer} of {result.kernels}", str(result.rescales))
        if result.refused:
            shown.add_row(*head, f"not written: {result.refused}", "", *counts, "", "")
            continue
        change = 100 * (result.accuracy - result.float_accuracy)
        shown.add_row(
            *head,
            f"{result.accuracy:.1%} ({change:+.1f} points)",
            f"{result.worst_class} image{'s' * (result.worst_class != 1)} worse",
            *counts,
            f"{result.sqnr:.1f} dB",
            f"{result.size / 1024:.0f} kB",
        )
    return shown


def main() -> None:
    """Run the demo and say what to look at."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/demo")
    results = run(out)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table(results))
    console.print("450 test images that neither training nor calibration saw, run in onnxruntime.")
    report, plan = out / TARGETS[0] / "report.html", out / TARGETS[0] / "plan.json"
    command = f"{os.path.relpath(Path(sys.executable).parent)}/qplan"
    console.print(
        f"Open {report} for what was decided and why; the other devices lie beside it, each with plan.json,\n"
        f"plan.mlir and the quantized files. Look around with:\n"
        f"  {command} show {plan}\n"
        f"  {command} explain {plan} probabilities",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
