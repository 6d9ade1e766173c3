"""The sixteen shipped targets: what each has to say, and that its own tests miss no kernel."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.ir.types.qtypes import FloatType, Storage, storage
from planner.target.load import load_target, target_ids
from planner.target.modeltext import read_model_text
from planner.target.records import PortPattern, Row
from planner.target_tests.cases import plan_case

ROOT = Path(__file__).parents[2]
MODES = {
    "dpuczdx8g": "fixed",
    "edgetpu": "fixed",
    "ethos-u55": "codegen",
    "finn-fpga": "codegen",
    "hexagon-a16w8": "fixed",
    "hls4ml-fpga": "codegen",
    "k210-kpu": "fixed",
    "litert-int8": "fixed",
    "llm-w4": "fixed",
    "onnxruntime-cpu": "fixed",
    "onnxruntime-dynamic": "fixed",
    "qnn-htp": "fixed",
    "stablehlo": "codegen",
    "teaching-npu": "fixed",
    "tensorrt-int8": "fixed",
    "tosa-int8": "codegen",
}


def rows(name: str) -> list[Row]:
    return [row for found in load_target(name).rows.values() for row in found]


def ports(name: str) -> Iterator[tuple[Row, PortPattern]]:
    for row in rows(name):
        for port in (*row.inputs, *row.outputs):
            yield row, port


def test_sixteen_targets_in_their_modes():
    assert {name: load_target(name).mode for name in target_ids()} == MODES


@pytest.mark.parametrize("name", target_ids())
def test_every_kernel_is_planned_by_a_test_of_the_file(name):
    """Each kernel of the table runs by a row in the plan of some test."""
    target = load_target(name)
    planned = set()
    for case in target.tests:
        read_model_text(case.model, case.name)
        if "error" not in case.expect:
            planned |= {kernel.kernel for kernel in plan_case(target, case).kernels_in_order if kernel.row}
    assert set(target.rows) - planned == set()


@pytest.mark.parametrize("name", target_ids())
def test_a_page_names_the_source_and_what_is_left_out(name):
    page = (ROOT / "docs" / "targets" / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {name}")
    assert "## Source" in page
    assert "## Left out" in page


def test_tosa_has_zero_points_on_eight_bits_only():
    """CONV2D and the others: ERROR_IF(!is_same<in_t, i8_t>() && input_zp != 0)."""
    for row, port in ports("tosa-int8"):
        store = port.type.storage
        is_number = isinstance(store, Storage)  # a table may have rows of floats beside
        assert not is_number or port.type.symmetric or store == storage("i8"), (row.source, port.name)


@pytest.mark.parametrize("kernel", ["conv2d", "conv3d", "depthwise_conv2d", "transpose_conv2d"])
def test_tosa_type_tuples(kernel):
    found = [
        (*(str(port.type.storage) for port in row.inputs), str(row.accumulator))
        for row in load_target("tosa-int8").rows[kernel]
    ]
    assert found == [
        ("i8", "i8<-127:127>", "i32", "i32"),
        ("i8", "i4<-7:7>", "i32", "i32"),
        ("i16", "i8<-127:127>", "i48", "i48"),
    ]


def test_tosa_rescales_as_apply_scale_32():
    assert {row.requantize for row in rows("tosa-int8")} == {"tosa_double"}


def test_ethos_is_a_subset_of_tosa_with_dear_rescales():
    ethos, tosa = load_target("ethos-u55"), load_target("tosa-int8")
    assert ethos.rescale_single_consumer
    assert not tosa.rescale_single_consumer
    assert ethos.costs.requantize > tosa.costs.requantize
    assert set(ethos.rows) - set(tosa.rows) == {"LSTM", "PRelu", "Softmax"}
    for row in ethos.rows["add"]:
        assert [rule.kind for rule in row.rules] == ["free_scale"]


def test_stablehlo_multiplies_one_storage_into_i32():
    """(convolution, C31), (dot_general, C17): one storage type on both sides where lhs is quantized."""
    target = load_target("stablehlo")
    for kernel in ("convolution", "dot_general", "dot_general_activations"):
        for row in target.rows[kernel]:
            left, right = (port.type.storage for port in row.inputs[:2])
            if isinstance(left, FloatType):
                continue
            assert isinstance(left, Storage)
            assert isinstance(right, Storage)
            assert left.name == right.name, row.source
            assert row.inputs[1].type.symmetric, row.source
    assert target.rows["convolution"][0].accumulator == storage("i32")


def test_stablehlo_cites_constraints():
    text = (ROOT / "targets" / "stablehlo.yaml").read_text(encoding="utf-8")
    cited = (
        "convolution",
        "dot_general",
        "add",
        "multiply",
        "concatenate",
        "reshape",
        "pad",
        "select",
        "clamp",
    )
    assert [op for op in cited if f"({op}, C" not in text] == []


def test_tensorrt_is_symmetric_with_float_biases():
    for row, port in ports("tensorrt-int8"):
        assert isinstance(port.type.storage, FloatType) or port.type.symmetric, (row.source, port.name)
        if port.name == "b" and port.optional:
            assert port.type.storage == FloatType("f32")
    weights = {row.inputs[1].type.granularity for row in load_target("tensorrt-int8").rows["convolution"]}
    assert weights == {"axis"}


def test_qnn_pairs_of_activations_and_weights():
    pairs = [
        tuple(port.type.storage.name for port in row.inputs[:2])
        for row in load_target("qnn-htp").rows["conv2d"]
    ]
    assert pairs == [("u8", "i8"), ("u8", "i4"), ("u16", "i8"), ("u16", "i4")]


@pytest.mark.parametrize(("name", "power"), [("finn-fpga", False), ("hls4ml-fpga", True)])
def test_fpga_numbers_have_any_width_and_no_zero_point(name, power):
    target = load_target(name)
    for row, port in ports(name):
        kind = port.type
        if isinstance(kind.storage, FloatType):
            continue
        assert kind.symmetric or kind.zero_point == 0, (row.source, port.name)
        assert not kind.power_of_two or power, (row.source, port.name)
    results = [row.outputs[0].type.storage for row in rows(name) if row.outputs]
    assert set(results) == ({None} if power else {None, FloatType("f32")})
    assert {row.requantize for row in rows(name)} == {"exact_even"}
    assert target.default_port.power_of_two == power


def test_hls4ml_takes_scales_of_another_kind_from_training_alone():
    """Behind each row of powers of two stands one for the scales that a model's quantizers have."""
    by_kernel: dict[str, list[bool]] = {}
    for row in rows("hls4ml-fpga"):
        by_kernel.setdefault(row.kernel, []).append(row.outputs[0].type.power_of_two)
    assert all(powers == sorted(powers, reverse=True) and not powers[-1] for powers in by_kernel.values())
    assert {kernel for kernel, powers in by_kernel.items() if powers[0]} >= {
        "dense",
        "convolution",
        "Add",
        "Tanh",
    }


