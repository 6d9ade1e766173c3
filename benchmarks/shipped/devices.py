"""The same models for other devices: what runs in integers, why the rest does not, the engines' numbers.

Usage, from the repository root: `python -m benchmarks.shipped.devices [--write] [--models NAME ...]
[--targets NAME ...] [--effort quick|normal|high] [--cache DIR]`. Each plan's figures go into the JSON beside
the page as soon as they are known. Engines run in the environments of `make oracles`; the TOSA reference
model, which is slow, runs models of up to `MOST_MACS` multiply-adds.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from math import log10
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.shipped.__main__ import JSON, read, write_page
from benchmarks.shipped.data import Array, Sample, Task
from benchmarks.shipped.measuring import open_session
from benchmarks.shipped.tasks import TASKS, made_ready
from benchmarks.shipped.wheels import ROOT, default_cache
from planner.constants.quantize import dequantize_array
from planner.errors import PlannerError
from planner.factors.form import form_of_plan
from planner.formats.runnable import ARITHMETICS
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform
from planner.plans.rescales import definitions
from planner.report.causes import fallback_lines
from planner.target_tests.engines.environment import run_litert, run_tosa
from tests.formats.tosa.writer.running import fed

FORMATS: Final[Mapping[str, str]] = {"litert-int8": "litert", "qnn-htp": "onnx-qdq", "tosa-int8": "tosa"}
"""The format of each target's file."""
ENGINES: Final[Mapping[str, str]] = {
    "litert": "LiteRT",
    "onnx-qdq": "onnxruntime",
    "tosa": "the TOSA reference model",
}
COMPARED: Final = 4
"""Samples that files and interpreter are compared on."""
MOST_MACS: Final = 500_000_000
Outputs = Sequence[Mapping[str, Array]]
Record = dict[str, Any]


def decibels(wanted: Outputs, got: Outputs) -> float:
    """Return the least ratio of signal to noise of an output, over all samples, in dB."""
    found = []
    for name in wanted[0]:
        if wanted[0][name].dtype.kind != "f":
            continue
        pairs = [
            (np.float64(one[name]), np.float64(other[name])) for one, other in zip(wanted, got, strict=True)
        ]
        noise = sum(float(np.sum((one - other) ** 2)) for one, other in pairs)
        signal = sum(float(np.sum(one**2)) for one, _ in pairs)
        found.append(10 * log10(signal / noise) if noise and signal else float("inf"))
    return min(found)


def in_engine(
    form: str, done: planner.Quantized, samples: Sequence[Sample], names: Sequence[str]
) -> Outputs | str:
    """Return what the engine of a format gives for each sample, in reals, or why it gives nothing."""
    python = str(ROOT / ".oracles" / form / "bin" / "python")
    with tempfile.TemporaryDirectory() as folder:
        if form == "onnx-qdq":
            file = Path(folder) / "file.onnx"
            file.write_bytes(done.data)
            session = open_session(file)
            return [dict(zip(names, session.run(None, dict(sample)), strict=True)) for sample in samples]
        if form == "litert":
            return run_litert(python, Path(folder), [(done.data, samples)], kernels="optimized")[0]
        model = form_of_plan(done.model, done.plan.graph)
        arguments = [fed(model, done.plan, sample) for sample in samples]
        (found,) = run_tosa(python, Path(folder), [(done.data, arguments)])
        if isinstance(found, str):
            return found
        # What a kernel stores leaves the function as it is stored.
        kinds = definitions(done.plan.graph, done.plan.kernels_in_order)
        return [
            {name: _real(array, kinds.get(name)) for name, array in zip(names, one, strict=True)}
            for one in found
        ]


def _real(array: Array, kind: object) -> Array:
    if isinstance(kind, Uniform) and array.dtype.kind in "iu":
        return dequantize_array(array, kind)
    return array


def measured(task: Task, model: Path, samples: Sequence[Sample], target: str, effort: str) -> Record:
    """Return the figures of a model's plan for a target."""
    form = FORMATS[target]
    record: Record = {"model": task.name, "target": target, "effort": effort}
    began = time.monotonic()
    try:
        done = planner.quantize(model, list(samples), target=target, format=form, effort=effort)  # type: ignore[arg-type]
    except PlannerError as error:
        return record | {"refused": str(error)}
    record["seconds"] = time.monotonic() - began
    verdict = done.verdict
    if verdict is None or verdict.covered is None:
        return record | {"refused": "it was not compared"}
    covered = verdict.covered
    record |= {
        "kernels": [covered.on_device, covered.kernels],
        "multiply_adds": [covered.macs_on_device, covered.macs],
        "reasons": list(fallback_lines(covered)),
        "size": done.size,
        "verdict": verdict.level,
        "said": verdict.reason,
    }
    few = list(samples[:COMPARED])
    interpreter = Interpreter(done.model, done.plan, arithmetic=ARITHMETICS.get(form))
    plain = open_session(model)
    names = [one.name for one in plain.get_outputs()]
    wanted = [dict(zip(names, plain.run(None, dict(sample)), strict=True)) for sample in few]
    own = [interpreter.run(sample).outputs for sample in few]
    record["interpreter"] = decibels(wanted, own)
    if form == "tosa" and covered.macs > MOST_MACS:
        return record
    few = few[:1] if form == "tosa" else few
    found = in_engine(form, done, few, names)
    if isinstance(found, str):
        return record | {"engine_said": found}
    record["engine"] = decibels(wanted[: len(few)], found)
    record["apart"] = decibels(own[: len(few)], found)
    return record


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [task.name for task in TASKS]
    parser.add_argument("--models", nargs="*", default=names, choices=names, metavar="NAME")
    parser.add_argument("--targets", nargs="*", default=list(FORMATS), choices=FORMATS, metavar="NAME")
    parser.add_argument("--effort", default="normal", choices=["quick", "normal", "high"])
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for task, made in made_ready(given.models, given.cache):
        for target in given.targets:
            record = measured(task, made.model, made.calibration, target, given.effort)
            print(json.dumps(record), flush=True)
            if given.write:
                results = with_record(read(), record)
                JSON.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
                write_page(results)


def with_record(results: Record, record: Record) -> Record:
    """Return the results with the figures of a plan in the place of older ones."""
    order = [(task.name, target) for task in TASKS for target in FORMATS]
    short = json.loads(json.dumps(record), parse_float=lambda text: round(float(text), 2))
    key = (record["model"], record["target"])
    others = [one for one in results.get("devices", []) if (one["model"], one["target"]) != key]
    devices = sorted([*others, short], key=lambda one: order.index((one["model"], one["target"])))
    return {**results, "devices": devices}


if __name__ == "__main__":
    main()
