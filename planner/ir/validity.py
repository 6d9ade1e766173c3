"""Validity: rules that hold for every imported graph; all are in `RULES_OF_VALIDITY`.

A rule yields a sentence for each place that breaks it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from planner.errors import ModelError
from planner.ir.graph import BOUNDARY, Graph, Op, Region
from planner.ir.structure import Branches, Loop, functions_of


def _defined_once(graph: Graph) -> Iterator[str]:
    seen: dict[str, str] = dict.fromkeys(graph.inputs, "a model input")
    seen |= dict.fromkeys(graph.constants, "a constant")
    for producer in graph.steps():
        for name in producer.outputs:
            if name and name in seen:
                yield f"value {name!r} is written by {producer.name!r} and is already {seen[name]}"
            seen[name] = f"written by {producer.name!r}"


def _defined_before_use(graph: Graph) -> Iterator[str]:
    known = {*graph.inputs, *graph.constants, ""}
    for user in graph.steps():
        for name in user.inputs:
            if name not in known:
                yield f"{user.name!r} reads {name!r}, which nothing before it defines"
        known.update(user.outputs)
        if isinstance(user, Region):
            known.update(name for op in user.ops for name in op.outputs)
    for name in graph.outputs:
        if name not in known:
            yield f"output {name!r} is defined by nothing"


def _values_exist(graph: Graph) -> Iterator[str]:
    for user in graph.steps():
        for name in (*user.inputs, *user.outputs):
            if name and name not in graph.values:
                yield f"{user.name!r} names {name!r}, which is no value of the graph"


def _names_unique(graph: Graph) -> Iterator[str]:
    seen = {BOUNDARY}
    for item in graph.steps():
        if item.name in seen:
            yield f"two kernels or ops are named {item.name!r}"
        seen.add(item.name)


def _structures_fit(graph: Graph) -> Iterator[str]:
    for step in graph.steps():
        if step.structure is None:
            continue
        for name in functions_of(step.structure):
            body = graph.functions.get(name)
            if body is None:
                yield f"{step.name!r} runs function {name!r}, which the model does not have"
                return
            given = step.inputs[1:] if isinstance(step.structure, Branches) else step.inputs
            for what, here, there in (
                ("inputs", given, body.inputs),
                ("results", step.outputs, body.outputs),
            ):
                if len(here) != len(there):
                    yield f"{step.name!r} has {len(here)} {what} for {len(there)} of function {name!r}"
        if isinstance(step.structure, Branches) and not (step.inputs and step.structure.bodies):
            yield f"{step.name!r} has branches and no condition, or no branch"
        if isinstance(step.structure, Loop):
            yield from _carries_badly(step, step.structure)


def _caches_cross(graph: Graph) -> Iterator[str]:
    for past, present in graph.caches:
        for name, known, side in ((past, graph.inputs, "input"), (present, graph.outputs, "output")):
            if name not in known:
                yield f"the cache of {past!r} and {present!r} names {name!r}, which is no {side}"


def _carries_badly(step: "Op | Region", loop: Loop) -> Iterator[str]:
    if loop.trip_count < 1:
        yield f"{step.name!r} loops {loop.trip_count} times; accepted: 1 or more"
    for read, written in loop.carried:
        if not (0 <= read < len(step.inputs) and 0 <= written < len(step.outputs)):
            yield f"{step.name!r} carries [{read}, {written}], which is no pair of an input and a result"
    for side in zip(*loop.carried, strict=True):
        if len(set(side)) < len(side):
            yield f"{step.name!r} carries an input or a result twice"


RULES_OF_VALIDITY: Final[tuple[Callable[[Graph], Iterator[str]], ...]] = (
    _values_exist,
    _names_unique,
    _defined_once,
    _defined_before_use,
    _structures_fit,
    _caches_cross,
)


def validate(graph: Graph) -> Graph:
    """Return the graph unchanged if it is valid.

    Raises:
      ModelError: the first broken rule of `RULES_OF_VALIDITY`, naming value and op.
    """
    for rule in RULES_OF_VALIDITY:
        for problem in rule(graph):
            raise ModelError(f"model {graph.name!r}: {problem}")
    for name, body in graph.functions.items():
        for rule in RULES_OF_VALIDITY:
            for problem in rule(replace(body, functions=graph.functions) if _runs(body) else body):
                raise ModelError(f"function {name!r}: {problem}")
    return graph


def _runs(graph: Graph) -> bool:
    """Whether a step of it runs functions."""
    return any(step.structure is not None for step in graph.steps())
