"""Losses: the kernel that was spoilt on purpose is named first; what the figures say holds."""

import math
from dataclasses import replace

import numpy as np
import pytest
import yaml

import planner
from planner.accuracy import losses_text
from planner.accuracy.choices import choices_of
from planner.accuracy.losses import losses
from planner.accuracy.own_noise import OwnNoise, decibels
from planner.accuracy.remedies import Parts, remedies
from planner.errors import InputError, PlanInvalid, SampleError, UnknownName
from planner.ops import LINEAR
from tests.accuracy.nets import digits, net, node, normal, of_folder, planned

TEN = (
    "digits",
    "mlperf-tiny/ad01_fp32",
    "mlperf-tiny/pretrainedResnet",
    "mlperf-tiny/vww_96_float",
    "vision/mnist",
    "vision/squeezenet_real_fp32",
    "vision/superres_real",
    "vision/ultraface_slim320_op13",
    "vision/unet_b32_128",
    "sequence/bert_l4_h256",
)
FALL = 3.0


def linear_results(plan):
    """Kernels that multiply, with the value each stores by itself, in a seeded order."""
    regions = {region.name: region for region in plan.graph.regions}
    found = []
    for choice in choices_of(plan):
        kernel = plan.kernels.get(choice.name)
        ports = () if choice.is_input or kernel is None else kernel.outputs
        is_linear = any(op.type in LINEAR for op in regions[choice.name].ops) if ports else False
        if is_linear and ports[0].address in choice.types and ports[0].type.is_per_tensor:
            found.append((choice.name, ports[0]))
    order = np.random.default_rng(3).permutation(len(found))
    return [found[i] for i in order]


def spoilt(model, samples, plan, healthy, k):
    """A kernel whose stored result alone was made 2^k coarser, at a cost of 3 dB at least, and the losses."""
    kept = {name: value.type for name, value in plan.values.items()}
    for name, port in linear_results(plan):
        kind = replace(port.type, scales=(port.type.scale * 2**k,))
        worse = planner.replan(plan, {"values": {port.value: str(kind)}})
        moved = [it for it in choices_of(worse) for address in it.types if ".out[" in address
                 and worse.values[at_port(worse, address)].type != kept[at_port(worse, address)]]  # fmt: skip
        if [it.name for it in moved] != [name]:
            continue  # a row ties it to others: several were spoilt
        found = losses(model, worse, samples, limit=0)
        if found.sqnr < healthy - FALL:
            return name, found
    raise AssertionError("no kernel can be spoilt alone")


def at_port(plan, address):
    kernel, _, place = address.rpartition(".out[")
    return plan.kernels[kernel].outputs[int(place[:-1])].value


@pytest.mark.parametrize("name", TEN)
def test_the_culprit_is_named_first(name, request):
    """Ten models, each with the scale of one kernel off by 2^6."""
    model, samples = (
        digits() if name == "digits" else of_folder(request.getfixturevalue("models"), name, number=1)
    )
    plan = planned(model, samples)
    healthy = losses(model, plan, samples, limit=0)
    culprit, found = spoilt(model, samples, plan, healthy.sqnr, 6)
    assert found.kernels[0].name == culprit
    assert f"the worst is {culprit} with" in losses_text.sentence(found)
    before = next(kernel.share for kernel in healthy.kernels if kernel.name == culprit)
    assert found.kernels[0].share > 4 * before or before > 0.25


def test_a_float_kernel_that_shows_what_its_operand_lost_is_marked():
    """An angle in coarse steps in front of a float Cos: the Cos is not to blame, and is not named."""
    model = net(
        [
            node("Mul", "x", "frequency", out="angle"),
            node("Cos", "angle", out="wave"),
            node("Mul", "wave", "gain", out="y"),
        ],
        ["y"],
        {"frequency": [40.0], "gain": [2.0]},
    )
    samples = normal((1, 8), 8)
    # Without an Any the angle would be an integer island, and float.
    plan = planned(model, samples, "litert-int8", values={"angle": "!quant.any<i8>"})
    found = losses(model, plan, samples)
    values = {value.value: value for value in found.values}
    assert values["wave"].shows
    assert values["wave"].drop > 10
    assert not values["angle"].shows
    assert found.begins in {"x", "angle"}
    row = losses_text.value_row(values["wave"])
    assert row[-1] == "in float: its operand lost it"


