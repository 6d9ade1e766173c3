"""Differences between two targets: heads, defaults, prices, fusions, rows; lines and comments do not count.

Rows are the same row where kernel and signature agree. Source: docs/command.md.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Final, Literal, TypeAlias

from planner.target.docs.support import (
    accumulator_text,
    dynamic_text,
    port_text,
    rule_text,
    table_text,
    type_text,
    value_text,
    work_text,
)
from planner.target.patterns import op_types, parse_pattern
from planner.target.records import Fusion, Row, Target, WorkRates

Sign: TypeAlias = Literal["+", "-", "~"]

HEAD: Final = ("id", "version", "title", "mode")
DEFAULTS: Final = (
    "on_no_kernel",
    "rescale_allowed",
    "rescale_single_consumer",
    "duplicate_constants",
    "asked_widths",
    "unsigned",
    "islands",
    "bias",
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference: `+` only in the second, `-` only in the first, `~` in both and not the same.

    Attributes:
      what: `row`, `fusion`, `legalize`, `cost`, `default`, `head`.
      name: of the entry: `conv2d(x: i8, w: i8 per axis) -> (y: i8)`, `bit_price`.
      before, after: texts; "" where it is not there.
    """

    sign: Sign
    what: str
    name: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        if self.sign != "~":
            tail = self.before or self.after
            return f"{self.sign} {self.what} {self.name}" + (f": {tail}" if tail else "")
        return f"~ {self.what} {self.name}: {self.before or 'nothing'} -> {self.after or 'nothing'}"


def diff_targets(a: Target, b: Target) -> tuple[Difference, ...]:
    """List the differences, heads first, then defaults, prices, fusions and rows."""
    return (
        *_tables("head", {key: getattr(a, key) for key in HEAD}, {key: getattr(b, key) for key in HEAD}),
        *_tables("default", _defaults(a), _defaults(b)),
        *_tables("cost", dataclasses.asdict(a.costs), dataclasses.asdict(b.costs)),
        *_tables("work", _work(a), _work(b)),
        *_tables("legalize", a.legalize, b.legalize),
        *_lists("fusion", _fusions(a), _fusions(b), _meet({**_patterns(a), **_patterns(b)})),
        *_rows(a, b),
    )


def _defaults(target: Target) -> Mapping[str, Any]:
    return {"port": type_text(target.default_port)} | {key: getattr(target, key) for key in DEFAULTS}


def _work(target: Target) -> Mapping[str, Any]:
    engines = {"engines": target.engines.names, "one way": target.engines.one_way}
    crossing = {"crossing": target.engines.crossing} if target.engines.names else {}
    rates = {**dataclasses.asdict(target.float_work), **engines, **crossing}
    return {"unit": target.work_unit, **rates, **dataclasses.asdict(target.files)}


def _tables(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Difference]:
    for key in dict.fromkeys((*a, *b)):
        if a.get(key) == b.get(key):
            continue
        sign: Sign = "-" if key not in b else "+" if key not in a else "~"
        before, after = (value_text(side[key]) if key in side else "" for side in (a, b))
        yield Difference(sign, what, key, before, after)


def _lists(
    what: str, a: Mapping[str, str], b: Mapping[str, str], meet: Callable[[str, str], bool] = lambda *_: True
) -> Iterator[Difference]:
    """Differences of two ordered tables; of the order those of two entries that `meet`."""
    for key in dict.fromkeys((*a, *b)):
        if key not in b:
            yield Difference("-", what, key, a[key], "")
        elif key not in a:
            yield Difference("+", what, key, "", b[key])
        elif a[key] != b[key]:
            yield Difference("~", what, key, a[key], b[key])
    place = {key: number for number, key in enumerate(b)}
    turned = [
        (first, second)
        for first, second in combinations([key for key in a if key in b], 2)
        if place[first] > place[second] and meet(first, second)
    ]
    # An entry that moved past ten others is one difference: the one in most pairs answers for all of them.
    while turned:
        moved, _ = Counter(chain.from_iterable(turned)).most_common(1)[0]
        first, second = next(pair for pair in turned if moved in pair)
        yield Difference("~", f"order of {what}s", first, f"before {second}", "behind it")
        turned = [pair for pair in turned if moved not in pair]


def _fusions(target: Target) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for fusion in target.fusions:
        name = f"{fusion.kernel} {' or '.join(fusion.patterns)}"
        found[_free(name, found)] = _where(fusion)
    return found


def _patterns(target: Target) -> Mapping[str, frozenset[str]]:
    """Types of the ops that each fusion may take, by the names of `_fusions`; none: any op."""
    found: dict[str, frozenset[str]] = {}
    for name, fusion in zip(_fusions(target), target.fusions, strict=True):
        types = [op_types(parse_pattern(text)) for text in fusion.patterns]
        found[name] = frozenset[str]().union(*types) if all(types) else frozenset()
    return found


def _meet(types: Mapping[str, frozenset[str]]) -> Callable[[str, str], bool]:
    """Whether two fusions may want the same op; the order of others decides nothing."""

    def meet(first: str, second: str) -> bool:
        return not types[first] or not types[second] or bool(types[first] & types[second])

    return meet


def _where(fusion: Fusion) -> str:
    return ", ".join(f"{key}: {value_text(value)}" for key, value in sorted(fusion.where.items()))


def _rows(a: Target, b: Target) -> Iterator[Difference]:
    for kernel in dict.fromkeys((*a.rows, *b.rows)):
        yield from _lists("row", _texts(a.rows.get(kernel, ())), _texts(b.rows.get(kernel, ())))


def _texts(rows: Sequence[Row]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for row in rows:
        ports = [", ".join(map(port_text, side)) for side in (row.inputs, row.outputs)]
        found[_free(f"{row.kernel}({ports[0]}) -> ({ports[1]})", found)] = _row_text(row)
    return found


def _free(name: str, taken: Mapping[str, str]) -> str:
    n = 1
    while (whole := name if n == 1 else f"{name} #{n}") in taken:
        n += 1
    return whole


def _row_text(row: Row) -> str:
    parts = [*map(rule_text, row.rules), row.requantize]
    parts += [f"when {value_text(row.when)}"] if row.when else []
    parts += [f"axis {value_text(row.axis)}"] if row.axis else []
    parts += [accumulator_text(row)] if row.accumulator is not None else []
    parts += [table_text(row.table)] if row.table is not None else []
    parts += [dynamic_text(row.dynamic)] if row.dynamic is not None else []
    parts += ["computes"] if row.computes else []
    parts += [f"on {row.runs_on}"] if row.runs_on else []
    parts += [f"float {row.float}"] if row.float else []
    parts += [f"work {work_text(row.work)}"] if row.work != WorkRates() else []
    return "; ".join(parts)
