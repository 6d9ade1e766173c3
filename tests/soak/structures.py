"""The structure fuzzer: random models x targets x formats, each file run by its engine beside `evaluate`.

A model ends as a file that its engine runs with the interpreter's numbers, or as a typed refusal while it is
planned. Usage, from the repository root, for so many seconds from a seed on:
`python -m tests.soak.structures 900 --seed 1`. It prints models, engines and findings. On x86 without VNNI
onnxruntime gets weights whose products it adds exactly, as in all tests (`tests/exact_products.py`); with
`--as-it-is` it does not, and what its 16 bits cut off counts as other numbers.
"""

import argparse
import inspect
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from planner.errors import PlannerError, UnsupportedExport
from planner.formats.mlir.passes.tool import transform
from planner.formats.runnable import ARITHMETICS
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform
from planner.target_tests.engines.environment import run_litert, run_tosa
from tests.exact_products import use_exact_products
from tests.formats.plans import execute
from tests.formats.stablehlo.writer.running import PASSES, unpinned
from tests.formats.tosa.writer.running import agreed, fed, with_all_results
from tests.oracles import hlo, litert, tosa
from tests.soak.random_structures import random_structure

PAIRS: Final = (
    ("dpuczdx8g", "onnx-qdq"),
    ("edgetpu", "litert"),
    ("ethos-u55", "litert"),
    ("hexagon-a16w8", "onnx-qdq"),
    ("k210-kpu", "litert"),
    ("litert-int8", "litert"),
    ("litert-int8", "onnx-qdq"),
    ("onnxruntime-cpu", "onnx-integer"),
    ("onnxruntime-cpu", "onnx-qdq"),
    ("onnxruntime-cpu", "onnx-qoperator"),
    ("qnn-htp", "onnx-qdq"),
    ("stablehlo", "stablehlo"),
    ("stablehlo", "stablehlo-int"),
    ("teaching-npu", "onnx-qdq"),
    ("tensorrt-int8", "onnx-qdq"),
    ("tosa-int8", "onnx-qdq"),
    ("tosa-int8", "tosa"),
)
"""Targets with a format that their device's tools read."""
BATCH: Final = 24
NEAR: Final = 2e-4
"""How far floats may differ, as a share of the largest: engines compute exp in their own ways."""
ENGINES: Final = {
    "litert": litert.PYTHON,
    "tosa": tosa.PYTHON,
    "stablehlo": hlo.PYTHON,
    "stablehlo-int": hlo.PYTHON,
}
CAN_NAME: Final = "formats" in inspect.signature(planner.plan).parameters


@dataclass(frozen=True, eq=False)
class Job:
    """A file that is to be run."""

    seed: int
    target: str
    form: str
    graph: Any
    plan: Any
    data: bytes
    sample: Any


