"""What tests/cases says of its cases beside a plan: other prices, other devices, what is equal to what."""

import pytest

from planner.errors import Conflict, QTypeError
from planner.formats.annotated.document import read_annotated
from planner.ir.types.qtypes import storage
from planner.ir.types.ranges import uniform_from_range
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.cases.table import HERE, NPU, TARGETS, B, counted, port_type, read

TEXT = (HERE / "npu.yaml").read_text()


@pytest.mark.parametrize(
    ("fact", "problem"),
    [
        ("!quant.calibrated<f32<nan:1.0>>", "a number"),
        ("!quant.calibrated<f32<-inf:1.0>>", "a number"),
        ("!quant.calibrated<f32<1.0:-1.0>>", "min > max"),
    ],
)
def test_ranges_that_are_none(fact, problem):
    """Case 47."""
    with pytest.raises(QTypeError, match=problem):
        parse_type(fact)


@pytest.mark.parametrize(
    ("name", "convs"),
    [
        ("bias_is_the_product", ["conv"]),
        ("bias_behind_a_rescale", ["conv"]),  # the port's scale, not the value's
        ("bias_shared_by_two_convs", ["conv1", "conv2"]),  # one constant, two types
    ],
)
def test_a_bias_has_the_product_of_its_ports_scales(name, convs):
    """Cases 17 to 19."""
    plan = propagate(read(name), NPU)
    for conv in convs:
        x, w, b = (port_type(plan, f"{conv}.in[{i}]") for i in range(3))
        assert str(b.storage) == "i32"
        assert set(b.zero_points) == {0}
        assert b.axis == 0
        assert b.scales == pytest.approx([x.scale * scale for scale in w.scales], rel=1e-7)
    assert len({port_type(plan, f"{conv}.in[2]") for conv in convs}) == len(convs)


def test_one_constant_is_split_by_role():
    """Case 20: per axis and narrow as a weight, per tensor as an operand."""
    plan = propagate(read("one_constant_as_weight_and_operand"), NPU)
    assert str(port_type(plan, "conv.in[1]").storage) == "i8<-127:127>"
    assert port_type(plan, "sum.in[1]") == uniform_from_range(-2, 4, storage("i8"))


def test_equal_pins_rescale_the_fewest_elements():
    """Case 4, turned round: either pin covers the other's range."""
    plan = propagate(read("concat_two_pins_one_covers"), NPU, bit_price=0.0)
    assert [rescale.elements for rescale in plan.rescales if rescale.kind == "requantize"] == [16]


def test_one_rescale_a_consumer():
    """Case 44: the device cannot share one."""
    plan = propagate(read("three_consumers_two_alike"), TARGETS["single"])
    # x is quantized for each of two ports too: 32, three results 48, two rescales 32.
    assert plan.cost == 112.0


FORBIDS = load_target(TEXT.replace("kernels:", "rescale: {allowed: false}\nkernels:", 1))


def test_none_where_casts_are_forbidden():
    """Case 30: the value and the target are named."""
    with pytest.raises(Conflict) as caught:
        propagate(read("none_between_two_kernels"), FORBIDS)
    assert caught.value.facts[0] == "value 'a': !quant.none"
    assert "rescale: allowed: false" in caught.value.facts[-1]


def test_sharing_pays_any_number_of_bits_where_rescales_are_forbidden():
    """No conflict while one scale for all serves, however coarse."""
    plan = propagate(read("reshapes_on_the_way"), FORBIDS)
    assert counted(plan) == []
    assert plan.values["a"].bits_lost == pytest.approx(2.0, abs=0.01)


def test_the_number_of_reshapes_changes_nothing():
    """Case 53: the same conv and concat without the two views."""
    with_views = read("reshapes_on_the_way")
    text = (HERE / "reshapes_on_the_way.json").read_text()
    lines = [line for line in text.splitlines() if '"name": "v1"' not in line and '"name": "v2"' not in line]
    without = read_annotated("\n".join(lines).replace('["d", "b"]', '["a", "b"]'))
    plans = [propagate(graph, NPU) for graph in (with_views, without)]
    assert plans[0].cost == plans[1].cost
    assert [port_type(plan, "cat.in[0]") for plan in plans] == [port_type(plans[0], "cat.in[0]")] * 2


def test_annotations_inside_a_region_are_left_alone():
    """Case 42: a pin on a value between the ops of one kernel changes no port."""
    text = (HERE / "relu_fused.json").read_text()
    inner = f'{{"name": "t", "shape": [1, 3], "constraints": ["{B}"]}},\n'
    marked = read_annotated(text.replace('{"name": "w"', inner + '{"name": "w"', 1))
    plans = [propagate(read_annotated(text), NPU), propagate(marked, NPU)]
    assert [kernel.outputs for kernel in plans[0].kernels_in_order] == [
        kernel.outputs for kernel in plans[1].kernels_in_order
    ]
    assert str(plans[1].graph.values["t"].facts[0]) == B
