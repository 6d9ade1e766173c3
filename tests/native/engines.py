"""The engines that run native formats, and the differences between their results and `evaluate`'s.

An answer is compared kernel by kernel: every value that a kernel stores is an output of the file.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import InputError, PlannerError
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform
from planner.plans.rescales import uses
from tests.formats.stablehlo.writer.running import with_all_results as with_stored_results
from tests.formats.tosa.writer.running import agreed, fed, with_all_results
from tests.native.models import Arrays, Case, made, samples
from tests.oracles import hlo, litert, tosa

SAMPLES: Final = 3
ENDED: Final = "the engine ended without a word"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A planned model, with samples on the grids of its inputs."""

    case: Case
    graph: Any
    plan: Any
    feeds: Sequence[Arrays]
    data: bytes


@dataclass(slots=True)
class Findings:
    """What a run saw.

    Attributes:
      counts: models that were `run`, `float` (no kernel has a row), `refused` by the exporter; by engine too.
      differing: for each case that differs, the engine, the value, and the most steps.
      refused: messages of exporters and engines, by case.
    """

    counts: Counter[str] = field(default_factory=Counter)
    differing: list[tuple[Case, str, str, float]] = field(default_factory=list)
    refused: list[tuple[Case, str, str]] = field(default_factory=list)

    def beyond(self, engine: str) -> list[str]:
        """What is off by more steps than an engine's results may be."""
        return [
            f"{case}: {value} is {most:g} off"
            for case, name, value, most in self.differing
            if name == engine and most > STEPS[engine]
        ]


def prepare(case: Case, target: str, form: str) -> Prepared | str:
    """Plan the model of a case and write it with every stored value as an output; or what refuses it."""
    graph = planner.load_model(made(case))
    given = samples(case, {name: graph.values[name].shape for name in graph.inputs}, SAMPLES)
    ready = planner.annotate(graph, stats=planner.calibrate(graph, given, method="minmax"))
    if case.bits != 8:
        wide = dict.fromkeys((*graph.inputs, *_computed(graph)), f"!quant.any<i{case.bits}>")
        ready = planner.annotate(ready, annotations={"format": "qplan.annotations/1", "values": wide})
    # Kernels beside those in float are to be stored here: what is tried is their arithmetic.
    plan = planner.plan(ready, replace(planner.load_target(target), islands="integer"))
    if all(kernel.row is None for kernel in plan.kernels_in_order):
        return "float"
    outputs = with_stored_results if form.startswith("stablehlo") else with_all_results
    ready, plan = outputs(ready, plan)
    try:
        data = EXPORTERS[form](ready, plan)
    except PlannerError as error:
        return f"refused: {error}"
    # The last one is far beyond what calibration saw: kernels saturate there, or overflow.
    beyond = {name: array * array.dtype.type(40) for name, array in given[-1].items()}
    return Prepared(case, ready, plan, [_snapped(plan, sample) for sample in (*given, beyond)], data)


def _computed(graph: Any) -> list[str]:
    return [name for op in graph.ops for name in op.outputs if name and graph.values[name].is_float]


def _snapped(plan: Any, sample: Arrays) -> Arrays:
    """Inputs moved onto their first consumer's grid, where engines agree on the stored integer."""
    readers, found = uses(plan.graph, plan.kernels_in_order), {}
    for name, array in sample.items():
        kind = next((use.type for use in readers.get(name, ()) if isinstance(use.type, Uniform)), None)
        found[name] = array
        if kind is not None:
            stored = quantize_array(array.astype(np.float32), kind)
            found[name] = dequantize_array(stored, kind).astype(array.dtype)
    return found


def _litert(kernels: str) -> Callable[[Path, Sequence[Prepared]], list[Any]]:
    def ask(folder: Path, items: Sequence[Prepared]) -> list[Any]:
        return litert.run(folder, [(item.data, item.feeds) for item in items], kernels=kernels)

    return ask


def _tosa(folder: Path, items: Sequence[Prepared]) -> list[Any]:
    jobs = [(item.data, [fed(item.graph, item.plan, feed) for feed in item.feeds]) for item in items]
    return tosa.run(folder, jobs)


