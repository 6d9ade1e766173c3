"""Files we refuse, and the words we refuse them with."""

# ruff: noqa: E501 - messages and files stand whole

import json

import pytest

from planner.errors import InputError, ModelError, PlanFormatError
from planner.formats.annotated.document import annotated_from_data, read_annotated
from planner.formats.mlir.module import read_mlir
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from tests.formats.annotated.test_goldens import DESIGN_EXAMPLE, DESIGN_MODULE, plan

__all__ = ["plan"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"kernel":', '"kernal":', "kernels[0].kernal: unknown field"),
        ('"outputs": ["y"],\n', "\n", "kernels[0].outputs: missing"),
        (
            'annotated/1"',
            'annotated/2"',
            "format 'qplan.annotated/2' is unknown here; this version reads 'qplan.annotated/1'",
        ),
        ("[1, 8]", "[1, 8.5]", "values[0].shape[1]: input should be a valid integer"),
        ("[1, 8]", "[1, -8]", "values[0].shape[1]: -8 is negative; an unknown size is null or a name"),
        ("-0.5, 0.5", "2.0, 0.5", "values[1].constant.range: range 2.0:0.5 has min > max"),
        ("-0.5, 0.5", "0.5", "values[1].constant.range: expected [lo, hi], found [0.5]"),
        (
            '"range": [-0.5, 0.5]',
            '"range": [[-1, 1]], "axis": 2',
            "values[1].constant.axis: 2 is no axis of 'w' with ranges per slice",
        ),
        (
            '"range": [-0.5, 0.5]',
            '"range": [[-1, 1]], "axis": 1',
            "values[1].constant.range: 1 ranges for axis 1 of size 4",
        ),
        (
            '"range": [-0.5, 0.5]',
            '"value": [1.0]',
            "values[1].constant.value: shape [1] in a value of shape (8, 4)",
        ),
        (
            "f32<-1.0",
            "f33<-1.0",
            "values[0].constraints[0]: column 19: expressed type 'f33' is none of f16, bf16, tf32, f32, f64, f80",
        ),
        (
            "f32<-2.0:2.0",
            "f32<-2.0;2.0",
            "values[2].constraints[0]: column 27: expected ':', found ';2.0>>' in '!quant.calibrated<f32<-2.0;2.0>>'",
        ),
        ('"trip_count": 1', '"trip_count": 0', "kernels[0].trip_count: 0 is not positive"),
        (
            '"inputs": ["x"], "outputs": ["y"]',
            '"wanted": {"fc1": "i65"}, "inputs": ["x"], "outputs": ["y"]',
            "wanted.fc1: storage 'i65' has more than 64 bits; accepted of a kernel: float, any, a storage such as i16, or {in: [i16, i8], out: [i16]}, or dynamic",
        ),
        (
            '"trip_count": 1',
            '"call": "f"',
            "model 'demo': 'fc1' runs function 'f', which the model does not have",
        ),
        ('"trip_count": 1', '"input_facts": [[]]', "kernels[0].input_facts: 1 lists for 3 ports"),
        (
            '"attributes": {}',
            '"attributes": {"k": {"array": {"dtype": "f9", "shape": [], "data": ""}}}',
            "kernels[0].attributes.k.array.dtype: unknown element type 'f9'",
        ),
        (
            '"attributes": {}',
            '"attributes": {"k": [{"bytes": "?"}]}',
            "kernels[0].attributes.k[0].bytes: not base64: Only base64 data is allowed",
        ),
        ('"name": "w"', '"name": "x"', "values[1].name: 'x' is empty or names two values"),
        ('"inputs": ["x"]', '"inputs": ["z"]', "inputs[0]: 'z' is not listed under values"),
        ('"w", null', '"z", null', "model 'demo': 'fc1' names 'z', which is no value of the graph"),
    ],
)
def test_annotated_models(old, new, message):
    assert old in DESIGN_EXAMPLE
    text = DESIGN_EXAMPLE.replace(old, new)
    for read, given in ((read_annotated, text), (annotated_from_data, json.loads(text))):
        with pytest.raises(InputError) as caught:
            read(given)
        assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "{", "nothing", "[" * 100_000, '"x"', "[]", "{}", b"\xff"])
