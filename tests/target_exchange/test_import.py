"""Importers: what files of other tools become, that it loads, lints clean and plans, and what is refused,
with its place.
"""

import json
import os
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.pipeline import plan
from planner.target.lint.findings import lint
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from planner.target_exchange.draft import Imported
from planner.target_exchange.table import IMPORTERS
from planner.target_tests.cases import run_cases
from tests.target_exchange import facts

GOOD = {
    "aimet default": ("aimet", json.dumps(facts.aimet_default())),
    "aimet per channel": ("aimet", json.dumps(facts.aimet_default(per_channel=True), indent=1)),
    "aimet keras": ("aimet", json.dumps(facts.aimet_keras(), indent="\t")),
    "nncf cpu": ("nncf", json.dumps(facts.nncf_cpu(), indent=1)),
    "nncf npu": ("nncf", json.dumps(facts.nncf_npu(), indent=1)),
    "pt2e xnnpack": ("pt2e", json.dumps(facts.XNNPACK, indent=1)),
    "qnn gelu": ("qnn", facts.qnn_package(facts.FAST_GELU)),
    "qnn split": ("qnn", facts.qnn_package(facts.SPLIT, facts.FAST_GELU)),
    "qnn embedding": (
        "qnn",
        facts.qnn_package(facts.EMBEDDING, domain="executorch", supplement=facts.EMBEDDING_ON_HTP),
    ),
}


def imported(kind: str, document: object) -> Imported:
    return IMPORTERS[kind](document if isinstance(document, str) else json.dumps(document), "f.json", "")


@pytest.mark.parametrize("name", GOOD)
def test_it_loads_lints_clean_and_passes_its_test(name):
    found = imported(*GOOD[name])
    target = load_target(found.text)
    assert target.id == found.id
    assert [str(finding) for finding in lint(target)] == []
    assert [result.problems for result in run_cases(target)] == [()]


@pytest.mark.parametrize("name", GOOD)
def test_the_target_is_the_reviewed_one(name, golden):
    golden(f"{name.replace(' ', '_')}.yaml", imported(*GOOD[name]).text)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_not_said_heads_the_file(name):
    found = imported(*GOOD[name])
    head = " ".join(
        line.removeprefix("#").strip() for line in found.text.partition("apiVersion")[0].splitlines()
    )
    assert [sentence for sentence in found.unsaid if " ".join(sentence.split()) not in head] == []


def types_of(text, kernel):
    """Storages of the ports of a kernel's rows, in order."""
    rows = load_target(text).rows[kernel]
    return [tuple(str(port.type) for port in (*row.inputs, *row.outputs)) for row in rows]


def planned(text: str, *lines: str):
    return plan(read_model_text("\n".join(lines), "model"), load_target(text))


CONV = (
    "w = constant : f32[8,4,3,3] {-0.5, 0.5}",
    "b = constant : f32[8] {-0.5, 0.5}",
    "x : f32[1,4,8,8] {-1, 1}",
    "c = Conv(x, w, b) [pads=[1,1,1,1]] : f32[1,8,8,8] {-2, 2}",
    "r = Relu(c) : f32[1,8,8,8] {0, 2}",
    "y = MaxPool(r) [kernel_shape=[2,2]] : f32[1,8,7,7] {0, 2}",
)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("aimet default", {"conv": 1, "MaxPool": 1}),
        ("aimet per channel", {"conv": 1, "MaxPool": 1}),
        ("aimet keras", {"conv": 1}),
        ("nncf npu", {"conv": 1}),
        ("pt2e xnnpack", {"conv": 1, "MaxPool": 1}),
    ],
)
def test_a_model_is_planned_for_it(name, kernels):
    made = planned(imported(*GOOD[name]).text, *CONV)
    served = [kernel.kernel for kernel in made.kernels_in_order if kernel.row]
    assert {kernel: served.count(kernel) for kernel in served} == kernels


# AIMET