def two_sizes(kind):
    """Boxes of hundreds and scores below one in one output, the scores through a kernel of their own."""
    rng = np.random.default_rng(4)
    arrays = {
        "w": 200 * rng.uniform(0.2, 1, (8, 4)),
        "v": rng.normal(size=(8, 6)),
        "small": np.full(1, 0.05),
    }
    nodes = [
        node("MatMul", "x", "w", out="boxes"),
        node("MatMul", "x", "v", out="logits"),
        node("Mul", "logits", "small", out="scores"),
        node("Concat", "boxes", "scores", out="y", axis=2),
    ]
    model = net(nodes, ["y"], arrays, shape=(1, 16, 8))
    samples = normal((1, 16, 8), 4)
    return (
        model,
        planned(model, samples, "onnxruntime-cpu", values={"logits": kind, "y": "!quant.none"}),
        samples,
    )


def test_an_output_of_two_sizes_is_judged_by_the_worse_part():
    model, plan, samples = two_sizes("!quant.uniform<u8:f32, 1.57:128>")
    found = losses(model, plan, samples)
    assert [one.label for one in found.outputs] == ["y[:, :, 4-9]", "y[:, :, 0-3]"]
    assert found.sqnr < 20
    assert found.outputs[1].sqnr > 30
    assert found.kernels[0].name == "logits"
    assert found.kernels[0].noise["y[:, :, 0-3]"] == 0.0


def test_parts_tell_weights_from_rounding_from_clipping():
    model, samples = digits()
    plan = planned(model, samples)
    first = "stem/conv"
    weight = next(port for port in plan.kernels[first].inputs if port.value in plan.graph.constants)
    scales = tuple(scale * 16 for scale in weight.type.scales)
    coarse = planner.replan(plan, {"values": {weight.value: str(replace(weight.type, scales=scales))}})
    result = plan.kernels[first].outputs[0]
    cut = planner.replan(
        plan, {"values": {result.value: str(replace(result.type, scales=(result.type.scale / 16,)))}}
    )
    parts = {
        name: next(kernel.parts for kernel in losses(model, it, samples).kernels if kernel.name == first)
        for name, it in (("weights", coarse), ("clip", cut))
    }
    assert parts["weights"].weights > 10 * (parts["weights"].rounding + parts["weights"].clip)
    assert parts["clip"].clip > 10 * (parts["clip"].rounding + parts["clip"].weights)
    assert parts["weights"].clip == 0.0


def test_a_wide_value_is_no_clip():
    """A mask of -3.4e38 is stored no further than the softmax needs it; what is cut off makes no noise."""
    nodes = [node("Add", "x", "mask", out="masked"), node("Softmax", "masked", out="y", axis=1)]
    mask = np.zeros((1, 8))
    mask[0, 5:] = -3.4e38
    model = net(nodes, ["y"], {"mask": mask})
    samples = normal((1, 8))
    plan = planned(model, samples, "qnn-htp")
    found = losses(model, plan, samples)
    worst = found.kernels[0]
    assert worst.name == "masked"
    assert worst.parts.clip < 1e-3 * worst.parts.rounding
    assert worst.parts.rounding > 0.9 * (worst.parts.rounding + worst.parts.weights)


def test_remedies_hold_when_they_are_taken():
    """The worst kernel, in float with its reader, leaves at most what was predicted."""
    model, plan, samples = two_sizes("!quant.calibrated<f32<-200.0:200.0>>")
    found = losses(model, plan, samples)
    remedy = next(one for one in found.remedies if one.what == "float")
    assert remedy.names == ("logits", "scores")
    for name in remedy.names:
        # Behind a product in float the other is an island, and float by itself.
        plan = planner.restore(plan, name) if plan.kernels[name].row is not None else plan
    after = losses(model, plan, samples)
    same = next(one for one in after.outputs if one.label == found.outputs[0].label)
    assert remedy.sqnr > found.sqnr + 6
    assert same.sqnr >= remedy.sqnr - 1


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        (Parts(1.0, 2.0, 0.0), {"logits", "scores"}),
        (Parts(1.0, 0.0, 2.0), {"logits", "scores"}),
        (Parts(2.0, 1.5, 1.5), {"logits", "scores"}),
        (Parts(2.0, 0.5, 0.5), {"logits"}),
    ],
)
def test_readers_run_in_float_where_results_lose_more_than_weights(parts, names):
    """By rounding and clipping together, for a reader would round such a result again."""
    _, plan, _ = two_sizes("!quant.calibrated<f32<-200.0:200.0>>")
    choice = next(one for one in choices_of(plan) if one.name == "logits")
    own, part = math.fsum((parts.weights, parts.rounding, parts.clip)), ("y", 0)
    noise = OwnNoise((choice,), {part: 100.0}, ({part: own},), 1)
    found = remedies(
        plan,
        [(choice, own, parts)],
        noise,
        part,
        measured=decibels(100.0, own),
        measure=lambda choices: OwnNoise(tuple(choices), {}, ({part: own},) * len(choices), 1),
    )
    assert [set(one.names) for one in found if one.what == "float"] == [names]


