"""Loading: the block of docs/targets/reference.md, sources, `extends`, digests, the JSON Schema."""

import json
import os
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from planner.errors import InputError, TargetError, UnknownName
from planner.ir.types.qtypes import FloatType, storage
from planner.target import load
from planner.target.docs.jsonschema import json_schema, json_schema_text
from planner.target.expressions import parse_number
from planner.target.lint.findings import lint
from planner.target.load import load_target, target_ids
from planner.target.records import Costs, PortPattern, PortType, Rule
from planner.target.schema.document import Document

HERE = Path(__file__).parent
SHIPPED = HERE.parents[1] / "targets"
I8 = storage("i8")
HEAD = "apiVersion: planner/v1\nkind: Target\nid: t\nversion: 1.0.0\n"
ROW = "kernels:\n  - kernel: Relu\n    in: {x: {storage: i8}}\n    out: {y: {storage: i8}}\n"


def special(inputs, outputs, args):
    del inputs, outputs, args
    return {}


FUNCTIONS = {"my_targets:npu_special": special}


@pytest.fixture(scope="module")
def demo():
    return load_target(HERE / "demo.yaml", FUNCTIONS)


def test_demo_head(demo):
    assert (demo.id, demo.version, demo.title) == ("litert-int8", "1.0.0", "LiteRT reference int8 kernels")
    assert (demo.mode, demo.file, demo.on_no_kernel, demo.bias) == ("fixed", "demo.yaml", "float", "i32")
    assert demo.default_port == PortType(I8)
    assert demo.costs == Costs()
    assert (demo.rescale_allowed, demo.rescale_single_consumer, demo.duplicate_constants) == (
        True,
        False,
        True,
    )


def test_demo_rows_in_order_of_preference(demo):
    sources = {kernel: [row.source for row in rows] for kernel, rows in demo.rows.items()}
    view = [
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Transpose",
        "Slice",
        "DepthToSpace",
        "SpaceToDepth",
    ]
    assert sources == {
        "conv2d": ["demo.yaml:34"],
        "fully_connected": ["demo.yaml:41", "demo.yaml:46"],
        "softmax": ["demo.yaml:50"],
        "concat": ["demo.yaml:54"],
        **{op: ["demo.yaml:58"] for op in view},
        "MaxPool": ["demo.yaml:62"],
        "rsqrt_lut": ["demo.yaml:66"],
        "npu_special": ["demo.yaml:70"],
        "Identity": ["_base.yaml:12"],
    }


def test_demo_conv(demo):
    (row,) = demo.rows["conv2d"]
    weight = PortType(storage("i8", -127, 127), granularity="axis", symmetric=True)
    assert row.inputs == (
        PortPattern("x", PortType(I8)),
        PortPattern("w", weight),
        PortPattern("b", PortType(storage("i32"), symmetric=True), optional=True),
    )
    assert row.outputs == (PortPattern("y", PortType(I8)),)
    assert row.rules == (
        Rule("multiplier_accumulator_scale", {"port": "b", "of": ("x", "w")}, "demo.yaml:39"),
        Rule("multiplier_scale", {"out": "y", "of": ("x", "w")}, "demo.yaml:40"),
    )
    assert (row.axis, row.key, row.requantize) == ({"w": "out_channel"}, "conv2d@34", "tosa_double")


def test_demo_other_ports(demo):
    assert demo.rows["concat"][0].inputs == (PortPattern("xs", PortType(I8), variadic=True),)
    assert demo.rows["Reshape"][0].inputs == (PortPattern("x", PortType()),)
    assert demo.rows["fully_connected"][0].when == {"min_bits": {"x": 9}}
    fixed = demo.rows["softmax"][0].rules[0]
    assert fixed.args == {"port": "y", "scale": "1/256", "zero_point": -128}
    assert parse_number(fixed.args["scale"]) == Fraction(1, 256)
    assert demo.rows["npu_special"][0].rules[0].args == {"name": "my_targets:npu_special", "args": {}}


