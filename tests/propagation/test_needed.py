"""Needed ranges: cases 59 to 64 of tests/cases, the numbers behind each op's rule, plans of random graphs."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.formats.onnx.sessions import open_graph, session_options
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import parse_type
from planner.plans.explain import explain
from tests.formats.plans import model, op

MASK = np.triu(np.full((8, 8), np.finfo(np.float32).min, np.float32), 1)
TARGETS = (
    "ethos-u55",
    "litert-int8",
    "onnxruntime-cpu",
    "qnn-htp",
    "teaching-npu",
    "tensorrt-int8",
    "tosa-int8",
)


def attention(*ops, mask=MASK, outputs=("y",), **constants):
    """A product of q and k, then some ops from `scores` to `sum`, then a softmax."""
    scores = op("MatMul", "q k", "scores")
    return model(
        [scores, *ops, op("Softmax", "sum", "y", axis=-1)],
        inputs={"q": (1, 2, 8, 4), "k": (1, 2, 4, 8)},
        outputs=dict.fromkeys(outputs, (1, 2, 8, 8)),
        constants={"mask": mask, **constants},
        shapes=dict.fromkeys(("scores", "sum", "other", "again"), (1, 2, 8, 8)),
    )


def draws(seed=0, count=4):
    rng = np.random.default_rng(seed)
    return [
        {
            "q": rng.normal(size=(1, 2, 8, 4)).astype(np.float32) * 2,
            "k": rng.normal(size=(1, 2, 4, 8)).astype(np.float32) * 2,
        }
        for _ in range(count)
    ]


def planned(graph, target, samples=None):
    """The plan for calibrated data, checked; and its target."""
    samples = samples or draws()
    stats = planner.calibrate(graph, samples)
    annotated = planner.annotate(graph, stats=stats)
    plan = planner.plan(annotated, target)
    planner.check(plan, annotated, target)
    return plan, annotated, stats


def held(plan, address):
    """The reals between the ends of the type of a port."""
    ports = (port for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs))
    kind = next(port.type for port in ports if port.address == address)
    return (kind.lo, kind.hi) if isinstance(kind, Uniform) else None


def worst(graph, plan, samples):
    """The largest difference of a softmax's result from the float model's, over all samples."""
    most = 0.0
    session = open_graph(graph, session_options(), inline=1 << 20)
    for sample in samples:
        got = planner.evaluate(graph, plan, sample).outputs["y"]
        most = max(most, float(np.abs(got - session.run(["y"], sample)[0]).max()))
    return most


def needs(stats, step, entries=8):
    """The floor of the sum, as the specification has it (section 10)."""
    (rows,) = stats.values["sum"].rows
    return rows.least - np.log(entries / step) - 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_chosen_mask_is_cut_too(target):
    """As exporters of BERT write it: a Where of two constants, which rows of `qnn-htp` do not move."""
    graph = model(
        [
            op("MatMul", "q k", "scores"),
            op("Greater", "seen half", "is_seen"),
            op("Where", "is_seen none low", "chosen"),
            op("Add", "scores chosen", "sum"),
            op("Softmax", "sum", "y", axis=-1),
        ],
        inputs={"q": (1, 2, 8, 4), "k": (1, 2, 4, 8), "seen": (1, 1, 1, 8)},
        outputs={"y": (1, 2, 8, 8)},
        constants={"half": np.float32(0.5), "none": np.float32(0), "low": np.finfo(np.float32).min},
        dtypes={"is_seen": "bool"},
        shapes={"scores": (1, 2, 8, 8), "chosen": (1, 1, 1, 8), "sum": (1, 2, 8, 8)},
    )
    seen = np.float32([1, 1, 1, 1, 1, 1, 0, 0]).reshape(1, 1, 1, 8)
    plan, _, _ = planned(graph, target, [{**sample, "seen": seen} for sample in draws()])
    ports = [port for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    of_data = [port for port in ports if port.type is not None and port.value not in graph.constants]
    wide = [f"{port.address} {port.type}" for port in of_data if port.type.lo < -1e4]
    assert wide == []


@pytest.mark.parametrize("target", TARGETS)
def test_a_mask_does_not_decide_the_scale_of_a_sum(target):
    """Case 59: masks of -3.4e38, of -200 and of minus infinity give the same types."""
    found = []
    for mask in (MASK, *(np.where(MASK < 0, np.float32(far), np.float32(0)) for far in (-200, -np.inf))):
        plan, _, _ = planned(attention(op("Add", "scores mask", "sum"), mask=mask), target)
        found.append(
            [port.type for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
        )
    assert found[0] == found[1] == found[2]


MASKED = {
    "a constant": (op("Add", "scores mask", "sum"),),
    "moved": (
        op("Add", "scores mask", "other"),
        op("Identity", "other", "again"),
        op("Abs", "again", "gone"),
        op("Transpose", "other", "turned", perm=[0, 1, 2, 3]),
        op("Add", "turned zero", "sum"),
    ),
    "chosen": (op("Where", "closed far scores", "sum"),),
    "computed": (op("Where", "closed far zero", "chosen"), op("Add", "scores chosen", "sum")),
    "halved": (op("Add", "scores mask", "other"), op("Mul", "other half", "sum")),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", MASKED)
def test_minus_infinity_masks_narrow_scores(way, target):
    """The least finite score is no mask: masked entries of narrow scores weighed like others."""
    infinite = np.where(MASK < 0, np.float32(-np.inf), np.float32(0))
    graph = attention(
        *MASKED[way],
        mask=infinite,
        closed=MASK < 0,
        far=np.float32(-np.inf).reshape(1),
        half=np.float32(0.5).reshape(1),
        zero=np.zeros(1, np.float32),
    )
    samples = [{name: array / 8 for name, array in sample.items()} for sample in draws()]
    plan, _, _ = planned(graph, target, samples)
    assert worst(graph, plan, samples) < 0.05


def test_a_computed_mask_that_all_is_needed_of_stays_float():
    graph = attention(
        *MASKED["computed"],
        outputs=("y", "sum"),
        closed=MASK < 0,
        far=np.float32(-np.inf).reshape(1),
        zero=np.zeros(1, np.float32),
    )
    plan, _, _ = planned(graph, "litert-int8")
    assert plan.kernels["op_sum"].row is None
    assert "a consumer needs all of it" in plan.kernels["op_sum"].reason
    got = planner.evaluate(graph, plan, draws()[0]).outputs["sum"]
    assert np.isneginf(got[..., 0, 1]).all()


def test_the_floor_of_a_sum_is_what_a_softmax_cannot_tell_apart():
    graph = attention(op("Add", "scores mask", "sum"))
    plan, annotated, stats = planned(graph, "litert-int8")
    lo, hi = held(plan, "op_sum.out[0]")
    step = (hi - lo) / 255
    assert lo == pytest.approx(needs(stats, 1 / 256), abs=step)
    assert hi == pytest.approx(stats.values["sum"].hi, abs=step)
    # The mask is stored no further than it is needed, and the model's own constant is as it was.
    assert held(plan, "op_sum.in[1]")[0] == pytest.approx(lo - stats.values["scores"].hi, abs=2 * step)
    assert annotated.constants["mask"].array.min() == np.finfo(np.float32).min
    assert worst(graph, plan, draws()) < 0.1
    assert "'op_y' cannot tell apart the rest of -3.40282e+38" in explain(plan, "sum")


def test_a_row_all_masked_does_not_count():
    """Left padding: its row maximum would be -3.4e38."""
    padded = MASK.copy()
    padded[0] = MASK.min()
    alike = [
        planned(attention(op("Add", "scores mask", "sum"), mask=m), "litert-int8")[2] for m in (MASK, padded)
    ]
    rows = [stats.values["sum"].rows[0] for stats in alike]
    assert rows[1].least >= rows[0].least > -100
    assert rows[1].apart == 0


def test_rows_far_below_the_others_are_left_out_and_named():
    mask = np.zeros((8, 8), np.float32)
    mask[0] = -1000.0
    plan, annotated, stats = planned(attention(op("Add", "scores mask", "sum"), mask=mask), "litert-int8")
    (rows,) = stats.values["sum"].rows
    assert (rows.apart, rows.least > -100) == (4 * 2, True)
    assert any(
        "8 rows of 'sum' lie more than 256 below" in note and "sample" in note for note in annotated.notes
    )
    assert held(plan, "op_sum.out[0]")[0] > -100


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "qnn-htp"])
@pytest.mark.parametrize("kind", ["Add", "Where"])
def test_a_mask_of_infinities_is_stored_as_far_as_it_is_needed(kind, target):
    """Minus infinity in a constant: the stored copy is clamped, so the sum runs on integers."""
    infinite = np.where(MASK < 0, np.float32(-np.inf), np.float32(0))
    if kind == "Add":
        graph = attention(op("Add", "scores mask", "sum"), mask=infinite)
    else:
        far = np.full(1, -np.inf, np.float32)
        graph = attention(op("Where", "open scores mask", "sum"), mask=far, open=MASK == 0)
    plan, _, _ = planned(graph, target)
    served = plan.kernels["op_sum"].row is not None
    assert served or (kind, target) == ("Where", "litert-int8")
    if served:
        assert held(plan, "op_sum.in[1]")[0] > -100
    assert worst(graph, plan, draws()) < 0.1


def test_a_mask_of_infinities_that_all_is_needed_of_stays_float():
    infinite = np.where(MASK < 0, np.float32(-np.inf), np.float32(0))
    graph = attention(op("Add", "scores mask", "sum"), mask=infinite, outputs=("y", "sum"))
    plan, _, _ = planned(graph, "litert-int8")
    assert "infinite" in plan.kernels["op_sum"].reason


def test_a_mask_read_twice_is_stored_twice():
    """Case 60: each copy has its own end."""
    graph = attention(
        op("Add", "scores mask", "sum"),
        op("Mul", "scores four", "other"),
        op("Add", "other mask", "again"),
        op("Softmax", "again", "z", axis=-1),
        outputs=("y", "z"),
        four=np.float32(4.0).reshape(1),
    )
    plan, annotated, _ = planned(graph, "litert-int8")
    ends = [held(plan, f"{name}.in[1]")[0] for name in ("op_sum", "op_again")]
    assert ends[1] < 2 * ends[0] < 0
    assert annotated.constants["mask"].array.min() == np.finfo(np.float32).min


@pytest.mark.parametrize("constant", [np.finfo(np.float32).min, -1e9])
def test_a_product_of_two_values_clamps_its_constant(constant):
    """Case 61: `(1 - m) * -3.4e38`, as BERT has it: the constant is clamped, `1 - m` is needed whole."""
    graph = model(
        [
            op("MatMul", "q k", "scores"),
            op("Sub", "one m", "turned"),
            op("Mul", "turned far", "mask"),
            op("Add", "scores mask", "sum"),
            op("Softmax", "sum", "y", axis=-1),
        ],
        inputs={"q": (1, 2, 8, 4), "k": (1, 2, 4, 8), "m": (1, 1, 1, 8)},
        outputs={"y": (1, 2, 8, 8)},
        constants={"one": np.ones(1, np.float32), "far": np.full(1, constant, np.float32)},
        shapes={"scores": (1, 2, 8, 8), "sum": (1, 2, 8, 8), "turned": (1, 1, 1, 8), "mask": (1, 1, 1, 8)},
    )
    seen = np.arange(8).reshape(1, 1, 1, 8) < 6
    samples = [{**sample, "m": seen.astype(np.float32)} for sample in draws()]
    plan, _, stats = planned(graph, "litert-int8", samples)
    assert stats.values["turned"].two_values
    lo = held(plan, "op_sum.out[0]")[0]
    assert held(plan, "op_turned.out[0]") == pytest.approx((0.0, 1.0), abs=1e-6)
    assert 2 * lo - 60 < held(plan, "op_mask.in[1]")[0] < lo
    assert worst(graph, plan, samples) < 0.1


def test_what_is_subtracted_gets_a_ceiling():
    """Case 62: scores - penalty."""
    graph = attention(op("Sub", "scores mask", "sum"), mask=-MASK)
    plan, _, stats = planned(graph, "litert-int8")
    lo, _ = held(plan, "op_sum.out[0]")
    assert lo == pytest.approx(needs(stats, 1 / 256), abs=0.5)
    assert held(plan, "op_sum.in[1]")[1] == pytest.approx(stats.values["scores"].hi - lo, abs=1.0)
    assert worst(graph, plan, draws()) < 0.1


def test_a_softmax_in_float_has_the_step_of_a_float():
    """Case 63: behind an 8-bit add, as `tosa-int8` has no softmax."""
    plan, _, stats = planned(attention(op("Add", "scores mask", "sum")), "tosa-int8")
    assert plan.kernels["op_y"].row is None
    assert held(plan, "op_sum.out[0]")[0] == pytest.approx(needs(stats, 2.0**-24), abs=0.5)


def test_an_output_needs_all_of_a_sum():
    """Case 64: the log says who asks for all."""
    graph = attention(op("Add", "scores mask", "sum"), outputs=("y", "sum"))
    plan, _, _ = planned(graph, "litert-int8")
    assert held(plan, "op_sum.out[0]")[0] < -3e38
    assert "an output of the model all of it" in explain(plan, "sum")


def test_an_operand_that_is_lost_in_a_sum_is_warned_of():
    """A model output needs all of a masked sum, so its steps are wider than all scores."""
    plan, _, _ = planned(attention(op("Add", "scores mask", "sum"), outputs=("y", "sum")), "litert-int8")
    assert [w for w in plan.warnings if "'scores'" in w and w.endswith("it is lost there")]
    plan, _, _ = planned(attention(op("Add", "scores mask", "sum")), "litert-int8")
    assert not [w for w in plan.warnings if "lost" in w]


def test_a_log_behind_a_float_softmax_needs_everything():
    """Floats are exact by ratio, and a Log tells the smallest apart."""
    graph = attention(op("Add", "scores mask", "sum"), op("Log", "y", "z"), outputs=("z",), mask=MASK / 1e37)
    graph = replace(graph, ops=tuple(sorted(graph.ops, key=lambda one: one.type == "Log")))
    plan, _, stats = planned(graph, "tosa-int8")
    assert plan.kernels["op_y"].row is None
    assert held(plan, "op_sum.out[0]")[0] == pytest.approx(stats.values["sum"].lo, rel=0.02)


def test_indices_beside_what_is_moved_need_everything():
    """What a softmax cannot tell apart of TopK's values, its indices tell."""
    graph = model(
        [
            op("MatMul", "x w", "a"),
            op("TopK", "a k", "v i", axis=-1),
            op("Softmax", "v", "y", axis=-1),
        ],
        inputs={"x": (16, 8)},
        outputs={"y": (16, 8), "i": (16, 8)},
        constants={
            "w": np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32) * 20,
            "k": np.array([8]),
        },
        shapes=dict.fromkeys("avi", (16, 8)),
        dtypes={"i": "i64"},
    )
    samples = [{"x": np.random.default_rng(k).normal(size=(16, 8)).astype(np.float32)} for k in range(4)]
    plan, _, stats = planned(graph, "litert-int8", samples)
    assert held(plan, "op_a.out[0]")[0] == pytest.approx(stats.values["a"].lo, rel=0.02)


