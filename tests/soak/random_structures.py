"""Random models over all operators: ranks 0 to 5, sizes 0 and 1, broadcasting, shared constants, bodies.

A model grows node by node. Each node is run alone in onnxruntime, which says the shapes of its results; one
that onnxruntime refuses is dropped. So makers draw attributes freely, and every model that comes out runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tests.awkward.net import BOOL, F32, I64, Net

OPSETS: Final = (13, 17, 18, 21)
MOST: Final = 3000
"""Elements of a value."""
ELEMENTS: Final = {np.dtype(np.float32): F32, np.dtype(np.int64): I64, np.dtype(bool): BOOL}
SHAPES: Final = (
    *((1, 4, 6, 6), (2, 3, 5, 7), (1, 8, 4, 4), (1, 3, 8, 8), (1, 1, 4, 4), (2, 4, 1, 1)),
    *((3, 8), (1, 6), (4, 1), (2, 5), (1, 4, 6), (2, 3, 8), (1, 5, 1), (1, 2, 4, 4, 4), (2, 3, 4, 2, 5)),
    *((7,), (1,), (6,), (), (2, 1, 3, 4), (1, 2, 3, 4)),
)


class Draft(Net):
    """A model under construction, with a number for everything in it."""

    def __init__(self, seed: int) -> None:
        """Start empty; the seed decides all that follows."""
        super().__init__(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.known: dict[str, np.ndarray] = {}
        self.floats: list[str] = []
        self.shared: list[str] = []

    def some(self, *, rank: int | None = None, least: int = 0, most: int = 9) -> str:
        """A float value, the latest ones preferred.

        Raises:
          IndexError: there is none of such a rank.
        """
        fits = [
            name
            for name in self.floats
            if least <= self.known[name].ndim <= most and rank in (None, self.known[name].ndim)
        ]
        return fits[-1 - int(min(self.rng.geometric(0.6) - 1, len(fits) - 1))] if fits else fits[0]

    def pick(self, *of: Any) -> Any:
        """One of these."""
        return of[int(self.rng.integers(len(of)))]

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a value."""
        return self.known[name].shape

    def axis(self, name: str) -> int:
        """An axis of a value, counted from either end."""
        rank = self.known[name].ndim
        return int(self.rng.integers(-rank, rank))

    def number(self, low: float = -2.0, high: float = 2.0) -> float:
        """A number of few digits."""
        return round(float(self.rng.uniform(low, high)), 2)

    def fill(self, shape: Sequence[int], low: float = -1.0, high: float = 1.0) -> str:
        """A constant, now and then one that stands already."""
        fits = [name for name in self.shared if self.shape(name) == tuple(shape)]
        if fits and self.rng.random() < 0.3:
            return str(self.pick(*fits))
        name = self.const(self.rng.uniform(low, high, tuple(shape)).astype(np.float32))
        self.known[name] = np.zeros(tuple(shape), np.float32)
        self.shared.append(name)
        return name

    def broadcast(self, name: str) -> str:
        """A constant of a shape that broadcasts with a value's, or makes it larger."""
        sizes = [1 if self.rng.random() < 0.4 else size for size in self.shape(name)]
        sizes = sizes[int(self.rng.integers(len(sizes) + 1)) :] if self.rng.random() < 0.5 else sizes
        if self.rng.random() < 0.15:
            sizes = [int(self.rng.integers(1, 3)), *[1] * max(0, self.known[name].ndim - len(sizes)), *sizes]
        return self.fill(sizes, 0.2, 1.5)

    def mate(self, name: str) -> str:
        """A second operand: a value of the same shape, the same value, or a constant that broadcasts."""
        same = [other for other in self.floats if self.shape(other) == self.shape(name)]
        return str(self.pick(*same)) if self.rng.random() < 0.4 else self.broadcast(name)

    def add(self, kind: str, *inputs: str, results: int = 1, **more: Any) -> bool:
        """Append a node if onnxruntime runs it and the results are finite and not too many."""
        outputs = [self.name("v") for _ in range(results)]
        node = helper.make_node(kind, inputs, outputs, **more)
        return self.append(node)

    def append(self, node: Any) -> bool:
        """Append a node if onnxruntime runs it."""
        arrays = _alone(node, self._numbers(node), self.opset)
        if arrays is None or any(array.size > MOST for array in arrays):
            return False
        if not all(
            np.isfinite(a).all() and np.abs(a).max(initial=0) < 1e3 for a in arrays if a.dtype.kind == "f"
        ):
            return False
        self.nodes.append(node)
        for name, array in zip(node.output, arrays, strict=True):
            self.known[name] = array
            self.floats += [name] if array.dtype == np.float32 else []
        return True

    def _numbers(self, node: Any) -> dict[str, np.ndarray]:
        given = {weight.name: weight for weight in self.weights}
        names = [name for name in node.input if name]
        for attribute in node.attribute:
            names += [name for inner in attribute.g.node for name in inner.input]
        return {
            name: numpy_helper.to_array(given[name]) if name in given else self.known[name]
            for name in dict.fromkeys(names)
            if name in given or name in self.known
        }


