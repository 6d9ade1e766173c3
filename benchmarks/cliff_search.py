"""A search for the graphs that cost the planner and the checker most a region.

Hill climbing over `genomes`, at one size: a genome stays where its mutant takes less work. Work is counted in
calls of functions, which one Python makes alike on every machine, so a seed says what is found; a climb that
reaches `STEEP` calls a region (some milliseconds) ends. What was found is made as small as it can be, then
timed at two sizes.
Usage, from the repository root: `python -m benchmarks.cliff_search [--seed 0] [--climbs 10] [--tries 40]`,
or with genomes as arguments, to time those; `make soak` searches longer.
"""

import argparse
import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any, Final, NamedTuple

import planner
from benchmarks.genomes import Genome, graph_of, mutated, random_genome, read_genome, smaller, text_of
from planner.errors import Conflict
from planner.ir.graph import Graph, model_digest
from planner.propagation.propagate import propagate

TARGET: Final = planner.load_target("litert-int8")
SEARCHED, SMALL, LARGE = 200, 400, 1_600
STEEP: Final = 8_000
BUDGET, MOST = 300.0, 10_000.0
# Linear programs take about the power 1.5 of their size, up to a size; what is quadratic grows fourfold here.
GROWTH: Final = 3.0
LIMIT: Final = 40
TURNS: Final = 2


class Found(NamedTuple):
    """A genome, and the calls a region that a graph of it took at the small size."""

    genome: Genome
    calls: float


class Timed(NamedTuple):
    """A genome, and the microseconds a region that graphs of it took; infinite over the limit."""

    genome: Genome
    small: float
    large: float

    @property
    def is_cliff(self) -> bool:
        """Whether a region takes more than any may, or more than the budget and more in a larger graph."""
        steeper = self.small > BUDGET and self.large > GROWTH * self.small
        return steeper or max(self.small, self.large) > MOST

    def __str__(self) -> str:
        return f"{self.small:.0f} -> {self.large:.0f} us a region: {text_of(self.genome)}"


class _OverLimitError(BaseException):
    """Enough is known; no handler of the planner's may take it for one of its own."""


def search(seed: int, climbs: int, tries: int, regions: int = SEARCHED) -> Iterator[Found]:
    """What each climb found."""
    for number in range(climbs):
        yield shrunk(climb(Random(f"{seed} {number}"), tries, regions), regions)  # noqa: S311 - no secret


def climb(chance: Random, tries: int, regions: int) -> Found:
    """Change a genome again and again, and keep what takes no less."""
    best = _found(random_genome(chance), regions)
    for _ in range(tries):
        if best.calls >= STEEP:
            break
        other = _found(mutated(best.genome, chance), regions)
        best = other if other.calls >= best.calls else best
    return best


def shrunk(found: Found, regions: int) -> Found:
    """The least of a genome that takes nine tenths of the calls."""
    wanted = 0.9 * found.calls
    while True:
        less = (_found(genome, regions) for genome in smaller(found.genome))
        kept = next((other for other in less if other.calls >= wanted), None)
        if kept is None:
            return found
        found = kept


def _found(genome: Genome, regions: int) -> Found:
    try:
        return Found(genome, calls(graph_of(genome, regions)))
    except Exception as error:
        error.add_note(f"planning {regions} regions of {text_of(genome)}")
        raise


def calls(graph: Graph, most: float = STEEP) -> float:
    """Count the calls of functions, Python's and C's, that planning and checking take a region.

    Args:
      most: where counting ends.

    Returns:
      The count; nothing for a graph that is refused, whose work is to explain why.
    """
    regions, count = len(graph.regions), 0

    def seen(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        if count > most * regions:
            raise _OverLimitError

    sys.setprofile(seen)
    try:
        _plan_and_check(graph)
    except _OverLimitError:
        return most
    except Conflict:
        return 0.0
    finally:
        sys.setprofile(None)
    return count / regions


def timed(genome: Genome) -> Timed:
    """Time a genome at both sizes, in seconds of the process: the best of `TURNS`, as neighbours only add."""
    graphs = [graph_of(genome, size) for size in (SMALL, LARGE)]
    return Timed(genome, *(min(_microseconds(graph) for _ in range(TURNS)) for graph in graphs))


def _microseconds(graph: Graph) -> float:
    gc.collect()
    begun = time.process_time()
    try:
        with _at_most(LIMIT):
            _plan_and_check(graph)
    except _OverLimitError:
        return float("inf")
    return 1e6 * (time.process_time() - begun) / len(graph.regions)


def _plan_and_check(graph: Graph) -> None:
    plan = propagate(graph, TARGET, model=model_digest(graph))
    tuple(plan.steps)
    planner.check(plan, graph)


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise after so many seconds of the process."""

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise _OverLimitError

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main() -> None:
    """Search, or time what is given; print the worst first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("genomes", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--climbs", type=int, default=10)
    parser.add_argument("--tries", type=int, default=40)
    options = parser.parse_args()
    genomes = [read_genome(text) for text in options.genomes]
    for found in () if genomes else search(options.seed, options.climbs, options.tries):
        print(f"{found.calls:.0f} calls a region: {text_of(found.genome)}", flush=True)
        genomes.append(found.genome)
    for one in sorted(map(timed, genomes), key=lambda one: one[1:], reverse=True):
        print(f"{'CLIFF ' if one.is_cliff else ''}{one}", flush=True)


if __name__ == "__main__":
    main()
