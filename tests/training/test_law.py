"""The law: plan, train, plan again gives the same rows, types, ties and rescales, with the learned scales."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.formats.onnx.write import write_graph
from planner.ir.types.qtypes import storage, uniform
from planner.training import groups
from planner.training.learned import Learned
from planner.training.spec import Group
from tests.conftest import ROOT
from tests.formats.plans import model as of_ops
from tests.formats.plans import op

DIGITS = ROOT / "examples" / "digits"
"""A residual convnet with a concat and a softmax."""
TARGETS = ("litert-int8", "qnn-htp", "hls4ml-fpga", "finn-fpga", "teaching-npu")
MORE = ("dpuczdx8g", "edgetpu", "ethos-u55", "hexagon-a16w8", "k210-kpu", "stablehlo", "tensorrt-int8")


@pytest.fixture(scope="module")
def ready():
    model = planner.load_model(DIGITS / "digits.onnx")
    return planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))


def trained(model, spec, seed=0):
    """Scales and weights as training may leave them: each free scale by itself, weights by up to a tenth."""
    random = np.random.default_rng(seed)
    scales = {}
    for name, group in spec.groups.items():
        if group.moves == "derived":
            continue
        times = random.uniform(0.6, 1.6, len(group.scales))
        times = 2.0 ** np.round(np.log2(times) * 2) if group.power_of_two else times
        moved = np.float32(np.asarray(group.scales) * times).tolist()
        scales[name] = tuple(moved) if group.moves == "free" else group.scales
    constants = {
        item.edge.value: np.float32(array * random.uniform(0.9, 1.1))
        for item in (*spec.constants, *spec.biases)
        if (array := model.constants[item.edge.value].array) is not None
    }
    return Learned(spec, scales, constants)


def shape_of(plan):
    """A plan but for the sizes of scales: rows, storages, zero points, and the rescales with their prices."""
    kernels = [
        (
            k.name,
            k.row,
            [(p.value, p.type and (p.type.storage, p.type.zero_points, p.type.axis)) for p in ports],
        )
        for k in plan.kernels_in_order
        for ports in [(*k.inputs, *k.outputs)]
    ]
    return kernels, [(r.id, r.kind, r.consumers, r.cost) for r in plan.rescales]


@pytest.mark.parametrize("target", [*TARGETS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_planning_again_gives_the_plan_that_was_trained_under(ready, target):
    plan = planner.plan(ready, target)
    spec = planner.training_spec(plan)
    learned = trained(ready, spec)
    model = planner.with_learned(ready, learned)
    again = planner.plan(model, target)
    assert shape_of(again) == shape_of(plan)
    assert again.cost <= plan.cost
    # What ties had cost in bits is excused now: the scales are what training wants.
    assert again.cost == plan.cost or again.price >= plan.cost
    assert again.warnings == plan.warnings
    wanted = {
        (edge.value, edge.consumers): spec.type_of(edge, learned.scales)
        for edge in spec.all_edges
        if spec.groups[edge.group].moves != "derived"
    }
    second = planner.training_spec(again)
    found = {(edge.value, edge.consumers): second.type_of(edge) for edge in second.all_edges}
    assert {key: found[key] for key in wanted} == wanted
    planner.check(again, model, target)


def sum_of_two():
    """A network whose sum reads a value in the type of the other, by a rescale, where both share a scale."""
    random = np.random.default_rng(3)
    shapes = {"a": (8, 1, 3, 3), "ab": (8,), "b": (8, 8, 3, 3), "bb": (8,), "f": (128, 10)}
    constants = {name: np.float32(random.normal(0, 0.3, shape)) for name, shape in shapes.items()}
    constants["b"] *= np.float32(0.1)  # so that the scale of the sum is that of the range of `h`
    ops = [
        op("Conv", "x a ab", "c", pads=(1, 1, 1, 1)),
        op("Relu", "c", "h"),
        op("Conv", "h b bb", "m", pads=(1, 1, 1, 1)),
        op("Add", "m h", "s"),
        op("Relu", "s", "t"),
        op("MaxPool", "t", "p", kernel_shape=(2, 2), strides=(2, 2)),
        op("Flatten", "p", "q"),
        op("MatMul", "q f", "y"),
    ]
    ends = {"inputs": {"x": (4, 1, 8, 8)}, "outputs": {"y": (4, 10)}}
    model = planner.load_model(write_graph(of_ops(ops, **ends, constants=constants)))
    sample = {"x": np.float32(random.uniform(0, 1, (4, 1, 8, 8)))}
    return planner.annotate(model, stats=planner.calibrate(model, [sample]))


@pytest.mark.parametrize("target", TARGETS)
def test_a_shared_scale_that_shrinks_needs_no_other(target):
    """The range of `h` was wider than the scale of `m` holds, so that planning again made a third one."""
    model = sum_of_two()
    plan = planner.plan(model, target)
    spec = planner.training_spec(plan)
    if target == "finn-fpga":
        assert [edge.group for edge in spec.edges if edge.value == "h"] == ["h", "m"]
    for seed in range(4):
        learned = trained(model, spec, seed)
        again = planner.plan(planner.with_learned(model, learned), target)
        assert shape_of(again) == shape_of(plan)
        second = planner.training_spec(again)
        found = {(edge.value, edge.consumers): second.type_of(edge) for edge in second.edges}
        assert found == {(e.value, e.consumers): spec.type_of(e, learned.scales) for e in spec.edges}


def test_the_targets_have_ties_fixed_scales_powers_of_two_and_grids_of_biases(ready):
    specs = {target: planner.training_spec(planner.plan(ready, target)) for target in TARGETS}
    groups = {target: [*spec.groups.values()] for target, spec in specs.items()}
    ties = {
        target: max(sum(edge.group == group.name for edge in spec.edges) for group in spec.groups.values())
        for target, spec in specs.items()
    }
    assert min(ties.values()) >= 2
    assert [t for t in TARGETS if any(g.why == "fixed_scale" for g in groups[t])] == [
        "litert-int8",
        "teaching-npu",
    ]
    assert [t for t in TARGETS if any(g.power_of_two for g in groups[t])] == ["hls4ml-fpga"]
    assert [t for t in TARGETS if specs[t].biases] == ["litert-int8", "qnn-htp", "teaching-npu"]


def test_nothing_learned_changes_nothing(ready):
    plan = planner.plan(ready, "litert-int8")
    spec = planner.training_spec(plan)
    start = {name: group.scales for name, group in spec.groups.items() if group.moves != "derived"}
    again = planner.plan(planner.with_learned(ready, Learned(spec, start, {})), "litert-int8")
    types = [port.type for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    assert types == [p.type for k in again.kernels_in_order for p in (*k.inputs, *k.outputs)]
    assert again.price == plan.price


def test_a_scale_that_is_kept_does_not_move(ready):
    plan = planner.plan(ready, "litert-int8")
    spec = planner.training_spec(plan, keep=["join/*", "image"])
    kept = [group for group in spec.groups.values() if group.why == "kept"]
    assert [group.moves for group in kept] == ["fixed", "fixed"]
    tied = {edge.value for edge in spec.edges if edge.group == kept[1].name}
    assert "join/concat_out" in tied
    assert "plain/relu_out" in tied
    with pytest.raises(planner.PlannerError, match="quantized value 'nothing'"):
        planner.training_spec(plan, keep=["nothing"])


def test_a_file_of_learned_numbers_is_read_back(ready, tmp_path):
    plan = planner.plan(ready, "hls4ml-fpga")
    learned = trained(ready, planner.training_spec(plan))
    learned.save(tmp_path / "learned.npz")
    from_file = planner.with_learned(ready, str(tmp_path / "learned.npz"))
    direct = planner.with_learned(ready, learned)
    assert {name: value.facts for name, value in from_file.values.items()} == {
        name: value.facts for name, value in direct.values.items()
    }
    for name, constant in direct.constants.items():
        np.testing.assert_array_equal(from_file.constants[name].array, constant.array)


def change(learned, group, *scales):
    return replace(learned, scales={**learned.scales, group: scales})


BAD = {
    "NaN": (lambda one: change(one, "res/relu1_out", float("nan")), r"'res/relu1_out' .*the scale is nan"),
    "0": (lambda one: change(one, "res/relu1_out", 0.0), "the scale is 0.0.*above 0"),
    "below float32": (lambda one: change(one, "res/relu1_out", 1e-60), "the scale is 1e-60.*of float32"),
    "no power": (lambda one: change(one, "res/relu1_out", 0.75), r"hls4ml-fpga .*is no power of two"),
    "slices": (lambda one: change(one, "res/relu1_out", 1.0, 2.0), "2 scales for 1 slices"),
    "no group": (lambda one: change(one, "res/relu1", 1.0), "unknown group of scales 'res/relu1'"),
    "a group missing": (
        lambda one: replace(one, scales={k: v for k, v in one.scales.items() if k != "image"}),
        "'image'.*nothing was learned",
    ),
    "no constant": (
        lambda one: replace(one, constants={"nothing": np.zeros(1)}),
        "unknown constant 'nothing'",
    ),
    "a shape": (
        lambda one: replace(one, constants={"head/gemm_weight": np.zeros(3)}),
        r"'head/gemm_weight': float64 of shape \(3,\)",
    ),
    "NaN in a weight": (
        lambda one: replace(one, constants={"head/gemm_bias": np.full(10, np.nan)}),
        "'head/gemm_bias': 10 numbers are NaN",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_named_and_nothing_is_applied(ready, case):
    break_it, message = BAD[case]
    plan = planner.plan(ready, "hls4ml-fpga")
    before = {name: value.facts for name, value in ready.values.items()}
    learned = break_it(trained(ready, planner.training_spec(plan)))
    with pytest.raises(planner.PlannerError, match=message):
        planner.with_learned(ready, learned)
    assert {name: value.facts for name, value in ready.values.items()} == before


def test_a_fixed_scale_and_limits_of_a_row_hold(ready):
    plan = planner.plan(ready, "litert-int8")
    spec = planner.training_spec(plan)
    learned = trained(ready, spec)
    with pytest.raises(
        planner.PlannerError, match=r"'probabilities'.*the scale moved, and is fixed: fixed_scale"
    ):
        planner.with_learned(ready, change(learned, "probabilities", 1 / 128))
    limited = replace(spec.groups["image"], scale_max=0.001, row="device.yaml:7")
    narrow = replace(learned, spec=replace(spec, groups={**spec.groups, "image": limited}))
    with pytest.raises(planner.PlannerError, match=r"'image' .*device.yaml:7.*above the greatest of its row"):
        planner.with_learned(ready, narrow)


def test_a_spec_of_another_model_is_refused(ready):
    learned = trained(ready, planner.training_spec(planner.plan(ready, "litert-int8")))
    other = planner.load_model(DIGITS / "digits.onnx")
    with pytest.raises(planner.PlannerError, match=r"another model than 'digits'.*annotated model"):
        planner.with_learned(other, learned)


def test_a_group_that_no_edge_has_moves_nothing(ready):
    learned = trained(ready, planner.training_spec(planner.plan(ready, "litert-int8")))
    more = {**learned.spec.groups, "alone": Group("alone", (1.0,))}
    spec = replace(learned.spec, groups=more)
    found = planner.with_learned(ready, Learned(spec, {**learned.scales, "alone": (0.5,)}, learned.constants))
    same = planner.with_learned(ready, learned)
    assert {k: v.facts for k, v in found.values.items()} == {k: v.facts for k, v in same.values.items()}


def test_one_name_may_be_kept(ready):
    plan = planner.plan(ready, "finn-fpga")
    assert planner.training_spec(plan, keep="image") == planner.training_spec(plan, keep=["image"])


def test_ties_may_be_as_long_as_the_model():
    """As of concats, each with one value more in front."""
    ties, kind = groups._Ties(), uniform(storage("i8"), 0.5, 0)
    for i in range(3_000):
        ties.join([(f"x{i}", kind), ("y", kind)])
    assert ties.find(("x0", kind)) == ties.find(("y", kind)) == ("x2999", kind)


def test_no_other_file_is_taken(ready, tmp_path):
    np.savez(tmp_path / "other.npz", spec=np.zeros(3))
    (tmp_path / "text.npz").write_text("no archive")
    np.save(tmp_path / "one.npy", np.zeros(3))
    messages = {"other.npz": "has no 'spec'", "text.npz": "no file of learned"}
    for name, message in {**messages, "one.npy": "no file of learned", "none.npz": "no file"}.items():
        with pytest.raises(planner.PlannerError, match=message):
            planner.with_learned(ready, tmp_path / name)
    with pytest.raises(planner.PlannerError, match="a module, its file, or a Learned, not a dict"):
        planner.with_learned(ready, {})