def _alone(node: Any, feeds: Mapping[str, np.ndarray], opset: int) -> list[np.ndarray] | None:
    """The results of a node; None where onnxruntime refuses it."""
    graph = helper.make_graph(
        [node],
        "alone",
        [helper.make_tensor_value_info(n, ELEMENTS[a.dtype], a.shape) for n, a in feeds.items()],
        [helper.make_value_info(name, helper.make_tensor_type_proto(0, None)) for name in node.output],
    )
    for output in graph.output:
        output.ClearField("type")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return [np.asarray(array) for array in session.run(None, dict(feeds))]
    except Exception:  # noqa: BLE001 - onnxruntime refuses in many ways
        return None


def _binary(net: Draft, kind: str) -> None:
    a = net.some()
    pair = [a, net.mate(a)]
    net.rng.shuffle(pair)
    net.add(kind, *pair)


def _divide(net: Draft, kind: str) -> None:
    a = net.some()
    net.add(kind, a, net.broadcast(a))


def _power(net: Draft, kind: str) -> None:
    a = net.add("Abs", net.some()) and net.floats[-1]
    if a:
        net.add(kind, a, net.fill((), *((2.0, 2.0) if net.rng.random() < 0.5 else (0.5, 3.0))))


def _unary(net: Draft, kind: str) -> None:
    net.add(kind, net.some())


def _positive(net: Draft, kind: str) -> None:
    x = net.some()
    if net.add("Abs", x) and net.add("Add", net.floats[-1], net.fill((), 0.3, 1.0)):
        net.add(kind, net.floats[-1])


def _slope(net: Draft, kind: str) -> None:
    net.add(kind, net.some(), alpha=net.number(0.05, 0.9))


