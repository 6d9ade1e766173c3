"""The cases of design 02 that need no function or loop: an annotated model, and what must come out.

Each case is `NAME.json` beside this file, planned for `npu.yaml`. Kernels are named for what they do; the
expectation lists the rescales (quantize and dequantize left out: `casts` has those) and port types.
"""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from planner.annotated.document import read_annotated
from planner.errors import Conflict
from planner.ir.qtypes import Storage, storage
from planner.ir.ranges import uniform_from_range
from planner.plans.explain import explain
from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.target.load import load_target

HERE = Path(__file__).parent
NPU = load_target(HERE / "npu.yaml")
TEXT = (HERE / "npu.yaml").read_text()
A, B = "!quant.uniform<i8:f32, 0.03125>", "!quant.uniform<i8:f32, 0.0078125>"
SOFTMAX = "!quant.uniform<i8:f32, 0.00390625:-128>"
U8, I16 = storage("u8"), storage("i16")


@dataclass(frozen=True)
class Case:
    """What must come out.

    Attributes:
      rescales: `VALUE#N kind -> first consumer`, and ` x2` where it feeds two ports.
      casts: how many quantize and dequantize.
      ports: address -> type text, or the range whose own i8 type it must be, or None for float.
      alike: ports that have one scale and zero point.
      floats: kernel -> part of the reason why it runs in float.
      warnings: a part of each warning, in order.
      clips: value -> share cut off.
    """

    rescales: tuple[str, ...] = ()
    casts: tuple[int, int] | None = None
    ports: dict[str, object] = field(default_factory=dict)
    alike: tuple[str, ...] = ()
    floats: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    clips: dict[str, float] = field(default_factory=dict)


