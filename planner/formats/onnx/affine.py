"""Per-channel scaling and shifting folded into the linear op before it.

BatchNormalization, Mul, Add, Sub and Div by constants are all `y = x * a + b` with a and b per
channel; such a chain behind Conv, ConvTranspose, Gemm, MatMul or BatchNormalization becomes part of
its constants. Computed in f64, stored in the weight's type. In: any graph with shapes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from planner.formats.onnx.grids import scaled
from planner.formats.onnx.naming import BIAS, rewritten, use_counts
from planner.ir.graph import Constant, Facts, Graph, Op, Value


@dataclass(frozen=True, slots=True)
class Affine:
    """`y = x * a + b`; a and b are (C,) or (1,), in f64."""

    a: np.ndarray
    b: np.ndarray


@dataclass(frozen=True, slots=True)
class _Work:
    """The graph as it stands in the middle of the pass."""

    values: dict[str, Value]
    constants: dict[str, Constant]
    counts: Counter[str]
    taken: set[str]
    facts: dict[str, Facts] = field(default_factory=dict)

    def rewritten(self, name: str, host: Op) -> str:
        return rewritten(name, host, self.counts, self.taken)


Fold: TypeAlias = tuple[Op, dict[str, np.ndarray]]


def fold_affine(graph: Graph) -> Graph:
    """Fold every affine step into its producer, where the value between has no other consumer."""
    work = _Work(dict(graph.values), dict(graph.constants), use_counts(graph), set(graph.values))
    ops: list[Op | None] = list(graph.ops)
    # A Loop may leave its first result unnamed.
    writer = {out: i for i, op in enumerate(graph.ops) for out in op.outputs[:1] if out}
    for i, step in enumerate(graph.ops):
        source = _source(step, work)
        at = writer.get(source, i)
        host = ops[at]
        # Another reader would see the host's numbers scaled; a type of a quantizer is one of them unscaled.
        if at == i or host is None or work.counts[source] != 1 or work.values[source].facts:
            continue
        folded = _folded(host, step, source, work)
        if folded is None:
            continue
        op, arrays = folded
        for name, array in arrays.items():
            work.constants[name] = Constant(array)
            facts = work.facts.pop(name, ())
            work.values[name] = Value(name, array.shape, work.values[source].dtype, facts)
        # The host stays where it is and writes the step's name: nothing before it read that.
        ops[at], ops[i], writer[step.outputs[0]] = op, None, at
    if None not in ops:
        return graph
    kept = tuple(op for op in ops if op is not None)
    return replace(graph, ops=kept, constants=work.constants, values=work.values)


def _source(step: Op, work: _Work) -> str:
    """The operand an affine step works on, "" where the op is none."""
    if step.type == "BatchNormalization" and len([out for out in step.outputs if out]) == 1:
        return step.inputs[0]
    if step.type not in ("Add", "Div", "Mul", "Sub") or len(step.inputs) != 2:
        return ""
    left, right = step.inputs
    if right in work.constants and left not in work.constants:
        return left
    # Only Add and Mul commute: `c / x` is no affine map, and `c - x` would turn the sign of every weight.
    if left in work.constants and right not in work.constants and step.type in ("Add", "Mul"):
        return right
    return ""


def _folded(host: Op, step: Op, source: str, work: _Work) -> Fold | None:
    fold = FOLDS.get(host.type)
    if fold is None or host.outputs[0] != source or any(host.outputs[1:]):
        return None
    layout = _layout(host, work)
    if layout is None:
        return None
    rank, channels = layout
    affine = _affine_of(step, source, work, rank=rank, channels=channels)
    if affine is None or not (np.isfinite(affine.a).all() and np.isfinite(affine.b).all()):
        return None
    folded = fold(host, affine, work, channels)
    if folded is None:
        return None
    op, arrays = folded
    return replace(op, outputs=step.outputs[:1]), arrays


def _layout(host: Op, work: _Work) -> tuple[int, int] | None:
    """Rank of the host's output and its channels (always axis 1), where they are known."""
    weight = work.constants.get(host.inputs[1])
    if weight is None or weight.array is None:
        return None
    shape = weight.array.shape
    if host.type == "Conv":
        return len(shape), shape[0]
    if host.type == "ConvTranspose":
        return len(shape), shape[1] * host.attributes.get("group", 1)
    known = work.values[host.inputs[0]].shape
    if known is None or (host.type != "BatchNormalization" and (len(known), len(shape)) != (2, 2)):
        return None
    return len(known), shape[-1 - host.attributes.get("transB", 0)]


def _affine_of(step: Op, source: str, work: _Work, *, rank: int, channels: int) -> Affine | None:
    if step.type == "BatchNormalization":
        return _normalization(step, work)
    (other,) = (name for name in step.inputs if name != source)
    array = work.constants[other].array
    one, zero = np.ones(1), np.zeros(1)
    number = None if array is None else _per_channel(array, rank=rank, channels=channels)
    if number is None:
        return None
    if step.type in ("Add", "Sub"):
        return Affine(one, number if step.type == "Add" else -number)
    if step.type == "Div" and not number.all():
        return None
    return Affine(number if step.type == "Mul" else 1 / number, zero)


def _normalization(step: Op, work: _Work) -> Affine | None:
    found = [work.constants.get(name) for name in step.inputs[1:5]]
    arrays = [c.array.astype(np.float64) for c in found if c is not None and c.array is not None]
    if len(arrays) != 4 or step.attributes.get("training_mode", 0):
        return None
    scale, bias, mean, var = arrays
    # scale * (x - mean) / sqrt(var + epsilon) + bias, in the form x * a + b (ONNX BatchNormalization).
    with np.errstate(divide="ignore", invalid="ignore"):
        a = scale / np.sqrt(var + step.attributes.get("epsilon", 1e-5))
        return Affine(a, bias - mean * a)


