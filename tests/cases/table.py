"""What must come out of each case that needs no function or loop, as a table; how it is told.

Each case is `NAME.json` beside this file, planned for `npu.yaml`; `numbers.txt` has its number. Kernels
are named for what they do; the expectation lists the rescales (quantize and dequantize left out: `casts` has
those) and port types. No tests here.
"""

from dataclasses import dataclass, field
from pathlib import Path

from planner.formats.annotated.document import read_annotated
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Storage, storage
from planner.ir.types.ranges import uniform_from_range
from planner.plans.explain import explain
from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.target.load import load_target

HERE = Path(__file__).parent
TARGETS = {name: load_target(HERE / f"{name}.yaml") for name in ("npu", "rigid", "single", "strict", "tight")}
NPU = TARGETS["npu"]
A, B = "!quant.uniform<i8:f32, 0.03125>", "!quant.uniform<i8:f32, 0.0078125>"
SOFTMAX = "!quant.uniform<i8:f32, 0.00390625:-128>"
CELL = "!quant.uniform<i16:f32, 0.000244140625>"
U8, I16, N8 = storage("u8"), storage("i16"), storage("i8", -127, 127)


@dataclass(frozen=True)
class Case:
    """What must come out.

    Attributes:
      number: of the case.
      rescales: `VALUE#N kind -> first consumer`, and ` x2` where it feeds two ports.
      casts: how many quantize and dequantize.
      ports: address -> type text, or the range whose own i8 type it must be, or None for float.
      alike: ports that have one scale and zero point.
      floats: kernel -> part of the reason why it runs in float.
      warnings: a part of each warning, in order.
      clips: value -> share cut off.
      model: whose annotated model it is, by default its own.
      target: what it is planned for.
      options: of `propagate`.
      about: what the golden explains; by default rescales, float kernels and the first port named.
    """

    number: int
    rescales: tuple[str, ...] = ()
    casts: tuple[int, int] | None = None
    ports: dict[str, object] = field(default_factory=dict)
    alike: tuple[str, ...] = ()
    floats: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    clips: dict[str, float] = field(default_factory=dict)
    model: str = ""
    target: str = "npu"
    options: dict[str, object] = field(default_factory=dict)
    about: tuple[str, ...] = ()


