"""A generated chain of residual blocks: how planning time grows with the size of a graph.

Three nodes a block (1x1 Conv of 8 channels, Relu, Add of the block's input) on 8x8 pixels and one
closing Conv, so that nothing but the number of nodes costs time. Weights keep the range level.
"""

from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.samples import SEED, BenchModel, Sample

CHANNELS: Final = 8
SHAPE: Final = (1, CHANNELS, 8, 8)


def write_chain(folder: Path, blocks: int) -> BenchModel:
    """Write a chain of `3 * blocks + 1` nodes into `folder`; its name says how many."""
    rng = np.random.default_rng(SEED)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value = "x"
    for block in range(blocks):
        nodes += _conv(value, f"conv{block}", f"c{block}", rng, weights)
        nodes.append(helper.make_node("Relu", [f"c{block}"], [f"r{block}"], f"relu{block}"))
        nodes.append(helper.make_node("Add", [value, f"r{block}"], [f"a{block}"], f"add{block}"))
        value = f"a{block}"
    nodes += _conv(value, "last", "y", rng, weights)
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / f"chain_{len(nodes)}.onnx"
    onnx.save(model, path)
    return BenchModel(path.stem, path)


def chain_samples(count: int, *, held_out: bool) -> list[Sample]:
    """Return `count` standard normal inputs."""
    rng = np.random.default_rng([SEED, int(held_out)])
    return [{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(count)]


def _conv(
    value: str, name: str, result: str, rng: np.random.Generator, weights: list[onnx.TensorProto]
) -> list[onnx.NodeProto]:
    kernel = (rng.standard_normal((CHANNELS, CHANNELS, 1, 1)) * 0.02).astype(np.float32)
    bias = (rng.standard_normal(CHANNELS) * 0.01).astype(np.float32)
    weights += [numpy_helper.from_array(kernel, f"{name}.w"), numpy_helper.from_array(bias, f"{name}.b")]
    return [helper.make_node("Conv", [value, f"{name}.w", f"{name}.b"], [result], name)]
