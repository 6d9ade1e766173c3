"""One-op ONNX models for the oracle: run one operator in onnxruntime with every optimisation off."""

import zlib
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

CONTRIB = "com.microsoft"

STORAGES: dict[str, tuple[Any, int, int]] = {
    "u8": (np.uint8, 0, 255),
    "i8": (np.int8, -128, 127),
    "u16": (np.uint16, 0, 65535),
    "i16": (np.int16, -32768, 32767),
}


def run_op(op, feeds, *, constants=(), result, domain="", attributes=None, order=None, fixed_shapes=True):
    """Run `op` on arrays; `constants` become initializers, `order` lists the inputs ("" skips one)."""
    names = list(feeds) if order is None else list(order)
    node = helper.make_node(op, names, ["result"], domain=domain)
    node.attribute.extend(_attribute(k, v) for k, v in (attributes or {}).items())
    arrays = {name: np.asarray(value) for name, value in feeds.items()}
    inputs = [
        helper.make_tensor_value_info(name, _type(a.dtype), a.shape if fixed_shapes else [None] * a.ndim)
        for name, a in arrays.items()
        if name not in constants
    ]
    outputs = [helper.make_tensor_value_info("result", _type(np.dtype(result)), None)]
    initializers = [numpy_helper.from_array(arrays[name], name) for name in constants]
    graph = helper.make_graph([node], "one_op", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: a for name, a in arrays.items() if name not in constants})[0]


def seeded(*case):
    """A generator that depends on the case's text and nothing else."""
    return np.random.default_rng(zlib.crc32(repr(case).encode()))


def stored(rng, storage, shape):
    """Uniformly random stored integers of a storage's full range."""
    dtype, low, high = STORAGES[storage]
    return rng.integers(low, high + 1, shape).astype(dtype)


def zero(rng, storage):
    """A zero point: the bounds, the middle, or anything between."""
    dtype, low, high = STORAGES[storage]
    return dtype(rng.choice([low, high, (low + high + 1) // 2, rng.integers(low, high + 1)]))


def scale(rng, low=1e-4, high=1.0, size=None):
    """A float32 scale, log-uniform in [low, high]."""
    return np.exp(rng.uniform(np.log(low), np.log(high), size)).astype(np.float32)


def assert_same(expected, got):
    """Every element equal, and the same storage."""
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def _type(dtype):
    return helper.np_dtype_to_tensor_dtype(dtype)


def _attribute(name, value):
    if name != "opset":
        return helper.make_attribute(name, value)
    # make_node takes `opset` for itself, so QLinearSoftmax's attribute is written by hand.
    return onnx.AttributeProto(name=name, type=onnx.AttributeProto.INT, i=value)