def test_aimet_defaults_become_types():
    text = imported("aimet", facts.aimet_default()).text
    assert types_of(text, "conv") == [("u8", "i8 symmetric", "f32", "u8")]
    text = imported("aimet", facts.aimet_default(per_channel=True)).text
    assert types_of(text, "conv") == [("u8", "i8 per axis symmetric", "f32", "u8")]
    assert types_of(text, "linear") == [("u8", "i8 symmetric", "f32", "u8")]
    assert types_of(text, "matmul") == [("u8", "i8 symmetric", "f32", "u8")]


def test_aimet_operators_without_a_quantizer():
    found = imported("aimet", facts.aimet_default())
    target = load_target(found.text)
    assert types_of(found.text, "Pad") == [("*", "*")]
    assert [rule.kind for rule in target.rows["Pad"][0].rules] == ["same_scale"]
    assert "ReduceMean" not in target.rows
    assert "ReduceMean: results have no quantizer, so they run in float" in found.unsaid


def test_aimet_supergroups_are_fusions():
    made = planned(imported("aimet", facts.aimet_default()).text, *CONV[:-1])
    assert [kernel.kernel for kernel in made.kernels_in_order] == ["conv"]
    made = planned(
        imported("aimet", facts.aimet_default()).text,
        "a = Add(in0, in1) : f32[1,8] {-2, 2} !quant.any<u8>",
        "y = Relu(a) : f32[1,8] {0, 2} !quant.any<u8>",
    )
    assert [kernel.kernel for kernel in made.kernels_in_order] == ["add_relu"]


def test_aimet_supergroup_with_an_addition_has_one_more_port():
    document = facts.aimet_default()
    document["supergroups"].append({"op_list": ["Conv", "Add", "Relu"]})
    text = imported("aimet", document).text
    assert types_of(text, "conv_add_relu") == [("u8", "i8 symmetric", "f32", "u8", "u8")]
    made = planned(
        text,
        *CONV[:4],
        "a = Add(c, in1) : f32[1,8,8,8] {-3, 3}",
        "y = Relu(a) : f32[1,8,8,8] {0, 3}",
    )
    assert [kernel.kernel for kernel in made.kernels_in_order] == ["conv_add_relu"]


def test_aimet_inputs_alone_give_float_results():
    text = imported("aimet", facts.aimet_keras()).text
    assert types_of(text, "conv") == [("u8", "i8<-127:127> per axis symmetric", "f32", "f32")]
    assert load_target(text).rows["conv"][0].hands_on_floats
    assert "Sigmoid" not in load_target(text).rows


def test_aimet_supported_kernels_are_rows_in_order():
    document = facts.aimet_default()
    int8, int16, f16 = ({"bitwidth": b, "dtype": d} for b, d in ((8, "int"), (16, "int"), (16, "float")))
    document["defaults"]["supported_kernels"] = [
        {"activation": int16, "param": int8},
        {"activation": int8, "param": int8},
    ]
    document["op_type"]["Conv"] = {"supported_kernels": [{"activation": f16, "param": f16}]}
    document["op_type"]["Sigmoid"] = {"supported_kernels": [{"activation": int16}]}
    text = imported("aimet", document).text
    assert types_of(text, "linear") == [
        ("u16", "i8 symmetric", "f32", "u16"),
        ("u8", "i8 symmetric", "f32", "u8"),
    ]
    assert types_of(text, "Sigmoid") == [("u16", "u16")]
    assert [row.float for row in load_target(text).rows["conv"]] == ["f16"]


@pytest.mark.parametrize(
    ("low", "high", "symmetric", "scale", "zero"),
    [(0.0, 1.0, "False", "1/255", 0), (-1.0, 1.0, "True", "1/127", 0), (-51, 204, "False", "1", 51)],
)
def test_aimet_encoding_constraints_fix_the_scale(low, high, symmetric, scale, zero):
    document = facts.aimet_default()
    document["op_type"]["Softmax"] = {
        "encoding_constraints": {"min": low, "max": high},
        "is_symmetric": symmetric,
    }
    (rule,) = load_target(imported("aimet", document).text).rows["Softmax"][0].rules
    assert (rule.kind, str(rule.args["scale"]), rule.args["zero_point"]) == ("fixed_scale", scale, zero)


