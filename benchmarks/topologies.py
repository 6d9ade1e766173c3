"""Generated annotated models for measuring how planning grows.

`TOPOLOGIES` are like networks; the rest of `SHAPES` is made to be hard: relays (kernels whose result has a
range of its own), and between them movers, which tie what they read and write to one label. Ranges are
seeded, every weight has one range; there are no ops inside the regions, so that nothing but planning costs
time. Kernel names are those of `litert-int8`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from math import isqrt
from random import Random
from typing import Final

from planner.ir.expand import expand
from planner.ir.graph import Constant, Graph, Region, Value
from planner.ir.structure import Loop
from planner.ir.types.qtypes import Calibrated, storage, uniform

SEED: Final = 7
CHANNELS: Final = 16
SHAPE: Final = (1, CHANNELS, 8, 8)
WEIGHT: Final = (CHANNELS, CHANNELS, 1, 1)


class Draft:
    """A graph under construction.

    Args:
      levels: ranges end at one of so many numbers; by default no two are alike.
    """

    def __init__(self, levels: int = 0) -> None:
        self.levels = levels
        self.random = Random(SEED)  # noqa: S311 - a model, not a secret
        self.values: dict[str, Value] = {}
        self.constants: dict[str, Constant] = {}
        self.regions: list[Region] = []
        self.read: set[str] = set()
        self.first = self.value()

    def value(self) -> str:
        """Add an activation with a range of its own; return its name."""
        name = f"v{len(self.values)}"
        low, high = self.end(), self.end()
        self.values[name] = Value(name, SHAPE, "f32", (Calibrated((-low,), (high,)),))
        return name

    def end(self) -> float:
        """Draw how far a range reaches."""
        if self.levels:
            return 2.0 + 4.0 * self.random.randrange(self.levels) / self.levels
        return self.random.uniform(2.0, 6.0)

    def weight(self) -> str:
        """Add a weight known by its range."""
        name = f"w{len(self.constants)}"
        self.values[name] = Value(name, WEIGHT)
        self.constants[name] = Constant(lo=(-1.0,), hi=(1.0,))
        return name

    def kernel(self, kernel: str, *inputs: str) -> str:
        """Add a kernel with one result; return the result's name."""
        result = self.value()
        self.regions.append(Region(f"k{len(self.regions)}", kernel, inputs, (result,)))
        self.read.update(inputs)
        return result

    def conv(self, x: str) -> str:
        """Add a convolution with a weight of its own."""
        return self.kernel("conv2d", x, self.weight(), "")

    def dense(self, x: str) -> str:
        """Add a fully connected kernel with a weight of its own."""
        return self.kernel("fully_connected", x, self.weight(), "")

    def join(self, *inputs: str) -> str:
        """Add a concat: a mover that ties all it reads."""
        return self.kernel("Concat", *inputs)

    def split(self, x: str, count: int) -> list[str]:
        """Add a split: it moves data, like a concat."""
        parts = [self.value() for _ in range(count)]
        self.regions.append(Region(f"k{len(self.regions)}", "Split", (x,), tuple(parts)))
        self.read.add(x)
        return parts

    def fix(self, value: str, scale: float, zero_point: int) -> str:
        """Give a value a fixed type."""
        kind = uniform(storage("i8"), scale, zero_point)
        self.values[value] = replace(self.values[value], facts=(kind,))
        return value

    def relays(self, count: int) -> list[str]:
        """Add relays of the model's input."""
        return [self.conv(self.first) for _ in range(count)]

    def total(self, values: Iterable[str]) -> str:
        """Add additions that read values one by one, so that not all of them are outputs of the model."""
        return reduce(lambda sum_, value: self.kernel("add", sum_, value), values)

    def graph(self, name: str) -> Graph:
        """Close the graph: what nothing reads is an output."""
        made = [value for region in self.regions for value in region.outputs]
        outputs = tuple(value for value in made if value not in self.read)
        return Graph(name, self.values, (), (self.first,), outputs, self.constants, tuple(self.regions))


def residual(regions: int) -> Graph:
    """Blocks of two convolutions and an add of the block's input."""
    draft = Draft()
    x = draft.first
    while len(draft.regions) < regions:
        x = draft.kernel("add", draft.conv(draft.conv(x)), x)
    return draft.graph("residual")