def test_what_is_no_file_at_all(text):
    for read in (read_annotated, plan_from_json):
        with pytest.raises(PlanFormatError, match=r"not JSON|not a qplan"):
            read(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d.update(format="qplan.plan/9"),
            "format 'qplan.plan/9' is unknown here; this version reads 'qplan.plan/1'",
        ),
        (lambda d: d.update(extra=1), "extra: unknown field"),
        (lambda d: d["kernels"][0].update(colour="red"), "kernels[0].colour: unknown field"),
        (
            lambda d: d["kernels"][0].update(row="demo.yaml:13"),
            "kernels[0].row: 'demo.yaml:13' is no row of target.rows",
        ),
        (lambda d: d["kernels"][0]["in"].pop(), "kernels[0].in: 2 types for 3 ports"),
        (
            lambda d: d["kernels"][0]["in"].__setitem__(0, "!quant.none"),
            "kernels[0].in[0]: !quant.none is no port type; a port is uniform, a float type or null",
        ),
        (
            lambda d: d["kernels"][0]["inputs"].__setitem__(0, "q"),
            "kernels[0].inputs[0]: 'q' is no value of the graph",
        ),
        (lambda d: d["rescales"].pop(), "rescales: 1 listed, but the port types give 2"),
        (
            lambda d: d["rescales"][0].update(kind="clamp"),
            "rescales[0].kind: 'clamp', but the port types give 'quantize'",
        ),
        (
            lambda d: d["target"]["costs"].update(clip=1.0),
            (
                "target.costs.clip: no such price; known: bit_price, clamp, dequantize, free_bits, max_bits_lost, "
                "max_clip, narrow, quantize, requantize, wanted_db, wanted_float, widen, zero_point"
            ),
        ),
        (lambda d: d["graph"].update(format="x"), "graph.format: unknown field"),
        (lambda d: d["steps"][0].update(n="1"), "steps[0].n: input should be a valid integer"),
    ],
)
def test_plan_files(plan, change, message):
    document = json.loads(plan_to_json(plan))
    change(document)
    with pytest.raises(PlanFormatError) as caught:
        plan_from_json(json.dumps(document))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "f32<-1.0:1.0>>",
            "f32<-1.0;1.0>>",
            "9:48: expected ':', found ';1.0>>' in '!quant.calibrated<f32<-1.0;1.0>>'",
        ),
        ("f32<-1.0:1.0>>", "f32<3.0:1.0>>", "9:44: calibrated range 3.0:1.0 has min > max"),
        ("1.0>>, f32]", "1.0>>]", "4:3: input_specs has 1 specs (absent ports not counted) for 2 values"),
        (
            "1.0>>, f32]",
            "1.0>>, i8]",
            "4:3: input_specs[1] is incompatible with tensor<8x4xf32>: i8 is neither a quantized type, a float, nor the element type f32",
        ),
        ('kernel = "fully_connected", ', "", "4:3: qplan.region needs a 'kernel' attribute, a string"),
        ('qplan.values = ["y"]', "qplan.values = []", "4:3: 0 names for 1 values"),
        ("-5.0e-1 : f64", "9.0 : f64", "3:3: constant 'w': range 9.0:0.5 has min > max"),
        ("return %y", "return %z", "13:1: values used but not defined: [%z]"),
        ('"onnx.MatMul"(%a, %b)', '"onnx.MatMul"(%x, %b)', None),
        (
            '"quant.return"(%0) : (tensor<1x4xf32>) -> ()',
            '"quant.return"() : () -> ()',
            "4:3: qplan.return must give the types of the results",
        ),
        ("tensor<8x4xf32>\n", "vector<8x4xf32>\n", None),
        ("func.func", "func.fun", None),
    ],
)
def test_modules(old, new, message):
    assert old in DESIGN_MODULE
    with pytest.raises(ModelError) as caught:
        read_mlir(DESIGN_MODULE.replace(old, new, 1))
    assert str(caught.value) == message if message else ":" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "x", "func.func @a() { func.return }\nfunc.func @b() { func.return }", "!" * 50, b"\xff"]
)
def test_what_is_no_model_at_all(text):
    with pytest.raises(ModelError):
        read_mlir(text)


def test_a_module_without_a_plan():
    with pytest.raises(PlanFormatError, match="holds no plan"):
        plan_from_mlir(DESIGN_MODULE)


def test_a_plan_module_with_a_rescale_taken_out(plan):
    before, _, after = plan_to_mlir(plan).replace("return %y_0", "return %y").partition("  %y_0 =")
    with pytest.raises(PlanFormatError, match="1 rescale in the module, but the port types need 2"):
        plan_from_mlir(before + "  func.return" + after.partition("  func.return")[2])


@pytest.mark.parametrize("where", ["constraints", "output_facts"])
def test_a_type_meets_its_tensor_when_it_is_read(where):
    """Axis, sizes and type are in the message, in either form of the file."""
    kind = "!quant.uniform<i8:f32:1, {0.5,0.5,0.5}>"
    document = json.loads(DESIGN_EXAMPLE)
    if where == "constraints":
        document["values"][-1]["constraints"] = [kind]
    else:
        document["kernels"][-1]["output_facts"] = [[kind]]
    name = document["values"][-1]["name"]
    with pytest.raises(ModelError, match=rf"type .* does not fit '{name}': 3 scales for axis 1 of size 4"):
        read_annotated(json.dumps(document))