def test_aimet_encoding_constraints_between_two_steps_are_told():
    document = facts.aimet_default()
    document["op_type"]["Softmax"] = {"encoding_constraints": {"min": -5.0, "max": 5.0}}
    told = [sentence for sentence in imported("aimet", document).unsaid if "Softmax" in sentence]
    start = "op_type.Softmax.encoding_constraints: -5 to 5 has its zero between two steps of 8 bits"
    assert told == [f"{start}; the nearest step is written"]


# NNCF


def test_nncf_quantizers_become_types():
    text = imported("nncf", facts.nncf_npu()).text
    narrow = "i8<-127:127> per axis symmetric"
    assert types_of(text, "conv")[:5] == [
        ("u8", narrow, "f32", "u8"),
        ("u8", "u8 per axis", "f32", "u8"),
        ("u8", "i4 per axis symmetric", "f32", "u8"),
        ("u8", "i2 per axis symmetric", "f32", "u8"),
        ("i4 symmetric", narrow, "f32", "i4 symmetric"),
    ]


def test_nncf_unified_scales_are_a_rule():
    rows = load_target(imported("nncf", facts.nncf_npu()).text).rows
    assert [(rule.kind, rule.args["ports"]) for rule in rows["Add"][0].rules] == [("same_scale", ("a", "b"))]
    assert rows["Concat"][0].rules[0].args["ports"] == ("xs", "y")
    rows = load_target(imported("nncf", facts.nncf_cpu()).text).rows
    assert [rule.kind for rule in rows["Add"][0].rules] == ["free_scale"]


def test_nncf_depthwise_convolutions_have_a_kernel():
    made = planned(
        imported("nncf", facts.nncf_cpu()).text,
        "w = constant : f32[4,1,3,3] {-0.5, 0.5}",
        "y = Conv(in0, w) [group=4] : f32[1,4,6,6] {-2, 2}",
        "in0 : f32[1,4,8,8] {-1, 1}",
    )
    assert [kernel.kernel for kernel in made.kernels_in_order if kernel.row] == ["depthwise_conv"]


def test_nncf_comments_and_last_commas_pass():
    text = (
        '{"operations": [ // all\n {"type": "Add", /* two\n lines */ '
        '"quantization": {"activations": [{"bits": 8,}]}},]}'
    )
    assert types_of(imported("nncf", text).text, "Add") == [("i8 symmetric", "i8 symmetric", "i8 symmetric")]


def test_nncf_unknown_operations_are_told():
    found = imported("nncf", {"operations": [{"type": "Add"}, {"type": "MaxPool"}, {"type": "Convolutoin"}]})
    assert "Convolutoin: no operation of NNCF's (did you mean 'Convolution'?)" in found.unsaid
    assert "Add: computes, and the file gives it no quantizer: no row" in found.unsaid


# PT2E


def test_pt2e_specs_become_rows():
    text = imported("pt2e", facts.XNNPACK).text
    assert types_of(text, "conv") == [("i8", "i8<-127:127> per axis symmetric", "f32", "i8")]
    rows = load_target(text).rows
    assert rows["Concat"][0].rules[0].args["ports"] == ("xs", "y")
    assert set(rows) == {"conv", "linear", "add_relu", "Add", "MaxPool", "Concat"}


@pytest.mark.parametrize(
    ("op", "second", "kernel"),
    [
        ("aten.linear.default", facts.WEIGHT, "linear"),
        ("aten.linear.default", facts.ACT, "linear"),
        ("aten.conv2d.default", facts.ACT, "conv"),
        ("aten.matmul.default", facts.WEIGHT, "matmul"),
        ("aten.matmul.default", facts.ACT, "MatMul"),
    ],
)
def test_pt2e_a_product_of_two_values_has_no_weight(op, second, kernel):
    text = imported(
        "pt2e", facts.pt2e({"ops": [op], "inputs": [facts.ACT, second], "output": facts.ACT})
    ).text
    assert set(load_target(text).rows) == {kernel}


def test_pt2e_narrow_ends_are_narrow_storages():
    weight = facts.spec(scheme="per_channel_symmetric", quant_min=-8, quant_max=7)
    four = {"ops": ["aten.linear.default"], "inputs": [facts.ACT, weight], "output": None}
    assert types_of(imported("pt2e", facts.pt2e(four)).text, "linear") == [
        ("i8", "i4 per axis symmetric", "f32", "f32")
    ]


