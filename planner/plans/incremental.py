"""Incremental: a plan in which a part was planned again, the rest taken over.

Records of the touched kernels come from the new part. Data of the whole plan (the numbers of
the log's steps, digests) is made when it is first looked at, so that a patch costs what it touches.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, TypeAlias

from planner.ir.graph import Graph, model_digest
from planner.plans.plan import Planned, plan_key
from planner.plans.records import KernelPlan, StepRow, StepRows, TargetRef, ValuePlan, step_rows
from planner.plans.wiring import Wiring
from planner.target.records import Row

LONGEST: Final = 16
"""Patches upon patches until the log of one is written, so that they neither recurse nor pile up."""
HEADS: Final = ("annotated", "apart", "let go", "left", "short", "sign", "grown", "finer", "row", "no row")
"""Rules of steps about a kernel as a whole; the first of them opens what the log says of it."""

Symbol: TypeAlias = tuple[str, str, int]
"""A step whatever its number: (`fact` or `step`, address, which of those at that address)."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """A part that was planned again.

    Attributes:
      base: the plan before.
      part: the plan of the part, after.
      kernels: positions (in the base) of the kernels that it decides.
      values: the values that it decides.
      annotated, fused: the model as it is now, as in `Planned`.
    """

    base: Planned
    part: Planned
    kernels: tuple[int, ...]
    values: frozenset[str]
    annotated: Graph
    fused: Graph

    def kernels_in_order(self) -> tuple[KernelPlan, ...]:
        """The kernels of the whole."""
        kernels = list(self.base.kernels_in_order)
        for at in self.kernels:
            kernels[at] = self.part.kernels[kernels[at].name]
        return tuple(kernels)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PatchedPlan(Planned):
    """A plan with a patch; `kept` is the wiring of the plan before, which is its own."""

    key: str = field(init=False)
    model: str = field(init=False)
    kept: Wiring

    @cached_property
    def wiring(self) -> Wiring:
        """As `Plan.wiring`."""
        return self.kept

    def __getattr__(self, name: str) -> str:
        # Not given but taken when somebody looks: every number of the model is hashed, which takes longer
        # than planning a part of it, and most plans on the way to a better one are never asked.
        if name in ("key", "model"):
            return self._digests[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def _digests(self) -> Mapping[str, str]:
        model = model_digest(self.annotated)
        return {"model": model, "key": plan_key(self.graph, model, self.target.digest, self.options)}


def patched(
    patch: Patch,
    kernels: tuple[KernelPlan, ...],
    warned: Mapping[str, tuple[str, ...]],
    *,
    cost: float,
    excused: float,
    bound: float,
) -> PatchedPlan:
    """The plan with a patch.

    Args:
      kernels: of the whole, in order.
      warned: as `Planned.warned`; `cost`, `excused` and `bound` are of the whole, too.
    """
    base = patch.base
    if _height(base) >= LONGEST:
        step_rows(base.steps)
    records = _Records(patch)
    touched = frozenset(kernels[at].name for at in patch.kernels)
    return PatchedPlan(
        target=replace(base.target, rows=_rows(kernels, base.target, patch.part.target)),
        options=base.options,
        graph=replace(base.graph, values=patch.fused.values, regions=patch.fused.regions),
        kernels_in_order=kernels,
        values=_Values(records),
        steps=_Log(records),
        cost=cost,
        excused=excused,
        optimal=cost == bound,
        bound=bound,
        warnings=tuple(text for texts in warned.values() for text in texts),
        annotated=patch.annotated,
        fused=patch.fused,
        whole_target=base.whole_target,
        warned=warned,
        apart=base.apart,
        left=(base.left - touched) | (patch.part.left & touched),
        turns=base.turns or patch.part.turns,
        visits=base.visits,
        kept=base.wiring,
    )


class _Records:
    """Log and values of a patched plan, written when somebody looks; the plan before is not needed then."""

    def __init__(self, patch: Patch) -> None:
        self._patch: Patch | None = patch
        self._written: tuple[Sequence[StepRow], Mapping[str, ValuePlan]] = (), {}

    def written(self) -> tuple[Sequence[StepRow], Mapping[str, ValuePlan]]:
        """The log of base and part, numbered through, and the values with the numbers of this log."""
        patch = self._patch
        if patch is not None:
            self._written = _written(patch)
            self._patch = None
        return self._written

    @property
    def height(self) -> int:
        """Patches upon patches that are not written."""
        patch = self._patch
        return 0 if patch is None else 1 + _height(patch.base)


class _Log(StepRows):
    """The log of a patched plan."""

    def __init__(self, records: _Records) -> None:
        self.records = records

    def rows(self) -> Sequence[StepRow]:
        """Return the rows of all steps."""
        return self.records.written()[0]


class _Values(Mapping[str, ValuePlan]):
    """The values of a patched plan."""

    def __init__(self, records: _Records) -> None:
        self.records = records

    def __getitem__(self, name: str) -> ValuePlan:
        return self.records.written()[1][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records.written()[1])

    def __len__(self) -> int:
        return len(self.records.written()[1])


def _height(plan: Planned) -> int:
    return plan.steps.records.height if isinstance(plan.steps, _Log) else 0


def _written(patch: Patch) -> tuple[Sequence[StepRow], Mapping[str, ValuePlan]]:
    base, part = _Chapters.of(patch.base), _Chapters.of(patch.part)
    kernels = patch.base.kernels_in_order
    touched = {kernels[at].name for at in patch.kernels}
    rows: list[StepRow] = []
    numbers: dict[Symbol, int] = {}
    for name in dict.fromkeys((*_names_in_order(patch.base), *base.facts)):
        own = part if name in patch.values else base
        for k, row in enumerate(own.facts.get(name, ())):
            numbers["fact", name, k] = number = len(rows)
            rests = tuple(sorted(numbers[own.symbols[n]] for n in row[5]))
            rows.append((number, *row[1:5], rests, row[6]))
    for kernel in kernels:
        own = part if kernel.name in touched else base
        for symbol, (_, port, kind, rule, source, because, refused) in own.kernels.get(kernel.name, ()):
            numbers[symbol] = len(rows)
            rests = tuple(sorted(numbers[own.symbols[n]] for n in because))
            rows.append((len(rows), port, kind, rule, source, rests, refused))
    values: dict[str, ValuePlan] = {}
    for name, old in patch.base.values.items():
        value = patch.part.values[name] if name in patch.values and name in patch.part.values else old
        if value.decided_by is not None:
            symbols = (base if value is old else part).symbols
            value = replace(value, decided_by=numbers[symbols[value.decided_by]])
        values[name] = value
    return rows, values


def _names_in_order(plan: Planned) -> Iterator[str]:
    """Values as the log lists their facts: inputs, constants, then as kernels name them."""
    names = dict.fromkeys((*plan.graph.inputs, *plan.graph.constants))
    for kernel in plan.kernels_in_order:
        names.update((port.value, None) for port in (*kernel.inputs, *kernel.outputs) if port.value)
    names.update(dict.fromkeys(plan.graph.outputs))
    return iter(names)


@dataclass(frozen=True, slots=True, eq=False)
class _Chapters:
    """A log taken apart: steps of facts by value, of kernels by name, and what each number stands for."""

    facts: Mapping[str, Sequence[StepRow]]
    kernels: Mapping[str, Sequence[tuple[Symbol, StepRow]]]
    symbols: Sequence[Symbol]

    @classmethod
    def of(cls, plan: Planned) -> "_Chapters":
        rows = step_rows(plan.steps)
        facts: dict[str, list[StepRow]] = {}
        symbols: list[Symbol] = []
        for row in takewhile(lambda row: row[3] not in HEADS, rows):
            known = facts.setdefault(row[1], [])
            symbols.append(("fact", row[1], len(known)))
            known.append(row)
        kernels: dict[str, list[tuple[Symbol, StepRow]]] = {}
        chapter: list[tuple[Symbol, StepRow]] = []
        times: dict[str, int] = {}
        for row in rows[len(symbols) :]:
            port = row[1]
            if row[3] in HEADS:
                chapter = kernels.setdefault(port, [])
            k = times[port] = times.get(port, -1) + 1
            symbols.append(("step", port, k))
            chapter.append((symbols[-1], row))
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
