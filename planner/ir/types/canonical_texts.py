"""Canonical texts of uniform types, as `str(type)` writes them, read in one sweep without tokens.

Gives None for any other text, a wrong one included: `typetext` reads it again and names the fault and its
place. So this module refuses nothing and words no error.
"""

import re
from functools import lru_cache
from typing import Final

from planner.errors import QTypeError
from planner.ir.types.many_numbers import compact
from planner.ir.types.parameter_texts import MANY, read_parameters
from planner.ir.types.qtypes import MAX_RANK, Storage, Uniform, storage
from planner.ir.types.scales import EXPRESSED, held_scale, held_scales

_NUMBER: Final = r"[0-9]{1,24}+\.[0-9]{0,24}+(?:e[-+]?[0-9]{1,3}+)?+"
_INTEGER: Final = r"-?[0-9]{1,20}+"
_PAIR: Final = rf"{_NUMBER}(?::{_INTEGER})?+"
_STORAGE: Final = rf"([a-z][a-zA-Z0-9]{{1,8}}+)(?:<({_INTEGER}):({_INTEGER})>)?+"
_TENSOR: Final = re.compile(
    rf"!quant\.uniform<{_STORAGE}:([a-z0-9]{{3,4}}), ({_NUMBER})(?::({_INTEGER}))?>", re.ASCII
)
_HEAD: Final = re.compile(
    rf"!quant\.uniform<{_STORAGE}:([a-z0-9]{{3,4}}):"
    r"(?:([0-9]{1,9})|\{((?:[0-9]{1,9}:[0-9]{1,18}(?:, [0-9]{1,9}:[0-9]{1,18})*)?)\}), (?=\{|dense<)",
    re.ASCII,
)
_LEAVES: Final = re.compile(rf"{_PAIR}(?:, ?{_PAIR})*+", re.ASCII)
_LEAF: Final = re.compile(r"[^{}, ]++")
_LEVEL: Final = 0x100  # the sign of a leaf in a sketch of the lists; the next ones stand for lists of lists
_NO_BRACES: Final = str.maketrans("", "", "{}")


def read_canonical(text: str) -> Uniform | None:
    """Read the canonical text of a uniform type; None where the text is not one."""
    try:
        match = _TENSOR.fullmatch(text)
        if match is None:
            return _sliced(text)
        name, qmin, qmax, expressed, scale, zero_point = match.groups()
        if expressed not in EXPRESSED:
            return None
        return Uniform(
            _storage(name, qmin, qmax),
            (held_scale(float(scale), expressed),),
            (int(zero_point) if zero_point else 0,),
            expressed,
            written=(float(scale),),
        )
    except QTypeError:
        return None


@lru_cache(maxsize=1024)
def _storage(name: str, qmin: str | None, qmax: str | None) -> Storage:
    return storage(name, None if qmin is None else int(qmin), None if qmax is None else int(qmax))


def _sliced(text: str) -> Uniform | None:
    head = _HEAD.match(text)
    if head is None:
        return None
    if text.startswith("dense<", head.end()):
        return _dense(head, text)
    if not text.endswith("}>"):
        return None
    name, qmin, qmax, expressed, axis, sizes = head.groups()
    body = text[head.end() : -1]
    grid = _grid(body)
    flat = body.translate(_NO_BRACES)
    if expressed not in EXPRESSED or not grid or _LEAVES.fullmatch(flat) is None:
        return None
    scales, zeros = _leaves(flat)
    blocks = _pairs(sizes) if axis is None else ()
    if axis is not None and len(grid) > 1:
        return None
    return Uniform(
        _storage(name, qmin, qmax),
        held_scales(scales, expressed),
        zeros,
        expressed,
        None if axis is None else int(axis),
        blocks,
        () if axis is not None else grid,
        written=tuple(scales) if len(scales) < MANY else (),
    )


def _dense(head: re.Match[str], text: str) -> Uniform | None:
    """A sub-channel type whose parameters stand as dense constants (`parameter_texts`)."""
    name, qmin, qmax, expressed, axis, sizes = head.groups()
    found = read_parameters(text[head.end() : -1]) if text.endswith(">") and axis is None else None
    if found is None or expressed not in EXPRESSED:
        return None
    scales, zeros, grid = found
    known = held_scales(scales, expressed), zeros
    if len(zeros) >= MANY:
        known = compact(*known)
    return Uniform(_storage(name, qmin, qmax), *known, expressed, None, _pairs(sizes), grid)


def _pairs(sizes: str) -> tuple[tuple[int, int], ...]:
    pairs = [item.split(":") for item in sizes.split(", ")] if sizes else []
    return tuple((int(one), int(size)) for one, size in pairs)


def _leaves(flat: str) -> tuple[list[float], tuple[int, ...]]:
    items = flat.split(",")
    colons = flat.count(":")
    if not colons:
        return list(map(float, items)), (0,) * len(items)
    if colons == len(items):
        halves = flat.replace(":", ",").split(",")
        return list(map(float, halves[::2])), tuple(map(int, halves[1::2]))
    pairs = [item.partition(":") for item in items]
    return [float(pair[0]) for pair in pairs], tuple([int(pair[2] or 0) for pair in pairs])


def _grid(body: str) -> tuple[int, ...]:
    """Sizes of the nested lists, outermost first; () where they are ragged, too deep or no lists.

    Level by level, from the inside: every list must equal the first one, and becomes one sign of its level.
    """
    depth = len(body) - len(body.lstrip("{"))
    if depth > MAX_RANK:
        return ()
    lists = _LEAF.sub(chr(_LEVEL), body).replace(" ", "")
    grid: list[int] = []
    for level in range(_LEVEL, _LEVEL + depth):
        first = lists[lists.rfind("{", 0, lists.find("}")) : lists.find("}") + 1]
        size = first.count(",") + 1
        if first != "{" + ",".join(chr(level) * size) + "}":
            return ()
        grid.append(size)
        lists = lists.replace(first, chr(level + 1))
    return tuple(reversed(grid)) if lists == chr(_LEVEL + depth) else ()