def test_demo_fusions_and_tests(demo):
    assert [(fusion.kernel, len(fusion.patterns), fusion.source) for fusion in demo.fusions] == [
        ("conv2d", 1, "demo.yaml:27"),
        ("depthwise_conv2d", 1, "demo.yaml:28"),
        ("fully_connected", 3, "demo.yaml:29"),
        ("concat", 1, "demo.yaml:30"),
        ("softmax", 1, "demo.yaml:31"),
    ]
    assert demo.rows["MaxPool"][0].requantize == "exact_even"  # the row is merged over the base's
    assert demo.fusions[0].where == {"Conv.group": 1, "w": "constant"}
    (case,) = demo.tests
    assert case.expect == {
        "kernels": {"concat": 1, "MaxPool": 2},
        "rescales": 0,
        "same_scale": (("a", "b", "y"),),
    }
    assert case.model.splitlines()[0] == "a = MaxPool(in0) [kernel_shape=[1,1]] : f32[1,8,4,4] {-1, 1}"


def test_demo_lint(demo):
    assert [str(finding) for finding in lint(demo)] == [
        "demo.yaml:17:3: L015 type 'w4g' is used nowhere",
        "demo.yaml:28:5: L007 kernel 'depthwise_conv2d' is fused and has no row (did you mean 'conv2d'?)",
    ]


def test_same_document_same_target(demo):
    """Text and mapping of the resolved document give the same table and digest."""
    again = load_target(demo.document, FUNCTIONS)
    assert again.digest == demo.digest
    for kernel, rows in demo.rows.items():
        assert [(row.inputs, row.outputs, row.when) for row in again.rows[kernel]] == [
            (row.inputs, row.outputs, row.when) for row in rows
        ]


def test_digest_sees_port_order_not_key_order():
    text = HEAD + "kernels: [{kernel: A, in: {x: , w: }, out: {y: }}]\n"
    swapped = HEAD + "kernels: [{out: {y: }, in: {x: , w: }, kernel: A}]\n"
    other = HEAD + "kernels: [{kernel: A, in: {w: , x: }, out: {y: }}]\n"
    assert load_target(text).digest == load_target(swapped).digest
    assert load_target(text).digest != load_target(other).digest


def test_ports_left_out_are_wildcards():
    (row,) = load_target(HEAD + "kernels:\n  - kernel: A\n    in: {x: , w: '*'}\n").rows["A"]
    assert row.inputs == (PortPattern("x", PortType()), PortPattern("w", PortType()))
    assert row.outputs == (PortPattern("ys", PortType(), variadic=True),)


def test_every_type_field():
    text = (
        HEAD + "types:\n  w: {storage: i4, granularity: block, block_size: [32, 64], symmetric: true}\n"
        "  p: {storage: u8, zero_point: 128, power_of_two: true, scale_min: 1/65536, scale_max: 2}\n"
        "  e: {storage: 'i8<-127:127>', weight_bits_effective: 7}\n  h: {storage: bf16}\n"
        "kernels:\n  - {kernel: A, in: {a: w, b: p, c: e, d: h, e: {storage: i16}}, out: {y: }}\n"
    )
    (row,) = load_target(text).rows["A"]
    assert [port.type for port in row.inputs] == [
        PortType(storage("i4"), "block", symmetric=True, block_size=(32, 64)),
        PortType(storage("u8"), zero_point=128, power_of_two=True, scale_min=2**-16, scale_max=2.0),
        PortType(storage("i8", -127, 127), weight_bits_effective=7),
        PortType(FloatType("bf16")),
        PortType(storage("i16")),
    ]


def test_every_row_field():
    text = (
        HEAD + ROW + "    requantize: gemmlowp\n    accumulator: i32\n    computes: true\n    float: bf16\n"
    )
    (row,) = load_target(text).rows["Relu"]
    assert (row.requantize, row.accumulator, row.computes, row.float) == (
        "gemmlowp",
        storage("i32"),
        True,
        "bf16",
    )


def test_rows_on_one_line_have_their_own_keys():
    target = load_target(
        HEAD + "kernels: [{kernel: A, in: {x: }}, {kernel: A, in: {x: , y: }}, {kernel: B}]\n"
    )
    assert [row.key for rows in target.rows.values() for row in rows] == ["A@5", "A@5.2", "B@5"]


