"""One small model and one small plan in every text form, as reviewed files."""

# ruff: noqa: E501 - messages and files stand whole

import json

import pytest

from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.ir.types.qtypes import storage, uniform
from planner.plans.plan import Plan
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.records import KernelPlan, Port, Step, TargetRef, ValuePlan
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.target.records import PortPattern, PortType, Row

DESIGN_EXAMPLE = """
{"format": "qplan.annotated/1", "name": "demo",
 "values": [{"name": "x", "shape": [1, 8], "dtype": "f32", "constraints": ["!quant.calibrated<f32<-1.0:1.0>>"]},
            {"name": "w", "shape": [8, 4], "dtype": "f32", "constant": {"range": [-0.5, 0.5]}},
            {"name": "y", "shape": [1, 4], "dtype": "f32", "constraints": ["!quant.calibrated<f32<-2.0:2.0>>"]}],
 "kernels": [{"name": "fc1", "kernel": "fully_connected", "inputs": ["x", "w", null], "outputs": ["y"],
              "attributes": {}, "trip_count": 1}],
 "inputs": ["x"], "outputs": ["y"]}
"""
DESIGN_MODULE = """
func.func @main(%x: tensor<1x8xf32>) -> tensor<1x4xf32> attributes {qplan.name = "demo", qplan.inputs = ["x"], qplan.outputs = ["y"]} {
  %w = "quant.constant"() {range = [-5.0e-1 : f64, 5.0e-1 : f64], qplan.name = "w"} : () -> tensor<8x4xf32>
  %y = "quant.region"(%x, %w) ({
  ^bb0(%a: tensor<1x8xf32>, %b: tensor<8x4xf32>):
    %0 = "onnx.MatMul"(%a, %b) : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
    "quant.return"(%0) : (tensor<1x4xf32>) -> ()
  }) {kernel = "fully_connected", qplan.name = "fc1", qplan.values = ["y"],
      input_specs = [!quant.calibrated<f32<-1.0:1.0>>, f32], output_specs = [!quant.calibrated<f32<-2.0:2.0>>]}
    : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
  return %y : tensor<1x4xf32>
}
"""


@pytest.fixture
def plan() -> Plan:
    """`y = fc1(x, w)`, int8, with a float output: two rescales."""
    activation, weight = uniform(storage("i8"), 2 / 255, -1), uniform(storage("i8", -127, 127), 0.5 / 127)
    result = uniform(storage("i8"), 4 / 255)
    ports = (Port("fc1.in[0]", "x", activation), Port("fc1.in[1]", "w", weight), Port("fc1.in[2]", "", None))
    row = Row(
        "fully_connected",
        (
            PortPattern("x", PortType(storage("i8"))),
            PortPattern("w", PortType(storage("i8", -127, 127), symmetric=True)),
            PortPattern("b", PortType(storage("i32")), optional=True),
        ),
        (PortPattern("y", PortType(storage("i8"))),),
        requantize="gemmlowp",
        source="demo.yaml:12",
    )
    return Plan(
        key="sha256:4b",
        model="sha256:6d",
        target=TargetRef("demo", "1.0.0", "sha256:74", "demo.yaml", {row.key: row}),
        options={"strategy": "minimal"},
        graph=read_annotated(DESIGN_EXAMPLE),
        kernels_in_order=(
            KernelPlan(
                "fc1", "fully_connected", row.key, None, ports, (Port("fc1.out[0]", "y", result),), 18
            ),
        ),
        values={"x": ValuePlan(None), "y": ValuePlan(result, 0.25, 0.0, 1)},
        steps=(Step(1, "fc1.out[0]", str(result), "free_scale", "demo.yaml:12"),),
        cost=12.0,
        optimal=True,
        bound=12.0,
    )


def test_the_design_example_in_both_forms(golden):
    graph = read_annotated(DESIGN_EXAMPLE)
    golden("demo.json", write_annotated(graph))
    golden("demo.mlir", write_mlir(graph))


def test_the_module_of_the_design_has_the_op_inside(golden):
    golden("demo_with_op.json", write_annotated(read_mlir(DESIGN_MODULE)))


def test_plan_files(golden, plan):
    golden("plan.json", plan_to_json(plan))
    golden("plan.mlir", plan_to_mlir(plan))
    assert plan_to_mlir(plan_from_json(plan_to_json(plan))) == plan_to_mlir(plan)
    assert plan_to_json(plan_from_mlir(plan_to_mlir(plan))) == plan_to_json(plan)


def test_the_plan_file_has_the_fields_of_the_design(plan):
    document = json.loads(plan_to_json(plan))
    assert document["kernels"][0]["row"] == "demo.yaml:12"
    assert [rescale["id"] for rescale in document["rescales"]] == ["x#0", "y#0"]
    assert document["rescales"][1]["consumers"] == ["@model.in[0]"]
    assert document["target"]["rows"].keys() == {"fully_connected@12"}
