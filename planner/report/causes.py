"""Causes: why kernels fall back to float, grouped so that one line names one thing to change.

In: the reasons of a plan, one for each kernel, which quote values and lines of the target. Out: a few
sentences without value names, each with its remedy where there is one. The reasons stay in the plan.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from planner.accuracy.coverage import Coverage, Fallback
from planner.accuracy.verdict import share_text
from planner.errors import quantity
from planner.plans.records import BETWEEN_FLOATS
from planner.propagation.network.float_islands import ISLAND
from planner.propagation.selection.choice import NO_RANGE
from planner.propagation.selection.wanted_rows import ANNOTATED

Kind: TypeAlias = Literal[
    "between floats",
    "island",
    "no match",
    "no range",
    "open size",
    "other",
    "refused",
    "requested",
    "some size",
    "unsupported",
]

LISTED: Final = 4
"""Kinds of kernels that a sentence names."""
SHOWN: Final = 3
"""Causes of float kernels that are listed."""
LONGEST: Final = 160
"""Characters of one of them."""

SENTENCES: Final[Mapping[Kind, tuple[str, str]]] = {
    "between floats": (
        "{n} kernel{share} moves data between float kernels: {kinds}",
        "{n} kernels{share} move data between float kernels: {kinds}",
    ),
    "island": (
        "{n} kernel{share} is in float because its neighbours are: {kinds}",
        "{n} kernels{share} are in float because their neighbours are: {kinds}",
    ),
    "no match": (
        "{n} operator{share} matches no kernel of the target: {kinds}: {about}",
        "{n} operators{share} match no kernel of the target: {kinds}: {about}",
    ),
    "no range": (
        "{n} kernel{share} has no range, since calibration did not reach it: {kinds}",
        "{n} kernels{share} have no range, since calibration did not reach them: {kinds}",
    ),
    "open size": (
        "{n} kernel{share} needs a fixed {about}: add --dim {about}=1",
        "{n} kernels{share} need a fixed {about}: add --dim {about}=1",
    ),
    "other": ("{n} kernel{share}: {about}: {kinds}", "{n} kernels{share}: {about}: {kinds}"),
    "refused": (
        "{n} kernel{share} matches no kernel variant of the target: {kinds}: {about}",
        "{n} kernels{share} match no kernel variant of the target: {kinds}: {about}",
    ),
    "requested": (
        "{n} kernel{share} is in float on request: {kinds}",
        "{n} kernels{share} are in float on request: {kinds}",
    ),
    "some size": (
        "{n} kernel{share} needs a fixed size: {kinds}: give it with --dim NAME=SIZE",
        "{n} kernels{share} need a fixed size: {kinds}: give it with --dim NAME=SIZE",
    ),
    "unsupported": (
        "{n} operator{share} is not supported by {about}: {kinds}",
        "{n} operators{share} are not supported by {about}: {kinds}",
    ),
}
"""Of each kind: the sentence on one kernel, and that on several."""

_UNSUPPORTED: Final = re.compile(
    r"no fusion of '(?P<of>[^']+)' names it\b|^(?P<row_of>\S+) has no row for the kernel$"
)
_OPEN: Final = re.compile(r"shape\[-?\d+\] is not fixed \('(?P<size>[^']+)'\)")
_OPEN_VALUE: Final = re.compile(r"\.elements is not fixed\b")
_UNMATCHED: Final = re.compile(r"^no fusion of '[^']+' takes \w+(?:: (?P<why>.*)| of these operands.*)$")
_PLACE: Final = re.compile(r"^[\w./-]+\.ya?ml:\d+(?:: | (?=takes other ports))")
_NOTES: Final = re.compile(r" \((?:'[^']*'[^()]*|-?[\d.]+(?:e[-+]?\d+)?)\)")
"""In brackets: the name of a value, or a size."""


_WHOLE: Final[Mapping[str, Kind]] = {
    ANNOTATED: "requested",
    BETWEEN_FLOATS: "between floats",
    ISLAND: "island",
    NO_RANGE: "no range",
}
"""Reasons that say the same for every kernel."""
_READ: Final = re.compile(r"'[^']*' is read by '[^']*' too")
_PORTS: Final = re.compile(r"^takes other ports than these (\d+ inputs? and \d+ outputs?)$")
_INSIDE: Final = "a value inside has another consumer"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why some kernels run in float.

    Attributes:
      kind: of the sentence that says so.
      about: the target, the size that is open, or the condition that does not hold.
      macs: multiply-adds of the kernels in all.
      kinds: how many of which kind.
    """

    kind: Kind
    about: str
    macs: int
    kinds: Mapping[str, int]

    @property
    def kernels(self) -> int:
        """Number of them."""
        return sum(self.kinds.values())

    def text(self, share: str = "") -> str:
        """Return a sentence: `25 operators are not supported by litert-int8: Div (25)`.

        Args:
          share: of the work, in brackets behind the number: "96 % of multiply-adds".
        """
        return SENTENCES[self.kind][self.kernels != 1].format(
            n=self.kernels,
            share=f" ({share})" if share else "",
            about=self.about,
            kinds=kinds_listed(self.kinds),
        )