def test_llm_keeps_activations_in_float():
    target = load_target("llm-w4")
    stored = []
    for row in target.rows["matmul_nbits"]:
        x, w, b = (port.type for port in row.inputs)
        assert (x.storage, b.storage, row.outputs[0].type.storage) == (FloatType("f32"),) * 3
        assert (w.granularity, w.block_size, w.short_block) == ("block", (32, 64, 128, 16, 256), True)
        assert w.symmetric == (isinstance(w.storage, Storage) and w.storage.signed)
        stored.append(f"{w.storage} {w.scales}")
        assert (w.scales == "f16") == (row.when.get("x.dtype") == "f16")
    halves = ["i4 f16", "u4 f16", "i8 f16", "u8 f16"]
    assert stored == [*halves, *(f"{name} f32" for name in ("i4", "u4", "i8", "u8", "i3", "u3", "i2", "u2"))]
    assert set(target.rows) == {"Gather", "LSTM", "matmul_nbits"}


def test_the_dpu_has_powers_of_two_everywhere():
    """8 bits, one scale a tensor, [-128, 127]; biases too, on a scale of their own."""
    for row, port in ports("dpuczdx8g"):
        kind = port.type
        assert (str(kind.storage), kind.power_of_two, kind.symmetric) == ("i8", True, True), row.source
        assert kind.granularity == "tensor"
    assert {row.requantize for row in rows("dpuczdx8g")} == {"power_of_two"}
    assert {rule.kind for row in rows("dpuczdx8g") for rule in row.rules} == {
        "multiplier_scale", "free_scale", "same_scale",
    }  # fmt: skip


def test_the_edge_tpu_asks_every_row_for_three_dimensions():
    for row in rows("edgetpu"):
        lead = row.inputs[0]
        if not lead.variadic:
            assert f"{lead.name}.elements" in row.when, row.source


def test_the_kpu_stores_bytes_without_signs():
    stores = {str(port.type.storage) for row, port in ports("k210-kpu") if port.name != "b"}
    assert stores == {"u8"}
    assert not any(port.type.symmetric for row, port in ports("k210-kpu") if port.name == "w")


@pytest.mark.parametrize("kernel", ["conv2d", "fully_connected", "matmul", "add", "Softmax", "Concat"])
def test_hexagon_begins_with_sixteen_bits(kernel):
    found = [str(row.inputs[0].type.storage) for row in load_target("hexagon-a16w8").rows[kernel]]
    below = [str(row.inputs[0].type.storage) for row in load_target("qnn-htp").rows[kernel]]
    assert found[0] == "u16"
    assert below[0] == "u8"
    assert sorted(found) == sorted(below)
