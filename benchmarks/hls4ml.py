"""Archives for hls4ml, from the file to its C simulation without a step by hand: whose numbers come out?

Each model is planned for `hls4ml-fpga`, written as `hls4ml`, converted, compiled and run
(`planner.target_tests.engines.run_hls4ml`). Usage, from the repository root, with the model folder,
`make oracles` and a C++ compiler: `python -m benchmarks.hls4ml [--only MODEL ...] [--samples N] [--write]`;
`--write` puts the rows into docs/results/hls4ml.md. A step is the scale of the type in which the plan has an
output, or 1e-6 in float; `furthest` is a share of the largest number.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import planner
from benchmarks.engine_models import ROOT, batches, compared, finish, loaded, short, zoo_model
from benchmarks.samples import Sample
from planner.ir.graph import Graph
from planner.target_tests.engines.fpga import run_hls4ml

PAGE: Final = ROOT / "docs" / "results" / "hls4ml.md"
PYTHON: Final = ROOT / ".oracles" / "hls4ml" / "bin" / "python"
CALIBRATION: Final = 32
SECONDS: Final = 600
TARGET: Final = "hls4ml-fpga"
FLOATS: Final = ("digits", "ad01_fp32", "mnist", "pretrainedResnet")
ZOO: Final = (
    *("TFC_1W1A", "TFC_1W2A", "TFC_2W2A", "bnn_model_fc_1layer", "kwsmlp_w3a3", "qkeras_jettagging"),
    *("tfc_w1a1_finn_thresholds", "unsw_nb15-mlp-w2a2", "branched_model_ch_last"),
    *("separable_conv_model_ch_last", "espcn_subpixel_quant"),
)
"""All models of QONNX's zoo in the model folder."""
MODELS: Final = (*FLOATS, *(f"{name} at 8 bits" for name in FLOATS), *ZOO)


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a model.

    Attributes:
      kernels, floats: in the plan, and those of them in float.
      layers: of hls4ml's project.
      seconds: from the archive to the last number.
      counts: of numbers: `numbers`, `equal`, `one_step`, `furthest`; None where it did not run.
    """

    model: str
    kernels: int
    floats: int
    refusal: str = ""
    layers: int = 0
    seconds: float = 0.0
    counts: dict[str, Any] | None = None


def prepared(name: str, count: int) -> tuple[Graph, list[Sample]]:
    """A model ready to be planned, and samples to run."""
    stem, _, low = name.partition(" at ")
    if stem in ZOO:
        graph, every = zoo_model(stem, CALIBRATION + count)
        seen, samples = every[:CALIBRATION], every[CALIBRATION:]
    else:
        graph = loaded(stem)
        seen, samples = batches(stem, CALIBRATION, count)
    if low:
        graph = planner.with_bits(graph, TARGET, {"w": 8, "a": 8})
    return planner.annotate(graph, stats=planner.calibrate(graph, seen), target=TARGET), samples


def measure(name: str, count: int) -> Record:
    """Plan a model, write its archive and have hls4ml simulate it."""
    model, samples = prepared(name, count)
    plan = planner.plan(model, TARGET)
    kernels = plan.kernels_in_order
    sizes = (len(kernels), sum(kernel.row is None for kernel in kernels))
    try:
        data = planner.export(model, plan, "hls4ml")
    except planner.PlannerError as error:
        return Record(name, *sizes, refusal=f"not written: {error.message}")
    with tempfile.TemporaryDirectory() as work:
        (run,) = run_hls4ml(str(PYTHON), Path(work), [(data, samples)], seconds=SECONDS)
    if isinstance(run, str):
        return Record(name, *sizes, refusal=run)
    wanted = [planner.evaluate(model, plan, sample).outputs for sample in samples]
    return Record(
        name, *sizes, layers=run.layers, seconds=run.seconds, counts=compared(plan, wanted, run.outputs)
    )


def table(records: Sequence[Record]) -> Iterator[str]:
    """A row for each model."""
    heads = "kernels | in float | in the C simulation | layers | seconds | equal | one step | furthest"
    yield f"| model | {heads} |"
    yield "|---|---:|---:|---|---:|---:|---:|---:|---:|"
    for record in records:
        start = f"| `{record.model}` | {record.kernels} | {record.floats}"
        if record.counts is None:
            yield f"{start} | no: {short(record.refusal)} |  |  |  |  |  |"
            continue
        counts = record.counts
        equal = f"{counts['equal']} of {counts['numbers']} | {counts['one_step']} | {counts['furthest']:.1e}"
        yield f"{start} | yes | {record.layers} | {record.seconds:.0f} | {equal} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hls4ml")
    parser.add_argument("--only", nargs="*", metavar="MODEL", choices=MODELS, default=list(MODELS))
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="put the rows into docs/results/hls4ml.md")
    options = parser.parse_args(arguments)
    records: list[Record] = []
    for name in options.only:
        records.append(measure(name, options.samples))
        sys.stderr.write("\n".join(list(table(records[-1:]))[2:]) + "\n")
    finish(PAGE, "benchmarks.hls4ml", [*table(records)], keys=1, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