def dense(regions: int) -> Graph:
    """Dense blocks of six layers: each concatenates all before it in its block."""
    draft = Draft()
    x = draft.first
    while len(draft.regions) < regions:
        known = [x]
        for _ in range(6):
            joined = draft.kernel("Concat", *known) if len(known) > 1 else known[0]
            known.append(draft.conv(draft.conv(joined)))
        x = draft.kernel("MaxPool", draft.conv(draft.kernel("Concat", *known)))
    return draft.graph("dense")


def transformer(regions: int) -> Graph:
    """Encoder layers: attention with views, a softmax, float layer norms, a feed-forward part."""
    draft = Draft()
    x = draft.first
    while len(draft.regions) < regions:
        heads = [
            draft.kernel("Transpose", draft.kernel("Reshape", draft.dense(x)))
            for _ in ("query", "key", "value")
        ]
        scores = draft.kernel("Softmax", draft.kernel("batch_matmul", heads[0], heads[1]))
        mixed = draft.kernel(
            "Reshape", draft.kernel("Transpose", draft.kernel("batch_matmul", scores, heads[2]))
        )
        y = draft.kernel("LayerNormalization", draft.kernel("add", draft.dense(mixed), x))
        inner = draft.kernel("Gelu", draft.dense(y))
        x = draft.kernel("LayerNormalization", draft.kernel("add", draft.dense(inner), y))
    return draft.graph("transformer")


def scattered(regions: int) -> Graph:
    """Kernels of all kinds that read values at random among the last forty."""
    draft = Draft()
    known = [draft.first]
    while len(draft.regions) < regions:
        recent = known[-40:]
        kind = draft.random.choice(
            ("conv", "conv", "conv", "add", "Concat", "Reshape", "MaxPool", "Softmax", "Gelu")
        )
        if kind == "conv":
            made = draft.conv(draft.random.choice(recent))
        elif kind == "add":
            made = draft.kernel("add", draft.random.choice(recent), draft.random.choice(recent))
        elif kind == "Concat":
            made = draft.kernel("Concat", *draft.random.choices(recent, k=draft.random.randint(2, 4)))
        else:
            made = draft.kernel(kind, draft.random.choice(recent))
        known.append(made)
    return draft.graph("random")


def skips(regions: int, *, back: int = 3, levels: int = 8, name: str = "skips") -> Graph:
    """Relays; every third kernel (or as many as `back` says) is a concat with the value three back."""
    draft = Draft(levels)
    known = [draft.first]
    while len(draft.regions) < regions:
        skip = len(known) % back == 0
        known.append(draft.join(known[-1], known[-back]) if skip else draft.conv(known[-1]))
    return draft.graph(name)


def skips_apart(regions: int) -> Graph:
    """Skips where no two ranges are alike."""
    return skips(regions, levels=0, name="skips apart")


def skips_of_five(regions: int) -> Graph:
    """Every fifth kernel is a concat with the value five back."""
    return skips(regions, back=5, levels=0, name="skips of five")


def skips_over_views(regions: int) -> Graph:
    """Skips where half of what they pass are views, which tie what they read to what they write."""
    draft = Draft()
    known = [draft.conv(draft.first)]
    while len(draft.regions) < regions:
        if len(known) % 3 == 0:
            known.append(draft.join(known[-1], known[-3]))
        else:
            kind = draft.random.choice(("", "", "Reshape", "Transpose"))
            known.append(draft.kernel(kind, known[-1]) if kind else draft.conv(known[-1]))
    draft.conv(known[-1])
    return draft.graph("skips over views")


