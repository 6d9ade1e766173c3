"""Whole models on Qualcomm's HTP library: what it takes, and its numbers beside the interpreter's.

Each model is planned for a target, written as `onnx-qdq`, and run in the library, simulated on this machine.
Usage, from the repository root, after `make oracles`, with the model folder:
`python -m benchmarks.qnn_models [--only MODEL ...] [--targets T ...] [--samples N] [--write]`; `--write` puts
the table into docs/results/qnn-models.md. A step is the scale of the type in which the plan has an output.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.samples import SAMPLERS, Draw, Sample, model_folder, photos
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.target_tests.engines.apart import run_qnn

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "qnn-models.md"
MARK: Final = re.compile(r"(?<=<!-- made by benchmarks.qnn_models -->\n).*?(?=<!-- end -->)", re.DOTALL)
PYTHON: Final = ROOT / ".oracles" / "qnn" / "bin" / "python"
CALIBRATION: Final = 16
MODELS: Final[Mapping[str, str]] = {
    "digits": "",
    "pretrainedResnet": "mlperf-tiny",
    "vww_96_float": "mlperf-tiny",
    "mobilenetv2_100": "vision",
    "bert_l4_h256": "sequence",
    "yolox_nano": "vision",
}
"""Models with the folder of each; that of the digits is examples/digits."""
QUANTIZERS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a model.

    Attributes:
      kernels, floats: in the plan, and those of them in float.
      partitions: graphs on the library.
      elsewhere: operators on the CPU, quantizers not counted.
      numbers: of all outputs and samples; `equal` and `one_step` of them, and the worst in steps.
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
    decibels: float = 0.0
    refusal: str = ""


def batches(name: str, path: Path, count: int) -> tuple[list[Sample], list[Sample]]:
    """Calibration and held-out samples, one picture or text each."""
    if name == "digits":
        with np.load(path.parent / "calibration.npz") as archive:
            known = {key: archive[key] for key in archive.files}
        single = [{key: array[i : i + 1] for key, array in known.items()} for i in range(CALIBRATION + count)]
        return single[:CALIBRATION], single[CALIBRATION:]
    if name == "yolox_nano":
        return tuple(
            [{"images": _letterboxed(picture)} for picture in photos("240x320", number, held_out=held)]
            for number, held in ((CALIBRATION, False), (count, True))
        )  # type: ignore[return-value]
    sampler = SAMPLERS[name]
    return sampler(Draw(path, CALIBRATION, held_out=False)), sampler(Draw(path, count, held_out=True))


def _letterboxed(picture: np.ndarray, side: int = 416) -> np.ndarray:
    """A picture in the upper left of a grey square, as the detector was trained: 0 to 255, channels first."""
    image = np.full((side, side, 3), 114, np.float32)
    image[: picture.shape[0], : picture.shape[1]] = picture[:side, :side]
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def measure(name: str, target: str, count: int) -> Record:
    """Plan, write and run a model."""
    folder = ROOT / "examples" / "digits" if name == "digits" else model_folder() / MODELS[name]
    path = folder / ("digits.onnx" if name == "digits" else f"{name}.onnx")
    calibration, held_out = batches(name, path, count)
    model = planner.load_model(path, dims=_dims(path))
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
    wanted = [planner.evaluate(graph, plan, sample).outputs for sample in held_out]
    return Record(name, target, **record, **compared(plan, wanted, run.outputs))


def _dims(path: Path) -> dict[str, int]:
    """A batch of one where the model leaves it open."""
    graph = planner.load_model(path)
    names = {s for name in graph.inputs for s in graph.values[name].shape or () if isinstance(s, str)}
    return dict.fromkeys(names, 1)


def compared(
    plan: Plan, wanted: Sequence[Mapping[str, np.ndarray]], found: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    """Count outputs that are equal and one step off."""
    steps = {
        port.value: port.type.scale
        for kernel in plan.kernels_in_order
        for port in kernel.outputs
        if isinstance(port.type, Uniform) and port.type.is_per_tensor
    }
    off, signal, noise = [], 0.0, 0.0
    for one, other in zip(wanted, found, strict=True):
        for name, array in one.items():
            exact, theirs = np.asarray(array, np.float64), np.asarray(other[name], np.float64)
            off.append(np.abs(exact - theirs).ravel() / steps.get(name, 1.0))
            signal += float(np.square(exact).sum())
            noise += float(np.square(exact - theirs).sum())
    every = np.concatenate(off)
    return {
        "numbers": every.size,
        "equal": int((every < 0.5).sum()),
        "one_step": int(((every >= 0.5) & (every < 1.5)).sum()),
        "worst": float(every.max()),
        "decibels": float("inf") if not noise else 10 * float(np.log10(signal / noise)),
    }


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
        shares = f"{r.equal / r.numbers:.2%} | {r.one_step / r.numbers:.2%}"
        yield (
            f"| `{r.model}` | `{r.target}` | {r.kernels} | {r.floats} | {r.partitions} | {left} | {shares} | "
            f"{r.worst:.0f} | {r.decibels:.1f} |"
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
    text = "\n".join(table(records)) + "\n"
    if options.write:
        PAGE.write_text(MARK.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
