"""Genomes: graphs as short programs that are repeated up to a size, for a search to change and to grow.

A genome is a line of text. `8 sum 5: conv back1, conv/read back1, Concat back1 back3` says that ranges end at
one of 8 numbers (0: no two are alike), that additions read the values nothing else reads (`out`: they are
outputs), the seed of the ranges, and the steps. A step is a kernel of `litert-int8`, what is asked of its
result after a slash, and the places of what it reads.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isqrt
from random import Random
from typing import Final, NamedTuple

from benchmarks.topologies import Draft
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import AnyType, QType, storage, uniform

LEVELS: Final = (0, 1, 2, 8)
LOOSE: Final = ("sum", "out")
MOST_STEPS: Final = 12
PARTS: Final = 3
ASKED: Final[Mapping[str, tuple[QType, ...]]] = {
    "": (),
    "pin": (uniform(storage("i8"), 0.03125, 3),),
    "read": (),  # the model's caller reads it too
    "wide": (AnyType(storage("i16")),),
}
KERNELS: Final[Mapping[str, tuple[int, int]]] = {
    "Concat": (2, 6),
    "LayerNormalization": (1, 1),
    "Max": (2, 2),
    "MaxPool": (1, 1),
    "Reshape": (1, 1),
    "Softmax": (1, 1),
    "Split": (1, 1),
    "add": (2, 2),
    "conv": (1, 1),
}
"""How many values a kernel reads, at least and at most; LayerNormalization runs in float."""


class Step(NamedTuple):
    """One kernel: what is asked of its result, and the places of what it reads."""

    kernel: str
    asked: str
    reads: tuple[str, ...]


class Genome(NamedTuple):
    """A graph of any size; see the module."""

    levels: int
    loose: str
    seed: int
    steps: tuple[Step, ...]


class _Grown(NamedTuple):
    """A graph on its way to its size."""

    draft: Draft
    regions: int
    known: list[str]

    def back(self, number: int) -> str:
        """So many values back."""
        return self.known[-min(number, len(self.known))]

    def hub(self, number: int) -> str:
        """The value of this number; many kernels read it."""
        return self.known[min(number, len(self.known) - 1)]

    def near(self, number: int) -> str:
        """One of so many last values, by chance."""
        return self.draft.random.choice(self.known[-number:])

    def row(self, number: int) -> str:
        """As far back as a square grid is wide, and a few values more: the neighbour above."""
        return self.back(isqrt(self.regions) + number)

    def half(self, number: int) -> str:
        """In the middle of all values so far, or at a third, ..."""
        return self.known[len(self.known) // max(number, 2)]

    def old(self, _number: int) -> str:
        """The oldest value that nothing reads: two by two they make a tree."""
        return next((value for value in self.known if value not in self.draft.read), self.known[-1])


PLACES: Final[Mapping[str, Callable[[_Grown, int], str]]] = {
    "back": _Grown.back,
    "half": _Grown.half,
    "hub": _Grown.hub,
    "near": _Grown.near,
    "old": _Grown.old,
    "row": _Grown.row,
}
FARTHEST: Final[Mapping[str, int]] = {"back": 12, "half": 4, "hub": 4, "near": 40, "old": 1, "row": 2}


def graph_of(genome: Genome, regions: int) -> Graph:
    """Repeat a genome's steps until there are so many regions; what reads loose values comes on top."""
    draft = Draft(genome.levels)
    draft.random = Random(genome.seed)  # noqa: S311 - a model, not a secret
    grown = _Grown(draft, regions, [draft.first])
    asked: list[str] = []
    while len(draft.regions) < regions:
        for step in genome.steps:
            made = _kernel(grown, step)
            grown.known.extend(made)
            if step.asked == "read":
                asked += made
    if genome.loose == "sum":
        draft.total([value for value in grown.known if value not in draft.read])
    graph = draft.graph("genome")
    return replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, *asked))))


def _kernel(grown: _Grown, step: Step) -> tuple[str, ...]:
    draft = grown.draft
    inputs = tuple(_place(grown, place) for place in step.reads)
    if step.kernel == "Split":
        made = tuple(draft.value() for _ in range(PARTS))
        draft.regions.append(Region(f"k{len(draft.regions)}", "Split", inputs, made))
        draft.read.update(inputs)
    else:
        made = (draft.conv(*inputs) if step.kernel == "conv" else draft.kernel(step.kernel, *inputs),)
    for name in made:
        value = draft.values[name]
        draft.values[name] = replace(value, facts=value.facts + ASKED[step.asked])
    return made