def _per_channel(array: np.ndarray, *, rank: int, channels: int) -> np.ndarray | None:
    """The constant as (C,) or (1,), where broadcasting it changes nothing but channels."""
    if array.ndim > rank or array.dtype.kind in "OSUbc":
        return None
    # Broadcasting aligns trailing axes; a factor per channel varies along axis 1 and no other.
    shape = (1,) * (rank - array.ndim) + array.shape
    if rank < 2 or any(dim != 1 for dim in (shape[0], *shape[2:])) or shape[1] not in (1, channels):
        return None
    return array.reshape(-1).astype(np.float64)


def _into_conv(host: Op, affine: Affine, work: _Work, channels: int) -> Fold | None:
    weight = _data(host.inputs[1], work)
    columns = np.broadcast_to(affine.a, (channels,)).reshape(channels, *[1] * (weight.ndim - 1))
    return _with_weight_and_bias(host, columns, affine, work, channels)


def _into_conv_transpose(host: Op, affine: Affine, work: _Work, channels: int) -> Fold | None:
    weight, group = _data(host.inputs[1], work), host.attributes.get("group", 1)
    # A weight of ConvTranspose is (C_in, C_out / group, ...): channel j of group g is row block g, column j.
    per_group = np.broadcast_to(affine.a, (channels,)).reshape(group, channels // group)
    rows = np.repeat(per_group, weight.shape[0] // group, axis=0)
    columns = rows.reshape(*weight.shape[:2], *[1] * (weight.ndim - 2))
    return _with_weight_and_bias(host, columns, affine, work, channels)


def _into_gemm(host: Op, affine: Affine, work: _Work, channels: int) -> Fold | None:
    # beta would scale the step's addend too, once it is in the bias.
    if host.attributes.get("beta", 1.0) != 1.0 and len(host.inputs) > 2:
        return None
    wide = np.broadcast_to(affine.a, (channels,))
    columns = wide.reshape(-1, 1) if host.attributes.get("transB", 0) else wide.reshape(1, -1)
    return _with_weight_and_bias(host, columns, affine, work, channels)


def _into_matmul(host: Op, affine: Affine, work: _Work, channels: int) -> Fold | None:
    left = work.values[host.inputs[0]].shape
    if left is None or len(left) != 2:
        return None
    folded = _into_gemm(host, affine, work, channels)
    # A MatMul has no operand for a bias; a Gemm has one, and takes matrices only.
    kind = "Gemm" if folded is not None and len(folded[0].inputs) > 2 else "MatMul"
    return None if folded is None else (replace(folded[0], type=kind), folded[1])


def _into_normalization(host: Op, affine: Affine, work: _Work, channels: int) -> Fold | None:
    if host.attributes.get("training_mode", 0):
        return None
    scale, bias = (work.constants.get(name) for name in host.inputs[1:3])
    if scale is None or bias is None or scale.array is None or bias.array is None:
        return None
    wide = np.broadcast_to(affine.a, (channels,))
    names = [work.rewritten(name, host) for name in host.inputs[1:3]]
    new_scale = (scale.array * wide).astype(scale.array.dtype)
    new_bias = (bias.array * wide + affine.b).astype(bias.array.dtype)
    inputs = (host.inputs[0], *names, *host.inputs[3:])
    return replace(host, inputs=inputs), {names[0]: new_scale, names[1]: new_bias}


def _with_weight_and_bias(
    host: Op, columns: np.ndarray, affine: Affine, work: _Work, channels: int
) -> Fold | None:
    """Scale the weight by `columns` (a, shaped to fit it) and the bias by a, and shift the bias by b."""
    weight = _data(host.inputs[1], work)
    name = host.inputs[2] if len(host.inputs) > 2 else ""
    old = work.constants.get(name) if name else None
    if name and (old is None or old.array is None):
        return None
    bias = np.zeros(1) if old is None or old.array is None else old.array.astype(np.float64)
    # (W x + bias) * a + b is (a W) x + (a bias + b), all in float64 until stored.
    shifted = np.broadcast_to(bias * affine.a + affine.b, np.broadcast_shapes(bias.shape, (channels,)))
    arrays: dict[str, np.ndarray] = {}
    inputs = list(host.inputs[:2])
    if not (columns == 1).all():
        inputs[1] = work.rewritten(host.inputs[1], host)
        facts, per_axis = work.values[host.inputs[1]].facts, host.type in ("Conv", "ConvTranspose")
        found = scaled(facts, weight, columns, biases=shifted, per_axis=per_axis)
        work.facts[inputs[1]], arrays[inputs[1]] = found
    if name or affine.b.any():
        inputs.append(work.rewritten(name or f"{host.outputs[0]}{BIAS}", host))
        arrays[inputs[2]] = shifted.astype(weight.dtype)
    return replace(host, inputs=tuple(inputs)), arrays


def _data(name: str, work: _Work) -> np.ndarray:
    return np.asarray(work.constants[name].array)


FOLDS: Final[Mapping[str, Callable[[Op, Affine, _Work, int], Fold | None]]] = {
    "BatchNormalization": _into_normalization,
    "Conv": _into_conv,
    "ConvTranspose": _into_conv_transpose,
    "Gemm": _into_gemm,
    "MatMul": _into_matmul,
}