def test_pt2e_fixed_derived_and_dynamic():
    fixed = {
        "kind": "FixedQParamsQuantizationSpec", "dtype": "uint8", "scale": 0.00390625, "zero_point": 0,
    }  # fmt: skip
    derived = {
        "kind": "DerivedQuantizationSpec", "dtype": "int32", "derived_from": ["input 0", "input 1"],
        "qscheme": "per_tensor_symmetric",
    }  # fmt: skip
    found = imported(
        "pt2e",
        facts.pt2e(
            {"ops": ["sigmoid"], "inputs": [facts.ACT], "output": fixed},
            {
                "ops": ["aten.conv2d.default"],
                "inputs": [facts.ACT, facts.WEIGHT, derived],
                "output": facts.ACT,
            },
            {
                "ops": ["aten.linear.default"],
                "inputs": [facts.spec(is_dynamic=True), facts.WEIGHT],
                "output": None,
            },
            {"ops": ["aten.lstm.input"], "inputs": [facts.ACT], "output": None},
        ),
    )
    rows = load_target(found.text).rows
    assert (str(rows["Sigmoid"][0].rules[0].args["scale"]), str(rows["Sigmoid"][0].outputs[0].type)) == (
        "1/256",
        "u8",
    )
    assert [rule.kind for rule in rows["conv"][0].rules] == [
        "multiplier_accumulator_scale",
        "multiplier_scale",
    ]
    assert found.unsaid == (
        "annotations[1]: b is derived by code; the product of x and w is written",
        "annotations[2]: aten.linear.default: scales that are measured while it runs",
        "annotations[3]: aten.lstm.input: no operator of ONNX with a row of known form",
    )


# QNN


def test_qnn_datatypes_are_rows():
    found = imported("qnn", facts.qnn_package(facts.FAST_GELU))
    assert types_of(found.text, "aisw.FastGelu") == [("f32", "f32"), ("u8", "u8")]
    assert [row.float for row in load_target(found.text).rows["aisw.FastGelu"]] == ["f32", None]


def test_qnn_supplements_and_indices():
    found = imported(*GOOD["qnn embedding"])
    assert types_of(found.text, "executorch.Embedding") == [("i8", "i8")]
    assert found.unsaid == ("Embedding: x1 holds plain integers or flags: it is no port",)


STATIC = "<IsStaticTensor>true</IsStaticTensor>"


def test_qnn_static_optional_repeated_and_constraints():
    definition = (
        f"<OpDef><Name>Mix</Name><Input>{facts.tensor('in[0]', 'QNN_DATATYPE_UFIXED_POINT_16')}</Input>"
        f"<Input>{facts.tensor('in[1]', 'SFIXED_POINT_8', more=STATIC)}</Input>"
        "<Input><Name>in[2]</Name><Mandatory>false</Mandatory><Datatype>QNN_DATATYPE_SFIXED_POINT_32</Datatype>"
        "<Constraint Type='Shape'>as many as channels</Constraint></Input>"
        f"<Output>{facts.tensor('out[0]', 'QNN_DATATYPE_UFIXED_POINT_16')}</Output></OpDef>"
    )
    found = imported("qnn", facts.qnn_package(definition))
    (row,) = load_target(found.text).rows["aisw.Mix"]
    assert [(p.name, str(p.type), p.optional) for p in row.inputs] == [
        ("x0", "u16", False), ("x1", "i8", False), ("x2", "i32 symmetric", True),
    ]  # fmt: skip
    assert dict(row.when) == {"x1": "constant"}
    assert found.unsaid == ("Mix: in[2]: 'as many as channels' is free text",)


# What is refused


def aimet(**change):
    return {**facts.aimet_default(), **change}


def with_kernels(*kernels):
    return aimet(op_type={"Conv": {"supported_kernels": list(kernels)}})


def width(bits, dtype):
    return {"activation": {"bitwidth": bits, "dtype": dtype}}