def causes_of(fallbacks: Iterable[Fallback]) -> list[Cause]:
    """Group the reasons of kernels that fall back to float, most multiply-adds first, then most kernels."""
    found: dict[tuple[Kind, str], tuple[int, Counter[str]]] = {}
    known = [(one, cause_of(one.reason)) for one in fallbacks]
    sizes = {key for _, key in known if key[0] == "open size"}
    for one, key in known:
        # Where the model leaves one size open, that is the size.
        key = next(iter(sizes)) if key[0] == "some size" and len(sizes) == 1 else key  # noqa: PLW2901
        macs, kinds = found.get(key, (0, Counter()))
        found[key] = macs + one.macs, kinds + Counter(one.kinds)
    causes = [Cause(*key, macs, kinds) for key, (macs, kinds) in found.items()]
    return sorted(causes, key=lambda one: (-one.macs, -one.kernels, one.kind, one.about))


def cause_of(reason: str) -> tuple[Kind, str]:
    """Return the kind of a reason and its subject, without the names of values and lines of a target."""
    if found := _UNSUPPORTED.search(reason):
        return "unsupported", found["of"] or found["row_of"]
    if found := _OPEN.search(reason):
        return "open size", found["size"]
    if _OPEN_VALUE.search(reason):
        return "some size", ""
    if reason in _WHOLE:
        return _WHOLE[reason], ""
    if found := _UNMATCHED.match(reason):
        return "no match", _plain(found["why"] or "no fusion takes these operands")
    return ("refused" if _PLACE.match(reason) else "other"), _plain(reason)


def _plain(reason: str) -> str:
    """Return the conditions of a reason, each once, as what must hold."""
    conditions = [_NOTES.sub("", _PLACE.sub("", part)) for part in _READ.sub(_INSIDE, reason).split("; ")]
    said = [_PORTS.sub(r"no variant takes \1", part) for part in conditions]
    return "; ".join(dict.fromkeys(said))


def kinds_listed(kinds: Mapping[str, int]) -> str:
    """Return `LayerNormalization (17), Div (8) and 3 other kinds`."""
    often = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{kind} ({many})" for kind, many in often[:LISTED])
    more = len(often) - LISTED
    return f"{text} and {quantity(more, 'other kind')}" if more > 0 else text


def fallback_lines(coverage: Coverage) -> Iterator[str]:
    """The main causes of kernels that fall back to float, most multiply-adds first, a line each."""
    causes = causes_of(coverage.fallbacks)
    for one in causes[:SHOWN]:
        share = f"{share_text(one.macs / coverage.macs)} of multiply-adds" if one.macs else ""
        yield shortened(one.text(share))
    if (more := len(causes) - SHOWN) > 0:
        yield f"{quantity(more, 'more cause')}: the report lists all"


def shortened(text: str) -> str:
    """A text, cut where it is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
