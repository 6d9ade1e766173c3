"""Every awkward model gives a good file for every target and format, or a refusal that says what and where.

Good: valid by onnx's checker, loaded and run by onnxruntime with and without its optimiser, names, types and
shapes of the outputs kept, close to the float model, no kernel in float that the target has, and not bigger.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from typing import Final

import onnx
import pytest
from onnx import external_data_helper

from planner.errors import PlannerError
from planner.plans.explain import explain
from planner.plans.plan import Plan
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.report.html import write_report
from tests.awkward.job import (
    FORMATS,
    LEVELS,
    TARGETS,
    Prepared,
    exported,
    integer_kernels,
    is_plain,
    plan_of,
    prepare,
    sqnr,
)
from tests.awkward.models import AWKWARD


@dataclass(frozen=True, slots=True)
class Runs:
    """The whole job runs.

    Attributes:
      kernels: in integers at least, for onnxruntime-cpu, litert-int8 and teaching-npu.
      floor: SQNR in dB of the worst output, for every target and format.
      growth: bytes that the file may be bigger than its source, beside what Q/DQ nodes take.
    """

    kernels: tuple[int, int, int]
    floor: float = 30.0
    growth: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The whole message of the refusal."""

    message: str


NODE_BYTES: Final = 1000
FRAME_BYTES: Final = 2000