@dataclass
class Found:
    """What came out: counts by (format, outcome), and findings as (seed, target, format, kind, text)."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[tuple[int, str, str, str, str]] = field(default_factory=list)
    models: int = 0

    def tell(self, seed: int, target: str, form: str, kind: str, text: str) -> None:
        """Count an outcome that should not be."""
        self.counts[form, kind] += 1
        self.findings.append((seed, target, form, kind, " ".join(text.split())[:400]))


def planned(graph: Any, target: str, form: str) -> Any:
    """A plan for a target, to be written in a format."""
    return planner.plan(graph, target, **({"formats": (form,)} if CAN_NAME else {}))


def prepared(seed: int, found: Found, pairs: Sequence[tuple[str, str]] = PAIRS) -> Iterator[Job]:
    """The files of a model for all targets; what is refused is counted."""
    data, samples = random_structure(seed)
    try:
        graph = planner.load_model(data)
        ready = planner.annotate(graph, stats=planner.calibrate(graph, list(samples)))
    except PlannerError as error:
        found.counts["model", type(error).__name__] += 1
        return
    except Exception:  # noqa: BLE001 - a crash is what is looked for
        found.tell(seed, "", "model", "crash", traceback.format_exc(limit=-3))
        return
    found.models += 1
    for target, form in pairs:
        try:
            plan = planned(ready, target, form)
            planner.check(plan, ready, target)
        except UnsupportedExport:
            found.counts[form, "refused while planning"] += 1
            continue
        except PlannerError as error:
            found.tell(seed, target, form, "no plan", f"{type(error).__name__}: {error}")
            continue
        except Exception:  # noqa: BLE001 - likewise
            found.tell(seed, target, form, "crash", traceback.format_exc(limit=-3))
            continue
        wide = with_all_results(ready, plan)
        wide = unpinned(*wide) if form in PASSES else wide
        try:
            planner.export(ready, plan, form)
            file = EXPORTERS[form](*wide)
        except UnsupportedExport as error:
            found.tell(seed, target, form, _blame(plan, str(error)), str(error))
            continue
        except Exception:  # noqa: BLE001 - likewise
            found.tell(seed, target, form, "crash", traceback.format_exc(limit=-3))
            continue
        yield Job(seed, target, form, *wide, file, samples[1])


def _blame(plan: Any, text: str) -> str:
    """Whether the refusal of a whole file is for a kernel that was planned as integers, or one in float."""
    ports = [port for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    if not any(isinstance(port.type, Uniform) for port in ports):
        return "refused whole, all float"
    return "refused whole for a float kernel" if "in float" in text else "refused whole for integers"


def run_all(jobs: Sequence[Job], found: Found) -> None:
    """Run files by their engines, and compare each with the interpreter."""
    for form in dict.fromkeys(job.form for job in jobs):
        mine = [job for job in jobs if job.form == form]
        if form in ENGINES and not ENGINES[form].exists():
            found.counts[form, "no engine"] += len(mine)
            continue
        for job, answer in zip(mine, _answers(form, mine), strict=True):
            if isinstance(answer, str):
                found.tell(job.seed, job.target, form, "engine refuses", answer)
                continue
            try:
                problem = _difference(job, answer)
            except Exception:  # noqa: BLE001 - likewise
                found.tell(job.seed, job.target, form, "crash", traceback.format_exc(limit=-3))
                continue
            if problem:
                found.tell(job.seed, job.target, form, "other numbers", problem)
            else:
                found.counts[form, "equal"] += 1


def _answers(form: str, jobs: Sequence[Job]) -> list[Any]:
    """What the engine says of each job, those apart that make it abort."""
    try:
        return _asked(form, jobs)
    except Exception as error:  # noqa: BLE001 - an engine that aborts takes the batch with it
        if len(jobs) == 1:
            return [f"aborts: {error}"]
        half = len(jobs) // 2
        return _answers(form, jobs[:half]) + _answers(form, jobs[half:])


def _asked(form: str, jobs: Sequence[Job]) -> list[Any]:
    if form.startswith("onnx"):
        return [_in_onnxruntime(job) for job in jobs]
    with tempfile.TemporaryDirectory() as folder:
        if form == "litert":
            files = [(job.data, [job.sample]) for job in jobs]
            answers = run_litert(str(litert.PYTHON), Path(folder), files, kernels="optimized")
            return [
                a if isinstance(a, str) else [a[0][name] for name in j.graph.outputs]
                for j, a in zip(jobs, answers, strict=True)
            ]
        if form == "tosa":
            modules = [(job.data, [fed(job.graph, job.plan, job.sample)]) for job in jobs]
            return [
                a if isinstance(a, str) else a[0] for a in run_tosa(str(tosa.PYTHON), Path(folder), modules)
            ]
    tasks = [
        (text, [np.asarray(job.sample[n]) for n in job.graph.inputs], *passes)
        for job in jobs
        for text, passes in [_lowered(job.data.decode(), form)]
    ]
    told = [hlo._told(text, arrays) | {"passes": "".join(passes)} for text, arrays, *passes in tasks]
    return [answer["error"] if "error" in answer else hlo._read(answer, "") for answer in hlo.ask(told)]


def _lowered(text: str, form: str) -> tuple[str, tuple[str, ...]]:
    """A program as jaxlib's interpreter runs it, and the passes before: its lowering carries none."""
    if form == "stablehlo" and any(f'"stablehlo.{op}"' in text for op in ("case", "if", "reverse", "while")):
        return transform(text, ["stablehlo-legalize-quant-to-math"])[0], ()
    return text, PASSES[form]


