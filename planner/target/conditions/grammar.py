"""The conditions of predicates: comparisons, ranges, and, or, not, over the arithmetic of `expressions`.

    condition = both ("or" both)*
    both      = plain ("and" plain)*
    plain     = "not" plain | "(" condition ")" | test
    test      = side (("==" | "!=" | "<" | "<=" | ">" | ">=") side)+ | side "in" range | range | side
    range     = side ".." side
    side      = sum | NAME | "'" TEXT "'"

Behind a key (`x.shape[1]: ">= 8 and % 8 == 0"`) the key is meant wherever a test leaves its left side out;
there a range or a side alone is a test too. A name without a dot is text (`linear`). Nothing is evaluated
here: planning (`verdicts`) and the checker each read the tree by themselves. Source:
docs/targets/reference.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from planner.errors import TargetError
from planner.target.expressions import (
    MAX_DEPTH,
    Expression,
    Reader,
    Ref,
    read_rest,
    read_sum,
    read_text,
    references,
)

SUBJECT: Final = Ref("", "")
"""The term that a predicate's key names, in a condition behind it."""


@dataclass(frozen=True, slots=True)
class Text:
    """A word that is compared as text: `linear`, `'NOTSET'`."""

    value: str


Side: TypeAlias = Expression | Text


@dataclass(frozen=True, slots=True)
class Compared:
    """Two sides and the sign between them."""

    sign: str
    left: Side
    right: Side


@dataclass(frozen=True, slots=True)
class Negated:
    """A condition that must not hold."""

    part: "Condition"


@dataclass(frozen=True, slots=True)
class Joined:
    """Conditions of which all (`and`) or any (`or`) must hold."""

    word: str
    parts: tuple["Condition", ...]


Condition: TypeAlias = Compared | Negated | Joined

SIGNS: Final = ("==", "!=", "<=", ">=", "<", ">")
# What follows a parenthesis that holds a side; behind one that holds a condition there is a word or the end.
_BEHIND_A_SIDE: Final = re.compile(r"\s*(\*|/|%|\+|-|[=!<>]=?|\.\.|in\b)")
_BEGINS: Final = re.compile(r"\s*([=!<>%]|(not|in)\b|-?[\d.]+\s*\.\.)")


def is_condition(wanted: Any) -> bool:
    """Whether the value of a predicate is a condition: text that begins with a sign, `not` or a range."""
    return isinstance(wanted, str) and _BEGINS.match(wanted) is not None


@lru_cache(maxsize=1024)
def parse_condition(text: str, *, of_key: bool) -> Condition:
    """Read a condition.

    Args:
      of_key: it stands behind a key, which is meant where a left side is left out.

    Raises:
      TargetError: `column N: expected ..., found ...`.
    """
    reader = read_text(text)
    found = _either(reader, 0, of_key=of_key)
    if not reader.at_end:
        reader.fail("'and', 'or' or the end")
    return found


def sides(condition: Condition) -> Iterator[Side]:
    """All sides of all comparisons, in order."""
    if isinstance(condition, Compared):
        yield condition.left
        yield condition.right
    else:
        for part in (condition.part,) if isinstance(condition, Negated) else condition.parts:
            yield from sides(part)


def refs_of(condition: Condition) -> tuple[Ref, ...]:
    """The terms that a condition asks for, each once, in order; the subject as `SUBJECT`."""
    found = (ref for side in sides(condition) if not isinstance(side, Text) for ref in references(side))
    return tuple(dict.fromkeys(found))


def _either(reader: Reader, depth: int, *, of_key: bool) -> Condition:
    parts = [_both(reader, depth, of_key=of_key)]
    while _word(reader, "or"):
        parts.append(_both(reader, depth, of_key=of_key))
    return parts[0] if len(parts) == 1 else Joined("or", tuple(parts))


def _both(reader: Reader, depth: int, *, of_key: bool) -> Condition:
    parts = [_plain(reader, depth, of_key=of_key)]
    while _word(reader, "and"):
        parts.append(_plain(reader, depth, of_key=of_key))
    return parts[0] if len(parts) == 1 else Joined("and", tuple(parts))


