"""Small quantized files, written with onnx itself."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GENERAL = "qonnx.custom_op.general"


def quant_node(name, x, *, scale, zero_point, bits, signed=1, narrow=0, mode="ROUND", domain=GENERAL):
    """A Quant and its parameters as initializers."""
    arrays = {
        f"{name}_scale": np.asarray(scale, np.float32),
        f"{name}_zero": np.asarray(zero_point, np.float32),
        f"{name}_bits": np.asarray(bits, np.float32),
    }
    node = helper.make_node(
        "Quant", [x, *arrays], [name], name, domain=domain, signed=signed, narrow=narrow, rounding_mode=mode
    )
    return node, arrays


def file_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    outputs: Sequence[str],
    arrays: Mapping[str, np.ndarray],
    *,
    opset: int = 21,
    domains: Sequence[str] = (GENERAL,),
    types: Mapping[str, int] | None = None,
) -> bytes:
    """The bytes of a model; outputs are float unless `types` says otherwise."""
    graph = helper.make_graph(
        list(nodes),
        "model",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [
            helper.make_tensor_value_info(name, (types or {}).get(name, TensorProto.FLOAT), None)
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def run_onnxruntime(data: bytes, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every output, optimisations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def op_types(data: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(data).graph.node]


def edges(scale, zero_point, bits, size=400, seed=0):
    """Reals that matter to a quantizer: ties, their neighbours, ends, both zeros, huge and random ones."""
    steps = np.arange(-(2 ** min(bits, 5)) - 3, 2 ** min(bits, 5) + 4, 0.5, np.float32)
    ties = (steps - np.float32(zero_point)) * np.float32(scale)
    around = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    top = np.float32(2.0**bits * scale)
    far = np.asarray([0.0, -0.0, top, -top, 1e30, -1e30, np.inf, -np.inf, top / 2, -top / 2], np.float32)
    rng = np.random.default_rng(seed)
    return np.concatenate([*around, far, rng.uniform(-1.5 * top, 1.5 * top, size).astype(np.float32)])