EXPECTED: Final[Mapping[str, Runs | Refused]] = {
    # old
    "opset_7": Runs((10, 10, 7)),
    "opset_8": Runs((10, 10, 7)),
    "opset_9": Runs((10, 10, 7)),
    "cntk_export": Runs((6, 6, 6)),
    "constant_of_shape_weights": Runs((4, 4, 4)),
    "normalization_chain": Runs((3, 3, 3)),
    "normalization_alone": Runs((2, 2, 2)),
    "crop_and_image_scaler": Runs((5, 5, 4)),
    "sums": Runs((7, 7, 7)),
    "local_response_normalization": Runs((2, 2, 2)),
    # 96 shares of one softmax in steps of 1/256
    "softmax_over_many": Runs((4, 4, 4), floor=20),
    "opset_6": Runs((2, 3, 2)),
    # control
    "if_constant": Runs((2, 2, 2)),
    "if_constant_node": Runs((2, 2, 2)),
    "if_computed": Runs((1, 2, 1)),
    "if_nested": Runs((2, 2, 2)),
    "loop_body": Runs((2, 2, 2)),
    "scan_body": Runs((2, 2, 2)),
    "captured_values": Runs((3, 3, 3)),
    "local_functions": Runs((3, 3, 3)),
    "contrib_operator": Runs((2, 2, 2)),
    "custom_operator": Refused(
        "acme.vision::DeformableConv at 'deform 1': onnxruntime has no such operator "
        "(a plan whose ranges are given needs no run)"
    ),
    "dead_custom_operator": Runs((1, 1, 1)),
    "unknown_operator": Refused(
        "Convolve at 'conv one': onnxruntime has no such operator "
        "(a plan whose ranges are given needs no run)"
    ),
    "weights_in_branches": Runs((1, 1, 1)),
    # naming
    "strange_names": Runs((3, 3, 3)),
    "unicode_names": Runs((3, 3, 2)),
    "long_names": Runs((1, 1, 1)),
    "names_like_ours": Runs((3, 3, 2)),
    "duplicate_node_names": Runs((2, 2, 2)),
    "duplicate_initializers": Runs((1, 1, 1)),
    "contradicting_initializers": Refused(
        "initializer 'w' is there twice, with different numbers (nothing says which one counts)"
    ),
    "equal_initializers": Runs((3, 3, 3)),
    "unused_everything": Runs((1, 1, 1)),
    "many_outputs": Runs((3, 3, 3)),
    "output_twice": Runs((1, 1, 1)),
    "input_is_output": Runs((1, 1, 1)),
    "initializer_is_output": Runs((1, 1, 1)),
    "initializer_is_output_and_weight": Runs((1, 1, 1)),
    "same_value_twice": Runs((5, 5, 2)),
    "empty_graph": Runs((0, 0, 0)),
    "nothing_to_quantize": Runs((0, 0, 0)),
    "undeclared_output": Runs((1, 1, 1)),
    "wrong_declared_shape": Runs((1, 1, 1)),
    # tensors
    "half_graph": Runs((5, 5, 5)),
    "half_weights": Runs((3, 3, 3)),
    "half_inside": Runs((3, 3, 3)),
    "double_graph": Runs((2, 2, 2)),
    "bfloat16_graph": Refused(
        "the activations of model 'awkward' are bf16; calibration runs f16, f32, f64 "
        "(export the model in f32)"
    ),
    "bfloat16_weights": Runs((1, 1, 1)),
    "empty_tensors": Runs((5, 5, 3)),
    "scalars": Runs((4, 5, 1)),
    "dynamic_batch": Runs((3, 3, 3)),
    # a mask of -10000 takes the whole range before the softmax; a table of twice the range of what
    # is taken from it stays float, since a finer quantize behind it costs less than the bits
    "dynamic_sequence": Runs((14, 14, 7), floor=15),
    "unnamed_dimensions": Runs((2, 2, 2)),
    "constant_node_weights": Runs((3, 3, 3)),
    "input_weights": Runs((1, 2, 0)),  # the Gemm hands on floats to the Relu
    "nothing_constant": Runs((2, 2, 0)),
    "sparse_weights": Runs((1, 1, 0)),
    "infinite_weights": Runs((3, 3, 3), floor=18),
    "zero_weights": Runs((6, 6, 6)),
    "large_weights": Runs((2, 2, 2)),
    # teaching-npu has no kernel for it: the table stays float, and its transposed copy is folded
    "shared_large_table": Runs((3, 3, 0), growth=22_000),
    "nan_weights": Runs((1, 1, 1)),
    # operators
    "conv_forms": Runs((4, 4, 4)),
    "conv_1d": Runs((2, 2, 2)),
    "conv_3d": Runs((2, 0, 2)),
    "conv_transpose_forms": Runs((4, 5, 0)),
    "gemm_forms": Runs((12, 12, 10)),
    "resize_forms": Runs((9, 8, 5)),
    "pad_forms": Runs((11, 11, 6)),
    "shape_movement": Runs((11, 11, 6)),
    "selection": Runs((7, 4, 3)),
    "split_forms": Runs((5, 5, 3)),
    "absent_operands": Runs((5, 3, 5)),
    # its hidden state shares a scale with an initial one that is eight times as wide
    "lstm": Runs((4, 4, 3), floor=20),
    "gru": Runs((4, 4, 3)),
    "rnn": Runs((4, 4, 0)),
    "quantized_already": Runs((2, 2, 2)),
    "qoperator_already": Runs((2, 2, 2)),
    "dynamic_quantization": Runs((2, 2, 1)),
    "einsum_and_reductions": Runs((2, 2, 2)),
    "pooling_forms": Runs((5, 4, 5)),
    "sequences": Runs((2, 2, 2)),
    "optional_and_strings": Runs((1, 1, 1)),
    "matmul_of_vectors": Runs((3, 3, 0)),
    "clip_upside_down": Runs((4, 3, 4)),
    "newest_operators": Runs((2, 2, 2)),
    "newer_than_needed": Runs((1, 1, 1)),
    "training_normalization": Runs((2, 2, 2)),
    "machine_learning_domain": Runs((3, 3, 2)),
    "map_output": Refused(
        "output 'y' is of kind sequence; only tensors can be model inputs and outputs here "
        "(cut the model so that the operators on other kinds stay outside: outputs=['v127_4'] (--cut v127_4))"
    ),
    "sequence_input": Refused(
        "input 'xs' is of kind sequence; only tensors can be model inputs and outputs here "
        "(cut the model so that the operators on other kinds stay outside)"
    ),
    "string_input": Runs((2, 2, 1)),
}
RUNNING: Final = sorted(name for name, outcome in EXPECTED.items() if isinstance(outcome, Runs))
REFUSED: Final = sorted(name for name, outcome in EXPECTED.items() if isinstance(outcome, Refused))


@cache
def prepared(name: str) -> Prepared:
    return prepare(AWKWARD[name]())


@cache
def planned(name: str, target: str) -> Plan:
    return plan_of(prepared(name), target)