@pytest.mark.parametrize("kind", ["Sigmoid", "Tanh"])
def test_steps_finer_than_a_double_near_1_have_no_ends(kind):
    graph = model(
        [op("MatMul", "x w", "a"), op(kind, "a", "y")],
        inputs={"x": (4, 8)},
        outputs={"y": (4, 8)},
        constants={"w": np.full((8, 8), 1e-20, np.float32)},
        shapes={"a": (4, 8)},
    )
    for target in ("qnn-htp", "tosa-int8"):
        planned(graph, target, [{"x": np.ones((4, 8), np.float32)}])


@pytest.mark.parametrize("seed", range(12))
def test_replanning_is_planning_where_needs_are_near(seed):
    """The plan from scratch, to the last step of the log, and the checker takes it."""
    graph, samples = random_chain(seed)
    target = TARGETS[seed % len(TARGETS)]
    plan, annotated, _ = planned(graph, target, samples)
    # A value that a factor's way renamed is annotated together with the statistics, not behind them.
    for name in [name for one in graph.ops if (name := one.outputs[0]) in annotated.values][::2]:
        edits = {"values": {name: "!quant.none"}}
        again = planner.replan(plan, edits)
        model_now = planner.annotate(annotated, annotations={"format": "qplan.annotations/1", **edits})
        planner.check(again, model_now, target)
        fresh = planner.plan(model_now, target)
        assert again.to_json() == fresh.to_json()


