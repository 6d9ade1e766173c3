"""Parameters of weights and biases, and the bits of accumulators: cases 17, 22 to 24."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import Conflict, InputError, PlanInvalid, RuleError
from planner.ir.graph import Constant, Op, model_digest
from planner.ir.types.qtypes import storage, uniform
from planner.propagation.propagate import propagate
from tests.plans.planned import forged
from tests.propagation.small import graph_of, target_of

RULE = "rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]"
ROWS = target_of(f"""
- {{kernel: conv, in: {{x: a8, w: w8, b?: b32}}, out: {{y: a8}}, axis: {{w: 0}}, {RULE}}}
- {{kernel: fc, in: {{x: a8, w: n8, b?: b32}}, out: {{y: a8}}, {RULE}}}
""")
X = "!quant.uniform<i8:f32, 0.0078125>"


def plan_of(kernel, w, b, *, x=X, target=ROWS, facts=None):
    values = {"x": x, "w": np.array(w, np.float32), "b": np.array(b, np.float32), "y": "[-4, 4]"}
    graph = graph_of(values, [("k", kernel, "x w b", "y")], outputs="y", shapes={"x": (1, 2)})
    op = Op("k_op", "Gemm", ("x", "w", "b"), ("y",), {"transB": 1})
    named = {n: replace(v, facts=tuple((facts or {}).get(n, v.facts))) for n, v in graph.values.items()}
    return propagate(replace(graph, regions=(replace(graph.regions[0], ops=(op,)),), values=named), target)


def types(plan):
    return [port.type for port in plan.kernels["k"].inputs]


@pytest.mark.parametrize(("kernel", "axis", "slices"), [("conv", 0, 2), ("fc", None, 1)])
def test_bias_is_the_product(kernel, axis, slices):
    x, w, b = types(plan_of(kernel, [[1, -2], [0.5, 0.25]], [0.5, -0.25]))
    assert (b.axis, len(b.scales), str(b.storage), set(b.zero_points)) == (axis, slices, "i32", {0})
    assert b.scales == pytest.approx([x.scale * s for s in w.scales], rel=1e-7)


@pytest.mark.parametrize(("kernel", "grown"), [("conv", [True, False]), ("fc", [True])])
def test_a_bias_that_would_overflow_grows_its_channels_weight_scale(kernel, grown):
    """Case 22: |b| / (s_in s_w) stays below 2^30; other channels keep their scale."""
    weights = [[1e-5, -2e-5], [0.5, 0.25]] if kernel == "conv" else [[1e-5, -2e-5], [1e-5, 0.0]]
    plain = types(plan_of(kernel, weights, [0.5, 0.5]))
    x, w, b = types(plan_of(kernel, weights, [5000.0, 0.5]))
    assert [scale > before for scale, before in zip(w.scales, plain[1].scales, strict=True)] == grown
    assert 5000.0 / b.scales[0] <= 2**30
    assert b.scales == pytest.approx([x.scale * s for s in w.scales], rel=1e-7)


def test_a_power_of_two_grown_for_a_bias_is_the_next_above():
    """The one below would not do: the bias would pass 2^30 steps."""
    target = target_of(f"- {{kernel: fc, in: {{x: a8, w: p8, b?: b32}}, out: {{y: a8}}, {RULE}}}")
    plan = plan_of("fc", [[1e-5, -2e-5], [1e-5, 0.0]], [5000.0, 0.5], target=target)
    check(plan)
    _, w, b = types(plan)
    assert np.frexp(w.scale)[0] == 0.5
    assert 0.5 < 5000.0 / b.scale / 2**30 <= 1


@pytest.mark.parametrize("bits", [20, 24, 32])
def test_a_bias_leaves_room_in_an_accumulator_narrower_than_itself(bits):
    """A channel of hardly any weight, such as training leaves behind, and a bias all the same."""
    sums = f"axis: {{w: 0}}, accumulator: i{bits}"
    target = target_of(f"- {{kernel: fc, in: {{x: a8, w: w8, b?: b32}}, out: {{y: a8}}, {sums}, {RULE}}}")
    plan = plan_of("fc", [[1e-5, -2e-5], [0.5, 0.25]], [5.0, 0.5], target=target)
    _, w, b = types(plan)
    assert 0.5 < 5.0 / b.scales[0] / 2.0 ** (bits - 2) <= 1
    assert w.scales[1] == pytest.approx(0.5 / 127)
    assert plan.kernels["k"].accumulator_bits <= bits
    check(plan)


def test_a_bias_pin_off_the_product_is_refused():
    """Case 23: never kept silently."""
    from_text = types(plan_of("fc", [[1, -2], [0.5, 0.25]], [0.5, -0.25]))[2]
    off = replace(from_text, scales=(float(np.float32(from_text.scale * 1.01)),))
    with pytest.raises(
        Conflict, match=r"'b' has the fixed type .* but the product of its factors' scales is"
    ):
        plan_of("fc", [[1, -2], [0.5, 0.25]], [0.5, -0.25], facts={"b": (off,)})
    near = replace(from_text, scales=(float(np.nextafter(np.float32(from_text.scale), np.float32(1))),))
    plan = plan_of("fc", [[1, -2], [0.5, 0.25]], [0.5, -0.25], facts={"b": (near,)})
    assert types(plan)[2].scale == pytest.approx(near.scale, rel=1e-6)


@pytest.mark.parametrize(
    ("weights", "bits"),
    [
        ([[1, 1], [0.5, 0.25]], 17),  # 2 x 127 x 128 = 32512 and the bias's 64 x 127 more
        ([[1] * 64, [0] * 64], 22),
        ([[0, 0], [0, 0]], 8),  # only the bias
    ],
)
def test_accumulator_bits(weights, bits):
    """Bits of the widest sum of |weight| x |input| + |bias| in two's complement."""
    plan = plan_of("fc", weights, [0.5, 0.0])
    _, w, b = types(plan)
    stored = np.abs(np.rint(np.array(weights) / w.scale)).sum(axis=1) * 128
    widest = int((stored + np.abs(np.rint(np.array([0.5, 0.0]) / b.scale))).max())
    assert plan.kernels["k"].accumulator_bits == widest.bit_length() + 1
    assert abs(plan.kernels["k"].accumulator_bits - bits) <= 1


