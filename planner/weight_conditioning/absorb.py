"""Absorption of high biases: what a channel always has at least goes into the next layer's bias.

With c = max(0, mean - 3 deviations) of a channel behind a Relu, b1 - c and b2 + W2 c:
Relu(x - c) = Relu(x) - c wherever x > c, so the range of the activation shrinks by c and the function moves
where it was smaller (0.13 % of a normal distribution). Needs no padding at the second layer: there a 0 would
have to be -c. Source: Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias
Correction", section 4.1.3.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from planner.ir.graph import Graph, Op
from planner.ops import defined
from planner.ops.definition import OpDef
from planner.ops.forms import Form
from planner.weight_conditioning.activations import Moments
from planner.weight_conditioning.operands import Key, Reals, with_operands
from planner.weight_conditioning.seams import Found, Seam, weighted

DEVIATIONS: Final = 3.0


def absorbable(found: Found) -> tuple[tuple[Seam, ...], tuple[str, ...]]:
    """Seams whose constants may be shifted, and why others may not."""
    seams, left = list[Seam](), list[str]()
    for seam in weighted(found.seams):
        why = _obstacle(seam)
        if why:
            left.append(f"{seam.value!r}: {why}")
        else:
            seams.append(seam)
    return tuple(seams), tuple(left)


def absorbed(
    graph: Graph, seams: Iterable[Seam], seen: Mapping[str, Moments]
) -> tuple[Graph, tuple[tuple[Seam, Reals], ...]]:
    """Move what channels always have into the biases behind them.

    Args:
      seams: from `absorbable`.
      seen: moments of each seam's value.

    Returns:
      The model, and each seam with what its channels are less by, shape `(n_channels,)`.
    """
    arrays: dict[Key, Reals] = {}
    changed = list[tuple[Seam, Reals]]()
    for seam in seams:
        moments = seen.get(seam.value)
        if moments is None:
            continue
        less = np.maximum(0.0, moments.mean - DEVIATIONS * moments.deviation)
        if np.any(less > 0):
            _shift(graph, seam, less, arrays)
            changed.append((seam, less))
    return with_operands(graph, arrays), tuple(changed)


def _obstacle(seam: Seam) -> str:
    """The reason why channels of a seam cannot be shifted, or ""."""
    op = next((op for op in seam.passed if not _passes(defined(op.type))), None)
    if op is not None:
        return f"{op.type} {op.name!r} does not hand a shift on"
    if not any(op.type == "Relu" for op in seam.passed):
        return "no Relu in front: its range is cut at no end"
    if not np.array_equal(seam.owner, np.arange(seam.owner.size)):
        return "a view spreads its channels"
    weights = [operand.op for operand in seam.sources if operand.is_weight]
    bare = next((op for op in (*weights, *(sink.op for sink in seam.sinks)) if _bias(op) is None), None)
    if bare is not None:
        return f"{bare.type} {bare.name!r} has no bias"
    padded = next((sink.op for sink in seam.sinks if _is_padded(sink.op)), None)
    return "" if padded is None else f"{padded.type} {padded.name!r} pads it with zeros"


def _passes(one: OpDef) -> bool:
    """Whether a constant less per channel passes an operator, where it leaves nothing below 0."""
    keeps_channels = one.is_pointwise or one.form in (Form.CONCAT, Form.POOL)
    return one.moves is not None and not one.parameters and keeps_channels


def _bias(op: Op) -> int | None:
    """The operand of a linear op that is its bias, if it adds one."""
    has_one = op.type != "MatMul" and len(op.inputs) > 2 and bool(op.inputs[2])
    return 2 if has_one and op.attributes.get("beta", 1.0) else None


def _is_padded(op: Op) -> bool:
    mode = op.attributes.get("auto_pad", "NOTSET")
    return op.type == "ConvTranspose" or mode not in ("NOTSET", "VALID") or any(op.attributes.get("pads", ()))


def _shift(graph: Graph, seam: Seam, less: Reals, arrays: dict[Key, Reals]) -> None:
    """Take from the sources' biases, add to the sinks'; numbers already shifted are in `arrays`."""
    for operand in seam.sources:
        if operand.is_weight:
            beta = float(operand.op.attributes.get("beta", 1.0))
            bias = _numbers(graph, operand.op, arrays)
            arrays[operand.op.name, 2] = bias - less[operand.channels].reshape(-1) / beta
    for sink in seam.sinks:
        weight = np.asarray(graph.constants[sink.op.inputs[1]].array, np.float64)
        spread = sink.scaled(weight, less)
        alpha, beta = (float(sink.op.attributes.get(key, 1.0)) for key in ("alpha", "beta"))
        added = _summed(sink.op, spread) * (alpha / beta)
        arrays[sink.op.name, 2] = _numbers(graph, sink.op, arrays) + added


def _numbers(graph: Graph, op: Op, arrays: Mapping[Key, Reals]) -> Reals:
    known = arrays.get((op.name, 2))
    if known is not None:
        return known
    return np.asarray(graph.constants[op.inputs[2]].array, np.float64)


def _summed(op: Op, weight: Reals) -> Reals:
    """A weight summed over all that its output channel sums over, shape `(n_out,)`."""
    if op.type == "Gemm":
        result: Reals = weight.sum(axis=1 if op.attributes.get("transB", 0) else 0)
        return result
    summed: Reals = weight.reshape(weight.shape[0], -1).sum(axis=1)
    return summed