SATURATING = {
    "Sigmoid": (1 / 256, lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": (1 / 128, np.tanh),
}


@pytest.mark.parametrize("kind", SATURATING)
def test_beyond_its_first_and_last_step_a_function_needs_nothing(kind):
    """What is cut moves the result by no more than half a step, and one that is cut more would move it."""
    step, function = SATURATING[kind]
    graph = model(
        [op("MatMul", "x w", "a"), op(kind, "a", "y")],
        inputs={"x": (16, 8)},
        outputs={"y": (16, 8)},
        constants={"w": np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32) * 20},
        shapes={"a": (16, 8)},
    )
    samples = [{"x": np.random.default_rng(k).normal(size=(16, 8)).astype(np.float32)} for k in range(4)]
    plan, _, stats = planned(graph, "litert-int8", samples)
    lo, hi = held(plan, "op_y.in[0]")
    grain = (hi - lo) / 255
    assert stats.values["a"].lo < 3 * lo < 0 < 3 * hi < stats.values["a"].hi
    least, most = function(-np.inf), function(np.inf)
    assert function(lo + grain) - least > 0.4 * step > 0.3 * (function(lo) - least)
    assert most - function(hi - grain) > 0.4 * step
    assert function(lo) - least <= step


@pytest.mark.parametrize("two", [True, False])
def test_a_gated_value_needs_nothing_where_it_is_stored_as_0(two):
    """The gate is one op or in two; the tail is cut where the product is half a step from 0."""
    ops = [op("Sigmoid", "a", "g"), op("Mul", "a g", "y")] if two else [op("HardSwish", "a", "y")]
    graph = model(
        [op("MatMul", "x w", "a"), *ops],
        inputs={"x": (16, 8)},
        outputs={"y": (16, 8)},
        constants={"w": np.random.default_rng(3).normal(size=(8, 8)).astype(np.float32) * 4},
        shapes={"a": (16, 8), "g": (16, 8)},
    )
    samples = [{"x": np.random.default_rng(k).normal(size=(16, 8)).astype(np.float32)} for k in range(4)]
    plan, _, stats = planned(graph, "litert-int8", samples)
    lo, hi = held(plan, "op_a.out[0]")
    assert stats.values["a"].lo < -20
    assert -8.0 < lo < -2.5
    assert hi == pytest.approx(stats.values["a"].hi, rel=0.01)
    step = (held(plan, "op_y.out[0]")[1] - held(plan, "op_y.out[0]")[0]) / 255
    if two:
        assert abs(lo / (1 + np.exp(-lo))) <= step