def test_another_range_is_tried_where_that_helps():
    model, samples = digits()
    plan = planned(model, samples)
    port = plan.kernels["res/conv1"].outputs[0]
    wide = str(replace(port.type, scales=(port.type.scale * 64,)))
    worse = planner.replan(plan, {"values": {port.value: wide}})
    found = losses(model, worse, samples)
    what = [one.what for one in found.remedies if one.names[0] == "res/conv1"]
    assert "a quarter of its range" in what
    assert "float" in what
    # The others lose next to nothing, and what gains less than a tenth of a decibel is no remedy.
    gained = [one.sqnr - found.sqnr for one in found.remedies]
    assert gained == sorted(gained, reverse=True)
    assert gained[-1] > 0.1


def test_sixteen_bits_are_offered_where_the_target_has_them():
    model, samples = digits()
    offered = {}
    for target in ("onnxruntime-cpu", "qnn-htp"):
        plan = planned(model, samples, target)
        port = plan.kernels["res/conv1"].outputs[0]
        wide = str(replace(port.type, scales=(port.type.scale * 64,)))
        found = losses(model, planner.replan(plan, {"values": {port.value: wide}}), samples)
        offered[target] = any(one.what == "16 bits" for one in found.remedies)
    assert offered == {"onnxruntime-cpu": False, "qnn-htp": True}


def test_corrected_biases_are_measured_against_those_given():
    model, samples = digits(16)
    stats = planner.calibrate(model, samples)
    annotated = planner.annotate(model, stats=stats)
    corrected = planner.correct_biases(annotated, "litert-int8", stats)
    plan = planner.plan(corrected, "litert-int8")
    mine = losses(corrected, plan, samples, reference=model)
    other = losses(corrected, plan, samples)

    def weights(found):
        return next(kernel.parts.weights for kernel in found.kernels if kernel.name == "stem/conv")

    assert weights(mine) < weights(other)
    assert mine.sqnr == pytest.approx(mine.outputs[0].predicted, abs=1.0)


def test_a_kernel_that_measures_its_scales_while_it_runs_has_its_own_noise():
    """Alone in float but for its row it makes the noise that it makes in the plan."""
    model = net(
        [node("MatMul", "x", "w", out="a"), node("Relu", "a", out="b"), node("MatMul", "b", "v", out="y")],
        ["y"],
        {
            "w": np.random.default_rng(0).normal(size=(8, 6)),
            "v": np.random.default_rng(1).normal(size=(6, 4)),
        },
        shape=(3, 8),
    )
    samples = normal((3, 8), 4)
    plan = planned(model, samples, "onnxruntime-dynamic")
    dynamic = [kernel.name for kernel in plan.kernels_in_order if plan.row_of(kernel.name) is not None]
    assert len(dynamic) == 2
    found = losses(model, plan, samples)
    own = {kernel.name: sum(kernel.noise.values()) for kernel in found.kernels}
    assert all(own[name] > 0 for name in dynamic)
    assert found.outputs[0].predicted == pytest.approx(found.sqnr, abs=2.0)


def test_an_exact_plan_loses_nothing():
    model = net([node("Relu", "x", out="y")], ["y"], {})
    samples = [{"x": np.float32([[0, 1, 2, 3, 4, 5, 6, 255]])}]
    plan = planned(model, samples, values=dict.fromkeys("xy", "!quant.uniform<i8:f32, 1.0:-128>"))
    found = losses(model, plan, samples)
    assert found.begins == ""
    assert found.remedies == ()
    assert "no kernel makes any noise" in losses_text.sentence(found)


def test_a_generator_is_gone_through_once():
    model, samples = digits(3)
    plan = planned(model, samples)
    assert losses(model, plan, iter(samples), limit=0) == losses(model, plan, samples, limit=0)