def tree(regions: int) -> Graph:
    """A binary tree of concats over relays."""
    draft = Draft()
    draft.conv(_rows(draft, regions // 2)[-1])
    return draft.graph("tree")


def tree_read(regions: int) -> Graph:
    """The same tree, whose inner values are read by additions."""
    draft = Draft()
    draft.total(_rows(draft, regions // 3))
    return draft.graph("tree read")


def _rows(draft: Draft, leaves: int) -> list[str]:
    """Concat values two by two until one is left; return all results, the root last."""
    made, row = [], draft.relays(leaves)
    while len(row) > 1:
        row = [draft.join(*row[i : i + 2]) for i in range(0, len(row), 2)]
        made += row
    return made


def grid(regions: int) -> Graph:
    """A square grid of relays, each behind a concat of the values above and to the left."""
    draft = Draft()
    return _grid(draft, isqrt(regions // 2), lambda *inputs: draft.conv(draft.join(*inputs)), "grid")


def grid_of_movement(regions: int) -> Graph:
    """A square grid of concats of the values above and to the left, of relays where it begins."""
    draft = Draft()
    return _grid(draft, isqrt(regions) - 1, draft.join, "grid of movers")


def _grid(draft: Draft, side: int, cell: Callable[..., str], name: str) -> Graph:
    above = draft.relays(side)
    for left in draft.relays(side):
        row = [left]
        for value in above:
            row.append(cell(value, row[-1]))
        above = row[1:]
    return draft.graph(name)


def hub(regions: int) -> Graph:
    """One value that a third of all kernels concat with the result of a relay of their own."""
    draft = Draft()
    center = draft.conv(draft.first)
    draft.total([draft.join(center, relay) for relay in draft.relays(regions // 3)])
    return draft.graph("hub")


def hub_of_kernels(regions: int) -> Graph:
    """One value that a third of all kernels compute with; concats tie their results to the next."""
    draft = Draft()
    center = draft.conv(draft.first)
    relays = [draft.conv(center) for _ in range(regions // 3)]
    draft.total([draft.join(*two) for two in pairwise(relays)])
    return draft.graph("hub of kernels")


def views(regions: int) -> Graph:
    """One chain of views between two relays."""
    draft = Draft()
    draft.conv(_views(draft, regions)[-1])
    return draft.graph("views")


def views_read(regions: int) -> Graph:
    """One chain of views, each read by an addition."""
    draft = Draft()
    draft.total(_views(draft, regions // 2))
    return draft.graph("views read")


def _views(draft: Draft, count: int) -> list[str]:
    made = [draft.conv(draft.first)]
    for number in range(count):
        made.append(draft.kernel(("Reshape", "Transpose")[number % 2], made[-1]))
    return made


def one_concat(regions: int) -> Graph:
    """A chain of relays, and one concat of all their results."""
    draft = Draft()
    chain = [draft.first]
    while len(draft.regions) < regions:
        chain.append(draft.conv(chain[-1]))
    draft.join(*chain[1:])
    return draft.graph("one concat")


def forest(regions: int) -> Graph:
    """Concats of three relays, apart from each other."""
    draft = Draft()
    draft.total([draft.join(*draft.relays(3)) for _ in range(regions // 5)])
    return draft.graph("forest")


def fan_out(regions: int) -> Graph:
    """One value that half of all kernels compute with."""
    draft = Draft()
    center = draft.conv(draft.first)
    draft.total([draft.conv(center) for _ in range(regions // 2)])
    return draft.graph("fan-out")


def split(regions: int) -> Graph:
    """One value split into as many as there are kernels to read them."""
    draft = Draft()
    parts = tuple(draft.value() for _ in range(regions))
    draft.regions.append(Region("split", "Split", (draft.conv(draft.first),), parts))
    draft.total(parts)
    return draft.graph("split")


def nested_skips(regions: int) -> Graph:
    """U-Nets of five levels whose skips are nested: each value joins all of its level and one from below."""
    draft = Draft()
    x = draft.first
    while len(draft.regions) < regions:
        levels = [[draft.conv(x)]]
        for _ in range(4):
            levels.append([draft.conv(draft.kernel("MaxPool", levels[-1][0]))])
        for depth in range(4, 0, -1):
            for here, below in pairwise(levels[: depth + 1]):
                here.append(draft.conv(draft.join(*here, draft.kernel("Resize", below[-1]))))
        x = levels[0][-1]
    return draft.graph("nested skips")


def heads(regions: int) -> Graph:
    """A detector: a backbone, and two heads a stage whose results one concat each collects."""
    draft = Draft()
    x = draft.first
    found: tuple[list[str], ...] = ([], [])
    while len(draft.regions) < regions:
        x = draft.kernel("add", draft.conv(draft.conv(x)), x)
        for side in found:
            side.append(draft.kernel("Reshape", draft.kernel("Transpose", draft.conv(x))))
    boxes, scores = (draft.join(*side) for side in found)
    draft.conv(boxes)
    draft.kernel("Softmax", scores)
    return draft.graph("heads")


def ladder(regions: int) -> Graph:
    """Rungs of movers between two values: each joins the one, a relay, and then the other."""
    draft = Draft()
    left, right = draft.relays(2)
    draft.total([draft.join(draft.join(left, relay), right) for relay in draft.relays(regions // 4)])
    return draft.graph("ladder")


def same_scale_adds(regions: int) -> Graph:
    """Residual blocks whose sum wants one scale, as on some NPUs (a maximum here, which does)."""
    draft = Draft()
    x = draft.first
    while len(draft.regions) < regions:
        x = draft.kernel("Max", draft.conv(draft.conv(x)), x)
    return draft.graph("same-scale adds")


def loops(regions: int) -> Graph:
    """A chain of loops: what each carries, and what a relay in it makes of that, concats tie."""
    body = Draft()
    body.join(body.conv(body.first), body.first)
    draft = Draft()
    x = draft.first
    while 4 * len(draft.regions) < regions:
        x = draft.kernel("Loop", x)
    graph = draft.graph("loops")
    steps = tuple(replace(step, structure=Loop("body", 4, ((0, 0),))) for step in graph.regions)
    return expand(replace(graph, regions=steps, functions={"body": body.graph("body")}))


def recurrent(regions: int) -> Graph:
    """An unrolled cell: states and input joined, computed with, split into gates; the last states joined."""
    draft = Draft(levels=6)
    hidden, state = draft.relays(2)
    results: list[str] = []
    while len(draft.regions) < regions:
        gates = draft.split(draft.conv(draft.join(hidden, draft.first, state)), 4)
        state = draft.join(draft.kernel("Tanh", gates[0]), gates[1], state)
        hidden = draft.conv(draft.join(draft.kernel("Sigmoid", gates[2]), state))
        results.append(hidden)
    draft.join(*results[-50:])
    return draft.graph("recurrent")


def dense_blocks(regions: int) -> Graph:
    """Blocks of 24 relays, each behind a concat of all before it in its block."""
    draft = Draft(levels=6)
    x = draft.conv(draft.first)
    while len(draft.regions) < regions:
        known = [x]
        for _ in range(24):
            known.append(draft.conv(draft.join(*known)))
        x = draft.kernel("MaxPool", draft.join(*known))
    return draft.graph("dense blocks")


def lattice(regions: int) -> Graph:
    """A square grid of concats of the values above and to the left, a fifth of them computed with."""
    draft = Draft(levels=6)
    row = draft.relays(isqrt(regions))
    while len(draft.regions) < regions:
        above, row = row, []
        for value in above:
            joined = draft.join(value, row[-1] if row else above[-1])
            row.append(joined if draft.random.randrange(5) else draft.conv(joined))
    return draft.graph("lattice")


def shuffle(regions: int) -> Graph:
    """Two streams that swap quarters, one of which is computed with; here and there a fixed type."""
    draft = Draft(levels=6)
    a, b = draft.relays(2)
    while len(draft.regions) < regions:
        p, q = draft.split(a, 4), draft.split(b, 4)
        a = draft.join(p[0], q[1], p[2], q[3])
        if draft.random.random() < 0.1:
            draft.fix(a, draft.random.choice([0.02, 0.03, 0.05]), draft.random.choice([0, 5]))
        b = draft.join(q[0], p[1], draft.conv(q[2]), p[3])
    draft.conv(a)
    draft.conv(b)
    return draft.graph("shuffle")


def pools(regions: int) -> Graph:
    """Forty pools of one value, half of them of fixed types that differ, and a concat of all; then again."""
    draft = Draft(levels=6)
    x = draft.conv(draft.first)
    while len(draft.regions) < regions:
        made = [draft.kernel("MaxPool", x) for _ in range(40)]
        for pool in made:
            if draft.random.random() < 0.5:
                draft.fix(pool, 0.01 + 0.001 * draft.random.randrange(40), draft.random.randrange(-9, 9))
        x = draft.conv(draft.join(*made))
    return draft.graph("pools")


TOPOLOGIES: Final[Mapping[str, Callable[[int], Graph]]] = {
    "residual": residual,
    "dense": dense,
    "transformer": transformer,
    "random": scattered,
}

SHAPES: Final[Mapping[str, Callable[[int], Graph]]] = {
    **TOPOLOGIES,
    "skips": skips,
    "skips-apart": skips_apart,
    "skips-of-five": skips_of_five,
    "skips-over-views": skips_over_views,
    "tree": tree,
    "tree-read": tree_read,
    "grid": grid,
    "grid-of-movers": grid_of_movement,
    "hub": hub,
    "hub-of-kernels": hub_of_kernels,
    "views": views,
    "views-read": views_read,
    "one-concat": one_concat,
    "forest": forest,
    "fan-out": fan_out,
    "split": split,
    "nested-skips": nested_skips,
    "heads": heads,
    "ladder": ladder,
    "same-scale-adds": same_scale_adds,
    "loops": loops,
    "recurrent": recurrent,
    "dense-blocks": dense_blocks,
    "lattice": lattice,
    "shuffle": shuffle,
    "pools": pools,
}
