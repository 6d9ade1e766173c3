"""What each step of the solver is worth: price, proven gap and seconds with it and without, in turn.

Steps: dominated labels taken off (`dominance`), the program, and its limit of classes. Nets: random ones of
tests (`random_graph`), where classes stand around each other, and `random` and `skips` of `topologies`, the
latter beyond the limit. Seconds are of the process.
Usage: `python -m benchmarks.solver_steps [--kernels N ...]`.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from benchmarks.topologies import SHAPES
from planner.ir.graph import Graph
from planner.propagation.propagate import propagate
from planner.propagation.solver import dominance, solve
from planner.target.load import load_target
from planner.target.records import Target
from tests.propagation.graphs import TARGET, random_graph

Switch = tuple[object, str, object]
WITHOUT: Final[Mapping[str, tuple[Switch, ...]]] = {
    "all steps": (),
    "no dominance": ((dominance, "ROUNDS", 0),),
    "no linear program": ((solve, "relax", lambda *_: None),),
    "no large tables": ((solve, "LARGE", solve.SMALL),),
    "a program of any size": ((solve, "PROGRAM", 1 << 60),),
}


@contextmanager
def switched(switches: tuple[Switch, ...]) -> Iterator[None]:
    """Some names of modules replaced."""
    before = [(module, name, getattr(module, name)) for module, name, _ in switches]
    for module, name, value in switches:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def nets(kernels: list[int]) -> Iterator[tuple[str, Target, Callable[[], Graph]]]:
    """(name, target, what makes the net)."""
    for count in kernels:
        yield f"random_graph {count}", TARGET, lambda count=count: random_graph(1, count, facts=0.15)
    for name, regions in (("random", 2000), ("skips", 8000)):
        litert = load_target("litert-int8")
        yield f"topologies {name} {regions}", litert, lambda name=name, regions=regions: SHAPES[name](regions)


def main() -> None:
    """Print a table, a row a net and step left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", nargs="*", type=int, default=[400, 1500, 3700])
    options = parser.parse_args()
    print("| net | with | price | gap | s |\n|---|---|---|---|---|")
    for name, target, make in nets(options.kernels):
        graph = make()
        for step, switches in WITHOUT.items():
            with switched(switches):
                start = time.process_time()
                plan = propagate(graph, target)
                spent = time.process_time() - start
            gap = 1 - plan.bound / plan.cost if plan.cost else 0.0
            print(f"| {name} | {step} | {plan.cost:.0f} | {gap:.2%} | {spent:.2f} |", flush=True)


if __name__ == "__main__":
    main()
