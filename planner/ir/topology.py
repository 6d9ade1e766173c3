"""Order and use: producers and consumers of values, and an order in which kernels run.

A cycle is reported with the names on it.
"""

import importlib
from collections.abc import Sequence
from typing import TypeVar

from planner.errors import ModelError
from planner.ir.borders import bonds
from planner.ir.graph import Graph, Op, Region, once_per_graph

Step = TypeVar("Step", Op, Region)


def reads(step: Op | Region) -> tuple[str, ...]:
    """Values a step needs before it can run: its inputs, captures of its bodies, its ops' operands."""
    if isinstance(step, Op):
        return tuple(filter(None, (*step.inputs, *step.captures)))
    names = [*step.inputs]
    for op in step.ops:
        names += op.inputs
        names += op.captures
    if len(step.ops) > 1:
        inner = {name for op in step.ops for name in op.outputs}
        names = [name for name in names if name not in inner]
    return tuple(dict.fromkeys(filter(None, names)))


def writes(step: Op | Region) -> tuple[str, ...]:
    """Values a step defines: its outputs and, for a region, whatever its ops define (integers too)."""
    if isinstance(step, Op):
        return tuple(filter(None, step.outputs))
    names = [*step.outputs]
    for op in step.ops:
        names += op.outputs
    return tuple(dict.fromkeys(filter(None, names)))


def writers(steps: Sequence[Step]) -> dict[str, int]:
    """Index of the step that writes each value."""
    return {name: i for i, step in enumerate(steps) for name in writes(step)}


def readers(steps: Sequence[Step]) -> dict[str, list[int]]:
    """Indices of the steps that read each value, ascending, each once."""
    found: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        for name in dict.fromkeys(reads(step)):
            found.setdefault(name, []).append(i)
    return found


def topological(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Order steps so that each runs after those it reads from; the given order is kept where it is free.

    Raises:
      ModelError: a cycle, with the names on it.
    """
    if _runs(steps):
        return tuple(steps)
    writer = writers(steps)
    waiting = [0] * len(steps)
    users: list[list[int]] = [[] for _ in steps]
    for i, step in enumerate(steps):
        for before in {writer[name] for name in reads(step) if name in writer}:
            waiting[i] += 1
            users[before].append(i)
    order: list[int] = []
    # A stack, filled in reverse, so that the order stays close to the given one and values die early.
    ready = [i for i in range(len(steps) - 1, -1, -1) if waiting[i] == 0]
    while ready:
        i = ready.pop()
        order.append(i)
        for user in reversed(users[i]):
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    if len(order) < len(steps):
        names = " -> ".join(repr(steps[i].name) for i in _cycle(users, waiting))
        raise ModelError(f"these depend on each other in a cycle: {names}")
    return tuple(steps[i] for i in order)


def _cycle(users: Sequence[Sequence[int]], waiting: Sequence[int]) -> list[int]:
    """The steps of one cycle, in the order in which they run; `waiting`: 0 of steps that have run."""
    nx = importlib.import_module("networkx")  # a fifth of a second, for an error alone
    edges = nx.find_cycle(
        nx.DiGraph((i, user) for i, count in enumerate(waiting) if count for user in users[i])
    )
    return [step for step, _ in edges]


def _runs(steps: Sequence[Step]) -> bool:
    """Whether no step reads a value that it or a later one writes."""
    later = {name for step in steps for name in writes(step)}
    for step in steps:
        if not later.isdisjoint(reads(step)):
            return False
        later.difference_update(writes(step))
    return True


def live(graph: Graph) -> frozenset[str]:
    """Names of the regions (or ops) whose results reach a model output."""
    steps: Sequence[Op | Region] = graph.regions or graph.ops
    together = bonds(graph)
    needed, alive, count = set(graph.outputs), set[str](), -1
    # A fixed point: a bond may make a step live that writes nothing needed, and its operands then follow.
    while len(alive) > count:
        count = len(alive)
        bound = {name for other in alive for name in together.get(other, ())}
        for step in reversed(steps):
            if step.name in alive:
                continue
            if step.name in bound or not needed.isdisjoint(writes(step)):
                alive.add(step.name)
                needed.update(reads(step))
        if not together:
            break
    return frozenset(alive)


@once_per_graph
def running(graph: Graph) -> tuple[Region, ...]:
    """The live regions in an order that runs."""
    alive = live(graph)
    return topological([region for region in graph.regions if region.name in alive])
