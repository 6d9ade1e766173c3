"""Caches: pairs of an input and an output that is the same buffer one run later.

A decoder gives its keys and values as `present.*` and gets them back as `past_key_values.*` in the next run,
as stored: both have one type, else the numbers read differ from those written. Pairs are found by names,
those that exporters use or globs of the user's; `Graph.caches` keeps them. Knows nothing of types.
Source: docs/specification.md, section 5 (carried values); names as Optimum and onnxruntime's model builder
write them.
"""

import re
from collections.abc import Mapping
from typing import Final

from planner.errors import AnnotationError
from planner.ir.graph import Graph

Pair = tuple[str, str]
"""Names of the input and of the output."""

CONVENTIONS: Final[tuple[Pair, ...]] = (
    ("past_key_values.*", "present.*"),
    ("past_key_values.*", "present_key_values.*"),
    ("past_key_self_*", "present_key_self_*"),
    ("past_value_self_*", "present_value_self_*"),
    ("past_key_*", "present_key_*"),
    ("past_value_*", "present_value_*"),
    ("past_*", "present_*"),
    ("past.*", "present.*"),
)
"""Names of an input and of the output that comes back as it; `*` stands for the same text in both."""


def cache_pairs(graph: Graph, names: Mapping[str, str] | None = None) -> tuple[Pair, ...]:
    """Pairs of an input and an output of a model, in the order of its inputs.

    Args:
      names: of inputs to names of outputs, `*` for the same text in both; None: `CONVENTIONS`.

    Raises:
      AnnotationError: a pattern that matches no input, or whose output is not there or has another shape.
    """
    patterns = CONVENTIONS if names is None else tuple(names.items())
    found: dict[str, str] = {}
    for past, present in patterns:
        for name in graph.inputs:
            other = _counterpart(name, past, present)
            if other is None or name in found or not graph.values[name].is_float:
                continue
            problem = _problem(graph, name, other)
            if not problem:
                found[name] = other
            elif names is not None:
                raise AnnotationError(f"{name!r} and {other!r} are no cache: {problem}")
        if names is not None and not any(_counterpart(name, past, present) for name in graph.inputs):
            raise AnnotationError(
                f"{past!r} and {present!r} name no cache of model {graph.name!r}",
                hint=f"inputs are {', '.join(graph.inputs[:8])}",
            )
    return tuple((name, found[name]) for name in graph.inputs if name in found)


def _counterpart(name: str, past: str, present: str) -> str | None:
    match = re.fullmatch("(.*)".join(map(re.escape, past.split("*"))), name)
    if match is None:
        return None
    texts = iter(match.groups())
    return re.sub(r"\*", lambda _: next(texts, "*"), present)


def _problem(graph: Graph, past: str, present: str) -> str:
    """Why an input and an output cannot be one buffer; "" where they can."""
    if present not in graph.outputs:
        return f"there is no output {present!r}"
    one, other = graph.values[past], graph.values[present]
    if one.dtype != other.dtype:
        return f"one is {one.dtype}, the other {other.dtype}"
    if one.shape is not None and other.shape is not None and len(one.shape) != len(other.shape):
        return f"one has {len(one.shape)} dimensions, the other {len(other.shape)}"
    return ""