def expected(name: str) -> Runs:
    outcome = EXPECTED[name]
    assert isinstance(outcome, Runs)
    return outcome


def test_every_model_has_an_expectation():
    assert set(EXPECTED) == set(AWKWARD)


@pytest.mark.parametrize("name", AWKWARD)
def test_generators_are_seeded(name):
    assert AWKWARD[name]() == AWKWARD[name]()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_what_and_where(name):
    with pytest.raises(PlannerError) as caught:
        prepare(AWKWARD[name]())
    assert str(caught.value) == EXPECTED[name].message


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RUNNING)
def test_kernels_that_exist_are_used(name, target):
    assert integer_kernels(planned(name, target)) >= expected(name).kernels[TARGETS.index(target)]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", RUNNING)
def test_the_file_is_good(name, target, form):
    plan = planned(name, target)
    data = exported(prepared(name), plan, form)
    if is_plain(data):
        onnx.checker.check_model(data, full_check=True)
    for level in LEVELS:
        assert sqnr(prepared(name), data, level) >= expected(name).floor
    allowed = NODE_BYTES * len(plan.kernels_in_order) + FRAME_BYTES + expected(name).growth
    assert len(data) <= len(AWKWARD[name]()) + allowed


class Tags(HTMLParser):
    """The tags that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def handle_starttag(self, tag, _attributes):
        """Note a tag."""
        self.seen[tag] += 1


@pytest.mark.parametrize("name", RUNNING)
def test_the_plan_survives_its_texts(name):
    plan = planned(name, TARGETS[0])
    text = plan_to_json(plan)
    assert plan_to_json(plan_from_json(text)) == text
    assert plan_to_json(plan_from_mlir(plan_to_mlir(plan))) == text


@pytest.mark.parametrize("name", RUNNING)
def test_the_report_holds_no_markup_of_the_model(name):
    tags = Tags()
    tags.feed(write_report(planned(name, TARGETS[0])))
    assert tags.seen.keys().isdisjoint({"a", "foreignobject", "iframe", "image", "img", "link", "object"})
    assert tags.seen["script"] == 4, (
        "the data of the graph and of its log, what draws it, and what sorts tables"
    )


@pytest.mark.parametrize("name", RUNNING)
def test_every_port_is_explained(name):
    plan = planned(name, TARGETS[0])
    for kernel in plan.kernels_in_order:
        for port in (*kernel.inputs, *kernel.outputs):
            if port.value:
                assert explain(plan, port.address)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["double_graph", "half_graph"])
def test_only_the_boundary_is_cast(name, form):
    """A Cast between DequantizeLinear and its op would keep onnxruntime from computing in integers."""
    model = onnx.load_from_string(exported(prepared(name), planned(name, TARGETS[0]), form))
    ports = len(model.graph.input) + len(model.graph.output)
    assert [node.op_type for node in model.graph.node].count("Cast") == ports


@pytest.mark.parametrize("form", FORMATS)
def test_where_weights_dominate_the_file_is_a_quarter(form):
    data = exported(prepared("large_weights"), planned("large_weights", "onnxruntime-cpu"), form)
    assert len(data) < 0.28 * len(AWKWARD["large_weights"]())


def test_external_data_makes_no_difference(tmp_path):
    """A model whose weights lie in a file of their own gives the same file as with them inside."""
    data = AWKWARD["large_weights"]()
    model = onnx.load_from_string(data)
    external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    path = tmp_path / "awkward.onnx"
    onnx.save_model(model, path)
    assert (tmp_path / "weights.bin").stat().st_size > path.stat().st_size
    outside, inside = prepare(path), prepared("large_weights")
    for form in FORMATS:
        target = TARGETS[0]
        assert exported(outside, plan_of(outside, target), form) == exported(
            inside, planned("large_weights", target), form
        )


def test_external_data_without_its_file_is_refused():
    model = onnx.load_from_string(AWKWARD["large_weights"]())
    external_data_helper.convert_model_to_external_data(model, location="weights.bin", size_threshold=0)
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    with pytest.raises(PlannerError) as caught:
        prepare(model.SerializeToString())
    assert str(caught.value) == (
        f"tensor '{tensor.name}' lies in the external file 'weights.bin', and the model came as bytes "
        "(give the path of the model file, or to the service `external_data`)"
    )
