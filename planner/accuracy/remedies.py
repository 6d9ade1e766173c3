"""Remedies: changes that would remove most noise from a plan, each with its predicted SQNR.

Rounding to steps of another width scales with the square of the width, so finer types are predicted from the
measurement; another range is measured, as its clipping cannot be predicted. Predictions are corrected by how
far the own noises added up to what the whole program showed. Source: docs/accuracy.md, docs/search.md.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from planner.accuracy.choices import Choice, activations_of, is_on_grid
from planner.accuracy.own_noise import OwnNoise, Part, decibels
from planner.ir.types.qtypes import Storage, Uniform, float_text
from planner.plans.plan import Plan, Planned

Measure: TypeAlias = Callable[[Sequence[Choice]], OwnNoise]

KERNELS: Final = 3
"""Kernels that remedies are looked for at, worst first."""
WORTH: Final = 0.1
"""Least gain in dB of a reported remedy."""
RANGES: Final[Mapping[float, str]] = {0.25: "a quarter of", 0.5: "half", 2.0: "twice"}
"""Other ranges that are tried, as factors of the planned one."""
WIDE: Final = 16
MOST: Final = 0.9
"""Share of the noise whose kernels are looked at together."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Noise powers of one choice.

    Attributes:
      weights: of its constants' types.
      rounding, clip: of its other types: steps, and what lies outside their ranges.
    """

    weights: float
    rounding: float
    clip: float


Worst: TypeAlias = tuple[Choice, float, Parts]
"""A choice, its own noise at the evaluated output, and the parts of that."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change of a plan.

    Attributes:
      names: of the kernels or the model input.
      what: `float`, `16 bits`, `finer weights`, or `half its range` and the like.
      sqnr: predicted for the evaluated output, dB.
      how: what to write or to run.
    """

    names: tuple[str, ...]
    what: str
    sqnr: float
    how: str


def remedies(
    plan: Plan,
    worst: Sequence[Worst],
    noise: OwnNoise,
    judged: Part,
    *,
    measured: float,
    measure: Measure,
) -> tuple[Remedy, ...]:
    """Find what helps most.

    Args:
      worst: choices with their own noise and its parts, worst first.
      noise: of all choices.
      judged: the output that counts.
      measured: its SQNR in the whole program, dB.
      measure: own noise of other choices on the same samples.
    """
    total = noise.total(judged)
    if not total or not math.isfinite(measured):
        return ()
    share = noise.signal[judged] / 10 ** (measured / 10) / total
    few = worst[:KERNELS]
    tried = [
        (i, factor, activations_of(choice, plan, factor))
        for i, (choice, _, parts) in enumerate(few)
        if parts.rounding + parts.clip > parts.weights
        for factor in RANGES
    ]
    ranged = measure([choice for _, _, choice in tried]).power if tried else ()
    found: list[Remedy] = []

    def note(names: tuple[str, ...], what: str, gone: float, how: str) -> None:
        sqnr = decibels(noise.signal[judged], share * max(total - gone, 0.0))
        if sqnr > measured + WORTH:
            found.append(Remedy(names, what, sqnr, how))

    for i, (choice, own, parts) in enumerate(few):
        others = {
            factor: powers[judged] for (j, factor, _), powers in zip(tried, ranged, strict=True) if i == j
        }
        for what, left, how in _left(plan, choice, own, parts, others):
            note((choice.name,), what, own - left, how)
        if not choice.is_input:
            names = _in_float(plan, [(choice, own, parts)])
            note(names, "float", own, _asked(names, "float"))
    most = [*_most(worst, total)]
    if len(most) > 1:
        names = _in_float(plan, most)
        note(names, "float", math.fsum(own for _, own, _ in most), _asked(names, "float"))
    found.sort(key=lambda remedy: -remedy.sqnr)
    told: dict[tuple[frozenset[str], str], Remedy] = {}
    for remedy in found:
        told.setdefault((frozenset(remedy.names), remedy.what), remedy)
    return tuple(told.values())


def _most(worst: Sequence[Worst], total: float) -> Iterator[Worst]:
    """The few kernels, worst first, that make most of the noise."""
    seen = 0.0
    for choice, own, parts in worst:
        if seen < MOST * total and not choice.is_input:
            yield choice, own, parts
        seen += own


def _in_float(plan: Plan, worst: Iterable[Worst]) -> tuple[str, ...]:
    """Kernels to run in float: these, and those that would round their results again."""
    names: dict[str, None] = {}
    for choice, _, parts in worst:
        names[choice.name] = None
        if parts.rounding + parts.clip > parts.weights:
            names |= dict.fromkeys(_rounding_readers(plan, choice.name))
    return tuple(names)


def _rounding_readers(plan: Plan, kernel: str) -> Iterator[str]:
    """Kernels that read quantized results of a kernel, through data movement too."""
    made = {port.value for port in plan.kernels[kernel].outputs if port.value}
    regions = plan.graph.regions
    for at in sorted({at for value in made for at in plan.kernels_at[value]}):
        reader = plan.kernels_in_order[at]
        if any(port.value in made and isinstance(port.type, Uniform) for port in reader.inputs):
            yield reader.name
            if is_on_grid(reader, regions[plan.wiring.region_at[at]], plan.graph):
                yield from _rounding_readers(plan, reader.name)


def _left(
    plan: Plan, choice: Choice, own: float, parts: Parts, ranged: Mapping[float, float]
) -> Iterator[tuple[str, float, str]]:
    """Other types for one choice: which, the noise that they leave, and how to get them."""
    kinds = [kind for address, kind in choice.types.items() if ".in[" not in address] or [
        *choice.types.values()
    ]
    kinds += choice.pins.values()
    bits = min((kind.storage.bits for kind in kinds), default=WIDE)
    value, how = _value(plan, choice), _wide(plan, choice)
    if bits < WIDE and how:
        yield "16 bits", parts.weights + parts.clip + parts.rounding * 4.0 ** (bits - WIDE), how
    if parts.weights > own / 2:
        yield "weights of one bit more", own - parts.weights * 3 / 4, "weights per channel, or of more bits"
    best = min(ranged, key=ranged.__getitem__, default=None)
    if best is not None and ranged[best] < parts.rounding + parts.clip:
        lo, hi = best * kinds[0].lo, best * kinds[0].hi
        how = f'values: {{"{value}": "!quant.calibrated<f32<{float_text(lo)}:{float_text(hi)}>>"}}'
        yield f"{RANGES[best]} its range", parts.weights + ranged[best], how


def _value(plan: Plan, choice: Choice) -> str:
    """The value that an annotation would name."""
    if choice.is_input:
        return choice.name
    return next((port.value for port in plan.kernels[choice.name].outputs if port.value), choice.name)


def _wide(plan: Plan, choice: Choice) -> str:
    """The annotation for 16 bits; "" where the target is known to have no such row.

    It is for the results; for the operands where a kernel stores no result, as a comparison does.
    """
    if choice.is_input or not isinstance(plan, Planned):
        return f'values: {{"{_value(plan, choice)}": "!quant.any<i16>"}}'
    for row in plan.whole_target.rows.get(plan.kernels[choice.name].kernel, ()):
        stores = [port.type.storage for port in row.outputs or row.inputs]
        if stores and all(isinstance(store, Storage) and store.bits >= WIDE for store in stores):
            text = str(stores[0]) if row.outputs else f"{{in: [{', '.join(map(str, stores))}]}}"
            return _asked((choice.name,), text)
    return ""


def _asked(names: Iterable[str], what: str) -> str:
    """Annotations that ask something of kernels."""
    return f"kernels: {{{', '.join(f'{json.dumps(name)}: {what}' for name in names)}}}"
