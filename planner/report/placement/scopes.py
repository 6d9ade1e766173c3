"""Scopes of kernels for the page: groups by modules or by prefixes of names, each a stretch of one order.

The order follows the edges and stays in a scope as long as anything there can run, so groups nest and no path
leaves a group and comes back; a scope that has to be left and entered again is two groups of one name.
Names only; `nested` gives places. Source: names as PyTorch's exporter writes them (`/layers.0/attn/MatMul`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import takewhile
from typing import Final, TypeAlias

Scope: TypeAlias = tuple[str, ...]
LEAST: Final = 2
"""Nodes that make a group."""
DOTTED: Final = 0.5
"""Share of names with a dot from which on dots are taken for borders of scopes, where no name has a slash."""

_LAYER: Final = re.compile(r"(?:layers?|blocks?|resblocks|stages?|h)\.\d+(?=\.)")
_BORDER: Final = re.compile(r"(?:^|/)(?:begin|end|join):")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of nodes.

    Attributes:
      name: of its scope, less that of the group around it: `layers.0/attn`.
      parent: the group around it, by its place in the list; -1 for none. Groups come before those inside.
      first, last: its stretch of the order, `last` not included.
    """

    name: str
    parent: int
    first: int
    last: int


def scopes_of(
    names: Sequence[str], weights: Sequence[Sequence[str]], modules: Mapping[str, str] | None = None
) -> list[Scope]:
    """The scope of each kernel: its module; else the parts of its name but the last, or its weights' layer.

    Args:
      names: of kernels, in plan order.
      weights: names of the constants that each reads; an exporter that numbers its kernels leaves these.
      modules: paths of the source's modules, by names of kernels; those without one stand between others.
    """
    if modules:
        return _between([tuple(modules[name].split("/")) if name in modules else None for name in names])
    if any("/" in name for name in names):
        return [_parts(name, "/") for name in names]
    if sum("." in name for name in names) > DOTTED * len(names):
        return [_parts(name, ".") for name in names]
    found: list[Scope] = []
    here: Scope = ()
    for read in weights:
        dotted = [name for name in read if name.count(".") > 1]
        if dotted:
            layer = _LAYER.search(dotted[0])
            here = (layer[0],) if layer else ()
        found.append(here)
    return found


def _between(known: Sequence[Scope | None]) -> list[Scope]:
    """The scopes, with that which those before and behind have in common where there is none."""
    behind: list[Scope] = []
    nearest: Scope = ()
    for scope in reversed(known):
        nearest = nearest if scope is None else scope
        behind.append(nearest)
    behind.reverse()
    found: list[Scope] = []
    for scope, after in zip(known, behind, strict=True):
        before = found[-1] if found else ()
        alike = (a == b for a, b in zip(before, after, strict=False))
        found.append(before[: sum(takewhile(bool, alike))] if scope is None else scope)
    return found


def _parts(name: str, mark: str) -> Scope:
    """`/if/then/begin:/a/b` is the border `begin:/a/b` in `if/then`."""
    whole = _BORDER.split(name, maxsplit=1)
    parts = [part for part in whole[0].split(mark) if part]
    return tuple(parts if len(whole) > 1 else parts[:-1])


def ordered(scopes: Sequence[Scope], edges: Sequence[tuple[int, int]]) -> list[int]:
    """All nodes in an order along the edges that stays in a scope as long as it can."""
    if not any(scopes):
        return list(range(len(scopes)))
    readers: list[list[int]] = [[] for _ in scopes]
    waits = [0] * len(scopes)
    for source, reader in edges:
        readers[source].append(reader)
        waits[reader] += 1
    ready: dict[Scope, list[int]] = {}

    def add(node: int) -> None:
        scope = scopes[node]
        for depth in range(len(scope) + 1):
            heappush(ready.setdefault(scope[:depth], []), node)

    for node, wait in enumerate(waits):
        if not wait:
            add(node)
    order: list[int] = []
    done = bytearray(len(scopes))
    here: Scope = ()
    while len(order) < len(scopes):
        node = _next(ready, done, here)
        order.append(node)
        done[node] = 1
        here = scopes[node]
        for reader in readers[node]:
            waits[reader] -= 1
            if not waits[reader]:
                add(reader)
    return order


def _next(ready: dict[Scope, list[int]], done: bytearray, here: Scope) -> int:
    """The first node that can run in the innermost scope around `here` that has one."""
    for depth in range(len(here), -1, -1):
        heap = ready.get(here[:depth], [])
        while heap and done[heap[0]]:
            heappop(heap)
        if heap:
            return heappop(heap)
    message = "edges go in a circle"
    raise AssertionError(message)


def groups_of(scopes: Sequence[Scope], order: Sequence[int]) -> tuple[Group, ...]:
    """Groups of two nodes or more, outer ones before inner ones, in order."""
    found: list[Group] = []
    _grow(found, [scopes[node] for node in order], (0, len(order)))
    return tuple(found)


def _grow(found: list[Group], scopes: Sequence[Scope], whole: tuple[int, int]) -> None:
    """Add the groups inside a stretch, and inside those; one that fills the one around it is one with it."""
    waiting = [(whole, 0, -1)]
    while waiting:
        (start, end), depth, around = waiting.pop()
        inner = []
        for first, last in _runs(scopes, start, end, depth):
            if depth >= len(scopes[first]) or last - first < LEAST:
                continue
            part, at = scopes[first][depth], around
            if around >= 0 and (first, last) == (start, end):
                found[around] = replace(found[around], name=f"{found[around].name}/{part}")
            else:
                found.append(Group(part, around, first, last))
                at = len(found) - 1
            inner.append(((first, last), depth + 1, at))
        waiting.extend(reversed(inner))


def _runs(scopes: Sequence[Scope], start: int, end: int, depth: int) -> Iterator[tuple[int, int]]:
    """Stretches whose scopes are alike at one depth."""
    first = start
    for at in range(start + 1, end + 1):
        if at == end or scopes[at][depth : depth + 1] != scopes[first][depth : depth + 1]:
            yield first, at
            first = at
