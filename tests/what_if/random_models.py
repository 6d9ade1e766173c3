"""Random small float ONNX models of every common operator, and their samples: functions of a seed."""

from collections.abc import Callable
from random import Random

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.what_if.models import seeded

IMAGE, ROWS = (1, 4, 6, 6), (2, 8)


class _Net:
    """A model being drawn: tensors of two shapes, pictures and rows, and the nodes between them."""

    def __init__(self, seed: int) -> None:
        self.random, self.rng = seeded(seed), np.random.default_rng(seed)
        self.nodes: list[object] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.known: dict[str, list[str]] = {"image": ["x"], "rows": []}
        self.others: list[tuple[str, int, tuple[int, ...] | None]] = []

    def new(self) -> str:
        return f"t{len(self.nodes)}"

    def array(self, *shape: int, scale: float = 0.5, dtype: type = np.float32) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = (self.rng.normal(size=shape) * scale).astype(dtype)
        return name

    def numbers(self, *values: int) -> str:
        name = f"c{len(self.arrays)}"
        self.arrays[name] = np.asarray(values, np.int64)
        return name

    def weight(self, *shape: int) -> str:
        """A new weight, or now and then one that is there."""
        same = [name for name, array in self.arrays.items() if array.shape == shape]
        return self.random.choice(same) if same and self.random.random() < 0.2 else self.array(*shape)

    def add(self, kind: str, *inputs: str, count: int = 1, **attributes: object) -> str:
        made = self.new()
        names = [made] + [f"{made}_{i}" for i in range(1, count)]
        self.nodes.append(helper.make_node(kind, inputs, names, made, **attributes))
        return made

    def any(self, kind: str) -> str:
        recent = self.known[kind][-3:]
        return self.random.choice(recent if self.random.random() < 0.8 else self.known[kind])


def _conv(net: _Net, x: str) -> str:
    return net.add("Conv", x, net.weight(4, 4, 1, 1), *([net.array(4)] if net.random.random() < 0.5 else []))


def _depthwise(net: _Net, x: str) -> str:
    return net.add("Conv", x, net.weight(4, 1, 3, 3), group=4, pads=[1, 1, 1, 1])


def _constant(kind: str, *shape: int) -> Callable[[_Net, str], str]:
    return lambda net, x: net.add(kind, x, net.array(*shape, scale=net.random.choice((0.01, 1.0, 300.0))))


def _plain(kind: str, **attributes: object) -> Callable[[_Net, str], str]:
    return lambda net, x: net.add(kind, x, **attributes)


def _clip(net: _Net, x: str) -> str:
    low, high = net.array(scale=0.0), net.array(scale=0.0)
    net.arrays[high] = np.float32(net.random.choice((0.5, 6.0)))
    return net.add("Clip", x, low, high)


def _binary(kind: str) -> Callable[[_Net, str], str]:
    def made(net: _Net, x: str) -> str:
        shape = "image" if x in net.known["image"] else "rows"
        return net.add(kind, *net.random.sample([x, net.any(shape)], 2))

    return made


def _halves(net: _Net, x: str) -> str:
    """Concat and Slice along an axis."""
    shape = "image" if x in net.known["image"] else "rows"
    both = net.add("Concat", x, net.any(shape), axis=1)
    start = net.random.choice((0, 1, 2))
    return net.add(
        "Slice", both, net.numbers(start), net.numbers(start + (4 if shape == "image" else 8)), net.numbers(1)
    )


def _split(net: _Net, x: str) -> str:
    first = net.add("Split", x, count=2, axis=1, num_outputs=2)
    return net.add("Concat", f"{first}_1", first, axis=1)


def _turned(net: _Net, x: str) -> str:
    return net.add(
        "Transpose",
        net.add("Reshape", net.add("Transpose", x, perm=[0, 2, 3, 1]), net.numbers(1, 6, 6, 4)),
        perm=[0, 3, 1, 2],
    )


def _pad(net: _Net, x: str) -> str:
    wide = net.add(
        "Pad",
        x,
        net.numbers(0, 0, 1, 1, 0, 0, 1, 1),
        *([net.array(scale=1.0)] if net.random.random() < 0.5 else []),
    )
    return net.add("Conv", wide, net.weight(4, 4, 3, 3))


