"""Row probe: each row of a target against an engine, with the kit's models: does it run as the row says?

In: a target and an engine. Out: a finding for every item of the kit and every row without one. A claim holds
where the engine gives the interpreter's integers without computing in float. Source: docs/command.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.target.records import Target
from planner.target_tests.engines.answers import Answer, Job
from planner.target_tests.engines.table import HERE, Engine
from planner.target_tests.probe_kit import KitItem, differences, make_kit

HOLDS: Final = frozenset({"integers", "as floats"})
UNKNOWN: Final = frozenset({"not written", "no model", "no answer"})
COMPILED: Final = "compiled for the device, computed by nothing"
VERDICTS: Final[Mapping[str, str]] = {
    "integers": "the engine computes the expected integers",
    "as floats": "the row's ports are floats, and the numbers agree",
    "float": "the engine computes it in float, between a DequantizeLinear and a QuantizeLinear",
    "cpu": "the compiler leaves it to the CPU",
    "one step": "integers, some one step from the expected",
    "differs": "integers, further from the expected",
    "refused": "the engine does not take it",
    "not written": "the format cannot express it",
    "no model": "the kit has no model of it",
    "no answer": "the results hold nothing of it",
}
"""Possible verdicts on a row, and the meaning of each."""


@dataclass(frozen=True, slots=True)
class RowFinding:
    """The outcome of one item of the kit, or of a row that has none.

    Attributes:
      name: of the item, `conv2d-1`; of the kernel where there is none.
      row: `file:line`.
      verdict: a key of `VERDICTS`.
      detail: how many numbers differ and by how much, or a message.
    """

    name: str
    kernel: str
    row: str
    verdict: str
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether the engine does as the row says."""
        return self.verdict in HOLDS

    @property
    def refuted(self) -> bool:
        """Whether the engine does otherwise."""
        return self.verdict not in HOLDS | UNKNOWN


def probe_rows(
    target: Target, engine: Engine, *, python: str = HERE, kernels: Sequence[str] = (), seed: int = 0
) -> tuple[RowFinding, ...]:
    """Ask an engine about every row.

    Args:
      target: a loaded target.
      engine: an entry of `ENGINES`, or `own_engine`.
      python: of the environment the engine lives in.
      kernels: of these kernels only; of all without any.
      seed: of weights and inputs.

    Raises:
      UnknownName: a kernel without a row.
      InputError: the engine does not start.
    """
    kit = make_kit(target, form=engine.form, seed=seed, kernels=kernels)
    written = [item for item in kit.items if item.file is not None]
    ends = real_inputs if engine.float_ends else _as_they_are
    jobs = [Job(item.file or b"", ends(item.plan, item.inputs), item.plan.graph.outputs) for item in written]
    given = engine.ask(python, jobs) if jobs else ()
    if engine.float_ends:
        given = [
            answer if answer.outputs is None else replace(answer, outputs=stored(item.plan, answer.outputs))
            for item, answer in zip(written, given, strict=True)
        ]
    answers = dict(zip((item.name for item in written), given, strict=True))
    found = [
        RowFinding(
            item.name, item.kernel, item.row, *_verdict(item, answers.get(item.name), engine.otherwise)
        )
        for item in kit.items
    ]
    found += [RowFinding(s.kernel, s.kernel, s.row, "no model", s.reason) for s in kit.skipped]
    return tuple(found)


def real_inputs(plan: Plan, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The reals of stored integers, by the types that a plan's model fixes; other arrays as they are."""
    kinds = {name: _fixed(plan, name) for name in arrays}
    return {
        name: array if (kind := kinds[name]) is None else dequantize_array(array, kind)
        for name, array in arrays.items()
    }


def stored(plan: Plan, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The stored integers of reals, likewise."""
    kinds = {name: _fixed(plan, name) for name in arrays}
    return {
        name: array if (kind := kinds[name]) is None else quantize_array(array, kind)
        for name, array in arrays.items()
    }


def _fixed(plan: Plan, name: str) -> Uniform | None:
    facts = plan.graph.values[name].facts
    return next((fact for fact in facts if isinstance(fact, Uniform)), None)


def _as_they_are(_: Plan, arrays: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    return arrays


def compared(
    expected: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray], *, floats: bool
) -> tuple[str, str]:
    """The verdict on results and its detail; `floats`: of a row whose ports are floats."""
    if detail := "; ".join(differences(expected, results)):
        return ("one step" if _is_one_step(expected, results) else "differs"), detail
    return ("as floats" if floats else "integers"), ""


def _is_one_step(expected: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> bool:
    """Whether stored integers are all there and at most one step off."""
    return all(
        name in results
        and wanted.dtype.kind in "iu"
        and results[name].shape == wanted.shape
        and int(np.abs(results[name].astype(np.int64) - wanted.astype(np.int64)).max(initial=0)) <= 1
        for name, wanted in expected.items()
    )


def _verdict(item: KitItem, answer: Answer | None, otherwise: str) -> tuple[str, str]:
    """The verdict on an item, with its detail; without an answer it was not written."""
    if answer is None:
        return "not written", item.refusal
    if answer.refusal:
        return "refused", " ".join(answer.refusal.split())
    floats = all(array.dtype in (np.float16, np.float32) for array in item.inputs.values())
    # An engine that only compiles gives no results to compare.
    results = item.expected if answer.outputs is None else answer.outputs
    verdict, detail = compared(item.expected, results, floats=floats)
    # Integers of a compiler's CPU are no claim about its device, whatever they are.
    if answer.elsewhere and (verdict == "integers" or otherwise == "cpu"):
        return otherwise, ", ".join(dict.fromkeys(answer.elsewhere))
    return verdict, COMPILED if answer.outputs is None else detail
