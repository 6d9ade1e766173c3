"""Generated annotated models for measuring how planning grows: residual, dense, transformer-like, random.

Every value has a range of its own (seeded), every weight a range per tensor; there are no ops inside the
regions, so that nothing but planning costs time. Kernel names are those of `litert-int8`.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from planner.ir.graph import Constant, Graph, Region, Value
from planner.ir.types.qtypes import Calibrated

SEED: Final = 7
CHANNELS: Final = 16
SHAPE: Final = (1, CHANNELS, 8, 8)
WEIGHT: Final = (CHANNELS, CHANNELS, 1, 1)


class Draft:
    """A graph under construction."""

    def __init__(self) -> None:
        self.random = Random(SEED)  # noqa: S311 - a model, not a secret
        self.values: dict[str, Value] = {}
        self.constants: dict[str, Constant] = {}
        self.regions: list[Region] = []
        self.read: set[str] = set()
        self.first = self.value()

    def value(self) -> str:
        """Add an activation with a range of its own; return its name."""
        name = f"v{len(self.values)}"
        low, high = self.random.uniform(2.0, 6.0), self.random.uniform(2.0, 6.0)
        self.values[name] = Value(name, SHAPE, "f32", (Calibrated((-low,), (high,)),))
        return name

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

    def graph(self, name: str) -> Graph:
        """Close the graph: what nothing reads is an output."""
        made = [region.outputs[0] for region in self.regions]
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


TOPOLOGIES: Final[Mapping[str, Callable[[int], Graph]]] = {
    "residual": residual,
    "dense": dense,
    "transformer": transformer,
    "random": scattered,
}