def test_an_accumulator_too_narrow_leaves_the_row():
    row = f"- {{kernel: fc, in: {{x: a8, w: n8, b?: b32}}, out: {{y: a8}}, accumulator: i16, {RULE}}}"
    plan = plan_of("fc", [[1] * 64, [0] * 64], [0.5, 0.0], target=target_of(row))
    assert plan.kernels["k"].reason.endswith("its sums need 21 bits in channel 0, the accumulator has i16")


@pytest.mark.parametrize("spare", [0, 1])
def test_an_accumulator_that_sums_just_fill(spare):
    """As many bits as the sums need are enough, for the planner and for the checker; one less is not."""
    weights = [[1] * 64, [0] * 64]
    bits = plan_of("fc", weights, [0.5, 0.0]).kernels["k"].accumulator_bits
    row = "- {kernel: fc, in: {x: a8, w: n8, b?: b32}, out: {y: a8}, accumulator: iBITS, " + RULE + "}"
    check(plan_of("fc", weights, [0.5, 0.0], target=target_of(row.replace("BITS", str(bits + spare)))))
    narrow = target_of(row.replace("BITS", str(bits - 1)))
    reason = plan_of("fc", weights, [0.5, 0.0], target=narrow).kernels["k"].reason
    assert reason.endswith(f"its sums need {bits} bits in channel 0, the accumulator has i{bits - 1}")


