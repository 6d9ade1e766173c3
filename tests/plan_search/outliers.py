"""A model that 8 bits ruin: one channel, made large and small again, is all that a scale for all sees."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 32


def outliers(factor: float = 400.0, seed: int = 1) -> onnx.ModelProto:
    """Two products, all its multiply-adds, with two Mul between them that need 16 bits or float."""
    rng = np.random.default_rng(seed)
    wide = np.ones(WIDTH)
    wide[3] = factor
    first, last = (rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH) for _ in range(2))
    zeros = np.zeros(WIDTH)
    given = {"w1": first, "b1": zeros, "w2": last, "b2": zeros, "v": wide, "u": 1 / wide}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Mul", ["r", "v"], ["m"], "wide"),
        helper.make_node("Mul", ["m", "u"], ["n"], "narrow"),
        helper.make_node("Gemm", ["n", "w2", "b2"], ["y"], "last"),
    ]
    graph = helper.make_graph(
        nodes,
        "outliers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, WIDTH])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in given.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rows(count: int = 8, seed: int = 2) -> list[dict[str, np.ndarray]]:
    """Samples of it."""
    drawn = np.random.default_rng(seed).normal(size=(count, 1, WIDTH)).astype(np.float32)
    return [{"x": row} for row in drawn]


def written(folder: Path, factor: float = 400.0) -> tuple[Path, Path]:
    """The model and samples as files."""
    model, data = folder / "outliers.onnx", folder / "rows.npz"
    onnx.save(outliers(factor), model)
    np.savez(data, x=np.concatenate([row["x"] for row in rows()]))
    return model, data