def _compared(net: _Net, x: str) -> str:
    kind = net.random.choice(("Greater", "Less", "GreaterOrEqual", "Equal"))
    shape = "image" if x in net.known["image"] else "rows"
    limit = (
        net.any(shape) if net.random.random() < 0.3 else net.array(scale=net.random.choice((0.01, 1.0, 30.0)))
    )
    found = net.add(kind, x, limit)
    if net.random.random() < 0.5:
        return net.add("Cast", found, to=TensorProto.FLOAT)
    return net.add("Where", found, x, net.any(shape))


def _reduced(net: _Net, x: str) -> str:
    axis = -1
    kind = net.random.choice(("ReduceMean", "ReduceSum", "ReduceMax"))
    return net.add("Add", x, net.add(kind, x, net.numbers(axis), keepdims=1))


def _normalized(net: _Net, x: str) -> str:
    size = 6 if x in net.known["image"] else 8
    return net.add("LayerNormalization", x, net.array(size), net.array(size), axis=-1)


def _gathered(net: _Net, x: str) -> str:
    return net.add("Gather", x, net.numbers(*(net.random.randrange(4) for _ in range(4))), axis=1)


EITHER = (
    _binary("Add"),
    _binary("Sub"),
    _binary("Mul"),
    _binary("Max"),
    _binary("Min"),
    _halves,
    _split,
    _compared,
    _reduced,
    _normalized,
    _clip,
    *(
        _plain(kind)
        for kind in (
            "Relu",
            "Sigmoid",
            "Tanh",
            "HardSwish",
            "LeakyRelu",
            "Exp",
            "Abs",
            "Neg",
            "Identity",
            "Erf",
            "Gelu",
            "Elu",
            "Softmax",
            "Floor",
        )
    ),
    _constant("Add"),
    _constant("Mul"),
    _constant("Div"),
    _constant("Sub"),
    _constant("PRelu", 1),
)
PICTURES = (
    _conv,
    _conv,
    _depthwise,
    _turned,
    _pad,
    _gathered,
    _constant("Add", 4, 1, 1),
    _plain("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    _plain("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
)
VECTORS = (
    lambda net, x: net.add("Gemm", x, net.weight(8, 8), net.array(8)),
    lambda net, x: net.add("MatMul", x, net.weight(8, 8)),
    lambda net, x: net.add("Add", net.add("MatMul", x, net.weight(8, 8)), net.array(8)),
    lambda net, x: net.add(
        "MatMul", net.add("MatMul", x, net.add("Transpose", net.any("rows"), perm=[1, 0])), net.any("rows")
    ),
)


def random_model(seed: int, size: int) -> bytes:
    """A model of about `size` operators: pictures, then rows of numbers, with one to three outputs."""
    net = _Net(seed)
    net.random = Random(seed)  # noqa: S311 - to be repeated
    for _ in range(max(1, size // 2)):
        net.known["image"].append(net.random.choice((*EITHER, *PICTURES, *PICTURES))(net, net.any("image")))
    flat = net.add("Reshape", net.any("image"), net.numbers(2, -1))
    net.known["rows"].append(net.add("MatMul", flat, net.array(72, 8, scale=0.1)))
    for _ in range(size - size // 2):
        net.known["rows"].append(net.random.choice((*EITHER, *VECTORS, *VECTORS))(net, net.any("rows")))
    outputs = {net.known["rows"][-1]: ROWS}
    if net.random.random() < 0.3:
        outputs[net.known["image"][-1]] = IMAGE
    if net.random.random() < 0.2:
        outputs[net.known["rows"][0]] = ROWS
    outputs.pop("x", None)
    opened = net.random.random() < 0.2
    graph = helper.make_graph(
        net.nodes, f"random_{seed}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n" if opened else 1, *IMAGE[1:]])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in net.arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model.SerializeToString()


def random_samples(seed: int, count: int = 2) -> list[dict[str, np.ndarray]]:
    """Samples of such a model, small, usual or large."""
    rng = np.random.default_rng(seed + 77)
    scale = rng.choice([0.01, 1.0, 1.0, 300.0])
    return [{"x": (rng.normal(size=IMAGE) * scale).astype(np.float32)} for _ in range(count)]