def _plain(reader: Reader, depth: int, *, of_key: bool) -> Condition:
    if depth > MAX_DEPTH:
        reader.fail(f"nesting of at most {MAX_DEPTH}")
    if _word(reader, "not"):
        return Negated(_plain(reader, depth + 1, of_key=of_key))
    if _opens_condition(reader):
        reader.expect("(")
        inner = _either(reader, depth + 1, of_key=of_key)
        reader.expect(")")
        return inner
    return _test(reader, depth, of_key=of_key)


def _word(reader: Reader, word: str) -> bool:
    # A port may be called so: `in.rank`.
    if (reader.kind, reader.token) != ("name", word) or re.match(r"\.(?!\.)", reader.text[reader.at :]):
        return False
    reader.advance()
    return True


def _opens_condition(reader: Reader) -> bool:
    """Whether a parenthesis here holds a condition: the text behind it decides, so nothing is read twice."""
    if (reader.kind, reader.token) != ("sign", "("):
        return False
    depth = 0
    for at in range(reader.start, len(reader.text)):
        depth += {"(": 1, ")": -1}.get(reader.text[at], 0)
        if depth == 0:
            return _BEHIND_A_SIDE.match(reader.text, at + 1) is None
    return True


def _test(reader: Reader, depth: int, *, of_key: bool) -> Condition:
    left = _left(reader, depth, of_key=of_key)
    if sign := reader.accept(*SIGNS):
        return _chain(reader, left, sign, depth)
    if _word(reader, "in"):
        low = _side(reader, depth)
        reader.expect("..")
        return _within(left, low, _side(reader, depth))
    if not of_key or left == SUBJECT:
        reader.fail(f"a comparison ({', '.join(SIGNS)}, in 1..8)")
    if reader.accept(".."):
        return _within(SUBJECT, left, _side(reader, depth))
    return Compared("==", SUBJECT, left)


def _left(reader: Reader, depth: int, *, of_key: bool) -> Side:
    """The left side of a test; behind a key it may be left out, whole or in front of `% 8`."""
    if of_key and reader.kind == "sign" and reader.token in (*SIGNS, "%"):
        return read_rest(reader, SUBJECT)
    if not reader.kind and reader.text[reader.start : reader.start + 1] in ("=", "!"):
        reader.fail(f"one of {', '.join(SIGNS)}")
    if of_key and (reader.kind, reader.token) == ("name", "in"):
        return SUBJECT
    return _side(reader, depth)


def _side(reader: Reader, depth: int) -> Side:
    if reader.kind == "text":
        return Text(reader.take("text", "text"))
    if reader.kind == "name" and not re.match(r"\s*[.(](?!\.)", reader.text[reader.at :]):
        return Text(reader.take("name", "a name"))
    return read_sum(reader, depth)


def _chain(reader: Reader, left: Side, sign: str, depth: int) -> Condition:
    """`16 <= x.shape[1] <= 64`: each neighbour with the next."""
    found = []
    while sign:
        right = _side(reader, depth)
        found.append(Compared(sign, left, right))
        left, sign = right, reader.accept(*SIGNS)
    return found[0] if len(found) == 1 else Joined("and", tuple(found))


def _within(item: Side, low: Side, high: Side) -> Condition:
    return Joined("and", (Compared("<=", low, item), Compared("<=", item, high)))


def check_words(condition: Condition) -> None:
    """Refuse comparisons with words that have no meaning: an order, or arithmetic on the other side.

    Raises:
      TargetError: `'<' compares a number with the text 'many'`.
    """
    if not isinstance(condition, Compared):
        for part in (condition.part,) if isinstance(condition, Negated) else condition.parts:
            check_words(part)
        return
    both = (condition.left, condition.right)
    word = next((side for side in both if isinstance(side, Text)), None)
    if word is not None and (condition.sign not in ("==", "!=") or not all(map(_may_be_text, both))):
        raise TargetError(f"{condition.sign!r} compares a number with the text {word.value!r}")


def _may_be_text(side: Side) -> bool:
    return isinstance(side, Text | Ref)
