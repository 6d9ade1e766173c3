"""FINN's front half on files for `finn-fpga`: from QONNX to hardware layers, with the numbers of each step.

Each model is planned, written as `finn` and as `qonnx`, and taken through the steps of FINN's builder that
need no tools of Xilinx's (`planner.target_tests.engines.run_finn`), executed in its own Python behind each.
Usage, from the repository root, with the model folder and `make .oracles/finn/.made FINN=CHECKOUT`:
`python -m benchmarks.finn [--only MODEL ...] [--samples N] [--write]`; `--write` puts the table into
docs/results/finn.md. An output is equal where it is within 1e-6 of the largest number of the interpreter's.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import planner
from benchmarks.engine_models import ROOT, prepared, run_models, short
from planner.target_tests.engines.fpga import FinnRun, run_finn

PAGE: Final = ROOT / "docs" / "results" / "finn.md"
PYTHON: Final = ROOT / ".oracles" / "finn" / "bin" / "python"
CALIBRATION: Final = 32
EQUAL: Final = 1e-6
LAST: Final = "hardware layers"
ENDS: Final = frozenset({"Mul", "Add", "Reshape", "Flatten", "Identity", "Transpose"})
"""Operators at a model's ends or between layouts: scales, shapes, biases, which FINN leaves to the host."""

FLOATS: Final = ("ad01_fp32", "mnist", "pretrainedResnet")
"""Float networks, at 4 bits."""
TRAINED: Final = (
    *("TFC_1W1A", "TFC_1W2A", "TFC_2W2A", "bnn_model_fc_1layer", "kwsmlp_w3a3", "qkeras_jettagging"),
    *("unsw_nb15-mlp-w2a2", "branched_model_ch_last at 16x16", "separable_conv_model_ch_last at 16x16"),
    "espcn_subpixel_quant at 16x16",
)
"""Models of QONNX's zoo, those of large pictures for small ones: FINN's Python is slow."""
MODELS: Final = ("digits", "digits at 4 bits", *(f"{name} at 4 bits" for name in FLOATS), *TRAINED)
FORMS: Final = ("finn", "qonnx")


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a file.

    Attributes:
      run: None where the file was refused or not written, with `refusal`.
      worst: the largest difference from the interpreter, as a share of its largest number.
    """

    model: str
    form: str
    run: FinnRun | None = None
    worst: float = 0.0
    refusal: str = ""


def measure(name: str, count: int) -> Iterator[Record]:
    """Plan a model, and take its files through FINN."""
    model, samples = prepared(name, "finn-fpga", CALIBRATION, count, seen=False)
    plan = planner.plan(model, "finn-fpga")
    wanted = [planner.evaluate(model, plan, sample).outputs for sample in samples]
    for form in FORMS:
        try:
            data = planner.export(model, plan, form)
        except planner.PlannerError as error:
            yield Record(name, form, refusal=f"not written: {error.message}")
            continue
        with tempfile.TemporaryDirectory() as work:
            (run,) = run_finn(str(PYTHON), Path(work), [(data, samples)])
        if isinstance(run, str):
            yield Record(name, form, refusal=f"refused: {run}")
        else:
            yield Record(name, form, run, _worst(wanted, run.outputs))


def _worst(wanted: Sequence[Mapping[str, np.ndarray]], found: Sequence[Mapping[str, np.ndarray]]) -> float:
    pairs = [
        (np.asarray(one[name]), other[name]) for one, other in zip(wanted, found, strict=True) for name in one
    ]
    largest = max(float(np.abs(one).max(initial=0)) for one, _ in pairs) or 1.0
    return max(float(np.abs(one.ravel() - other.ravel()).max(initial=0)) for one, other in pairs) / largest


def table(records: Sequence[Record]) -> Iterator[str]:
    """A row for each file."""
    heads = ("furthest from the interpreter", "hardware layers", "in software", "with a layer")
    yield f"| model | file | steps | {' | '.join(heads)} |"
    yield "|---|---|---:|---|---|---|---|"
    for record in records:
        run = record.run
        if run is None:
            yield f"| `{record.model}` | `{record.form}` | 0 | {short(record.refusal)} |  |  |  |"
            continue
        passed = sum(step.difference is not None for step in run.steps)
        stopped = "" if run.stopped is None else f"; stops at {run.stopped.name}: {short(run.stopped.error)}"
        equal = "equal" if record.worst <= EQUAL else f"{record.worst:.1e} of the largest"
        changed = next((step.name for step in run.steps if (step.difference or 0) > EQUAL), "")
        said = equal if equal == "equal" or not changed else f"{equal}, since {changed}"
        reached = any(step.name == LAST and not step.error for step in run.steps)
        left = [kind for kind in run.left if kind not in ENDS]
        rest = f"{_counted(left)} | {_counted(run.missed)}" if reached else " | "
        yield (
            f"| `{record.model}` | `{record.form}` | {passed} of {len(run.steps)} | {said}{stopped} | "
            f"{len(run.layers)} | {rest} |"
        )


def _counted(kinds: Sequence[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).items()) or "none"


if __name__ == "__main__":
    sys.exit(run_models("benchmarks.finn", PAGE, MODELS, measure, table, samples=1, keys=2))