@pytest.mark.parametrize(("bits", "top"), [(7, 63), (5, 15), (8, 127)])
def test_effective_bits_of_a_weight(bits, top):
    """A weight of 8 bits of which a device can use fewer: its largest stands at the end of those."""
    spec = f"{{storage: i8, range: [-127, 127], symmetric: true, weight_bits_effective: {bits}}}"
    target = target_of(f"- {{kernel: fc, in: {{x: a8, w: {spec}}}, out: {{y: a8}}}}")
    graph = graph_of(
        {"x": X, "w": np.array([[1, -2], [0.5, 0.25]], np.float32), "y": "[-4, 4]"},
        [("k", "fc", "x w", "y")],
        outputs="y",
    )
    kind = types(propagate(graph, target))[1]
    assert kind.scale == pytest.approx(2 / top, rel=1e-6)
    assert str(kind.storage) == "i8<-127:127>"


@pytest.mark.parametrize("scales", [(0.5,), (0.5, 0.5, 0.5)])
def test_a_bias_pin_of_other_slices_is_refused(scales):
    pin = uniform(storage("i32"), scales, axis=0 if len(scales) > 1 else None)
    with pytest.raises(
        Conflict, match=r"'b' has the fixed type .* but the product of its factors' scales is"
    ):
        plan_of("conv", [[1, -2], [0.5, 0.25]], [0.5, -0.25], facts={"b": (pin,)})


def test_a_bias_pinned_per_channel_to_the_product_is_served():
    """The bias's own entry in the row is per tensor; its factors make it per axis."""
    plain = plan_of("conv", [[1, -2], [0.5, 0.25]], [0.5, -0.25])
    plan = plan_of("conv", [[1, -2], [0.5, 0.25]], [0.5, -0.25], facts={"b": (types(plain)[2],)})
    check(plan)
    assert types(plan) == types(plain)


@pytest.mark.parametrize(
    ("spec", "scale", "zero_point"),
    [
        ("{storage: i8, symmetric: true, scale_min: 0.1}", float(np.float32(0.1)), 0),
        ("{storage: u8, zero_point: 128}", float(np.float32(2 / 128)), 128),
        ("{storage: u8, zero_point: 128, scale_min: 0.1}", float(np.float32(0.1)), 128),
        ("{storage: i8, zero_point: 0, scale_min: 0.1}", float(np.float32(0.1)), 0),
        ("{storage: i8, symmetric: true, power_of_two: true, scale_min: 0.1}", 0.125, 0),
        ("{storage: i8, power_of_two: true, zero_point: 0, scale_min: 0.1}", 0.125, 0),
    ],
)
def test_constants_have_the_parameters_their_port_asks_for(spec, scale, zero_point):
    target = target_of(f"- {{kernel: fc, in: {{x: a8, w: {spec}, b?: b32}}, out: {{y: a8}}, {RULE}}}")
    plan = plan_of("fc", [[1, -2], [0.5, 0.25]], [0.5, -0.25], target=target)
    check(plan)
    assert (types(plan)[1].scales, types(plan)[1].zero_points) == ((scale,), (zero_point,))


def test_an_axis_may_count_from_the_end():
    row = "- {{kernel: fc, in: {{x: a8, w: w8, b?: b32}}, out: {{y: a8}}, axis: {{w: {}}}}}"
    kinds = [
        types(plan_of("fc", [[1, -2], [4, 3]], [0, 0], target=target_of(row.format(a))))[1] for a in (-1, 1)
    ]
    assert kinds[0] == kinds[1]
    assert kinds[0].axis == 1
    with pytest.raises(RuleError, match=r"axis 2 of port 'w' at 'k': 'w' has 2 dimensions"):
        plan_of("fc", [[1, -2], [4, 3]], [0, 0], target=target_of(row.format(2)))


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf"), None, "2"])
def test_a_cost_is_a_number(price):
    graph = graph_of({"x": X, "y": X}, [("k", "fc", "x", "y")], outputs="y")
    with pytest.raises(InputError, match=r"cost bit_price is .*; accepted: a number of 0 to 1e"):
        propagate(graph, ROWS, bit_price=price)


UNSIGNED = "{{storage: u8{}, granularity: axis{}}}"