def _in_onnxruntime(job: Job) -> list[np.ndarray] | str:
    try:
        return execute(job.data, {n: np.asarray(job.sample[n]) for n in job.graph.inputs})
    except Exception as error:  # noqa: BLE001 - it refuses in many ways
        return str(error)


def _difference(job: Job, answer: Sequence[np.ndarray]) -> str:
    """What of an answer is not the interpreter's; "" where all is."""
    # As `quantize` judges the file: integers of StableHLO round a tie before the zero point is added.
    arithmetic = "float32_qdq" if job.form == "onnx-qdq" else ARITHMETICS.get(job.form)
    interpreter = Interpreter(job.graph, job.plan, **({"arithmetic": arithmetic} if arithmetic else {}))
    wanted = interpreter.run(job.sample)
    for name, given, got in _pairs(job, wanted, answer):
        expected = np.asarray(given)
        if got.shape != expected.shape and not got.size == expected.size == 1:
            return f"{name}: shape {got.shape}, expected {expected.shape}"
        shaped = got.reshape(expected.shape)
        kind = job.plan.values[name].type if name in job.plan.values else None
        problem = _apart(expected, shaped, kind)
        if problem:
            return f"{name}: {problem}"
    return ""


def _pairs(job: Job, wanted: Any, answer: Sequence[np.ndarray]) -> Iterable[tuple[str, Any, np.ndarray]]:
    if job.form == "tosa":
        yield from agreed(wanted, job.plan, answer)
        return
    for name, got in zip(job.graph.outputs, answer, strict=True):
        yield name, wanted.outputs[name], np.asarray(got)


def _apart(expected: np.ndarray, got: np.ndarray, kind: Any) -> str:
    """How far arrays are apart; "" where they agree, but for a rounding of what a float kernel computes."""
    if not expected.size:
        return ""
    a, b = expected.astype(np.float64), got.astype(np.float64)
    step = (
        1.0
        if expected.dtype.kind in "iub"
        else kind.scale
        if isinstance(kind, Uniform) and kind.is_per_tensor
        else 0.0
    )
    least = 1e-5 + NEAR * float(np.abs(a).max())
    off = np.abs(a - b)
    bad = ~(off <= max(1.01 * step, least))
    if bad.any() and not (bad.mean() < 0.02 and off[bad].max() <= 2.01 * step):
        return f"{int(bad.sum())} of {a.size} differ by up to {np.nanmax(off):.4g} (step {step:.3g})"
    return ""


def campaign(
    seconds: float, seed: int, *, count: int | None = None, pairs: Sequence[tuple[str, str]] = PAIRS
) -> Found:
    """Models from a seed on, until time is over or so many are done."""
    found, waiting, start, first = Found(), list[Job](), time.monotonic(), seed
    while time.monotonic() - start < seconds and (count is None or seed - first < count):
        waiting += prepared(seed, found, pairs)
        seed += 1
        if (seed - first) % BATCH == 0:
            run_all(waiting, found)
            waiting = []
    run_all(waiting, found)
    return found


def told(found: Found) -> str:
    """The counts by format and outcome, and the findings, most frequent first."""
    kinds = sorted({kind for _, kind in found.counts})
    lines = [f"{found.models} models"]
    for form in sorted({form for form, _ in found.counts}):
        ends = [f"{kind} {found.counts[form, kind]}" for kind in kinds if found.counts[form, kind]]
        lines.extend([f"  {form}: {', '.join(ends)}"])
    lines += [" | ".join(map(str, finding)) for finding in found.findings]
    return "\n".join(lines)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int)
    parser.add_argument("--only", help="formats, with commas")
    parser.add_argument(
        "--as-it-is", action="store_true", help="leave onnxruntime's products of u8 and i8 alone"
    )
    given = parser.parse_args()
    if not given.as_it_is:
        use_exact_products()
    wanted = given.only.split(",") if given.only else [form for _, form in PAIRS]
    pairs = tuple(pair for pair in PAIRS if pair[1] in wanted)
    print(told(campaign(given.seconds, given.seed, count=given.count, pairs=pairs)))  # noqa: T201


if __name__ == "__main__":
    main()
