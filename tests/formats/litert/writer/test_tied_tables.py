"""An int8 table that Gather and, transposed, a MatMul read: it keeps its own grid, and there is a file."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.formats.litert.writer.write import write_litert
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform
from tests.oracles import litert


def model(rng):
    """Table, Gather, MatMul, Relu, MatMul by the table transposed."""
    table = rng.integers(-127, 128, (20, 8)).astype(np.int8)
    constants = {
        "q": table,
        "s": np.float32(rng.uniform(0.005, 0.02)),
        "w": rng.standard_normal((8, 8)).astype(np.float32) / 3,
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["t"]),
        helper.make_node("Gather", ["t", "ids"], ["e"]),
        helper.make_node("Reshape", ["e", "to"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
    ]
    constants["to"] = np.asarray([5, 8], np.int64)
    nodes.append(helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["r", "u"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "table",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return made.SerializeToString(), float(constants["s"])


@pytest.mark.parametrize("seed", range(4))
def test_a_table_keeps_its_grid(seed, tmp_path):
    rng = np.random.default_rng(seed)
    data, scale = model(rng)
    graph = planner.load_model(data)
    samples = [{"ids": rng.integers(0, 20, (1, 5))} for _ in range(6)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples, method="minmax"))
    plan = planner.plan(ready, "litert-int8")
    planner.check(plan, ready, "litert-int8")
    moved = [kernel for kernel in plan.kernels_in_order if kernel.kernel in ("Gather", "Reshape")]
    kinds = [port.type for kernel in moved for port in (*kernel.inputs, *kernel.outputs)]
    kinds = [kind for kind in kinds if isinstance(kind, Uniform)]
    assert len(kinds) == 4
    assert {(kind.scale, kind.zero_point) for kind in kinds} == {(scale, 0)}
    assert plan.warnings == ()
    answers = litert.run(tmp_path, [(write_litert(ready, plan), samples)])[0]
    interpreter = Interpreter(ready, plan)
    for sample, answer in zip(samples, answers, strict=True):
        np.testing.assert_allclose(answer["y"], interpreter.run(sample).outputs["y"], rtol=1e-6, atol=1e-7)
