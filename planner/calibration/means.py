"""Channel means: probes that reduce the inputs of linear ops where the model runs, so nothing is fetched.

Bias correction needs them. A value's mean is that of its samples' own means, each sample
counting alike whatever its size; a value that was NaN or infinite anywhere has none. Sums are float64: the
order of samples matters in the last bit at most. Source: docs/formats.md.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from planner.calibration.observe import Array
from planner.calibration.statistics import Mean
from planner.ir.borders import homes
from planner.ir.graph import Constant, Graph, Op, Value

_FLOAT: Final = 1  # TensorProto.FLOAT
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})


@dataclass(frozen=True, slots=True)
class Probe:
    """Reading the mean of one value.

    Attributes:
      value: the input of a linear op.
      axis: its channels.
      rank: its dimensions.
      output: the added result, shape `(n_channels,)`.
    """

    value: str
    axis: int
    rank: int
    output: str


@dataclass(slots=True)
class Sums:
    """Sums over samples of each probe's means, float64, shape `(n_channels,)`."""

    total: dict[str, Array] = field(default_factory=dict)

    def add(self, probe: Probe, mean: Array) -> None:
        """Add one sample's means."""
        wide = mean.astype(np.float64)
        old = self.total.get(probe.value)
        with np.errstate(invalid="ignore"):  # infinities of both signs: what is not finite gets no mean
            self.total[probe.value] = wide if old is None else old + wide

    def means(self, probes: Iterable[Probe], samples: int) -> dict[str, Mean]:
        """The mean of each value that was finite throughout."""
        axes = {probe.value: probe.axis for probe in probes}
        return {
            name: Mean(axes[name], tuple((total / samples).tolist()))
            for name, total in self.total.items()
            if np.isfinite(total).all()
        }


def probes(graph: Graph, wanted: Iterable[str]) -> tuple[Probe, ...]:
    """Return probes of values in `wanted` that a linear op multiplies with constants, in order of reading.

    A value that is read along two axes is probed along the first consumer's.
    """
    inside = homes(graph)
    asked = {name for name in wanted if name not in inside}
    found: dict[str, Probe] = {}
    for op in graph.ops:
        axis = channel_axis(op, graph)
        name = op.inputs[0] if axis is not None else ""
        if axis is None or name not in asked or name in found:
            continue
        found[name] = Probe(name, axis, len(graph.values[name].shape or ()), _free(f"{name}:mean", graph))
    return tuple(found.values())


def channel_axis(op: Op, graph: Graph) -> int | None:
    """The axis of a linear op's input that its constant weight sums over; None where there is none."""
    if len(op.inputs) < 2 or op.inputs[1] not in graph.constants or op.inputs[0] in graph.constants:
        return None
    rank = len(graph.values[op.inputs[0]].shape or ())
    if op.type in _CONVOLUTIONS:
        return 1 if rank > 2 else None
    if (op.type == "Gemm" and not op.attributes.get("transA", 0)) or op.type == "MatMul":
        return rank - 1 if rank > 1 else None
    return None


def with_probes(graph: Graph, added: Iterable[Probe]) -> Graph:
    """Append the ops that compute the probes' results."""
    values, constants, ops = dict(graph.values), dict(graph.constants), list(graph.ops)

    def define(name: str, dtype: str) -> str:
        values[name] = Value(name, None, dtype)
        return name

    for probe in added:
        axes = tuple(axis for axis in range(probe.rank) if axis != probe.axis)
        key = define(f"{probe.output}:axes", "i64")
        constants[key] = Constant(np.asarray(axes, np.int64))
        source, dtype = probe.value, graph.values[probe.value].dtype
        if dtype == "f16":
            source, dtype = define(f"{probe.output}:f32", "f32"), "f32"
            ops.append(Op(f"{probe.output}:cast", "Cast", (probe.value,), (source,), {"to": _FLOAT}))
        result = define(probe.output, dtype)
        ops.append(Op(f"{probe.output}:op", "ReduceMean", (source, key), (result,), {"keepdims": 0}))
    return replace(graph, values=values, constants=constants, ops=tuple(ops))


def _free(name: str, taken: Graph) -> str:
    while any(f"{name}{tail}" in taken.values for tail in ("", ":axes", ":f32")):
        name += "'"
    return name
