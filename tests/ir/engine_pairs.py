"""Products of onnxruntime whose neighbouring weights just fit, and do not fit, 16 bits beside u8 of 255.

`python -m tests.ir.engine_pairs` prints as JSON which of them gave other sums than numpy: within 128
steps none may on any CPU; beyond, all do where pairs are added in 16 bits. It is a script, as tests patch
sessions.
"""

import json
from collections.abc import Iterator

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WITHIN, BEYOND = 128, 200
CONVS = {
    "1x1": (16, 16, 1, 1), "3x3": (16, 16, 3, 3), "stem": (16, 3, 3, 3), "odd": (8, 5, 3, 3),
    "one channel": (8, 1, 5, 5), "grouped": (16, 8, 3, 3), "grouped odd": (15, 3, 3, 3),
}  # fmt: skip
"""Shapes of weights; groups follow from the 16 or 15 channels of the input of those that have them."""
MATRICES = {f"{name} of {terms}": (name, terms) for name in ("QLinearMatMul", "QGemm") for terms in (15, 600)}
STEP = 2048.0


def filled(rng: np.random.Generator, most: int, channels: int, terms: int) -> np.ndarray:
    """Weights in the order of a sum, (channels, terms): each pair of one sign, adding up to `most` steps."""
    pairs = (terms + 1) // 2
    first = rng.integers(max(1, most - 127), min(127, most - 1) + 1, (channels, pairs))
    sign = rng.choice([-1, 1], (channels, pairs))
    both = np.stack([first * sign, (most - first) * sign], -1)
    return both.reshape(channels, -1)[:, :terms].astype(np.int8)


def run(node: str, weight: np.ndarray, x: np.ndarray, **attributes: int) -> np.ndarray:
    """The result of one integer product, in steps of `STEP`."""
    domain = "com.microsoft" if node == "QGemm" else ""
    channels = weight.shape[-1] if x.ndim == 2 else weight.shape[0]
    numbers = {
        "xs": np.float32(1), "xz": np.uint8(0), "w": weight, "ws": np.ones(channels, np.float32),
        "wz": np.zeros(channels, np.int8), "ys": np.float32(STEP), "yz": np.uint8(0),
    }  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", *([""] if node == "QGemm" else []), "ys", "yz"]
    graph = helper.make_graph(
        [helper.make_node(node, names, ["y"], domain=domain, **attributes)],
        "m",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(array, name) for name, array in numbers.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {"x": x})[0]
    return found


def differs(found: np.ndarray, sums: np.ndarray) -> bool:
    """Whether a result is more than a step off the sums' own."""
    wanted = np.clip(np.rint(sums / STEP), 0, 255)
    return bool((np.abs(found.astype(int) - wanted) > 1).any())


def of_convolution(rng: np.random.Generator, shape: tuple[int, ...], most: int, group: int = 1) -> bool:
    """Whether a convolution of all 255 is off; every output then is the sum of a channel's weights."""
    count, channels, *sizes = shape
    stored = filled(rng, most, count, channels * int(np.prod(sizes)))
    weight = np.ascontiguousarray(np.moveaxis(stored.reshape(count, *sizes, channels), -1, 1))
    x = np.full((1, channels * group, 8, 8), 255, np.uint8)
    sums = 255 * weight.astype(int).sum(axis=(1, 2, 3))
    return differs(run("QLinearConv", weight, x, group=group), sums.reshape(1, -1, 1, 1))


def of_matrix(rng: np.random.Generator, node: str, terms: int, most: int) -> bool:
    """Whether a product of matrices is off."""
    weight = np.ascontiguousarray(filled(rng, most, 16, terms).T)
    x = np.full((4, terms), 255, np.uint8)
    return differs(run(node, weight, x), x.astype(int) @ weight.astype(int))


def tried(most: int) -> Iterator[str]:
    """Names of the products that are off in at least one of ten fillings."""
    for name, shape in CONVS.items():
        group = {"grouped": 2, "grouped odd": 5}.get(name, 1)
        if any(of_convolution(np.random.default_rng(seed), shape, most, group) for seed in range(10)):
            yield name
    for name, (node, terms) in MATRICES.items():
        if any(of_matrix(np.random.default_rng(seed), node, terms, most) for seed in range(10)):
            yield name


if __name__ == "__main__":
    depthwise = [
        m for m in (WITHIN, BEYOND) if of_convolution(np.random.default_rng(0), (16, 1, 3, 3), m, 16)
    ]
    answer = {"within": [*tried(WITHIN)], "beyond": [*tried(BEYOND)], "depthwise": depthwise}
    print(json.dumps({**answer, "tried": [*CONVS, *MATRICES]}))  # noqa: T201 - that is what it is for
