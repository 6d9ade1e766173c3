"""Archives for hls4ml, from the file to its C simulation without a step by hand: whose numbers come out?

Each model is planned for `hls4ml-fpga`, written as `hls4ml`, converted, compiled and run
(`planner.target_tests.engines.run_hls4ml`). Usage, from the repository root, with the model folder,
`make oracles` and a C++ compiler: `python -m benchmarks.hls4ml [--only MODEL ...] [--samples N] [--write]`;
`--write` puts the rows into docs/results/hls4ml.md. A step is the scale of the type in which the plan has an
output, or 1e-6 in float; `furthest` is a share of the largest number.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import planner
from benchmarks.engine_models import ROOT, compared, prepared, run_models, short
from planner.target_tests.engines.fpga import run_hls4ml

PAGE: Final = ROOT / "docs" / "results" / "hls4ml.md"
PYTHON: Final = ROOT / ".oracles" / "hls4ml" / "bin" / "python"
CALIBRATION: Final = 32
SECONDS: Final = 2_400
TARGET: Final = "hls4ml-fpga"
FLOATS: Final = ("digits", "ad01_fp32", "mnist", "pretrainedResnet")
ZOO: Final = (
    *("TFC_1W1A", "TFC_1W2A", "TFC_2W2A", "bnn_model_fc_1layer", "kwsmlp_w3a3", "qkeras_jettagging"),
    *("tfc_w1a1_finn_thresholds", "unsw_nb15-mlp-w2a2", "branched_model_ch_last at 32x32"),
    *("separable_conv_model_ch_last at 32x32", "espcn_subpixel_quant"),
)
"""All models of QONNX's zoo in the model folder, two of large pictures for small ones."""
MODELS: Final = (*FLOATS, *(f"{name} at 8 bits" for name in FLOATS), *ZOO)


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a model.

    Attributes:
      kernels, floats: in the plan, and those of them in float.
      layers: of hls4ml's project.
      counts: of numbers: `numbers`, `equal`, `one_step`, `furthest`; None where it did not run.
    """

    model: str
    kernels: int
    floats: int
    refusal: str = ""
    layers: int = 0
    counts: dict[str, Any] | None = None


def measure(name: str, count: int) -> Iterator[Record]:
    """Plan a model, write its archive and have hls4ml simulate it."""
    model, samples = prepared(name, TARGET, CALIBRATION, count)
    plan = planner.plan(model, TARGET)
    kernels = plan.kernels_in_order
    sizes = (len(kernels), sum(kernel.row is None for kernel in kernels))
    try:
        data = planner.export(model, plan, "hls4ml")
    except planner.PlannerError as error:
        yield Record(name, *sizes, refusal=f"not written: {error.message}")
        return
    with tempfile.TemporaryDirectory() as work:
        (run,) = run_hls4ml(str(PYTHON), Path(work), [(data, samples)], seconds=SECONDS)
    if isinstance(run, str):
        yield Record(name, *sizes, refusal=run)
        return
    wanted = [planner.evaluate(model, plan, sample).outputs for sample in samples]
    yield Record(name, *sizes, layers=run.layers, counts=compared(plan, wanted, run.outputs))


def table(records: Sequence[Record]) -> Iterator[str]:
    """A row for each model."""
    heads = "kernels | in float | in the C simulation | layers | equal | one step | furthest"
    yield f"| model | {heads} |"
    yield "|---|---:|---:|---|---:|---:|---:|---:|"
    for record in records:
        start = f"| `{record.model}` | {record.kernels} | {record.floats}"
        if record.counts is None:
            yield f"{start} | no: {short(record.refusal)} |  |  |  |  |"
            continue
        counts = record.counts
        equal = f"{counts['equal']} of {counts['numbers']} | {counts['one_step']} | {counts['furthest']:.1e}"
        yield f"{start} | yes | {record.layers} | {equal} |"


if __name__ == "__main__":
    sys.exit(run_models("benchmarks.hls4ml", PAGE, MODELS, measure, table, samples=8, keys=1))
