"""The four goldens of the RFC's own implementation: what its propagation makes of a region's specs.

Rewritten to today's syntax (`stablehlo` in generic form), with the device's rows as a target. Specs belong to
ports there, so the function says `qplan.specs = "ports"`. Where the original has zero point -128 beside the
storage range -127:127, which no type of ours has (docs/specification.md, section 9), it is -127 here.
"""

import pytest

import planner

TARGET = """
apiVersion: planner/v1
kind: Target
id: rfc-cpu
version: 1.0.0
title: The CPU of the RFC's implementation
mode: fixed
types:
  qi8: {storage: i8}
  qi8n: {storage: i8, range: [-127, 127]}
  sum: {storage: i32, symmetric: true}
defaults: {port: qi8}
kernels:
  - {kernel: generic.concat, in: {a: qi8, b: qi8}, out: {y: qi8}, rules: [{same_scale: [a, b, y]}]}
  - {kernel: generic.mul, in: {a: qi8, b: qi8}, out: {y: qi8}}
  - kernel: generic.mul_add
    in: {a: qi8, b: qi8n, c: sum}
    out: {y: qi8}
    rules: [{multiplier_accumulator_scale: {port: c, of: [a, b]}}]
  - {kernel: generic.reshape, in: {x: qi8}, out: {y: qi8}, rules: [{same_scale: [x, y]}]}
"""
MUL_ADD = """func.func @f(%a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>) -> tensor<4xf32>
    attributes {{qplan.specs = "ports"}} {{
  %y = "quant.region"(%a, %b, %c) ({{
    ^bb0(%p: tensor<4xf32>, %q: tensor<4xf32>, %r: tensor<4xf32>):
    %m = "stablehlo.multiply"(%p, %q) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %s = "stablehlo.add"(%m, %r) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%s) : (tensor<4xf32>) -> ()
  }}) {{input_specs = [{}, {}, f32], output_specs = [{}], logical_kernel = "generic.mul_add"}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}}
"""
RESHAPE = """func.func @f(%x: tensor<1x7x7x64xf32>) -> tensor<1x3136xf32>
    attributes {{qplan.specs = "ports"}} {{
  %y = "quant.region"(%x) ({{
    ^bb0(%p: tensor<1x7x7x64xf32>):
    %r = "stablehlo.reshape"(%p) : (tensor<1x7x7x64xf32>) -> tensor<1x3136xf32>
    "quant.return"(%r) : (tensor<1x3136xf32>) -> ()
  }}) {{input_specs = [{}], output_specs = [{}], logical_kernel = "generic.reshape"}}
    : (tensor<1x7x7x64xf32>) -> tensor<1x3136xf32>
  return %y : tensor<1x3136xf32>
}}
"""
Q = "!quant.uniform<i8:f32, 1.0:-128>"
NARROW = "!quant.uniform<i8<-127:127>:f32, 1.0:-127>"
SUM = "!quant.uniform<i32:f32, 1.0>"
WHOLE = "!quant.uniform<i8:f32, 1.0>"


def planned(tmp_path, text, target=TARGET):
    path = tmp_path / "rfc-cpu.yaml"
    path.write_text(target, encoding="utf-8")
    target = planner.load_target(path)
    model = planner.load_model(text.encode(), format="mlir")
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    return plan


def specs(plan):
    """What the region's specs are afterwards: its ports' types, or as given where it has no row."""
    (kernel,) = plan.kernels.values()
    region = plan.graph.regions[0]
    ports = (kernel.inputs, kernel.outputs)
    given = (region.input_facts, region.output_facts)
    if kernel.row is not None:
        return [["f32" if port.type is None else str(port.type) for port in side] for side in ports]
    return [
        [str(facts[0]) if facts else "f32" for facts in side or ((),) * len(kinds)]
        for side, kinds in zip(given, ports, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "inputs", "outputs", "reason"),
    [
        (MUL_ADD.format("f32", "f32", "f32"), ["f32", "f32", "f32"], ["f32"], "no range"),
        (
            MUL_ADD.format(Q, Q, Q),
            [Q, Q, "f32"],
            [Q],
            f"rfc-cpu.yaml:16: port b ('b') has the fixed type {Q}, the row has i8<-127:127>",
        ),
        (MUL_ADD.format(Q, NARROW, Q), [Q, NARROW, SUM], [Q], None),
        (RESHAPE.format(WHOLE, "f32"), [WHOLE], [WHOLE], None),
    ],
    ids=["source_no_params", "annotated_no_narrow_range", "annotated", "same_scale_1_1"],
)
def test_specs_come_out_as_in_the_rfcs_implementation(tmp_path, text, inputs, outputs, reason):
    plan = planned(tmp_path, text)
    assert specs(plan) == [inputs, outputs]
    (kernel,) = plan.kernels.values()
    assert kernel.reason == reason


@pytest.mark.parametrize("op", ["stablehlo.reshape", "my.turn", "onnx.Softmax"])
def test_a_same_scale_row_moves_ops_of_any_other_dialect(tmp_path, op):
    """By values' facts too; what an ONNX op does is known, whatever the row says."""
    text = RESHAPE.format(WHOLE, "f32").replace("stablehlo.reshape", op).replace('"ports"', '"values"')
    plan = planned(tmp_path, text)
    moved = [[WHOLE], [WHOLE]]
    assert specs(plan) == (moved if "onnx" not in op else [["f32"], ["f32"]])
    again = planned(
        tmp_path,
        text,
        TARGET.replace(
            "out: {y: qi8}, rules: [{same_scale: [x", "out: {y: qi8}, computes: true, rules: [{same_scale: [x"
        ),
    )
    assert specs(again) == [["f32"], ["f32"]]  # it computes, and nothing says the range of its result
    assert next(iter(again.kernels.values())).reason == "no range"


def test_a_bias_without_a_range_has_its_derived_scale(tmp_path):
    """Of values too; the caller's float is quantized to the grid of the sum."""
    a, b = "!quant.uniform<i8:f32, 0.5:3>", "!quant.uniform<i8<-127:127>:f32, 0.25>"
    text = MUL_ADD.format(a, b, a).replace('"ports"', '"values"')
    plan = planned(tmp_path, text)
    assert specs(plan) == [[a, b, "!quant.uniform<i32:f32, 0.125>"], [a]]
    assert [(r.value, r.kind) for r in plan.rescales] == [("c", "quantize")]