def _prelu(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    sizes = [1] * net.known[x].ndim
    at = int(net.rng.integers(len(sizes)))
    sizes[at] = net.shape(x)[at]
    net.add(kind, x, net.fill(sizes[net.pick(0, at) :], 0.0, 0.5))


def _clip(net: Draft, kind: str) -> None:
    low, high = sorted((net.number(), net.number()))
    bounds = [net.const(np.float32(low)), net.const(np.float32(high))]
    net.add(
        kind,
        net.some(),
        *net.pick(bounds, [bounds[0]], ["", bounds[1]], [net.const(np.float32(0)), net.const(np.float32(6))]),
    )


def _matmul(net: Draft, kind: str) -> None:
    a = net.some(least=1)
    sizes, n = net.shape(a), int(net.rng.integers(1, 6))
    way = net.pick("right", "right", "left", "batch", "broadcast", "vector", "dynamic", "both")
    if way == "right":
        net.add(kind, a, net.fill((sizes[-1], n)))
    elif way == "left" and len(sizes) > 1:
        net.add(kind, net.fill((n, sizes[-2])), a)
    elif way == "batch" and len(sizes) > 2:
        lead = [1 if net.rng.random() < 0.4 else size for size in sizes[:-2]]
        net.add(kind, a, net.fill((*lead, sizes[-1], n)))
    elif way == "broadcast" and len(sizes) > 1:
        net.add(kind, a, net.fill((3, *[1] * (len(sizes) - 2), sizes[-1], n)))
    elif way == "vector":
        net.add(kind, a, net.fill((sizes[-1],)))
    elif way == "both" and len(sizes) > 1:
        b = net.mate(a)
        perm = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
        if net.shape(b) == sizes and net.add("Transpose", b, perm=perm):
            net.add(kind, a, net.floats[-1])
    elif len(sizes) > 1 and net.add(
        "Transpose", a, perm=[*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
    ):
        b = net.floats[-1]
        if len(sizes) > 2 and net.rng.random() < 0.5:
            starts, ends = net.ints(0), net.ints(1)
            net.add("Slice", b, starts, ends, net.ints(0))
        net.add(kind, a, net.floats[-1])
    if net.rng.random() < 0.4:
        net.add("Add", net.floats[-1], net.fill(net.shape(net.floats[-1])[-1:]))


def _gemm(net: Draft, kind: str) -> None:
    a, n = net.some(rank=2), int(net.rng.integers(1, 6))
    flip, turned = bool(net.rng.random() < 0.3), bool(net.rng.random() < 0.5)
    rows, depth = net.shape(a)[::-1] if flip else net.shape(a)
    b = net.fill((n, depth) if turned else (depth, n))
    c = net.pick([], [net.fill((n,))], [net.fill((rows, 1))], [net.fill(())])
    more = {"alpha": net.pick(1.0, 0.5), "beta": net.pick(1.0, 2.0)} if net.rng.random() < 0.3 else {}
    net.add(kind, a, b, *c, transA=int(flip), transB=int(turned), **more)


def _window(net: Draft, spatial: Sequence[int]) -> dict[str, Any]:
    kernel = [int(net.rng.integers(1, min(4, max(2, size + 1)))) for size in spatial]
    more: dict[str, Any] = {"kernel_shape": kernel}
    if net.rng.random() < 0.5:
        more["strides"] = [int(net.rng.integers(1, 4)) for _ in spatial]
    if net.rng.random() < 0.2:
        more["auto_pad"] = net.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    elif net.rng.random() < 0.6:
        more["pads"] = [int(net.rng.integers(0, size)) for size in (*kernel, *kernel)]
    return more


def _conv(net: Draft, kind: str) -> None:
    x = net.some(least=3, most=5)
    channels, spatial = net.shape(x)[1], net.shape(x)[2:]
    groups = [g for g in (1, 1, 2, channels) if channels % g == 0]
    group = int(net.pick(*groups))
    outs = group * int(net.rng.integers(1, 4))
    more = _window(net, spatial) | {"group": group}
    if net.rng.random() < 0.2:
        more["dilations"] = [int(net.rng.integers(1, 3)) for _ in spatial]
    sizes = (outs, channels // group) if kind == "Conv" else (channels, outs // group)
    b = [net.fill((outs,))] if net.rng.random() < 0.6 else []
    net.add(kind, x, net.fill((*sizes, *more["kernel_shape"]), -0.5, 0.5), *b, **more)
    _activate(net)


def _activate(net: Draft) -> None:
    if net.rng.random() < 0.4:
        (net.add("Relu", net.floats[-1]) if net.rng.random() < 0.6 else _clip(net, "Clip"))


def _pool(net: Draft, kind: str) -> None:
    x = net.some(least=3, most=5)
    more = _window(net, net.shape(x)[2:])
    if net.rng.random() < 0.3:
        more["ceil_mode"] = 1
    if kind == "AveragePool" and net.rng.random() < 0.4:
        more["count_include_pad"] = 1
    if kind == "LpPool":
        more.pop("ceil_mode", None)
    net.add(kind, x, **more)


def _global_pool(net: Draft, kind: str) -> None:
    net.add(kind, net.some(least=3, most=5))


def _along(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    net.add(kind, x, axis=net.pick(-1, net.axis(x)))


def _axes(net: Draft, x: str) -> list[int]:
    rank = net.known[x].ndim
    count = int(net.rng.integers(1, rank + 1))
    return [int(a) - rank * int(net.rng.random() < 0.3) for a in net.rng.permutation(rank)[:count]]


def _reduce(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    keep, by_operand = int(net.pick(0, 1)), net.opset >= 18 or kind == "ReduceSum"
    if kind in ("ReduceLogSum", "ReduceLogSumExp", "ReduceProd"):
        net.add("Abs", x)
        x = net.floats[-1]
    if net.rng.random() < 0.15:
        net.add(kind, x, keepdims=keep)
    elif by_operand:
        net.add(kind, x, net.ints(*_axes(net, x)), keepdims=keep)
    else:
        net.add(kind, x, axes=_axes(net, x), keepdims=keep)


def _arg(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    more = {"axis": net.axis(x), "keepdims": int(net.pick(0, 1))}
    if net.rng.random() < 0.2:
        more["select_last_index"] = 1
    if net.add(kind, x, **more):
        net.add("Cast", net.nodes[-1].output[0], to=F32)


def _top(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    axis = net.axis(x)
    count = int(net.rng.integers(1, max(2, net.shape(x)[axis] + 1)))
    net.add(kind, x, net.ints(count), results=2, axis=axis, largest=int(net.pick(0, 1, 1)))


def _concat(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    axis, parts = net.axis(x), [x]
    for _ in range(int(net.rng.integers(0, 3))):
        sizes = list(net.shape(x))
        sizes[axis] = int(net.rng.integers(1, 4))
        same = [n for n in net.floats if net.shape(n) == net.shape(x)]
        parts.append(net.pick(net.pick(*same), net.pick(*same), net.fill(sizes)))
    net.add(kind, *parts, axis=axis)


def _split(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    axis = net.axis(x)
    size, parts = net.shape(x)[axis], int(net.rng.integers(1, 4))
    cuts = sorted(
        int(c) for c in net.rng.integers(0 if net.rng.random() < 0.15 else 1, max(2, size), parts - 1)
    )
    sizes = np.diff([0, *cuts, size])
    if net.opset >= 18 and net.rng.random() < 0.3:
        net.add(kind, x, results=parts, axis=axis, num_outputs=parts)
    else:
        net.add(kind, x, net.ints(*map(int, sizes)), results=parts, axis=axis)


def _slice(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    axes = _axes(net, x)
    starts, ends, steps = [], [], []
    for axis in axes:
        size = net.shape(x)[axis]
        step = int(net.pick(1, 1, 2, -1, 3))
        a, b = sorted(int(v) for v in net.rng.integers(0, size + 1, 2))
        b = b if b > a or net.rng.random() < 0.1 else a + 1
        starts.append(a if step > 0 else b - 1)
        ends.append(b if step > 0 else (a - 1 if a else -size - 1))
        steps.append(step)
    net.add(kind, x, net.ints(*starts), net.ints(*ends), net.ints(*axes), net.ints(*steps))


def _gather(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    axis = net.axis(x)
    size = net.shape(x)[axis]
    sizes = net.pick((), (2,), (1,), (2, 2), (3,), (0,)) if net.rng.random() < 0.9 else (2, 1, 2)
    at = net.const(net.rng.integers(-size, max(size, 1 - size), sizes))
    net.add(kind, x, at, axis=axis)


def _table(net: Draft, kind: str) -> None:
    """An embedding: a constant table read by an input of indices, and by a MatMul."""
    rows, width = int(net.rng.integers(3, 9)), int(net.rng.integers(2, 7))
    name = net.input(net.name("ids"), [2, 3], I64)
    net.known[name] = net.rng.integers(0, rows, (2, 3))
    table = net.fill((rows, width))
    if net.add(kind, table, name) and net.rng.random() < 0.5:
        last = net.floats[-1]
        if net.add("Transpose", table, perm=[1, 0]):
            turned = net.floats.pop()
            net.add("MatMul", last, turned)


def _gather_nd(net: Draft, kind: str) -> None:
    x = net.some(least=1, most=4)
    depth = int(net.rng.integers(1, net.known[x].ndim + 1))
    at = np.stack([net.rng.integers(0, size, 3) for size in net.shape(x)[:depth]], -1)
    net.add(kind, x, net.const(at.astype(np.int64)))


def _gather_elements(net: Draft, kind: str) -> None:
    x = net.some(least=1, most=4)
    axis = net.axis(x)
    net.add(kind, x, net.const(net.rng.integers(0, net.shape(x)[axis], net.shape(x))), axis=axis)


def _scatter(net: Draft, kind: str) -> None:
    x = net.some(least=1, most=3)
    at = net.rng.integers(0, net.shape(x)[0], (2, 1))
    net.add(kind, x, net.const(at), net.fill((2, *net.shape(x)[1:])))


def _pad(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    rank, mode = net.known[x].ndim, net.pick("constant", "constant", "constant", "reflect", "edge")
    low = -1 if net.rng.random() < 0.15 else 0
    pads = [int(p) if net.rng.random() < 0.7 else 0 for p in net.rng.integers(low, 3, 2 * rank)]
    if rank == 4 and net.rng.random() < 0.6:
        pads[0] = pads[1] = pads[4] = pads[5] = 0
    value = net.pick([], [net.const(np.float32(net.number()))], [net.const(np.float32(0))])
    net.add(kind, x, net.ints(*pads), *(value if mode == "constant" else []), mode=mode)


def _resize(net: Draft, kind: str) -> None:
    x = net.some(least=3, most=5)
    spatial = net.shape(x)[2:]
    mode = net.pick("nearest", "linear", "linear", "cubic")
    forms = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    more = {"mode": mode, "coordinate_transformation_mode": net.pick(*forms)}
    if mode == "nearest":
        more["nearest_mode"] = net.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if net.rng.random() < 0.5:
        factors = [net.pick(2.0, 1.0, 0.5, 1.5, 3.0) for _ in spatial]
        net.add(kind, x, "", net.const(np.asarray([1, 1, *factors], np.float32)), **more)
    else:
        sizes = [int(net.rng.integers(1, 2 * size + 2)) for size in spatial]
        net.add(kind, x, "", "", net.ints(*net.shape(x)[:2], *sizes), **more)


def _transpose(net: Draft, kind: str) -> None:
    x = net.some(least=2)
    more = (
        {} if net.rng.random() < 0.1 else {"perm": [int(a) for a in net.rng.permutation(net.known[x].ndim)]}
    )
    net.add(kind, x, **more)


def _reshape(net: Draft, kind: str) -> None:
    x = net.some()
    rest, sizes = net.known[x].size, []
    for _ in range(int(net.rng.integers(0, 4))):
        of = [d for d in (1, 2, 3, 4) if rest and rest % d == 0]
        sizes.append(int(net.pick(*of)) if of else 1)
        rest //= sizes[-1] or 1
    sizes.insert(int(net.rng.integers(len(sizes) + 1)), -1)
    net.add(kind, x, net.ints(*sizes))


def _flatten(net: Draft, kind: str) -> None:
    x = net.some()
    net.add(kind, x, axis=int(net.rng.integers(0, net.known[x].ndim + 1)))


def _squeeze(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    ones = [i for i, size in enumerate(net.shape(x)) if size == 1]
    net.add(kind, x, *([net.ints(int(net.pick(*ones)))] if ones and net.rng.random() < 0.7 else []))


def _unsqueeze(net: Draft, kind: str) -> None:
    x = net.some(most=4)
    net.add(kind, x, net.ints(int(net.rng.integers(-net.known[x].ndim - 1, net.known[x].ndim + 1))))


def _expand(net: Draft, kind: str) -> None:
    x = net.some()
    sizes = [size if size > 1 else int(net.pick(1, 3)) for size in net.shape(x)]
    net.add(kind, x, net.ints(*([2] if net.rng.random() < 0.2 else []), *sizes))


def _tile(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    net.add(kind, x, net.ints(*(int(net.pick(1, 1, 2, 3)) for _ in net.shape(x))))


def _blocks(net: Draft, kind: str) -> None:
    more = {"mode": net.pick("DCR", "CRD")} if kind == "DepthToSpace" else {}
    net.add(kind, net.some(rank=4), blocksize=2, **more)


def _compare(net: Draft, kind: str) -> None:
    a = net.some()
    if net.add(kind, a, net.mate(a)):
        flags = net.nodes[-1].output[0]
        net.add("Where", flags, a, net.mate(a)) if net.rng.random() < 0.6 else net.add("Cast", flags, to=F32)


def _normal(net: Draft, kind: str) -> None:
    x = net.some(least=2)
    count = net.shape(x)[1]
    if kind == "BatchNormalization":
        net.add(
            kind,
            x,
            net.fill((count,), 0.5, 1.5),
            net.fill((count,)),
            net.fill((count,)),
            net.fill((count,), 0.5, 1.5),
        )
    elif kind == "InstanceNormalization":
        net.add(kind, x, net.fill((count,), 0.5, 1.5), net.fill((count,)))
    elif kind == "LayerNormalization":
        axis = net.axis(x)
        sizes = net.shape(x)[axis:]
        net.add(kind, x, net.fill(sizes, 0.5, 1.5), *net.pick([], [net.fill(sizes)]), axis=axis)
    else:
        net.add(kind, x, size=3)


def _cumulative(net: Draft, kind: str) -> None:
    x = net.some(least=1)
    net.add(kind, x, net.const(np.asarray(net.axis(x), np.int64)), exclusive=int(net.pick(0, 1)))


def _einsum(net: Draft, kind: str) -> None:
    x = net.some(least=2, most=3)
    if net.known[x].ndim == 2:
        net.add(kind, x, net.fill((net.shape(x)[1], 3)), equation=net.pick("ij,jk->ik", "ij,jk->ki"))
    else:
        net.add(kind, x, net.fill((net.shape(x)[2], 3)), equation="bij,jk->bik")


def _triangle(net: Draft, kind: str) -> None:
    net.add(kind, net.some(least=2), upper=int(net.pick(0, 1)))


def _chosen(net: Draft, kind: str) -> None:
    """An If, its condition the sign of a sum, with a body of one op each."""
    x = net.some()
    if not net.add("ReduceSum", x, keepdims=0) or not net.add(
        "Greater", net.floats[-1], net.const(np.float32(0))
    ):
        return
    bodies = []
    for op in (net.pick("Relu", "Neg", "Sigmoid"), net.pick("Abs", "Tanh", "Identity")):
        result = net.name("body")
        info = helper.make_tensor_value_info(result, F32, net.shape(x))
        bodies.append(helper.make_graph([helper.make_node(op, [x], [result])], result, [], [info]))
    flag, result = net.nodes[-1].output[0], net.name("v")
    net.append(helper.make_node(kind, [flag], [result], then_branch=bodies[0], else_branch=bodies[1]))


def _repeated(net: Draft, kind: str) -> None:
    """A Loop of three trips over one value."""
    x = net.some(most=4)
    shape = net.shape(x)
    names = {key: net.name(key) for key in ("i", "c", "h", "c2", "h2")}
    factor = net.fill((), 0.4, 0.9)
    body = helper.make_graph(
        [
            helper.make_node("Identity", [names["c"]], [names["c2"]]),
            helper.make_node(net.pick("Mul", "Add"), [names["h"], factor], [names["h2"]]),
        ],
        net.name("loop"),
        [
            helper.make_tensor_value_info(names["i"], TensorProto.INT64, []),
            helper.make_tensor_value_info(names["c"], TensorProto.BOOL, []),
            helper.make_tensor_value_info(names["h"], F32, shape),
        ],
        [
            helper.make_tensor_value_info(names["c2"], TensorProto.BOOL, []),
            helper.make_tensor_value_info(names["h2"], F32, shape),
        ],
    )
    net.append(
        helper.make_node(kind, [net.const(np.asarray(3, np.int64)), "", x], [net.name("v")], body=body)
    )


def _recurrent(net: Draft, kind: str) -> None:
    x = net.some(rank=3)
    width, hidden, ways = net.shape(x)[2], int(net.rng.integers(1, 5)), int(net.pick(1, 1, 2))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    w, r = net.fill((ways, gates * hidden, width)), net.fill((ways, gates * hidden, hidden))
    b = [net.fill((ways, 2 * gates * hidden))] if net.rng.random() < 0.7 else []
    more = {"linear_before_reset": 1} if kind == "GRU" and net.rng.random() < 0.5 else {}
    way = "bidirectional" if ways == 2 else net.pick("forward", "forward", "reverse")
    net.add(kind, x, w, r, *b, hidden_size=hidden, direction=way, **more)


Maker = Callable[[Draft, str], None]
MAKERS: Final[Mapping[str, Maker]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min"), _binary),
    **dict.fromkeys(("Div", "Mod"), _divide),
    "Pow": _power,
    **dict.fromkeys(
        (
            *("Abs", "Ceil", "Cos", "Dropout", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish"),
            *("Identity", "Mish", "Neg", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"),
            *("Softsign", "Tanh", "Gelu", "Atan", "Sinh", "Celu", "ThresholdedRelu", "Not"),
        ),
        _unary,
    ),
    **dict.fromkeys(("Log", "Reciprocal", "Sqrt"), _positive),
    **dict.fromkeys(("LeakyRelu",), _slope),
    "PRelu": _prelu,
    "Clip": _clip,
    "MatMul": _matmul,
    "Gemm": _gemm,
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool"), _global_pool),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _along),
    **dict.fromkeys(
        (
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
            *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        ),
        _reduce,
    ),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg),
    "TopK": _top,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "GatherElements": _gather_elements,
    "ScatterND": _scatter,
    "Pad": _pad,
    "Resize": _resize,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Tile": _tile,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _compare),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "LRN", "LayerNormalization"), _normal),
    "CumSum": _cumulative,
    "Einsum": _einsum,
    "Trilu": _triangle,
    "If": _chosen,
    "Loop": _repeated,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
}
FREQUENT: Final = (
    "Conv",
    "MatMul",
    "Gemm",
    "Add",
    "Mul",
    "Concat",
    "Pad",
    "Resize",
    "Slice",
    "Gather",
    "Reshape",
)
"""Drawn three times as often."""
_TABLE: Final = "table"


def random_structure(seed: int) -> tuple[bytes, tuple[dict[str, np.ndarray], ...]]:
    """The bytes of a model, and two samples of its inputs; the seed decides everything."""
    net = Draft(seed)
    for k in range(int(net.pick(1, 1, 2))):
        shape = net.pick(*SHAPES)
        name = net.input(f"x{k}", shape)
        net.known[name] = net.rng.normal(size=shape).astype(np.float32)
        net.floats.append(name)
    wanted, names = int(net.rng.integers(1, 6)), (*MAKERS, *FREQUENT, *FREQUENT, _TABLE, _TABLE)
    for _ in range(60):
        if len(net.nodes) >= wanted:
            break
        kind = str(net.pick(*names))
        maker, kind = (_table, "Gather") if kind == _TABLE else (MAKERS[kind], kind)
        try:
            maker(net, kind)
        except (IndexError, ValueError, ZeroDivisionError):
            continue  # no operand of such a rank
    if not net.nodes:
        net.add("Relu", net.floats[-1])
    read = {name for node in net.nodes for name in node.input}
    read |= {n for node in net.nodes for a in node.attribute for inner in a.g.node for n in inner.input}
    ends = [name for node in net.nodes for name in node.output if name not in read]
    ends += [str(net.pick(*net.nodes).output[0])] if net.rng.random() < 0.2 else []
    for name in dict.fromkeys(ends):
        net.output(name, net.shape(name), ELEMENTS[net.known[name].dtype])
    used = [item for item in net.inputs if item.name in read]
    net.inputs = used or net.inputs
    met = read | set(ends)
    net.weights = [weight for weight in net.weights if weight.name in met]
    samples = tuple(_sample(net, seed + 7919 * k) for k in range(2))
    return net.data(opset=net.opset, ir=8), samples


def _sample(net: Draft, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for item in net.inputs:
        array = net.known[item.name]
        found[item.name] = (
            array if array.dtype == np.int64 else rng.normal(size=array.shape).astype(np.float32)
        )
    return found