def _place(grown: _Grown, place: str) -> str:
    name, number = _PLACE.fullmatch(place).groups()  # type: ignore[union-attr]
    return PLACES[name](grown, int(number))


def text_of(genome: Genome) -> str:
    """The line that `read_genome` reads."""
    steps = (
        f"{step.kernel}{'/' if step.asked else ''}{step.asked} {' '.join(step.reads)}"
        for step in genome.steps
    )
    return f"{genome.levels} {genome.loose} {genome.seed}: {', '.join(steps)}"


def read_genome(text: str) -> Genome:
    """A genome from its line."""
    head, _, tail = text.partition(":")
    levels, loose, seed = head.split()
    steps = []
    for step in tail.split(","):
        kernel, *reads = step.split()
        name, _, asked = kernel.partition("/")
        steps.append(Step(name, asked, tuple(reads)))
    return Genome(int(levels), loose, int(seed), tuple(steps))


def random_genome(chance: Random) -> Genome:
    """One to six steps."""
    steps = tuple(_step(chance) for _ in range(chance.randint(1, 6)))
    return Genome(chance.choice(LEVELS), chance.choice(LOOSE), chance.randrange(100), steps)


def mutated(genome: Genome, chance: Random) -> Genome:
    """A genome after one to three changes."""
    for _ in range(chance.randint(1, 3)):
        genome = chance.choice(CHANGES)(genome, chance)
    return genome


def smaller(genome: Genome) -> Iterator[Genome]:
    """Genomes with one thing less."""
    steps = genome.steps
    for i, step in enumerate(steps):
        if len(steps) > 1:
            yield genome._replace(steps=steps[:i] + steps[i + 1 :])
        fewer = [step._replace(asked="")] if step.asked else []
        if len(step.reads) > KERNELS[step.kernel][0]:
            fewer += [
                step._replace(reads=step.reads[:k] + step.reads[k + 1 :]) for k in range(len(step.reads))
            ]
        for less in fewer:
            yield genome._replace(steps=(*steps[:i], less, *steps[i + 1 :]))


def _step(chance: Random) -> Step:
    kernel = chance.choice(("conv", *KERNELS))  # more relays: without them there is nothing to choose from
    asked = chance.choice(tuple(ASKED)) if chance.random() < 0.1 else ""
    return Step(kernel, asked, tuple(_some_place(chance) for _ in range(chance.randint(*KERNELS[kernel]))))


def _some_place(chance: Random) -> str:
    name = chance.choice(("back", "back", *PLACES))
    return f"{name}{chance.randint(0 if name in ('hub', 'row') else 1, FARTHEST[name])}"


def _insert(genome: Genome, chance: Random) -> Genome:
    at = chance.randint(0, len(genome.steps))
    return genome._replace(steps=(*genome.steps[:at], _step(chance), *genome.steps[at:])[:MOST_STEPS])


def _delete(genome: Genome, chance: Random) -> Genome:
    at = chance.randrange(len(genome.steps))
    return genome._replace(steps=genome.steps[:at] + genome.steps[at + 1 :] or genome.steps)


def _repeat(genome: Genome, chance: Random) -> Genome:
    at = chance.randrange(len(genome.steps))
    return genome._replace(steps=(*genome.steps[: at + 1], *genome.steps[at:])[:MOST_STEPS])


def _change(genome: Genome, chance: Random) -> Genome:
    at = chance.randrange(len(genome.steps))
    return genome._replace(steps=(*genome.steps[:at], _step(chance), *genome.steps[at + 1 :]))


def _move(genome: Genome, chance: Random) -> Genome:
    """Let a step read something else at one place."""
    at = chance.randrange(len(genome.steps))
    step = genome.steps[at]
    reads = list(step.reads)
    reads[chance.randrange(len(reads))] = _some_place(chance)
    return genome._replace(
        steps=(*genome.steps[:at], step._replace(reads=tuple(reads)), *genome.steps[at + 1 :])
    )


def _spread(genome: Genome, chance: Random) -> Genome:
    """Let ranges be more or less alike."""
    return genome._replace(levels=chance.choice(LEVELS), seed=chance.randrange(100))


def _tie(genome: Genome, chance: Random) -> Genome:
    """Let what is loose be read, or be an output."""
    return genome._replace(loose=chance.choice(LOOSE))


_PLACE: Final = re.compile(r"([a-z]+)(\d+)")
CHANGES: Final = (_insert, _delete, _repeat, _change, _move, _move, _spread, _tie)