def test_bad_input_is_refused():
    model, samples = digits(2)
    plan = planned(model, samples)
    other = net([node("Relu", "x", out="y")], ["y"], {})
    with pytest.raises(PlanInvalid):
        planner.losses(other, plan, normal((1, 8)))
    with pytest.raises(UnknownName, match="probabilities"):
        planner.losses(model, plan, samples, output="probabilitys")
    with pytest.raises(InputError, match="limit is -1"):
        planner.losses(model, plan, samples, limit=-1)
    with pytest.raises(InputError, match="a plan is the result of"):
        planner.losses(model, "plan.json", samples)
    with pytest.raises(InputError, match="progress is a function"):
        planner.losses(model, plan, samples, progress=True)
    with pytest.raises(InputError, match=r"one of concurrent\.futures"):
        planner.losses(model, plan, samples, executor=4)
    with pytest.raises(SampleError, match="no samples"):
        planner.losses(model, plan, [])
    with pytest.raises(SampleError, match="no input 'x'"):
        planner.losses(model, plan, [{"x": np.zeros(3)}])


def test_the_json_has_everything():
    model, samples = digits(2)
    found = losses(model, planned(model, samples), samples)
    data = losses_text.losses_json(found)
    assert data["format"] == "qplan.losses/1"
    assert data["judged"] == "probabilities"
    assert {"name", "kernel", "share", "sqnr", "noise", "parts"} == data["kernels"][0].keys()
    assert sum(kernel["share"] for kernel in data["kernels"]) == pytest.approx(1.0)
    assert len(repr(found)) < 120


def test_the_whole_program_is_the_exported_one():
    """SQNR of an output is that of the file in onnxruntime, beside the float model there."""
    model, samples = digits(6)
    plan = planned(model, samples, "onnxruntime-cpu")
    exported = planner.export(plan.annotated, plan, "onnx-qoperator")
    wanted = planner.compare(model, exported, samples).worst_sqnr
    assert losses(model, plan, samples, limit=0).sqnr == pytest.approx(wanted, abs=1e-3)


def compared(kind, target):
    """A model whose product is compared with a limit, its plan and its samples."""
    rng = np.random.default_rng(3)
    nodes = [
        node("MatMul", "x", "w", out="a"),
        node(kind, "a", "limit", out="b"),
        node("Cast", "b", out="y", to=1),
    ]
    constants = {"w": rng.normal(size=(8, 8)), "limit": 30.0}
    model, samples = net(nodes, ["y"], constants, shape=(64, 8)), normal((64, 8), scale=300.0)
    return model, planned(model, samples, target), samples


@pytest.mark.parametrize("kind", ["Greater", "Less"])
@pytest.mark.parametrize("target", ["litert-int8", "hexagon-a16w8"])
def test_what_remedies_ask_can_be_planned(target, kind):
    model, plan, samples = compared(kind, target)
    found = losses(model, plan, samples)
    asked = [one.how for one in found.remedies if one.how.startswith(("kernels: ", "values: "))]
    assert asked
    stats = planner.calibrate(model, samples)
    for how in asked:
        given = {"format": "qplan.annotations/1", **yaml.safe_load(how)}
        planner.plan(planner.annotate(model, stats=stats, annotations=given), target)


@pytest.mark.parametrize(
    ("target", "name", "how"),
    [
        ("litert-int8", "a", "kernels: {a: i16}"),
        ("qnn-htp", "a", "kernels: {a: u16}"),
        ("qnn-htp", "b", "kernels: {b: {in: [u16, u16]}}"),
        ("qnn-htp", "x", "values: {x: '!quant.any<i16>'}"),
    ],
)
def test_sixteen_bits_are_asked_of_results_or_of_operands_where_none_is_stored(target, name, how):
    """A comparison gives booleans."""
    _, plan, _ = compared("Greater", target)
    choice = next(one for one in choices_of(plan) if one.name == name)
    part, parts = ("y", 0), Parts(0.0, 2.0, 0.0)
    found = remedies(
        plan,
        [(choice, 2.0, parts)],
        OwnNoise((choice,), {part: 100.0}, ({part: 2.0},), 1),
        part,
        measured=decibels(100.0, 2.0),
        measure=lambda choices: OwnNoise(tuple(choices), {}, ({part: 2.0},) * len(choices), 1),
    )
    (wide,) = [one for one in found if one.what == "16 bits"]
    assert yaml.safe_load(wide.how) == yaml.safe_load(how)


@pytest.mark.parametrize(
    ("own", "measured"), [(0.0, 20.0), (2.0, math.inf), (2.0, -math.inf), (2.0, math.nan)]
)
def test_without_noise_or_without_a_measure_nothing_helps(own, measured):
    _, plan, _ = compared("Greater", "litert-int8")
    choice = next(one for one in choices_of(plan) if one.name == "a")
    part = ("y", 0)
    noise = OwnNoise((choice,), {part: 100.0}, ({part: own},), 1)
    worst = [(choice, own, Parts(0.0, own, 0.0))]
    assert remedies(plan, worst, noise, part, measured=measured, measure=lambda _: noise) == ()