def _stablehlo(folder: Path, items: Sequence[Prepared]) -> list[Any]:
    del folder
    jobs = [(item.data.decode(), list(feed.values())) for item in items for feed in item.feeds]
    found = iter(hlo.evaluated(jobs))
    return [[next(found) for _ in item.feeds] for item in items]


ENGINES: Final[Mapping[str, tuple[str, str, str | None, Callable[..., list[Any]]]]] = {
    "litert-optimized": ("litert-int8", "litert", None, _litert("optimized")),
    "litert-reference": ("litert-int8", "litert", None, _litert("reference")),
    "stablehlo-int": ("stablehlo", "stablehlo-int", "exact_even", _stablehlo),
    "tosa": ("tosa-int8", "tosa", None, _tosa),
}
"""By name: target, format, the arithmetic that `evaluate` takes, and how the engine is asked."""
STEPS: Final = {"litert-optimized": 1, "litert-reference": 1, "stablehlo-int": 0, "tosa": 0}
"""Steps that a result may be off: docs/litert.md says where and why. Booleans and indices are never off."""


def _answers(ask: Callable[..., list[Any]], folder: Path, items: Sequence[Prepared]) -> list[Any]:
    """Ask an engine; where it ends without a word, halves of the batch, until the file is found."""
    own = folder / f"of_{len(items)}_{len(list(folder.iterdir()))}"
    own.mkdir()
    try:
        return ask(own, items) if items else []
    except InputError:
        if len(items) == 1:
            return [ENDED]
        middle = len(items) // 2
        return [*_answers(ask, folder, items[:middle]), *_answers(ask, folder, items[middle:])]


def compare(engine: str, folder: Path, cases: Iterable[Case], findings: Findings) -> None:
    """Run cases in an engine, and note every stored integer that is not `evaluate`'s."""
    target, form, arithmetic, ask = ENGINES[engine]
    items = []
    for case in cases:
        try:
            item = prepare(case, target, form)
        except PlannerError as error:
            item = f"refused: {error}"
        if isinstance(item, Prepared):
            items.append(item)
        else:
            findings.counts[f"{engine}: {item.split(':')[0]}"] += 1
            if item != "float":
                findings.refused.append((case, engine, item))
    for item, answers in zip(items, _answers(ask, folder, items), strict=True):
        findings.counts[f"{engine}: {'not taken' if isinstance(answers, str) else 'run'}"] += 1
        if answers is ENDED:
            findings.differing.append((item.case, engine, "the whole file", np.inf))
        elif isinstance(answers, str):
            findings.refused.append((item.case, engine, answers))
        if isinstance(answers, str):
            continue
        worst = _worst(item, answers, arithmetic)
        findings.differing += [(item.case, engine, value, most) for value, most in worst.items() if most]


def _worst(item: Prepared, answers: Sequence[Any], arithmetic: str | None) -> dict[str, float]:
    """By value the most steps that an engine is off; infinite where a boolean or an index differs."""
    interpreter, worst = Interpreter(item.graph, item.plan, arithmetic=arithmetic), dict[str, float]()
    types = {port.value: port.type for kernel in item.plan.kernels_in_order for port in kernel.outputs}
    for feed, answer in zip(item.feeds, answers, strict=True):
        wanted = interpreter.run(feed)
        for value, own, got in _pairs(item, wanted, answer):
            worst[value] = max(worst.get(value, 0.0), _steps_off(own, got, types.get(value)))
    return worst


def _steps_off(own: np.ndarray, got: np.ndarray, kind: Any) -> float:
    if not isinstance(kind, Uniform):
        is_real = own.dtype.kind == "f"
        alike = np.allclose(own, got, rtol=1e-5, atol=0, equal_nan=True) if is_real else (own == got).all()
        return 0.0 if alike else np.inf
    stored = [
        (quantize_array(array, kind) if array.dtype.kind == "f" else array).astype(np.int64)
        for array in (own, got)
    ]
    return float(np.abs(stored[0] - stored[1]).max(initial=0))


def _pairs(item: Prepared, wanted: Any, answer: Any) -> Iterable[tuple[str, np.ndarray, np.ndarray]]:
    if isinstance(answer, Mapping):
        return [(name, wanted.outputs[name], array) for name, array in answer.items()]
    return agreed(wanted, item.plan, answer)