BESIDE, SCALING = ("Add", "Sub", "Mul", "Where"), ("Div", "MatMul")
CHAIN = (*BESIDE, *SCALING, "Sigmoid", "Tanh", "Relu", "Reshape", "Softmax", "Neg")


def random_chain(seed):
    """A random chain of ops with side branches, and samples for it."""
    rng = np.random.default_rng(seed)
    ops, constants, known = [], {}, ["x"]
    for k in range(int(rng.integers(3, 12))):
        kind, name, read = str(rng.choice(CHAIN)), f"v{k}", str(rng.choice(known[-3:]))
        names = [read]
        if kind in BESIDE and rng.random() < 0.4:
            names.append(str(rng.choice(known)))
        elif kind in BESIDE or kind in SCALING:
            constants[f"c{k}"] = beside(rng, kind)
            names.append(f"c{k}")
        if kind in BESIDE and rng.random() < 0.3:
            names.reverse()
        if kind == "Where":
            constants[f"m{k}"] = rng.random((8, 8)) < 0.3
            names.insert(0, f"m{k}")
        if kind == "Reshape":
            constants[f"s{k}"] = np.array([8, 8], np.int64)
            names.append(f"s{k}")
        ops.append(op(kind, " ".join(names), name))
        known.append(name)
    outputs = {known[-1], *([str(rng.choice(known[1:]))] if rng.random() < 0.3 else [])}
    graph = model(
        ops,
        inputs={"x": (8, 8)},
        outputs=dict.fromkeys(sorted(outputs), (8, 8)),
        constants=constants,
        shapes=dict.fromkeys(known[1:], (8, 8)),
    )
    return graph, [{"x": rng.normal(size=(8, 8)).astype(np.float32) * 3} for _ in range(3)]