CASES = {
    # 1-16: sharing a scale
    "concat_of_two_ranges": Case(
        ports={"k1.out[0]": (-4, 1), "cat.in[0]": (-4, 1), "cat.in[1]": (-4, 1), "cat.out[0]": (-4, 1)}
    ),
    "concat_result_calibrated_narrower": Case(ports={"cat.out[0]": (-4, 1)}),
    "concat_pin_covers": Case(ports={"k1.out[0]": A, "k2.out[0]": A, "cat.out[0]": A}),
    "concat_pin_too_narrow": Case(
        rescales=("p#0 requantize -> cat.in[0]",), ports={"k1.out[0]": B, "cat.in[0]": (-4, 4)}
    ),
    "concat_two_pins_one_covers": Case(
        rescales=("q#0 requantize -> cat.in[1]",), ports={"cat.in[1]": A, "k2.out[0]": B}
    ),
    "concat_two_pins_neither_covers": Case(
        rescales=("p#0 requantize -> cat.in[0]", "q#0 requantize -> cat.in[1]"),
        ports={"cat.out[0]": A},
    ),
    "concat_that_rescales_inside": Case(),
    "nested_concat": Case(
        rescales=("a#0 requantize -> wide.in[0]",), ports={"fine.in[0]": (-1, 1), "wide.in[0]": (-4, 4)}
    ),
    "concat_of_one_value_twice": Case(rescales=("p#0 requantize -> cat.in[0] x2",)),
    "mul_of_one_value_in_two_storages": Case(rescales=("a#0 requantize -> mul.in[1]",)),
    "residual_add_is_free": Case(ports={"sum.in[0]": (-1, 1), "sum.in[1]": (-4, 4)}),
    "residual_ring_of_same_scale": Case(
        ports={"sum2.out[0]": (-1.5, 1.5)},
        alike=("k1.out[0]", "k2.out[0]", "sum1.out[0]", "k3.out[0]", "sum2.out[0]", "k4.in[0]"),
    ),
    "residual_ring_with_a_pinned_skip": Case(
        rescales=("p#0 requantize -> sum1.in[1]",), ports={"k2.out[0]": B, "sum2.out[0]": (-1.5, 1.5)}
    ),
    "pool_between_two_pins": Case(
        rescales=("q#0 requantize -> k3.in[0] x2",), ports={"pool.in[0]": A, "pool.out[0]": A, "k3.in[0]": B}
    ),
    "mean_flagged_same_scale": Case(
        alike=("k1.out[0]", "mean.in[0]", "mean.out[0]"),
        warnings=("mean.out[0] shares the scale of what it reads, 8 wide, and is itself 1 wide",),
    ),
    "fixed_output_with_calibration": Case(
        rescales=("s#0 requantize -> k2.in[0]",), ports={"soft.out[0]": SOFTMAX, "k1.in[0]": SOFTMAX}
    ),
    "fixed_output_pinned_otherwise": Case(
        rescales=("s#0 requantize -> k1.in[0] x2",),
        ports={"soft.out[0]": SOFTMAX, "k1.in[0]": B},
        warnings=(f"soft.out[0] is fixed to {SOFTMAX}, 's' is pinned to {B}",),
    ),
    "fixed_input_behind_a_pin": Case(
        rescales=("p#0 requantize -> asin.in[0]",),
        ports={"k1.out[0]": A, "asin.in[0]": B},
        warnings=(f"asin.in[0] is fixed to {B}, 'p' is pinned to {A}",),
    ),
    # 17-28, 36: accumulators, weights, constants, rows
    "narrow_range_is_another_storage": Case(rescales=("a#0 clamp -> k2.in[0]",)),
    "weight_that_is_not_narrow": Case(
        floats={"conv": "port w ('w') is pinned to"}, warnings=(f"conv.in[1] is float, so {B} on 'w'",)
    ),
    "any_8_takes_the_first_row": Case(ports={"fc.in[0]": (-1, 1, I16)}),
    "any_16_into_8_bits": Case(
        casts=(0, 0),
        floats={"k1": "port y ('a') wants !quant.any<i16>", "k2": "port a ('a') wants !quant.any<i16>"},
        warnings=("k1.out[0] is float", "k2.in[0] is float", "k2.in[1] is float"),
    ),
    "a_pin_chooses_the_row": Case(ports={"fc.in[0]": B, "fc.out[0]": (-4, 4)}),
    "wildcard_takes_its_readers_storage": Case(casts=(1, 1), ports={"move.in[0]": (-1, 1, U8)}),
    "wildcard_takes_its_default": Case(
        floats={"g": "no row"}, ports={"move.in[0]": (-1, 1)}, warnings=("g.in[0] is float",)
    ),
    "pad_with_a_constant": Case(alike=("k1.out[0]", "pad.in[0]", "pad.in[1]"), ports={"pad.out[0]": (-4, 1)}),
    # 29-32, 48, 54, 55: float borders
    "none_between_two_kernels": Case(casts=(2, 2), ports={"k1.out[0]": (-1, 1), "k2.in[0]": (-1, 1)}),
    "interface_pinned_by_training": Case(
        rescales=("a#0 requantize -> cat.in[0]",),
        casts=(0, 0),
        ports={"k1.in[0]": A, "cat.out[0]": A, "k2.in[0]": (-1, 1)},
    ),
    "value_returned_and_consumed": Case(casts=(1, 2), ports={"k1.out[0]": (-1, 1), "k2.in[0]": (-1, 1)}),
    "kernel_not_in_the_table": Case(
        casts=(2, 2), floats={"g": "npu has no row for kernel 'gelu'"}, ports={"k2.in[0]": (-0.2, 1)}
    ),
    "reshape_between_float_kernels": Case(
        casts=(0, 0), floats={"norm": "no row", "move": "moves data between float ops", "act": "no row"}
    ),
    "float_use_counts": Case(
        rescales=("a#1 requantize -> cat.in[0]",), ports={"k1.out[0]": (-1, 1)}, floats={"g": "no row"}
    ),
    # 33-58: structure
    "split_with_pins_on_outputs": Case(
        rescales=("small#0 requantize -> k3.in[0] x2",), ports={"split.in[0]": B, "split.out[1]": B}
    ),
    "dead_branch": Case(ports={"k1.out[0]": (-1, 1)}),
    "per_axis_pin_meets_a_reshape": Case(
        rescales=("x#0 requantize -> move.in[0]",), alike=("move.in[0]", "move.out[0]", "k1.in[0]")
    ),
    "relu_alone": Case(alike=("k1.out[0]", "relu.in[0]"), ports={"relu.out[0]": (0, 3)}),
    "relu_fused": Case(ports={"conv.out[0]": (0, 3)}),
    "variadic_concat": Case(alike=tuple(f"cat.in[{i}]" for i in range(5)), ports={"cat.out[0]": (-2, 1)}),
    "three_consumers_two_alike": Case(rescales=("a#0 requantize -> k3.in[0] x2",)),
    "nearly_equal_scales": Case(warnings=("1e-6 apart, one label",)),
    "other_signedness": Case(
        rescales=("a#0 zero_point -> k2.in[0] x2",), ports={"k1.out[0]": (-1, 1), "k2.in[0]": (-1, 1, U8)}
    ),
    "degenerate_ranges": Case(
        ports={
            "k1.out[0]": "!quant.uniform<i8:f32, 1.0>",
            "k2.out[0]": (0, 1),
            "k3.out[0]": (-1, 0),
            "k4.in[0]": (-1, 0),
        }
    ),
    "depthwise_of_a_per_axis_input": Case(
        casts=(0, 0),
        ports={"dw.in[0]": "!quant.uniform<i8:f32:1, {0.10000000149011612,0.20000000298023224}>"},
    ),
    "ssd_heads": Case(alike=("k1.out[0]", "v1.in[0]", "v4.out[0]", "cat.in[3]", "cat.out[0]")),
    "reshapes_on_the_way": Case(
        rescales=("d#0 requantize -> cat.in[0]",), ports={"v1.in[0]": (-1, 1), "cat.in[0]": (-4, 4)}
    ),
    "wide_into_a_fixed_input": Case(ports={"k1.out[0]": B, "asin.in[0]": B}),
    "pin_with_a_narrower_range": Case(ports={"cat.in[0]": A, "k3.in[0]": A}),
}


