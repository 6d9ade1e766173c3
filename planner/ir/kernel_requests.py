"""Kernel requests: requests for the kernels of a graph, by name or glob of a kernel or an op.

The graph keeps them as written, since the target makes the kernels: `asked_of` finds the request for a
kernel. A request that names an op applies to its whole kernel. Source: docs/specification.md, section 11.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase, translate
from typing import Any, Final, NamedTuple

from planner.errors import AnnotationError, unknown_name
from planner.ir.expand import expand
from planner.ir.graph import Graph, Region, once_per_graph
from planner.ir.structure import BORDERS
from planner.ir.types.wanted import Wanted, wanted_from_data

GLOB_SIGNS: Final = frozenset("*?[")
"""Signs that make a glob of a key that is no name."""


class Asked(NamedTuple):
    """The request for one kernel, its key, and whether that key is a name rather than a glob."""

    wanted: Wanted
    key: str
    by_name: bool


def with_wanted(model: Graph, wanted: Mapping[str, Any]) -> Graph:
    """Return the model with more requests for its kernels; they override earlier ones.

    Args:
      wanted: by name or glob of a kernel or an op: `float`, `any`, a storage, or `{"in": [..], "out": [..]}`.
        A name decides over a glob, of two globs or two names of one kernel the later.

    Raises:
      AnnotationError: a name or glob of nothing in the model, or a wish of none of these forms.
    """
    model = expand(model)
    asked = dict(model.wanted)
    for key, data in wanted.items():
        refuse_unknown(model, key)
        asked.pop(key, None)  # so that it comes last, and decides
        try:
            asked[key] = wanted_from_data(data)
        except AnnotationError as error:
            raise AnnotationError(f"kernel {key!r}: {error.message}") from error
    return replace(model, wanted=asked)


def without_wanted(model: Graph, key: str) -> Graph:
    """The model without what is asked under a key, or under the names that a glob matches.

    A name that a glob concerns still is asked nothing from now on.
    """
    kept = {k: w for k, w in model.wanted.items() if k != key and not (_is_glob(key) and fnmatchcase(k, key))}
    if not _is_glob(key) and any(_is_glob(k) and fnmatchcase(key, k) for k in kept):
        kept[key] = Wanted()
    return replace(model, wanted=kept)


def without_asked(model: Graph, kernels: Iterable[str]) -> Graph:
    """The model with nothing asked of some kernels, whatever was."""
    kernels = tuple(kernels)
    kept = {key: wanted for key, wanted in model.wanted.items() if key not in kernels}
    return replace(model, wanted=kept | dict.fromkeys(kernels, Wanted()))


def refuse_unknown(model: Graph, key: str) -> None:
    """Refuse a name or glob that matches no kernel and no op.

    Raises:
      AnnotationError: with the nearest names.
    """
    if names_kernels(model, key):
        return
    hint = unknown_name("", key, _kernel_names(model)).hint
    if any(key == scope.owner for scope in model.scopes.values()):
        hint = f"it runs a body, whose kernels are {f'{key}/*'!r}"
    what = f"glob {key!r} matches" if _is_glob(key) else f"{key!r} is"
    raise AnnotationError(f"{what} no kernel and no op of model {model.name!r}", hint=hint)


def names_kernels(model: Graph, key: str) -> bool:
    """Whether a name or glob matches a kernel or an op."""
    names = _kernel_names(model)
    return key in names or (_is_glob(key) and any(fnmatchcase(name, key) for name in names))


@once_per_graph
def _kernel_names(model: Graph) -> frozenset[str]:
    """Names of all kernels and ops."""
    ops = (op.name for op in model.all_ops())
    return frozenset(name for name in (*ops, *(region.name for region in model.regions)) if name)


def asked_of(graph: Graph, region: Region) -> Asked | None:
    """Return the request for a kernel of a graph; None where there is none.

    The borders of loops and branches and kernels without a float port follow their neighbours; a glob asks
    for results, of kernels that have some.
    """
    if not graph.wanted or region.kernel in BORDERS or not any((*region.inputs, *region.outputs)):
        return None
    found = _covering(graph, region)
    if found is None or found.wanted == Wanted():
        return None
    concerned = found.by_name or found.wanted.result is None or any(region.outputs)
    return found if concerned else None


def _covering(graph: Graph, region: Region) -> Asked | None:
    places, globs = _keys(graph)
    names = dict.fromkeys((region.name, *(op.name for op in region.ops)))
    exact = max((name for name in names if name in places), key=places.__getitem__, default=None)
    if exact is not None:
        return Asked(graph.wanted[exact], exact, by_name=True)
    globbing = (key for pattern, key in reversed(globs) if any(map(pattern.match, names)))
    key = next(globbing, None)
    return None if key is None else Asked(graph.wanted[key], key, by_name=False)


@once_per_graph
def _keys(graph: Graph) -> tuple[Mapping[str, int], list[tuple[re.Pattern[str], str]]]:
    """The place of each key, and the globs among them, ready to match."""
    places = {key: place for place, key in enumerate(graph.wanted)}
    return places, [(re.compile(translate(key)), key) for key in graph.wanted if _is_glob(key)]


def _is_glob(key: str) -> bool:
    return not GLOB_SIGNS.isdisjoint(key)