def test_shipped_targets_load():
    assert {"litert-int8", "onnxruntime-cpu", "teaching-npu"} <= set(target_ids())
    for name in target_ids():
        target = load_target(name)
        assert (target.id, target.file) == (name, f"{name}.yaml")


@pytest.mark.parametrize("name", ["litert-int", "../targets/litert-int8.nothing", "_base", "targets\\litert"])
def test_untrusted_names_are_shipped_ones(name):
    with pytest.raises(UnknownName, match="unknown target"):
        load_target(name, trusted=False)


def test_unknown_name_says_the_nearest():
    with pytest.raises(UnknownName) as caught:
        load_target("litert-in8")
    assert str(caught.value).startswith("unknown target 'litert-in8' (did you mean 'litert-int8'")


def test_untrusted_text_reads_no_files(tmp_path):
    (tmp_path / "secret.yaml").write_text(HEAD + ROW)
    with pytest.raises(TargetError, match="T024 extends unknown target"):
        load_target(HEAD + f"extends: {tmp_path}/secret\n", trusted=False)
    with pytest.raises(TargetError, match="T006 anchor '&a'"):
        load_target(HEAD + "title: &a t\n", trusted=False)


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(InputError, match=r"cannot read the target '.*none\.yaml': No such file"):
        load_target(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot read the target"):
        load_target(str(tmp_path) + "/")
    (tmp_path / "latin.yaml").write_bytes("a: 1\nb: é\n".encode("latin-1"))
    with pytest.raises(TargetError, match=r"^latin\.yaml:2:4: T001 not UTF-8: "):
        load_target(tmp_path / "latin.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * 2_000_000)
    with pytest.raises(TargetError, match=r"^big\.yaml:1:1: T002 "):
        load_target(tmp_path / "big.yaml")


def test_mapping_of_no_plain_data():
    with pytest.raises(TargetError, match="the target mapping is no plain data"):
        load_target({"id": {1, 2}})


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(
            f"apiVersion: planner/v1\nkind: Target\nid: {name}\nversion: 1.0.0\n{text}"
        )


BASE = """types: {a: {storage: i8}, b: {storage: u8}}
costs: {bit_price: 3.0, free_bits: 0.25}
op_groups: {view: [Reshape, Squeeze]}
fusions: [{kernel: c, pattern: "Conv(x, w)"}, {kernel: d, pattern: "Gemm(x, w)"}]
kernels:
  - {kernel: c, in: {x: a, w: a}, out: {y: a}, requantize: gemmlowp, when: {x.rank: 4}}
  - {kernel: c, in: {x: b, w: a}, out: {y: b}}
  - {kernel: d, in: {x: a, w: a}, out: {y: a}}
  - {kernel: {group: view}, in: {x: }, out: {y: }}
"""


def test_extends_merges(tmp_path):
    """Own rows first and over the inherited ones of their signature; maps deep; groups as the child says."""
    write(
        tmp_path,
        base=BASE,
        child="""extends: base
types: {b: {storage: u8, symmetric: false, range: [0, 127]}}
costs: {free_bits: 1}
op_groups: {view: [Reshape, Squeeze, Flatten]}
fusions: [{kernel: d, pattern: "Gemm(x, w)", remove: true}, {kernel: e, pattern: "Relu(x)"}]
kernels:
  - {kernel: e, in: {x: b}, out: {y: b}}
  - {kernel: c, in: {x: a, w: a}, out: {y: a}, requantize: exact_even}
  - {kernel: d, remove: true}
  - {kernel: Squeeze, remove: true}
""",
    )
    target = load_target(tmp_path / "child.yaml")
    assert {kernel: [row.source for row in rows] for kernel, rows in target.rows.items()} == {
        "e": ["child.yaml:11"],
        "c": ["child.yaml:12", "base.yaml:11"],
        "Reshape": ["base.yaml:13"],
        "Flatten": ["base.yaml:13"],
    }
    merged = target.rows["c"][0]
    assert (merged.requantize, merged.when) == ("exact_even", {"x.rank": 4})
    assert target.rows["e"][0].inputs[0].type == PortType(storage("u8", 0, 127))
    assert (target.costs.bit_price, target.costs.free_bits) == (3.0, 1.0)
    assert [fusion.kernel for fusion in target.fusions] == ["e", "c"]
    assert (target.id, target.tests, "extends" in target.document) == ("child", (), False)


def test_extends_of_equal_lines_keeps_keys_apart(tmp_path):
    write(
        tmp_path, base="kernels: [{kernel: A, in: {x: }}]\n", child="extends: base\nkernels: [{kernel: A}]\n"
    )
    write(tmp_path, child="extends: base.yaml\nkernels:\n  - {kernel: A, in: {x: , z: }}\n")
    write(tmp_path, base="title: b\n\nkernels: [{kernel: A, in: {x: }}]\n")
    rows = load_target(tmp_path / "child.yaml").rows["A"]
    assert [(row.source, row.key) for row in rows] == [("child.yaml:7", "A@7"), ("base.yaml:7", "A@7.2")]


def test_extends_in_a_chain_and_in_a_circle(tmp_path):
    write(tmp_path, a=ROW, b="extends: a\n", c="extends: b\ncosts: {bit_price: 7}\n")
    target = load_target(tmp_path / "c.yaml")
    assert (target.costs.bit_price, list(target.rows)) == (7.0, ["Relu"])
    write(tmp_path, a="extends: c\n")
    with pytest.raises(TargetError) as caught:
        load_target(tmp_path / "c.yaml")
    assert "T024 extends in a circle" in str(caught.value)
    assert "c.yaml -> b.yaml -> a.yaml -> c.yaml" in str(caught.value)


def test_errors_in_a_base_name_its_file(tmp_path):
    write(tmp_path, base="types: {a: {storage: q8}}\n", child="extends: base\n")
    with pytest.raises(TargetError, match=r"^base\.yaml:5:22: T022 unknown storage 'q8'"):
        load_target(tmp_path / "child.yaml")


def test_remove_of_nothing(tmp_path):
    write(tmp_path, base=BASE, child="extends: base\nkernels:\n  - {kernel: cc, remove: true}\n")
    with pytest.raises(TargetError) as caught:
        load_target(tmp_path / "child.yaml")
    assert str(caught.value) == (
        "child.yaml:7:26: T027 removes nothing: no such entry is inherited | - {kernel: cc, remove: true}"
    )


def test_many_errors_are_shortened():
    text = HEAD + "".join(f"wrong{i}: 1\n" for i in range(150))
    with pytest.raises(TargetError) as caught:
        load_target(text)
    assert len(caught.value.errors) == 150
    assert str(caught.value).splitlines()[100] == "... and 50 more"


def test_json_schema_is_fresh():
    """Rewrite it with `python -m planner.target.docs.jsonschema > targets/target.schema.json`."""
    assert (SHIPPED / "target.schema.json").read_text(encoding="utf-8") == json_schema_text()


def test_json_schema_is_draft_7():
    schema = json_schema()
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    text = json.dumps(schema)
    for newer in ("$defs", "prefixItems", "dependentRequired", "unevaluatedProperties"):
        assert newer not in text
    assert set(schema["properties"]) == {field.alias or name for name, field in Document.model_fields.items()}


def test_targets_are_data(demo):
    """A target can be changed only by making another one."""
    assert replace(demo, bias="i64").bias == "i64"
    with pytest.raises(AttributeError):
        demo.bias = "i64"


def test_a_shipped_target_is_read_again_once_a_file_is_written(tmp_path, monkeypatch):
    for path in load._shipped().values():
        shutil.copy(path, tmp_path)
    copies = {path.stem: path for path in tmp_path.glob("*.yaml")}
    monkeypatch.setattr(load, "_shipped", lambda: copies)
    first = load_target("teaching-npu")
    assert load_target("teaching-npu") is first
    base = tmp_path / "teaching-npu.yaml"
    base.write_text(base.read_text("utf-8").replace(first.title, "Another"), "utf-8")
    os.utime(base, ns=(0, base.stat().st_mtime_ns + 1))
    assert load_target("teaching-npu").title == "Another"
