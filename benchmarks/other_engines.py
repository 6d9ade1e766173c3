"""Our `onnx-qdq` files in OpenVINO, TVM, MNN and ncnn: do they load, do they run in integers, whose numbers?

Each model is planned for `onnxruntime-cpu`, written for any reader (no guards), and run in the engine's own
environment. ExecuTorch reads no ONNX: small PyTorch networks go there through PlanQuantizer, planned for
`litert-int8`. Usage, from the repository root, with the model folder:
`python -m benchmarks.other_engines [--only ENGINE ...] [--models M ...] [--write]`; environments that are
missing are made (`make .oracles/ENGINE/.made`), and `--write` puts the table into
docs/results/other-engines.md. A step is the scale of the type in which the plan has an output.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.engine_models import ROOT, batches, compared, finish, loaded, short
from benchmarks.samples import Sample
from planner.target_tests.engines.environment import version_of
from tests.training.test_pt2e import STEPS as NETS
from tests.training.test_pt2e import ask

PAGE: Final = ROOT / "docs" / "results" / "other-engines.md"
SIDE: Final = ROOT / "benchmarks" / "other_engines_side.py"
SECONDS: Final = 180
CALIBRATION: Final = 32
HELD_OUT: Final = 8
ENGINES: Final = ("openvino", "tvm", "mnn", "ncnn")
MODELS: Final = ("digits", "ad01_fp32", "mnist", "pretrainedResnet", "vww_96_float")
PROGRAMS: Final = "executorch"
"""The engine that takes PyTorch's programs, those of `tests.training.nets`."""


@dataclass(frozen=True, slots=True)
class Written:
    """A planned model: its file, samples, and the interpreter's numbers of them."""

    plan: Any
    data: bytes
    samples: list[Sample]
    wanted: list[Any]


@dataclass(frozen=True, slots=True)
class Record:
    """What became of a model in an engine.

    Attributes:
      integers: products in integers and in all; None where the engine does not say.
      counts: of numbers: `numbers`, `equal`, `one_step`, `worst` in steps.
    """

    engine: str
    model: str
    version: str = ""
    error: str = ""
    integers: tuple[int, int] | None = None
    counts: dict[str, Any] | None = None


def written(name: str) -> Written:
    """Plan a model, write it for any reader and evaluate it."""
    seen, held_out = batches(name, CALIBRATION, HELD_OUT)
    graph = loaded(name)
    device = planner.load_target("onnxruntime-cpu")
    device = replace(device, files=replace(device.files, reader="any"))
    ready = planner.annotate(graph, stats=planner.calibrate(graph, seen))
    plan = planner.plan(ready, device)
    wanted = [planner.evaluate(ready, plan, sample).outputs for sample in held_out]
    return Written(plan, planner.export(ready, plan, "onnx-qdq"), held_out, wanted)


def measure(engine: str, name: str, model: Written) -> Record:
    """Run one file in one engine, in a process of its environment."""
    python = ROOT / ".oracles" / engine / "bin" / "python"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "model.onnx").write_bytes(model.data)
        samples = {f"{k}.{key}": array for k, one in enumerate(model.samples) for key, array in one.items()}
        np.savez(folder / "samples.npz", **samples)  # type: ignore[arg-type]
        command = [str(python), "-P", str(SIDE), engine, str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return Record(engine, name, error=f"no answer in {SECONDS} seconds")
        answer = folder / "answer.json"
        if not answer.exists():
            return Record(engine, name, error=f"its process ended with {done.returncode}")
        said = json.loads(answer.read_text(encoding="utf-8"))
        if said["error"]:
            return Record(engine, name, error=said["error"])
        with np.load(folder / "answer.npz") as archive:
            found = [
                {key: archive[f"{k}.{key}"].reshape(np.shape(array)) for key, array in one.items()}
                for k, one in enumerate(model.wanted)
            ]
    integers = None if said["integers"] is None else (said["integers"][0], said["integers"][1])
    return Record(
        engine, name, said["version"], integers=integers, counts=compared(model.plan, model.wanted, found)
    )


def lowered(engine: str) -> Iterator[Record]:
    """PyTorch networks through PlanQuantizer and PT2E, on ExecuTorch's XNNPACK."""
    version = version_of(str(ROOT / ".oracles" / engine / "bin" / "python"), engine)
    for name in NETS:
        (answer,) = ask(engine, f"lower {name}").values()
        if answer["left"]:
            yield Record(engine, name, error=f"XNNPACK leaves {', '.join(answer['left'])}")
            continue
        done, every = answer["products"]
        counts = answer["off"] | {"worst": answer["off"]["steps"]}
        yield Record(engine, name, version, integers=(done, every), counts=counts)


def table(records: Sequence[Record]) -> Iterator[str]:
    """A row for each engine and model."""
    heads = ("engine", "model", "version", "loads", "products in integers")
    yield f"| {' | '.join(heads)} | equal | one step | further | worst, steps |"
    yield "|---|---|---|---|---:|---:|---:|---:|---:|"
    for record in records:
        if record.counts is None:
            yield f"| {record.engine} | `{record.model}` |  | no: {short(record.error)} |  |  |  |  |  |"
            continue
        counts = record.counts
        further = counts["numbers"] - counts["equal"] - counts["one_step"]
        integers = "" if record.integers is None else "{} of {}".format(*record.integers)
        yield (
            f"| {record.engine} | `{record.model}` | {record.version.split('-')[0]} | yes | {integers} | "
            f"{counts['equal']} of {counts['numbers']} | {counts['one_step']} | {further} | "
            f"{counts['worst']:.1f} |"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print or write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.other_engines")
    parser.add_argument(
        "--only", nargs="*", metavar="ENGINE", choices=(*ENGINES, PROGRAMS), default=[*ENGINES, PROGRAMS]
    )
    parser.add_argument("--models", nargs="*", metavar="M", choices=list(MODELS), default=list(MODELS))
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/results/other-engines.md"
    )
    options = parser.parse_args(arguments)
    for engine in options.only:
        if not (ROOT / ".oracles" / engine / "bin" / "python").exists():
            subprocess.run(["make", f".oracles/{engine}/.made"], cwd=ROOT, check=True)
    readers = [engine for engine in options.only if engine != PROGRAMS]
    models = {name: written(name) for name in options.models if readers}
    records = []
    for engine in options.only:
        found = (measure(engine, name, model) for name, model in models.items())
        for record in lowered(engine) if engine == PROGRAMS else found:
            records.append(record)
            sys.stderr.write(f"{record}\n")
    finish(PAGE, "benchmarks.other_engines", [*table(records)], keys=2, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
