"""Suites of MLIR: LLVM's `quant` tests, StableHLO's programs, the RFC's goldens, TOSA, JAX models.

Not part of the product; `benchmarks.suites` runs these. Engines are those of `make oracles`.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.engine_models import ROOT, compared
from benchmarks.stablehlo_programs import programs, reached
from benchmarks.suite_rows import Tally
from planner.errors import PlannerError
from planner.formats.mlir.passes.tool import run_parts, split
from planner.interpreter.models import ModelRunner
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.target_tests.engines.environment import TOSA_EXTENSIONS
from tests.formats.tosa.reader import test_tosa_import as of_tosa
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import hlo, in_iree, tosa
from tests.oracles.mlir import modules
from tests.plans import test_rfc_goldens as of_rfc

SIDE: Final = ROOT / "benchmarks" / "suites_jax_side.py"
NEAR: Final = 2e-5
"""Reals of two libraries of functions that count as equal, absolute and relative."""
SAMPLES: Final = 8
EXPECTED: Final = re.compile(r"//\s*@?expected-error")


def llvm(folder: Path, tally: Tally) -> Iterator[Tally]:
    """LLVM's own tests of the dialect: a part that expects an error has to be refused, any other one read.

    A part is equal where our verdict is the one that the file expects and, of a part that is read, where
    torch-mlir prints one module from the file and from our text; torch-mlir's refusals are said.
    """
    taken: list[tuple[str, str]] = []
    for path in sorted(folder.rglob("*.mlir")):
        for _, text in split(path.read_text(encoding="utf-8")):
            if not re.sub(r"//.*", "", text).strip():
                continue
            tally.programs = (tally.programs or 0) + 1
            (part,) = run_parts(text)
            if EXPECTED.search(text):
                tally.reach("equal" if part.error else "further")
                if not part.error:
                    tally.refuse("accepted, but the file expects an error", "ours")
            elif part.error:
                tally.reach("further")
                tally.refuse(part.error, "ours")
            else:
                tally.reach("read", "exported")
                taken.append((text, part.text))
    theirs, again = modules([text for text, _ in taken]), modules([text for _, text in taken])
    for one, other in zip(theirs, again, strict=True):
        if one.startswith("ERROR"):
            tally.refuse(one.removeprefix("ERROR "), "torch-mlir")
        else:
            tally.reach("equal" if one == other else "further")
    yield tally


def stablehlo(folder: Path, tally: Tally) -> Iterator[Tally]:
    """StableHLO's quantized programs, their results beside those that upstream's interpreter has to give."""
    texts = programs(folder / "stablehlo" / "testdata" / "quantized")
    tally.programs = len(texts)
    for text in texts:
        outcome = reached(text)
        tally.reach(*(stage for stage in outcome.stages if stage in tally.columns))
        if outcome.error:
            tally.refuse(outcome.error)
        if outcome.steps is not None:
            tally.compare(outcome.steps)
    yield tally


def rfc(tally: Tally) -> Iterator[Tally]:
    """The goldens of the RFC's implementation, as the project's test has them."""
    (mark,) = of_rfc.test_specs_come_out_as_in_the_rfcs_implementation.pytestmark
    cases: Sequence[tuple[str, list[str], list[str], str | None]] = mark.args[1]
    tally.programs = len(cases)
    with tempfile.TemporaryDirectory() as folder:
        for text, inputs, outputs, _ in cases:
            plan = of_rfc.planned(Path(folder), text)
            tally.reach("read", "planned")
            tally.reach("equal" if of_rfc.specs(plan) == [inputs, outputs] else "further")
    yield tally


def tosa_modules(tally: Tally, again: Tally) -> Iterator[Tally]:
    """A program for each operator of TOSA 1.0, as it is and planned, beside the reference model."""
    jobs = []
    for name, (operands, attributes, result) in of_tosa.CASES.items():
        text = of_tosa.module(name.partition(" ")[0], operands, attributes, result)
        jobs.append((text.encode(), [of_tosa.numbers(name, operands)]))
    written: list[tuple[bytes, list[list[Any]], Graph, Plan, Any]] = []
    tally.programs = len(jobs)
    with tempfile.TemporaryDirectory() as folder:
        answers = tosa.run(folder, jobs, extensions=f"{TOSA_EXTENSIONS},fft")
        for (text, (arguments,)), wanted in zip(jobs, answers, strict=True):
            graph = planner.load_model(text, format="mlir")
            if graph.notes:
                tally.refuse(graph.notes[0])
                continue
            tally.reach("read")
            sample = dict(zip(graph.inputs, arguments, strict=True))
            if isinstance(wanted, str):
                tally.refuse(wanted, "the reference model")
            else:
                found = ModelRunner(graph).run(sample)
                pairs = zip(graph.outputs, wanted[0], strict=True)
                tally.compare(max(_apart(found[name], array) for name, array in pairs))
            ready = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
            try:
                plan = planner.plan(ready, "tosa-int8")
                planner.check(plan, ready, "tosa-int8")
                again.reach("planned")
                data = planner.export(ready, plan, "tosa")
            except PlannerError as error:
                again.refuse(error)
            else:
                again.reach("exported")
                written.append((data, [fed(ready, plan, sample)], ready, plan, sample))
    again.programs = tally.counts["read"]
    again.reach(*["read"] * again.programs)
    with tempfile.TemporaryDirectory() as folder:
        modules_of = [(text, samples) for text, samples, *_ in written]
        answers = tosa.run(folder, modules_of, extensions=f"{TOSA_EXTENSIONS},fft")
        for (_, _, graph, plan, sample), answer in zip(written, answers, strict=True):
            if isinstance(answer, str):
                again.refuse(answer, "the reference model")
                continue
            evaluation = planner.evaluate(graph, plan, sample)
            again.compare(max(_apart(w, a) for _, w, a in agreed(evaluation, plan, answer[0])))
    yield tally
    yield again


def _apart(one: Any, other: Any) -> float:
    """The difference of two arrays: in steps of integers, 0 or endless of reals."""
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.kind in "fc" or other.dtype.kind in "fc":
        return 0.0 if np.allclose(one, other, rtol=NEAR, atol=NEAR, equal_nan=True) else float("inf")
    wide = one.astype(np.int64).reshape(other.shape) - other.astype(np.int64)
    return float(np.abs(wide).max(initial=0))


def jax_models(xla: Tally, iree: Tally) -> Iterator[Tally]:
    """Five networks of JAX: planned, written as integers, compiled by XLA and by IREE for the CPU."""
    for tally in (xla, iree):
        tally.programs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([hlo.JAX, "-P", SIDE, folder], check=True)
        for path in sorted(folder.glob("*.mlir")):
            graph = planner.load_model(path)
            rng, (key,) = np.random.default_rng(0), graph.inputs
            samples = [{key: rng.random(graph.values[key].shape, np.float32)} for _ in range(SAMPLES + 4)]
            ready = planner.annotate(graph, stats=planner.calibrate(graph, samples[:SAMPLES]))
            plan = planner.plan(ready, "stablehlo")
            planner.check(plan, ready, "stablehlo")
            text = planner.export(ready, plan, "stablehlo-int").decode()
            held = samples[SAMPLES:]
            wanted = [planner.evaluate(ready, plan, one, arithmetic="exact_even").outputs for one in held]
            for tally, run in ((xla, _in_xla), (iree, _in_iree)):
                tally.programs = (tally.programs or 0) + 1
                tally.reach("read", "planned", "exported")
                found = run(folder, text, [[one[key]] for one in held])
                if isinstance(found, str):
                    tally.refuse(found, "the compiler")
                    continue
                named = [dict(zip(graph.outputs, arrays, strict=True)) for arrays in found]
                shaped = [
                    {k: np.reshape(a, np.shape(w[k])) for k, a in one.items()}
                    for one, w in zip(named, wanted, strict=True)
                ]
                tally.compare(compared(plan, wanted, shaped)["worst"])
    yield xla
    yield iree


_Runs = list[list[np.ndarray]] | str


def _in_xla(_: Path, text: str, arguments: Sequence[Sequence[np.ndarray]]) -> _Runs:
    found: list[list[np.ndarray]] = hlo.compiled([(text, each) for each in arguments])
    return found


def _in_iree(folder: Path, text: str, arguments: Sequence[Sequence[np.ndarray]]) -> _Runs:
    found: list[list[np.ndarray]] = []
    for answer, _ in in_iree.run(folder, [(text, each, "llvm-cpu") for each in arguments], skips=False):
        if isinstance(answer, str):
            return answer
        found.append(answer)
    return found