BAD = {
    "no JSON": ("aimet", '{"defaults": ', "f.json:2:1: not JSON: "),
    "a key twice": (
        "aimet", '{"defaults": {}, "defaults": {}}',
        "f.json:1:18: key 'defaults' is already set",
    ),
    "an array": ("aimet", "[]", "f.json:1:1: the document: is an array (an object: {...})"),
    "a section missing": (
        "aimet", "{}",
        "f.json:1:1: the document: no 'defaults' (keys are defaults, params,",
    ),
    "a misspelt section": (
        "aimet", aimet(op_types={}),
        "op_types: unknown key 'op_types' (did you mean 'op_type'?)",
    ),
    "no truth value": (
        "aimet", aimet(model_input={"is_input_quantized": "yes"}),
        "model_input.is_input_quantized: is 'yes' (\"True\" or \"False\")",
    ),
    "a width of text": (
        "aimet", with_kernels(width("8", "int")),
        "op_type.Conv.supported_kernels[0].activation.bitwidth: is '8' (a whole number, 1 to 32)",
    ),
    "a float of 8 bits": (
        "aimet", with_kernels(width(8, "float")),
        "bitwidth: floats of 8 bits (16 or 32)",
    ),
    "an unknown dtype": (
        "aimet", with_kernels(width(8, "ints")),
        "dtype: 'ints' is none of those accepted (did you mean 'int'?)",
    ),
    "no kernels": (
        "aimet", with_kernels(), "supported_kernels: is empty (at least one entry",
    ),
    "a range without zero": (
        "aimet", aimet(op_type={"Softmax": {"encoding_constraints": {"min": 1, "max": 2}}}),
        "encoding_constraints: from 1 to 2 (min below max, with 0 between them)",
    ),
    "a group of one": ("aimet", aimet(supergroups=[{"op_list": ["Conv"]}]), "op_list: 1 operators (2 to 8)"),
    "an unknown alias": (
        "nncf", {"config": {"quantization": facts.ALIASES}, "operations": [
            {"type": "Add", "quantization": {"activations": "q8_b"}}]},
        "operations[0].quantization.activations: 'q8_b' is none of those accepted (did you mean 'q8_a'?)",
    ),
    "an alias of nothing": (
        "nncf", {"operations": [{"type": "Add", "quantization": {"activations": "q8_a"}}]},
        "operations[0].quantization.activations: 'q8_a' names no entry (config.quantization with entries",
    ),
    "an operand missing": (
        "pt2e", facts.pt2e({"ops": ["aten.add.Tensor"], "inputs": [facts.ACT], "output": None}),
        "annotations[0]: 1 inputs of Add (2 to 2)",
    ),
    "no operations": ("nncf", {"operations": []}, "operations: is empty (at least one operation)"),
    "too many bits": (
        "nncf", {"operations": [{"type": "Add", "quantization": {"activations": {"bits": 1000}}}]},
        "bits: is 1000 (a whole number, 1 to 32)",
    ),
    "another format": (
        "pt2e", {"format": "qplan.pt2e/9", "annotations": []},
        "format: 'qplan.pt2e/9' is none",
    ),
    "an unknown spec": (
        "pt2e", facts.pt2e({"ops": ["relu"], "inputs": [{"kind": "Spec"}], "output": None}),
        "annotations[0].inputs[0].kind: 'Spec' is none of those accepted",
    ),
    "ends the wrong way": (
        "pt2e",
        facts.pt2e({"ops": ["relu"], "inputs": [facts.spec(quant_min=5, quant_max=5)], "output": None}),
        "quant_max: 5 to 5 (quant_min below quant_max)",
    ),
    "no row at all": ("pt2e", facts.pt2e(), "annotations: give no row (an operator of ONNX with specs)"),
    "no XML": ("qnn", "<OpDefCollection>", "f.json:1:18: not XML: no element found"),
    "a document type": (
        "qnn", '<!DOCTYPE a [<!ENTITY b "c">]>\n<a/>', "f.json:1:13: a document type is not taken",
    ),
    "another root": ("qnn", "<Ops/>", "f.json:1:1: <Ops>: is no op package (<OpDefCollection> at the top)"),
    "no operation": ("qnn", '<OpDefCollection Domain="a"/>', "<OpDefCollection>: holds no operation"),
    "no domain": ("qnn", "<OpDefCollection/>", "<OpDefCollection>: the domain '' is no name"),
    "a datatype": (
        "qnn", facts.qnn_package(facts.FAST_GELU.replace("UFIXED_POINT_8", "UFIXED_POINT_9", 1)),
        "f.json:4:119: <Datatype>: 'UFIXED_POINT_9' is no datatype (did you mean 'UFIXED_POINT_8'?)",
    ),
    "a datatype of no backend": (
        "qnn", facts.qnn_package(facts.EMBEDDING),
        "<Input>: input of Embedding is BACKEND_SPECIFIC, and no supplement",
    ),
    "a rank": (
        "qnn", facts.qnn_package(facts.SPLIT.replace("4D", "4d")),
        "<Rank>: '4d' is no rank (SCALAR, 0D, 1D",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_with_its_place(name):
    kind, document, message = BAD[name]
    with pytest.raises(InputError) as told:
        imported(kind, document)
    assert str(told.value).startswith("f.json:")
    assert message in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"defaults": ' * 200,
        "<a>" * 100_000,
        "&" * 10,
        "\x00",
        "{" + '"a": 1,' * 200_000 + "}",
    ],
)
@pytest.mark.parametrize("kind", IMPORTERS)
def test_hostile_text_is_refused(kind, text):
    with pytest.raises(InputError):
        imported(kind, text)


