"""Incremental: a plan in which a part was planned again, the rest taken over.

Records of the touched kernels come from the new part. What counts through the whole plan (the numbers of
the log's steps, digests) is made when it is first looked at, so that a patch costs what it touches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Self

from planner.ir.graph import model_digest
from planner.plans.plan import Origin, Plan, plan_key
from planner.plans.records import KernelPlan, Step, TargetRef, ValuePlan
from planner.target.records import Row

LONGEST = 16
"""Patches upon patches until the log of one is written out, so that they neither recurse nor pile up."""
HEADS = ("row", "no row")
"""Rules of the step that opens what the log says of a kernel."""

Symbol = tuple[str, str, int]
"""A step whatever its number: (`fact` or `step`, address, which of those at that address)."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """What was planned again.

    Attributes:
      base: the plan before.
      part: the plan of the part, after.
      kernels: positions (in the base) of the kernels that it decides.
      values: the values that it decides.
    """

    base: Plan
    part: Plan
    kernels: tuple[int, ...]
    values: frozenset[str]


class PatchedPlan(Plan):
    """A plan with a patch; see the module."""

    patch: Patch
    height: int

    @classmethod
    def of(cls, patch: Patch, origin: Origin, cost: float, bound: float) -> Self:
        """Make the plan; `cost` and `bound` are of the whole."""
        base, part = patch.base, patch.part
        height = base.height + 1 if isinstance(base, PatchedPlan) else 1
        if isinstance(base, PatchedPlan) and height > LONGEST:
            base.settle()
            height = 1
        kernels = list(base.kernels_in_order)
        for at in patch.kernels:
            kernels[at] = part.kernels[kernels[at].name]
        plan = object.__new__(cls)
        plan.__dict__.update(
            patch=patch,
            height=height,
            target=replace(base.target, rows=_rows(kernels, base.target, part.target)),
            options=base.options,
            graph=replace(base.graph, values=origin.graph.values, regions=origin.graph.regions),
            kernels_in_order=tuple(kernels),
            cost=cost,
            optimal=cost == bound,
            bound=bound,
            warnings=tuple(text for texts in origin.warned.values() for text in texts),
            origin=origin,
            kernels_at=base.kernels_at,
            region_at=base.region_at,
            depths=base.depths,
        )
        return plan

    def settle(self) -> None:
        """Write out what waits to be looked at; the plan before is not needed any more."""
        if "values" not in self.__dict__ or "steps" not in self.__dict__:
            self.__dict__.update(steps=self.steps, values=self.values)
        self.__dict__.pop("patch", None)
        self.__dict__.pop("_log", None)

    @cached_property
    def model(self) -> str:
        """Digest of the model with its changed facts."""
        return model_digest(self.origin.model) if self.origin else ""

    @cached_property
    def key(self) -> str:
        """As `Plan.key`."""
        return plan_key(self.graph, self.model, self.target.digest, self.options)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The log of base and part, numbered through."""
        return self._log[0]

    @cached_property
    def values(self) -> Mapping[str, ValuePlan]:
        """As `Plan.values`, with the numbers of this log."""
        base, part = self.patch.base.values, self.patch.part.values
        found: dict[str, ValuePlan] = {}
        _, numbers, (ours, theirs) = self._log
        for name, old in base.items():
            value = part[name] if name in self.patch.values and name in part else old
            if value.decided_by is not None:
                symbols = (ours if value is old else theirs).symbols
                value = replace(value, decided_by=numbers[symbols[value.decided_by]])
            found[name] = value
        return found

    @cached_property
    def _log(self) -> tuple[tuple[Step, ...], Mapping[Symbol, int], tuple["_Chapters", "_Chapters"]]:
        base, part = _Chapters.of(self.patch.base), _Chapters.of(self.patch.part)
        touched = {self.patch.base.kernels_in_order[at].name for at in self.patch.kernels}
        steps: list[Step] = []
        numbers: dict[Symbol, int] = {}
        for name in _names_in_order(self):
            own = part if name in self.patch.values else base
            for k, step in enumerate(own.facts.get(name, ())):
                numbers["fact", name, k] = len(steps)
                steps.append(replace(step, n=len(steps)))
        for kernel in self.kernels_in_order:
            own = part if kernel.name in touched else base
            for symbol, step in own.kernels.get(kernel.name, ()):
                numbers[symbol] = len(steps)
                because = tuple(sorted(numbers[own.symbols[n]] for n in step.because))
                steps.append(replace(step, n=len(steps), because=because))
        return tuple(steps), numbers, (base, part)


def _names_in_order(plan: Plan) -> Iterator[str]:
    """Values as the log lists their facts: inputs, constants, then as kernels name them."""
    names = dict.fromkeys((*plan.graph.inputs, *plan.graph.constants))
    for kernel in plan.kernels_in_order:
        names.update((port.value, None) for port in (*kernel.inputs, *kernel.outputs) if port.value)
    names.update(dict.fromkeys(plan.graph.outputs))
    return iter(names)


@dataclass(frozen=True, slots=True, eq=False)
class _Chapters:
    """A log taken apart: steps of facts by value, of kernels by name, and what each number stands for."""

    facts: Mapping[str, Sequence[Step]]
    kernels: Mapping[str, Sequence[tuple[Symbol, Step]]]
    symbols: Sequence[Symbol]

    @classmethod
    def of(cls, plan: Plan) -> "_Chapters":
        facts: dict[str, list[Step]] = {}
        symbols: list[Symbol] = []
        for step in takewhile(lambda step: step.rule not in HEADS, plan.steps):
            known = facts.setdefault(step.port, [])
            symbols.append(("fact", step.port, len(known)))
            known.append(step)
        kernels: dict[str, list[tuple[Symbol, Step]]] = {}
        chapter: list[tuple[Symbol, Step]] = []
        times: dict[str, int] = {}
        for step in plan.steps[len(symbols) :]:
            if step.rule in HEADS:
                chapter = kernels.setdefault(step.port, [])
            k = times[step.port] = times.get(step.port, -1) + 1
            symbols.append(("step", step.port, k))
            chapter.append((symbols[-1], step))
        return cls(facts, kernels, symbols)


def _rows(kernels: Sequence[KernelPlan], *targets: TargetRef) -> dict[str, Row]:
    """The rows in use, as kernels come to them."""
    known: dict[str, Row] = {}
    for target in targets:
        known |= target.rows
    return {key: known[key] for key in dict.fromkeys(kernel.row for kernel in kernels) if key is not None}


def merged_warnings(
    order: Sequence[KernelPlan], old: Mapping[str, Any], new: Mapping[str, Any], touched: frozenset[str]
) -> dict[str, tuple[str, ...]]:
    """Warnings by kernel, in plan order: the touched kernels' new ones, the others' old ones."""
    if not old and not new:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for kernel in order:
        texts = (new if kernel.name in touched else old).get(kernel.name)
        if texts:
            found[kernel.name] = texts
    return found