def read(name):
    return read_annotated((HERE / f"{name}.json").read_text())


def port_type(plan: Plan, address: str):
    kernel, _, rest = address.rpartition(".")
    side, index = rest.rstrip("]").split("[")
    ports = plan.kernels[kernel].inputs if side == "in" else plan.kernels[kernel].outputs
    return ports[int(index)].type


def counted(plan: Plan) -> list[str]:
    found = []
    for rescale in plan.rescales:
        if rescale.kind not in ("quantize", "dequantize"):
            kernel, i = rescale.consumers[0]
            more = f" x{len(rescale.consumers)}" if len(rescale.consumers) > 1 else ""
            found.append(f"{rescale.id} {rescale.kind} -> {kernel}.in[{i}]{more}")
    return found


def wanted_type(wanted):
    if wanted is None or isinstance(wanted, str):
        return wanted
    lo, hi, *store = wanted
    kept: Storage = store[0] if store else storage("i8")
    return str(uniform_from_range(lo, hi, kept, symmetric=kept.bits == 16))


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    case, plan = CASES[name], propagate(read(name), NPU)
    assert counted(plan) == list(case.rescales)
    got = {address: port_type(plan, address) for address in (*case.ports, *case.alike)}
    assert {address: str(got[address]) for address in case.ports} == {
        address: str(wanted_type(wanted)) for address, wanted in case.ports.items()
    }
    assert len({(got[address].scales, got[address].zero_points) for address in case.alike}) <= 1
    reasons = {kernel.name: kernel.reason for kernel in plan.kernels_in_order if kernel.row is None}
    assert set(reasons) == set(case.floats)
    assert all(part in reasons[kernel] for kernel, part in case.floats.items())
    assert len(plan.warnings) == len(case.warnings)
    assert all(part in text for part, text in zip(case.warnings, plan.warnings, strict=True))
    if case.casts is not None:
        kinds = [rescale.kind for rescale in plan.rescales]
        assert (kinds.count("quantize"), kinds.count("dequantize")) == case.casts
    assert plan.optimal


def test_every_model_has_a_case():
    biases = {"bias_is_the_product", "bias_behind_a_rescale", "bias_shared_by_two_convs"}
    biases |= {"one_constant_as_weight_and_operand"}
    assert {path.stem for path in HERE.glob("*.json")} == set(CASES) | biases


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


def test_narrower_calibration_of_a_concat_wins_where_clipping_is_allowed():
    """Case 2: `max_clip` 0.2 lets the class take the result's own range; what it cuts is reported."""
    plan = propagate(read("concat_result_calibrated_narrower"), NPU, max_clip=0.2)
    assert port_type(plan, "cat.in[1]") == uniform_from_range(-3.5, 1, storage("i8"))
    assert plan.values["b"].clip == pytest.approx(0.1, abs=0.01)


def test_equal_pins_rescale_the_fewest_elements():
    """Case 4, turned round: either pin covers the other's range."""
    plan = propagate(read("concat_two_pins_one_covers"), NPU, bit_price=0.0)
    assert [rescale.elements for rescale in plan.rescales if rescale.kind == "requantize"] == [16]


def test_one_rescale_a_consumer():
    """Case 44: the device cannot share one."""
    target = load_target(TEXT.replace("{port: a8}", "{port: a8, rescale_single_consumer: true}"))
    plan = propagate(read("three_consumers_two_alike"), target)
    assert counted(plan) == ["a#0 requantize -> k3.in[0]", "a#1 requantize -> k4.in[0]"]
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


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("concat_pin_too_narrow", "p#0"),
        ("fixed_output_pinned_otherwise", "soft.out[0]"),
        ("nested_concat", "fine.in[0]"),
        ("kernel_not_in_the_table", "g"),
    ],
)
def test_explanations(golden, name, address):
    golden(f"{name}.txt", explain(propagate(read(name), NPU), address) + "\n")
