"""Exact products: the same sums on every CPU, for tests that compare integers bit by bit.

On x86 without VNNI onnxruntime adds pairs of u8 x i8 products in 16 bits, which saturate, and takes the u8
weights of an i8 convolution for signed ones. There, sessions get such weights in the type of what they meet,
128 higher or lower, and so their zero points: the sums are the same, and those kernels are exact. Fused
kernels are told to do so by an option. Nothing changes on other CPUs.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

from planner.formats.onnx.sessions import FAILURES

WEIGHTS = {
    "ConvInteger": (1, 3, 2),
    "MatMulInteger": (1, 3, 2),
    "MatMulIntegerToFloat": (1, 5, 4),
    "QGemm": (3, 5, 2),
    "QLinearConv": (3, 5, 2),
    "QLinearMatMul": (3, 5, 2),
}
"""Where an op has its weight, the zero point of it, and the zero point of its first operand."""
U8, I8, I32 = TensorProto.UINT8, TensorProto.INT8, TensorProto.INT32
PRECISE = "session.x64quantprecision"
TURNED = frozenset({(U8, I8), (I8, U8)})
"""Types of operand and weight for which the weight is turned."""


@cache
def saturates() -> bool:
    """Whether onnxruntime's products of u8 and i8 are other than they should be."""
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 1])],
        [numpy_helper.from_array(np.full((4, 1), 127, np.int8), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": np.full((1, 4), 255, np.uint8)})
    return int(found[0, 0]) != 4 * 127 * 255


def use_exact_products() -> None:
    """Make every session from here on exact, where the CPU asks for it."""
    if not saturates():
        return
    plain = onnxruntime.InferenceSession

    class Session(plain):  # type: ignore[misc, valid-type]
        def __init__(self, source: bytes | str | Path, sess_options: Any = None, **others: Any) -> None:
            options = sess_options or onnxruntime.SessionOptions()
            if options.optimized_model_filepath:  # the file is what is asked for, not the numbers
                super().__init__(source, options, **others)
                return
            model = of_one_type(source)
            options.add_session_config_entry(PRECISE, "1")
            try:
                super().__init__(model, options, **others)
            except FAILURES:  # the option makes a QGemm of i8 and u8, which has no kernel
                options.add_session_config_entry(PRECISE, "0")
                super().__init__(model, options, **others)
                # It loads as it should; for its numbers the kernels that are not fused have to do.
                options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
                super().__init__(model, options, **others)

    onnxruntime.InferenceSession = Session


def of_one_type(source: bytes | str | Path) -> bytes | str | Path:
    """The model with weights of u8 where it multiplies u8 by i8, of i8 where i8 by u8; else as it is."""
    try:
        load = onnx.load_from_string if isinstance(source, bytes) else onnx.load
        model = load(source, **({} if isinstance(source, bytes) else {"load_external_data": False}))
    except (DecodeError, OSError):  # onnxruntime is to say what is wrong with it
        return source
    if not any(node.op_type in WEIGHTS for graph in _graphs(model.graph) for node in graph.node):
        return source
    if not isinstance(source, bytes):
        model = onnx.load(source)
    _turn(model.graph, {})
    changed: bytes = model.SerializeToString()
    return changed


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    return (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for body in _bodies(node):
            yield from _graphs(body)


def _turn(graph: onnx.GraphProto, outer: dict[str, int]) -> None:
    """Give weights the type of what they are multiplied with, and so their zero points."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    kinds = outer | {name: tensor.data_type for name, tensor in constants.items()}
    kinds |= {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in _bodies(node):
            _turn(body, kinds)
        if node.op_type == "Cast":
            kinds[node.output[0]] = node.attribute[0].i
        if node.op_type in WEIGHTS:
            at, zero_at, other_at = WEIGHTS[node.op_type]
            zero = node.input[zero_at] if zero_at < len(node.input) else ""
            mine = kinds.get(node.input[at], kinds.get(zero))
            # The operand's zero point tells its type where the file does not type what a node computes.
            theirs = kinds.get(node.input[other_at] if len(node.input) > other_at else "")
            theirs = theirs or kinds.get(node.input[0], U8)
            if (theirs, mine) in TURNED:
                node.input.extend([""] * (zero_at + 1 - len(node.input)))
                for place in (at, zero_at):
                    node.input[place] = _turned(node.input[place], theirs, nodes)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _turned(name: str, kind: int, nodes: list[onnx.NodeProto]) -> str:
    """The name of a tensor 128 higher as u8, or lower as i8; made of 0 where there is none."""
    made = f"{name or 'zero'}_as_{kind}_{len(nodes)}"
    value = [128 if kind == U8 else -128]
    nodes.append(
        helper.make_node("Constant", [], [f"{made}_shift"], value=helper.make_tensor("", I32, [], value))
    )
    if not name:
        nodes.append(helper.make_node("Cast", [f"{made}_shift"], [made], to=kind))
        return made
    nodes.append(helper.make_node("Cast", [name], [f"{made}_wide"], to=I32))
    nodes.append(helper.make_node("Add", [f"{made}_wide", f"{made}_shift"], [f"{made}_sum"]))
    nodes.append(helper.make_node("Cast", [f"{made}_sum"], [made], to=kind))
    return made
