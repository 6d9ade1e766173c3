"""Whole models on Qualcomm's HTP library: what it takes, and its numbers beside the interpreter's.

Each model is planned for a target, written as `onnx-qdq`, and run in the library, simulated on this machine.
Usage, from the repository root, after `make oracles`, with the model folder:
`python -m benchmarks.qnn_models [--only MODEL ...] [--targets T ...] [--samples N] [--write]`; `--write` puts
the table into docs/results/qnn-models.md. A step is the scale of the type in which the plan has an output.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import planner
from benchmarks.engine_models import ROOT, batches, compared, finish, loaded
from planner.target_tests.engines.environment import run_qnn

PAGE: Final = ROOT / "docs" / "results" / "qnn-models.md"
PYTHON: Final = ROOT / ".oracles" / "qnn" / "bin" / "python"
CALIBRATION: Final = 16
MODELS: Final = (
    *("digits", "pretrainedResnet", "vww_96_float", "mobilenetv2_100", "bert_l4_h256", "yolox_nano"),
)
QUANTIZERS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a model.

    Attributes:
      kernels, floats: in the plan, and those of them in float.
      partitions: graphs on the library.
      elsewhere: operators on the CPU, quantizers not counted.
      numbers: of all outputs and samples; `equal` and `one_step` of them, and the worst in steps.
      furthest: the largest difference, as a share of the largest number.
      in_float: whether an output has no type, so that its differences have no steps.
      decibels: signal over noise of the library's outputs beside the interpreter's.
    """

    model: str
    target: str
    kernels: int = 0
    floats: int = 0
    partitions: int = 0
    elsewhere: tuple[str, ...] = ()
    numbers: int = 0
    equal: int = 0
    one_step: int = 0
    worst: float = 0.0
    furthest: float = 0.0
    in_float: bool = False
    decibels: float = 0.0
    refusal: str = ""


def measure(name: str, target: str, count: int) -> Record:
    """Plan, write and run a model."""
    calibration, held_out = batches(name, CALIBRATION, count)
    model = loaded(name)
    graph = planner.annotate(model, stats=planner.calibrate(model, calibration))
    plan = planner.plan(graph, target)
    data = planner.export(graph, plan, "onnx-qdq")
    kernels = plan.kernels_in_order
    record: dict[str, Any] = {
        "kernels": len(kernels),
        "floats": sum(kernel.row is None for kernel in kernels),
    }
    with tempfile.TemporaryDirectory() as work:
        (run,) = run_qnn(str(PYTHON), Path(work), [(data, held_out)])
    if isinstance(run, str):
        return Record(name, target, **record, refusal=run)
    record["partitions"] = run.partitions
    record["elsewhere"] = tuple(kind for kind, _ in run.elsewhere if kind not in QUANTIZERS)
    typed = {port.value for kernel in kernels for port in kernel.outputs if port.type is not None}
    record["in_float"] = not typed.issuperset(graph.outputs)
    wanted = [planner.evaluate(graph, plan, sample).outputs for sample in held_out]
    return Record(name, target, **record, **compared(plan, wanted, run.outputs))


def table(records: Sequence[Record]) -> Iterator[str]:
    """A row for each model and target."""
    heads = (
        "kernels",
        "in float",
        "graphs on the HTP",
        "on the CPU",
        "equal",
        "one step",
        "worst, steps",
        "dB",
    )
    yield f"| model | target | {' | '.join(heads)} |"
    yield "|---|---|---:|---:|---:|---|---:|---:|---:|---:|"
    for r in records:
        if r.refusal:
            counts = f"{r.kernels} | {r.floats}"
            yield f"| `{r.model}` | `{r.target}` | {counts} |  | {r.refusal[:80]} |  |  |  |  |"
            continue
        left = (
            ", ".join(f"{r.elsewhere.count(kind)} {kind}" for kind in dict.fromkeys(r.elsewhere)) or "nothing"
        )
        shares = f"{r.equal / r.numbers:.2%} | {r.one_step / r.numbers:.2%} | {r.worst:.0f}"
        if r.in_float:
            shares = f" |  | output in float: {r.furthest:.1%} of the largest"
        yield (
            f"| `{r.model}` | `{r.target}` | {r.kernels} | {r.floats} | {r.partitions} | {left} | {shares} | "
            f"{r.decibels:.1f} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qnn_models")
    parser.add_argument("--only", nargs="*", metavar="MODEL", choices=MODELS, default=list(MODELS))
    parser.add_argument("--targets", nargs="*", metavar="T", default=["qnn-htp", "hexagon-a16w8"])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results/qnn-models.md")
    options = parser.parse_args(arguments)
    records = []
    for name in options.only:
        for target in options.targets:
            records.append(measure(name, target, options.samples))
            print(records[-1], file=sys.stderr, flush=True)
    finish(PAGE, "benchmarks.qnn_models", [*table(records)], keys=2, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