def beside(rng, kind):
    """A constant beside an operand: masks of any size, scales of one sign."""
    if kind in SCALING:
        array = np.abs(rng.normal(size=(8, 8))) + 0.1
        size = rng.choice([0.1, 1.0, 5.0])
    else:
        array = rng.normal(size=(8, 8)).clip(-1, 1) * (rng.random((8, 8)) < 0.5)
        size = rng.choice([0.1, 1.0, 50.0, 1e9, 3.4e38])
    return (array * size * rng.choice([-1, 1])).astype(np.float32)


def plans_of_random_chains(seeds):
    """Every plan is accepted by the checker, which recomputes what is needed by code of its own."""
    told = islands = 0
    for seed in seeds:
        graph, samples = random_chain(seed)
        for target in TARGETS[seed % 3 :: 3]:
            plan, _, _ = planned(graph, target, samples)
            told += any(step.rule == "needed" for step in plan.steps)
            islands += any("island" in (kernel.reason or "") for kernel in plan.kernels_in_order)
    return told, islands


def test_plans_of_random_chains_are_accepted():
    told, islands = plans_of_random_chains(range(24))
    assert min(told, islands) > 5


def test_a_kernel_that_is_taken_apart_is_not_put_together_again():
    """A product that left all rows was fused again with its operands the other way round, without end."""
    graph, samples = random_chain(12)
    plan, _, _ = planned(graph, "ethos-u55", samples)
    assert not any(kernel.row and kernel.kernel == "mul" for kernel in plan.kernels_in_order)