MANY = {
    "widths": ("aimet", with_kernels(*(width(8, "int") for _ in range(1000))), "1000 entries (at most 64)"),
    "quantizers": (
        "nncf",
        {
            "operations": [
                {"type": "MatMul", "quantization": {"activations": [{"bits": 8}] * 1000, "weights": []}}
            ]
        },
        "operations[0].quantization.activations: 1000 entries (at most 64)",
    ),
    "annotations": (
        "pt2e",
        {"format": "qplan.pt2e/1", "annotations": [0] * 5000},
        "5000 entries (at most 1024)",
    ),
    "ends beyond reason": (
        "aimet",
        aimet(op_type={"Softmax": {"encoding_constraints": {"min": 0, "max": 1e300}}}),
        "op_type.Softmax.encoding_constraints.max: is 1e+300 (0, or a number of 1e-12 to",
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_too_much_of_a_thing_is_refused(name):
    kind, document, message = MANY[name]
    with pytest.raises(InputError) as told:
        imported(kind, document)
    assert message in str(told.value)


def test_a_long_list_of_what_is_not_said_is_cut_in_the_file():
    found = imported("aimet", aimet(op_type={f"Op{i}": {"is_output_quantized": "True"} for i in range(500)}))
    assert len(found.unsaid) > 500
    assert f"# - and {len(found.unsaid) - 100} more" in found.text
    assert load_target(found.text).id == "f"


def test_an_id_that_is_none():
    with pytest.raises(InputError, match="'my npu' is no id of a target"):
        IMPORTERS["aimet"](json.dumps(facts.aimet_default()), "f.json", "my npu")


def test_names_of_strangers_stay_text():
    """Nothing of a file gets out of its place in the YAML: not by quotes, line ends or comments."""
    document = aimet(op_type={'Conv"\n: {evil: 1} #': {"is_output_quantized": "True"}})
    document["defaults"]["hw_version"] = 'V1"\nid: evil'
    found = imported("aimet", document)
    target = load_target(found.text)
    assert (target.id, target.title) == ("f", 'AIMET V1" id: evil')


FOLDER = os.environ.get("QPLAN_CONFIGS")


@pytest.mark.soak
@pytest.mark.skipif(FOLDER is None, reason="QPLAN_CONFIGS names no folder with files of those projects")
def test_real_files():
    """Files of the projects themselves, as `aimet-*.json`, `nncf-*.json`, `qnn-*.xml`, `pt2e-*.json`."""
    paths = [path for kind in IMPORTERS for path in sorted(Path(str(FOLDER)).glob(f"{kind}-*"))]
    assert paths
    for path in paths:
        found = IMPORTERS[path.name.partition("-")[0]](path.read_text(encoding="utf-8"), path.name, "")
        target = load_target(found.text)
        assert [str(finding) for finding in lint(target)] == [], path
        assert [result.problems for result in run_cases(target)] == [()], path