CASES = {
    "concat_of_two_ranges": Case(
        1, ports={"k1.out[0]": (-4, 1), "cat.in[0]": (-4, 1), "cat.in[1]": (-4, 1), "cat.out[0]": (-4, 1)}
    ),
    "concat_result_calibrated_narrower": Case(2, ports={"cat.out[0]": (-4, 1)}),
    "concat_result_narrower_and_may_clip": Case(
        2,
        model="concat_result_calibrated_narrower",
        options={"max_clip": 0.2},
        ports={"cat.out[0]": (-3.5, 1)},
        clips={"b": 0.1},
    ),
    "concat_pin_covers": Case(3, ports={"k1.out[0]": A, "k2.out[0]": A, "cat.out[0]": A}),
    "concat_pin_too_narrow": Case(
        3, rescales=("p#0 requantize -> cat.in[0]",), ports={"k1.out[0]": B, "cat.in[0]": (-4, 4)}
    ),
    "concat_two_pins_one_covers": Case(
        4, rescales=("q#0 requantize -> cat.in[1]",), ports={"cat.in[1]": A, "k2.out[0]": B}
    ),
    "concat_two_pins_neither_covers": Case(
        4,
        rescales=("p#0 requantize -> cat.in[0]", "q#0 requantize -> cat.in[1]"),
        ports={"cat.out[0]": A},
    ),
    "concat_that_rescales_inside": Case(4),
    "nested_concat": Case(
        5, rescales=("a#0 requantize -> wide.in[0]",), ports={"fine.in[0]": (-1, 1), "wide.in[0]": (-4, 4)}
    ),
    "concat_of_one_value_twice": Case(6, rescales=("p#0 requantize -> cat.in[0] x2",)),
    "mul_of_one_value_in_two_storages": Case(7, rescales=("a#0 requantize -> mul.in[1]",)),
    "residual_add_is_free": Case(8, ports={"sum.in[0]": (-1, 1), "sum.in[1]": (-4, 4)}),
    "residual_ring_of_same_scale": Case(
        9,
        ports={"sum2.out[0]": (-1.5, 1.5)},
        alike=("k1.out[0]", "k2.out[0]", "sum1.out[0]", "k3.out[0]", "sum2.out[0]", "k4.in[0]"),
    ),
    "residual_ring_with_a_pinned_skip": Case(
        10, rescales=("p#0 requantize -> sum1.in[1]",), ports={"k2.out[0]": B, "sum2.out[0]": (-1.5, 1.5)}
    ),
    "pool_between_two_pins": Case(
        11,
        rescales=("q#0 requantize -> k3.in[0] x2",),
        ports={"pool.in[0]": A, "pool.out[0]": A, "k3.in[0]": B},
    ),
    "pool_between_two_pins_at_equal_cost": Case(
        11, rescales=("q#0 requantize -> k3.in[0] x2",), ports={"pool.out[0]": A, "k3.in[0]": B}
    ),
    "mean_flagged_same_scale": Case(
        12,
        alike=("k1.out[0]", "mean.in[0]", "mean.out[0]"),
        warnings=("mean.out[0] shares the scale of its input, 8 wide, and is itself 1 wide",),
    ),
    "fixed_output_with_calibration": Case(
        13, rescales=("s#0 requantize -> k2.in[0]",), ports={"soft.out[0]": SOFTMAX, "k1.in[0]": SOFTMAX}
    ),
    "fixed_output_pinned_otherwise": Case(
        14,
        rescales=("s#0 requantize -> k1.in[0] x2",),
        ports={"soft.out[0]": SOFTMAX, "k1.in[0]": B},
        warnings=(f"soft.out[0] is fixed to {SOFTMAX}, 's' has the fixed type {B}",),
    ),
    "imported_qdq_left_float": Case(
        15,
        casts=(1, 1),
        floats={"soft": "port y ('s') is kept in float", "k2": "no range"},
    ),
    "softmax_of_a_quantized_model": Case(15, casts=(0, 0)),
    "fixed_input_behind_a_pin": Case(
        16,
        rescales=("p#0 requantize -> asin.in[0]",),
        ports={"k1.out[0]": A, "asin.in[0]": B},
        warnings=(f"asin.in[0] is fixed to {B}, 'p' has the fixed type {A}",),
    ),
    "bias_is_the_product": Case(17, about=("conv.in[2]",)),
    "bias_behind_a_rescale": Case(18, rescales=("x#0 requantize -> conv.in[0]",), about=("conv.in[2]",)),
    "bias_shared_by_two_convs": Case(
        19, warnings=("conv2.in[2] stores 'b' once more",), about=("conv1.in[2]", "conv2.in[2]")
    ),
    "one_constant_as_weight_and_operand": Case(
        20, warnings=("sum.in[1] stores 'w' once more",), about=("conv.in[1]", "sum.in[1]")
    ),
    "weight_shared_by_two_kernels": Case(21, alike=("conv1.in[1]", "conv2.in[1]"), about=("conv2.in[1]",)),
    "weight_shared_in_two_types": Case(21, warnings=("fc.in[1] stores 'w' once more",), about=("fc.in[1]",)),
    "bias_grows_its_channel": Case(22, about=("conv.in[1]",)),
    "bias_too_long_for_a_pinned_weight": Case(
        22, warnings=("fc.in[2]: channel 1 of 'b' takes 1.678e+09 of 2^31 steps",), about=("fc.in[2]",)
    ),
    "bias_derived_anew": Case(
        23,
        model="bias_pinned_off_the_product",
        options={"bias_pins": "derive"},
        warnings=("fc.in[2]: 'b' has the fixed type !quant.uniform<i32:f32, 0.125>; derived",),
        about=("fc.in[2]",),
    ),
    "pinned_weight_finer_for_its_bias": Case(
        65, ports={"fc.in[1]": "!quant.uniform<i8<-127:127>:f32, 0.0078125>"}, about=("fc.in[1]", "fc.in[2]")
    ),
    "pinned_weight_without_room_to_be_finer": Case(
        65,
        model="pinned_weight_finer_for_its_bias",
        target="tight",
        ports={"fc.in[1]": "!quant.uniform<i8<-7:7>:f32, 0.25>"},
    ),
    "narrow_range_is_another_storage": Case(24, rescales=("a#0 clamp -> k2.in[0]",)),
    "weight_that_is_not_narrow": Case(
        24,
        floats={"conv": "port w ('w') has the fixed type"},
        warnings=(f"conv.in[1] is float, so {B} on 'w'",),
    ),
    "any_8_takes_the_first_row": Case(25, ports={"fc.in[0]": (-1, 1, I16)}),
    "any_16_into_8_bits": Case(
        26,
        casts=(0, 0),
        floats={"k1": "port y ('a') wants !quant.any<i16>", "k2": "port a ('a') wants !quant.any<i16>"},
        warnings=("k1.out[0] is float", "k2.in[0] is float", "k2.in[1] is float"),
    ),
    "any_16_between_8_bit_kernels": Case(
        26,
        casts=(2, 2),
        floats={"k1": "port y ('a') wants !quant.any<i16>", "k2": "port a ('a') wants !quant.any<i16>"},
        warnings=("k1.out[0] is float", "k2.in[0] is float", "k2.in[1] is float"),
    ),
    "a_row_asked_of_a_kernel": Case(25, ports={"fc.in[0]": (-1, 1), "fc.out[0]": (-4, 4)}),
    "a_pin_chooses_the_row": Case(27, ports={"fc.in[0]": B, "fc.out[0]": (-4, 4)}),
    "partial_signature_contradicted": Case(
        27,
        rescales=("a#0 widen -> fc.in[0]", "b#0 requantize -> k2.in[0] x2"),
        warnings=("k2.in[0] is !quant.uniform<i8", "k2.in[1] is !quant.uniform<i8"),
        about=("fc",),
    ),
    "wildcard_takes_its_readers_storage": Case(28, casts=(1, 1), ports={"move.in[0]": (-1, 1, U8)}),
    "wildcard_takes_its_default": Case(28, floats={"g": "no row"}, ports={"move.in[0]": (-1, 1)}),
    "none_between_two_kernels": Case(29, casts=(2, 2), ports={"k1.out[0]": (-1, 1), "k2.in[0]": (-1, 1)}),
    "float_asked_of_a_kernel": Case(
        29,
        casts=(2, 2),
        ports={"k1.out[0]": (-1, 1), "k2.in[0]": None, "k2.out[0]": None, "k3.in[0]": (-2, 2)},
        floats={"k2": "annotated: float"},
    ),
    "interface_pinned_by_training": Case(
        31,
        rescales=("a#0 requantize -> cat.in[0]",),
        casts=(0, 0),
        ports={"k1.in[0]": A, "cat.out[0]": A, "k2.in[0]": (-1, 1)},
    ),
    "value_returned_and_consumed": Case(32, casts=(1, 2), ports={"k1.out[0]": (-1, 1), "k2.in[0]": (-1, 1)}),
    "split_with_pins_on_outputs": Case(
        33, rescales=("small#0 requantize -> k3.in[0] x2",), ports={"split.in[0]": B, "split.out[1]": B}
    ),
    "dead_branch": Case(34, ports={"k1.out[0]": (-1, 1)}),
    "integer_operands": Case(
        35, floats={"gather": "moves data between float ops"}, ports={"k1.in[0]": (-1, 1)}
    ),
    "pad_with_a_constant": Case(
        36, alike=("k1.out[0]", "pad.in[0]", "pad.in[1]"), ports={"pad.out[0]": (-4, 1)}
    ),
    "pad_with_minus_infinity": Case(
        36, alike=("k1.out[0]", "pad.in[0]", "pad.in[1]"), ports={"pad.out[0]": (-1, 1)}
    ),
    "per_axis_pin_meets_a_reshape": Case(
        37, rescales=("x#0 requantize -> move.in[0]",), alike=("move.in[0]", "move.out[0]", "k1.in[0]")
    ),
    "per_axis_through_a_transpose": Case(
        37,
        casts=(0, 0),
        ports={
            "there.out[0]": "!quant.uniform<i8:f32:0, {0.5,0.25:3}>",
            "dw.in[0]": "!quant.uniform<i8:f32:1, {0.5,0.25:3}>",
        },
    ),
    "per_axis_concat_along_it": Case(
        37,
        rescales=("v#0 requantize -> k1.in[0] x2",),
        ports={"cat.out[0]": "!quant.uniform<i8:f32:1, {0.5,0.25:3,2.0}>"},
    ),
    "blocks_through_a_split": Case(
        37, casts=(0, 2), ports={"part.out[1]": "!quant.uniform<i8:f32:{0:1, 1:2}, {{0.25}, {1.0}}>"}
    ),
    "relu_alone": Case(56, alike=("k1.out[0]", "relu.in[0]"), ports={"relu.out[0]": (0, 3)}),
    "relu_fused": Case(38, ports={"conv.out[0]": (0, 3)}),
    "lstm_states_are_classes": Case(
        39,
        ports={"lstm.in[4]": (-1, 0.75), "lstm.out[2]": CELL, "lstm.in[1]": (-0.5, 0.5, N8)},
        alike=("lstm.in[4]", "lstm.out[0]", "lstm.out[1]"),
        about=("lstm.in[4]", "lstm.in[5]", "lstm.out[1]", "lstm.out[2]", "lstm.in[3]"),
    ),
    "lstm_pin_on_h_out_pins_h_in": Case(
        39,
        ports={"lstm.in[4]": B, "lstm.out[0]": B, "lstm.out[1]": B, "k1.out[0]": B},
        about=("lstm.in[4]", "k1.out[0]"),
    ),
    "lstm_pin_on_h_out_too_narrow": Case(
        39,
        rescales=("hn#0 requantize -> k2.in[0] x2",),
        ports={"lstm.in[4]": (-2, 2), "lstm.out[1]": (-2, 2), "k2.in[0]": B},
        warnings=("lstm.out[1] shares the scale of its input",),
    ),
    "lstm_cell_pinned_off_the_powers": Case(
        39,
        rescales=("cn#0 requantize -> @model.in[2]",),
        ports={"lstm.in[5]": CELL, "lstm.out[2]": CELL},
    ),
    "lstm_unrolled_twice": Case(
        39,
        ports={"step2.out[2]": CELL},
        alike=("step1.in[4]", "step1.out[0]", "step1.out[1]", "step2.in[4]", "step2.out[1]"),
        warnings=("step2.in[3] stores 'b' once more",),
        about=("step1.in[4]", "step1.in[5]"),
    ),
    "lstm_absent_operands": Case(39, casts=(2, 1), ports={"lstm.in[5]": CELL, "lstm.out[2]": CELL}),
    "annotations_inside_a_region": Case(
        42,
        ports={"conv.out[0]": (0, 3)},
        warnings=("!quant.uniform<i8:f32, 0.03125> on 't' has no effect: it is inside kernel 'conv'",),
    ),
    "variadic_concat": Case(43, alike=tuple(f"cat.in[{i}]" for i in range(5)), ports={"cat.out[0]": (-2, 1)}),
    "three_consumers_two_alike": Case(
        44, rescales=("a#0 requantize -> k3.in[0] x2",), warnings=("k3.in[0] is fixed", "k4.in[0] is fixed")
    ),
    "one_rescale_a_consumer": Case(
        44,
        model="three_consumers_two_alike",
        target="single",
        rescales=("a#0 requantize -> k3.in[0]", "a#1 requantize -> k4.in[0]"),
        warnings=("k3.in[0] is fixed", "k4.in[0] is fixed"),
    ),
    "nearly_equal_scales": Case(45, warnings=("1e-6 apart, one label",)),
    "rescale_chain_keeps_its_clamp": Case(
        45,
        rescales=("s#0 requantize -> asin.in[0]", "s#1 requantize -> asin.in[0]"),
        warnings=("soft.out[0] is fixed to", "asin.in[0] is fixed to"),
    ),
    "other_signedness": Case(
        46, rescales=("a#0 zero_point -> k2.in[0] x2",), ports={"k1.out[0]": (-1, 1), "k2.in[0]": (-1, 1, U8)}
    ),
    "degenerate_ranges": Case(
        47,
        ports={
            "k1.out[0]": "!quant.uniform<i8:f32, 1.0>",
            "k2.out[0]": (0, 1),
            "k3.out[0]": (-1, 0),
            "k4.in[0]": (-1, 0),
        },
    ),
    "kernel_not_in_the_table": Case(
        48, casts=(2, 2), floats={"g": "npu has no row for kernel 'gelu'"}, ports={"k2.in[0]": (-0.2, 1)}
    ),
    "solutions_of_equal_cost": Case(49, rescales=("q#0 zero_point -> cat.in[1]",)),
    "depthwise_of_a_per_axis_input": Case(
        51,
        casts=(0, 0),
        ports={"dw.in[0]": "!quant.uniform<i8:f32:1, {0.10000000149011612,0.20000000298023224}>"},
    ),
    "ssd_heads": Case(52, alike=("k1.out[0]", "v1.in[0]", "v4.out[0]", "cat.in[3]", "cat.out[0]")),
    "reshapes_on_the_way": Case(
        53, rescales=("d#0 requantize -> cat.in[0]",), ports={"v1.in[0]": (-1, 1), "cat.in[0]": (-4, 4)}
    ),
    "reshape_between_float_kernels": Case(
        54, casts=(0, 0), floats={"norm": "no row", "move": "moves data between float ops", "act": "no row"}
    ),
    "float_use_counts": Case(
        55, rescales=("a#1 requantize -> cat.in[0]",), ports={"k1.out[0]": (-1, 1)}, floats={"g": "no row"}
    ),
    "wide_into_a_fixed_input": Case(
        57,
        ports={"k1.out[0]": B, "asin.in[0]": B},
        warnings=(f"asin.in[0] is fixed to {B} and clips 75.0% of (-4.0, 4.0)",),
    ),
    "pin_with_a_narrower_range": Case(58, ports={"cat.in[0]": A, "k3.in[0]": A}),
}