@pytest.mark.soak
def test_plans_of_many_random_chains_are_accepted():
    told, islands = plans_of_random_chains(range(60, 3000))
    assert min(told, islands) > 200


@pytest.mark.parametrize(("alpha", "wanted"), [(0.1, (-10.0, 0.875)), (2.0, (-0.5, 0.875)), (0.0, None)])
def test_a_leaky_relu_hands_on_what_is_kept_of_its_result(alpha, wanted):
    """What training cut off behind it is not stored in front of it: -1 is -10 of a slope of 0.1."""
    graph = model(
        [op("MatMul", "x w", "m"), op("LeakyRelu", "m", "y", alpha=alpha), op("MatMul", "y w", "z")],
        inputs={"x": (4, 4)},
        outputs={"z": (4, 4)},
        constants={"w": np.diag(np.float32([1, 2, 3, 4]))},
        shapes={"m": (4, 4), "y": (4, 4)},
        facts={"y": (parse_type("!quant.uniform<i4:f32, 0.125>"),)},
    )
    samples = [{"x": np.linspace(-25, 25, 16, dtype=np.float32).reshape(4, 4)}]
    plan, _, _ = planned(graph, "litert-int8", samples)
    low, high = held(plan, next(k.outputs[0].address for k in plan.kernels_in_order))
    if wanted is None:
        assert high - low > 100
    else:
        assert (low, high) == pytest.approx(wanted, abs=(wanted[1] - wanted[0]) / 200)


def test_of_a_pinned_constant_that_is_read_in_float_nothing_is_told():
    """Its pin, that of the result and the range beside it leave a part of it out; nobody stores it."""
    graph = model(
        [op("Relu", "x", "r"), op("Sub", "r k", "y"), op("Relu", "y", "z")],
        inputs={"x": (1, 4)},
        outputs={"z": (1, 4)},
        constants={"k": np.array([[-4.93, 4.5, 1.0, -2.0]], np.float32)},
        facts={
            "k": (parse_type("!quant.uniform<i6:f32, 0.125>"),),
            "y": (parse_type("!quant.uniform<i4:f32, 0.43>"),),
        },
    )
    stats = planner.calibrate(graph, [{"x": np.array([[0.7, 0.0, 0.2, -0.1]], np.float32)}])
    annotated = planner.annotate(graph, stats=stats)
    plan = planner.plan(annotated, "onnxruntime-cpu")
    planner.check(plan, annotated, "onnxruntime-cpu")
    assert [step.rule for step in plan.steps if step.port == "k"] == ["pinned"]
