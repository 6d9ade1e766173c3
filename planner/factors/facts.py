"""Facts of values whose numbers are multiplied: observations are scaled, annotations forbid it."""

import math
from dataclasses import replace

from planner.ir.graph import Facts, Value
from planner.ir.types.qtypes import Calibrated, RowMax, WidthRange
from planner.ir.types.scales import FORMATS


def is_observed(value: Value) -> bool:
    """Whether nothing is known of a value but what calibration observed."""
    return all(isinstance(fact, Calibrated) for fact in value.facts)


def scaled_facts(value: Value, factor: float) -> Facts | None:
    """Facts of the value times a factor; None where they cannot be said of it."""
    found = [scaled(fact, factor) if isinstance(fact, Calibrated) else None for fact in value.facts]
    kept = tuple(fact for fact in found if fact is not None)
    return kept if len(kept) == len(found) else None


def scaled(fact: Calibrated, factor: float) -> Calibrated | None:
    """Return observations times a factor; None where they exceed their type, or of rows turned round."""
    ends = sorted((fact.lo * factor, fact.hi * factor))
    if not factor or not math.isfinite(factor) or max(map(abs, ends)) > FORMATS[fact.expressed].most:
        return None
    if fact.row_max and factor < 0:  # their minima were not observed
        return None
    los, his = ([real * factor for real in side] for side in (fact.los, fact.his))
    return replace(
        fact,
        los=tuple(los if factor > 0 else his),
        his=tuple(his if factor > 0 else los),
        row_max=tuple(RowMax(row.axis, row.least * factor, row.entries) for row in fact.row_max),
        widths=tuple(_scaled_width(width, factor) for width in fact.widths),
    )


def _scaled_width(width: WidthRange, factor: float) -> WidthRange:
    lo, hi = sorted((width.lo * factor, width.hi * factor))
    return WidthRange(width.bits, lo, hi)


def with_readers_of(value: Value, other: Value) -> Value:
    """Return a value that now has another's consumers, with the measurements at those."""
    told = [fact.readers for fact in other.facts if isinstance(fact, Calibrated) and fact.readers]
    if not told:
        return value
    facts = [replace(fact, readers=told[0]) if isinstance(fact, Calibrated) else fact for fact in value.facts]
    return replace(value, facts=tuple(facts))