# number, model, target
CONFLICTS = {
    "weight_shared_in_two_types": (21, "", "rigid"),
    "bias_pinned_off_the_product": (23, "", "npu"),
    "any_16_where_nothing_runs_in_float": (26, "any_16_into_8_bits", "strict"),
    "a_row_asked_of_8_bit_rows": (26, "", "npu"),
    "float_asked_between_rigid_kernels": (30, "float_asked_of_a_kernel", "rigid"),
    "float_asked_where_nothing_runs_in_float": (30, "float_asked_of_a_kernel", "strict"),
    "none_between_two_kernels": (30, "", "rigid"),
    "per_axis_pin_meets_a_reshape": (37, "", "rigid"),
    "contradictory_constraints": (50, "", "npu"),
    "two_pins_and_no_rescale": (50, "", "rigid"),
}


def planned(name, graph):
    """Plan a model as a case says."""
    case = CASES[name]
    return propagate(graph, TARGETS[case.target], model=model_digest(graph), **case.options)


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
    return str(uniform_from_range(lo, hi, kept, symmetric=kept in (I16, N8)))


def told(plan: Plan, addresses: list[str]) -> str:
    """A plan and the reasons of some of it, as a golden shows them."""
    proof = "optimal" if plan.optimal else f"at least {plan.bound:g}"
    lines = [f"cost {plan.cost:g}, {proof}"]
    for kernel in plan.kernels_in_order:
        lines.append(f"{kernel.name} ({kernel.kernel}): {kernel.row or f'float, {kernel.reason}'}")
        ports = [port for port in (*kernel.inputs, *kernel.outputs) if port.value]
        lines += [f"  {port.address} {port.value}: {port.type or 'float'}" for port in ports]
    for rescale in plan.rescales:
        readers = ", ".join(f"{kernel}.in[{i}]" for kernel, i in rescale.consumers)
        lines.append(f"{rescale.id} {rescale.kind} x {rescale.elements} -> {readers}")
    for name, value in plan.values.items():
        if value.bits_lost or value.clip:
            lines.append(f"{name} loses {value.bits_lost:.3f} bits, {value.clip:.2%} is cut off")
    lines += [f"warning: {text}" for text in plan.warnings]
    return "\n".join([*lines, *(f"\n{explain(plan, address)}" for address in addresses)]) + "\n"


def reasons_to_tell(plan: Plan, case: Case) -> list[str]:
    """What a case is about: its rescales, its float kernels, the first port it names, or the last result."""
    if case.about:
        return list(case.about)
    found = [text.partition(" ")[0] for text in case.rescales] + list(case.floats)
    found += [*case.ports, *case.alike][:1]
    return found or [plan.kernels_in_order[-1].outputs[0].address]