@pytest.mark.parametrize(
    ("more", "narrow", "zero", "steps"),
    [("", "", 128, 127), ("", ", range: [1, 255]", 128, 127), (", zero_point: 100", "", 100, 100)],
)
def test_unsigned_weights_per_slice_have_one_zero_point(more, narrow, zero, steps):
    target = target_of(
        f"- {{kernel: fc, in: {{x: a8, w: {UNSIGNED.format(narrow, more)}}}, out: {{y: a8}}, axis: {{w: 0}}}}"
    )
    w = np.array([[1.0, -2.0], [0.5, 0.25]], np.float32)
    graph = graph_of({"x": "[-1, 1]", "w": w, "y": "[-4, 4]"}, [("k", "fc", "x w", "y")], outputs="y")
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    kind = plan.kernels["k"].inputs[1].type
    assert kind.zero_points == (zero, zero)
    assert kind.scales == pytest.approx([2 / steps, 0.5 / steps])
    other = replace(kind, zero_points=(zero, zero - 1))
    with pytest.raises(
        PlanInvalid, match=rf"in slice 1 lie in .*accepted: zero point {zero}|its zero point is not {zero}"
    ):
        check(forged(plan, {"k.in[1]": other}), graph, target)


@pytest.mark.parametrize("granularity", ["axis", "tensor"])
def test_weights_around_an_end_of_their_storage(granularity):
    w = UNSIGNED.format("", ", zero_point: 0").replace("axis", granularity)
    target = target_of(f"- {{kernel: fc, in: {{x: a8, w: {w}}}, out: {{y: a8}}, axis: {{w: 0}}}}")
    w = np.array([[1.0, -2.0], [0.5, 0.25]], np.float32)
    graph = graph_of({"x": "[-1, 1]", "w": w, "y": "[-4, 4]"}, [("k", "fc", "x w", "y")], outputs="y")
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    assert plan.kernels["k"].row is None
    assert (
        "k.in[1] has no type: around zero point 0 u8 holds numbers of one sign only"
        in plan.kernels["k"].reason
    )
    positive = replace(graph, constants={"w": Constant(np.abs(w))})
    kept = propagate(positive, target, model=model_digest(positive))
    check(kept, positive, target)
    steps = 255 * np.asarray(kept.kernels["k"].inputs[1].type.scales)
    assert steps == pytest.approx([2.0, 0.5] if granularity == "axis" else [2.0])


@pytest.mark.parametrize(
    ("spec", "scale", "zero_point"),
    [
        ("{storage: i8, zero_point: 0, scale_min: 1/4}", 0.25, 0),
        ("{storage: i8, zero_point: 0, scale_max: 1/64}", 1 / 64, 0),
        ("{storage: i8, power_of_two: true, scale_min: 0.1}", 0.125, -96),
        ("{storage: i8, power_of_two: true, scale_max: 0.02}", 1 / 64, 127),
        ("{storage: u8, zero_point: 3, power_of_two: true, scale_min: 3}", 4.0, 3),
        # Next to a reader of a storage without signs, a symmetric wildcard has one side of 0.
        ('{storage: "*", symmetric: true}', float(np.float32(4 / 255)), 0),
    ],
)
def test_results_have_scales_within_their_ports_bounds(spec, scale, zero_point):
    target = target_of(
        f"- {{kernel: one, in: {{x: a8}}, out: {{y: {spec}}}, rules: [{{free_scale: [x, y]}}]}}\n"
        "- {kernel: two, in: {x: u8}, out: {y: u8}, rules: [{free_scale: [x, y]}]}"
    )
    values = {"x": X, "m": "[0, 4]" if "*" in spec else "[-4, 4]", "y": "[-4, 4]"}
    plan = propagate(graph_of(values, [("k", "one", "x", "m"), ("l", "two", "m", "y")], outputs="y"), target)
    check(plan)
    result = plan.kernels["k"].outputs[0].type
    assert (result.scale, result.zero_point) == (scale, zero_point)
