"""Scans of untrusted JSON before anything parses it: bounds on depth, values, integers; nothing is built.

Source: docs/service.md; RFC 8259.
"""

import re
from typing import Final

import numpy as np

from planner.errors import quantity

from ..problems import Refused

MAX_DEPTH: Final = 64

_STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_HALVES: Final = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]|(\\u[dD][89a-fA-F])|\\.", re.DOTALL)
_AT_ONCE: Final = 1 << 18
_OPEN: Final = ord("[")
_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_NO_SIGNS: Final = bytes(set(range(256)) - set(b'"[]{}'))
_LONG_INTEGER: Final = re.compile(rb"(?<![\w.+])[0-9]{20,}+(?![.eE])")
_TWENTY: Final = b"0" * 20
_DIGITS: Final = bytes(ord("0") if chr(code) in "0123456789" else 0 for code in range(256))


def scan_json(data: bytes, max_values: int, *, max_depth: int = MAX_DEPTH) -> None:
    """Refuse JSON text that is nested too deep, holds too many values, or a huge integer.

    Raises:
      Refused: `json-invalid`, with the limit.
    """
    bare = data
    long_digits = _TWENTY in data.translate(_DIGITS)
    if b"\\" in data or values_in(data) > max_values or long_digits:
        bare = _STRINGS.sub(b'""', data) if values_in(data) <= max_values * 2 else data
    if _is_deeper(bare, max_depth):
        raise Refused("json-invalid", f"the JSON is nested deeper than {max_depth}")
    if values_in(bare) > max_values:
        raise Refused(
            "json-invalid", f"the JSON holds more than {quantity(max_values, 'value')}; upload it as a blob"
        )
    if long_digits and _LONG_INTEGER.search(bare):
        raise Refused("json-invalid", "the JSON holds an integer of more than 19 digits")


def require_unicode(data: bytes) -> None:
    """Refuse JSON text that no UTF-8 can say: Python's own parser lets half a surrogate pair through.

    Raises:
      Refused: `json-invalid`, with the place.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise Refused("json-invalid", f"the JSON is not UTF-8 at byte {error.start}") from None
    if b"\\u" not in data:
        return
    for found in _HALVES.finditer(data):
        if found[1]:
            raise Refused("json-invalid", f"half of a surrogate pair at byte {found.start()} of the JSON")


def _is_deeper(bare: bytes, most: int) -> bool:
    """Whether brackets outside strings are nested deeper than so many; no string has an escape."""
    signs = bare.translate(_ALIKE, _NO_SIGNS).replace(b'""', b"")
    if b'"' in signs:  # a bracket in a string
        signs = _STRINGS.sub(b"", signs).replace(b'"', b"")
    left, rounds = signs, 0
    while left:  # each round takes the innermost brackets away, of most texts nearly all
        inner = left.replace(b"[]", b"")
        if 2 * len(inner) > len(left):
            break
        left, rounds = inner, rounds + 1
    return (most < rounds or deeper_at(left, most - rounds) is not None) and deeper_at(
        signs, most
    ) is not None


def deeper_at(signs: bytes, most: int, *, from_zero: bool = False) -> int | None:
    """Which of a row of signs, each a `[` or what closes one, opens more than so many; None where none does.

    Args:
      from_zero: what closes nothing counts for nothing, instead of for one less.
    """
    depth = 0
    for first in range(0, len(signs), _AT_ONCE):
        steps = np.where(np.frombuffer(signs[first : first + _AT_ONCE], np.uint8) == _OPEN, 1, -1)
        depths = depth + np.cumsum(steps)
        if from_zero:
            depths -= np.minimum(np.minimum.accumulate(depths), 0)
        found = int(np.argmax(depths > most))
        if depths[found] > most:
            return first + found
        depth = int(depths[-1])
    return None


def values_in(text: bytes) -> int:
    """At least the number of values of JSON text; exactly it where no string holds a comma or bracket."""
    return text.count(b",") + text.count(b"[") + text.count(b"{") + 1
