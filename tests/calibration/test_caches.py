"""Caches: what leaves a model and comes back in the next run is stored in one type, read as written."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.calibration.caches.names import cache_pairs
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.onnx.read import read_onnx
from planner.ir.types.qtypes import Uniform

HEADS, HEAD = 2, 4


def decoder(past="past_key_values.0", present="present.0", dtype=TensorProto.FLOAT):
    """One step of attention: keys and values of earlier steps, and those of one new row."""
    width = HEADS * HEAD
    rng = np.random.default_rng(4)
    weights = {name: rng.standard_normal((width, width)).astype(np.float32) for name in "qkv"}
    nodes = []
    for name in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"m{name}"], f"m{name}"),
            helper.make_node("Reshape", [f"m{name}", "apart"], [f"r{name}"], f"r{name}"),
            helper.make_node("Transpose", [f"r{name}"], [name], name, perm=[0, 2, 1, 3]),
        ]
    ends = {"k": "key", "v": "value"}
    for name, end in ends.items():
        nodes.append(
            helper.make_node("Concat", [f"{past}.{end}", name], [f"{present}.{end}"], f"c{name}", axis=2)
        )
    nodes += [
        helper.make_node("Transpose", [f"{present}.key"], ["turned"], "turned", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["p"], "p"),
        helper.make_node("MatMul", ["p", f"{present}.value"], ["y"], "y"),
    ]
    cache = [1, HEADS, "past", HEAD]
    inputs = [helper.make_tensor_value_info("x", 1, [1, 1, width])]
    inputs += [helper.make_tensor_value_info(f"{past}.{end}", dtype, cache) for end in ends.values()]
    outputs = [helper.make_tensor_value_info("y", 1, [1, HEADS, 1, HEAD])]
    outputs += [
        helper.make_tensor_value_info(f"{present}.{end}", 1, [1, HEADS, "total", HEAD])
        for end in ends.values()
    ]
    constants = [numpy_helper.from_array(array, f"w{name}") for name, array in weights.items()]
    constants.append(numpy_helper.from_array(np.asarray([0, 0, HEADS, HEAD]), "apart"))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return read_onnx(model.SerializeToString())


def samples(model, count=6, rows=3):
    rng = np.random.default_rng(1)
    sizes = {"past": rows}
    return [
        {
            name: rng.standard_normal([sizes.get(dim, dim) for dim in model.values[name].shape]).astype("f4")
            for name in model.inputs
        }
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def ranged():
    model = decoder()
    return planner.annotate(model, stats=planner.calibrate(model, samples(model)))


def pin(model, name):
    return next((fact for fact in model.values[name].facts if isinstance(fact, Uniform)), None)


KEY, NEXT_KEY = "past_key_values.0.key", "present.0.key"


@pytest.mark.parametrize(
    ("past", "present", "count"),
    [
        ("past_key_values.0", "present.0", 2),
        ("past_key_values.11", "present_key_values.11", 2),
        ("past_0", "present_0", 2),
        ("past.0", "present.0", 2),
        ("past_key_self_0", "present_key_self_0", 2),
        ("past_key_values.0", "present.1", 0),
        ("cache_in.0", "cache_out.0", 0),
    ],
)
def test_pairs_are_told_by_the_names_that_exporters_use(past, present, count):
    pairs = cache_pairs(decoder(past, present))
    ends = ("key", "value")[:count]
    assert pairs == tuple((f"{past}.{end}", f"{present}.{end}") for end in ends)


def test_other_names_are_given():
    names = {"in.*": "out.*"}
    assert cache_pairs(decoder("in.0", "out.0"), names) == (
        ("in.0.key", "out.0.key"),
        ("in.0.value", "out.0.value"),
    )


def test_both_ends_have_the_type_of_both_ranges(ranged):
    model = planner.with_caches(ranged)
    assert model.caches == ((KEY, NEXT_KEY), ("past_key_values.0.value", "present.0.value"))
    kind = pin(model, KEY)
    assert kind == pin(model, NEXT_KEY)
    seen = [fact for name in (KEY, NEXT_KEY) for fact in ranged.values[name].facts]
    assert kind.lo <= min(fact.los[0] for fact in seen) + kind.scale / 2
    assert kind.hi >= max(fact.his[0] for fact in seen) - kind.scale / 2
    assert f"{NEXT_KEY!r} comes back as {KEY!r}: one cache, {kind}" in model.notes


def test_a_head_has_a_type_of_its_own_where_samples_are_given(ranged):
    given = samples(ranged)
    model = planner.with_caches(ranged, samples=given)
    kind = pin(model, KEY)
    assert (kind.axis, len(kind.scales)) == (1, HEADS)
    assert kind == pin(model, NEXT_KEY)
    for head in range(HEADS):
        most = max(float(sample[KEY][:, head].max()) for sample in given)
        steps = 127 - kind.zero_points[head]
        assert steps * kind.scales[head] >= most - kind.scales[head] / 2


def test_the_section_of_annotations_says_the_same(ranged):
    for section in ("i8", {"storage": "i8"}, {"storage": "i8", "names": {"past_key_values.*": "present.*"}}):
        found = planner.annotate(ranged, annotations={"format": "qplan.annotations/1", "caches": section})
        assert found.caches == planner.with_caches(ranged).caches
        assert pin(found, KEY) == pin(planner.with_caches(ranged), KEY)


def test_ranges_of_heads_give_each_head_a_type(ranged):
    """As samples do; they are text, so files of annotations and requests have them too."""
    wanted = planner.with_caches(ranged, "i8", samples=samples(ranged))
    ends = {}
    for past, present in wanted.caches:
        (pin,) = [fact for fact in wanted.values[past].facts if isinstance(fact, Uniform)]
        store = pin.storage
        ranges = ", ".join(
            f"{(store.qmin - zero) * scale!r}:{(store.qmax - zero) * scale!r}"
            for scale, zero in zip(pin.scales, pin.zero_points, strict=True)
        )
        ends[present] = f"!quant.calibrated<f32:1, {{{ranges}}}>"
    given = {"format": "qplan.annotations/1", "values": ends, "caches": "i8"}
    found = planner.annotate(ranged, annotations=given)
    for past, present in wanted.caches:
        pins = [
            [fact for fact in found.values[name].facts if isinstance(fact, Uniform)]
            for name in (past, present)
        ]
        (wanted_pin,) = [fact for fact in wanted.values[past].facts if isinstance(fact, Uniform)]
        assert pins[0] == pins[1]
        assert (pins[0][0].axis, pins[0][0].zero_points) == (1, wanted_pin.zero_points)
        assert np.allclose(pins[0][0].scales, wanted_pin.scales, rtol=1e-6)


def test_a_pin_of_one_end_is_the_type_of_both(ranged):
    text = f"""format: qplan.annotations/1
values: {{{NEXT_KEY}: "!quant.uniform<u4:f32, 0.5:8>"}}
caches: {{names: {{"past_key_values.*": "present.*"}}}}
"""
    found = planner.annotate(ranged, annotations=text)
    assert str(pin(found, KEY)) == "!quant.uniform<u4:f32, 0.5:8>"
    assert pin(found, "present.0.value") is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("i99", "a.yaml:2:1: storage 'i99' has more than 64 bits"),
        ("[i8]", ("a.yaml:2:1: caches are a storage, or a mapping of storage and names "
                 '(such as i8, or {storage: i8, names: {"past.*": "present.*"}})')),
        ("{storage: i8, per: head}", ("a.yaml:2:1: caches are a storage, or a mapping of storage and names "
                 '(such as i8, or {storage: i8, names: {"past.*": "present.*"}})')),
        ("{names: {past: 3}}", "a.yaml:2:1: names must map names of inputs to names of outputs"),
        ('{storage: i8, names: {"in.*": "out.*"}}',
         ("a.yaml:2:1: 'in.*' and 'out.*' name no cache of model 'decoder' "
         "(inputs are x, past_key_values.0.key, past_key_values.0.value)")),
        ('{storage: i8, names: {"past_key_values.*": "out.*"}}',
         "a.yaml:2:1: 'past_key_values.0.key' and 'out.0.key' are no cache: there is no output 'out.0.key'"),
        ("{storage: i8, names: {x: present.0.key}}",
         "a.yaml:2:1: 'x' and 'present.0.key' are no cache: one has 3 dimensions, the other 4"),
    ],
)  # fmt: skip
def test_a_section_that_is_wrong_says_where_and_why(ranged, tmp_path, section, message):
    path = tmp_path / "a.yaml"
    path.write_text(f"format: qplan.annotations/1\ncaches: {section}\n", encoding="utf-8")
    with pytest.raises(planner.PlannerError) as caught:
        planner.annotate(ranged, annotations=path)
    assert str(caught.value) == message


def test_what_cannot_be_a_cache_is_refused(ranged):
    with pytest.raises(planner.PlannerError) as caught:
        planner.with_caches(decoder("a.0", "b.0"))
    assert str(caught.value) == (
        "model 'decoder' has no caches: no input comes back as an output by its name "
        "(name them, such as {'past_*': 'present_*'})"
    )
    with pytest.raises(planner.PlannerError) as caught:
        planner.with_caches(decoder())
    assert str(caught.value) == (
        "the cache 'past_key_values.0.key' has no range (calibrate the model, or give the cache a fixed type)"
    )
    with pytest.raises(planner.PlannerError, match="no samples to see the ranges of heads in"):
        planner.with_caches(ranged, samples=[])


@pytest.mark.parametrize("shape", [(1, "heads", "past", 4), None, (8,)])
def test_a_cache_without_a_number_of_heads_has_no_types_of_heads(ranged, shape):
    values = {
        **ranged.values,
        **{name: replace(ranged.values[name], shape=shape) for name in (KEY, NEXT_KEY)},
    }
    with pytest.raises(planner.PlannerError) as caught:
        planner.with_caches(replace(ranged, values=values), samples=samples(ranged))
    assert str(caught.value) == f"the cache {KEY!r} of shape {shape or ()} has no fixed number of heads"


def unlike(model):
    """Two types for one cache."""
    values = dict(model.values)
    other = planner.parse_type("!quant.uniform<i8:f32, 0.75>")
    kept = [fact for fact in values[NEXT_KEY].facts if not isinstance(fact, Uniform)]
    values[NEXT_KEY] = replace(values[NEXT_KEY], facts=(*kept, other))
    return replace(model, values=values)


def test_two_types_of_one_cache_are_a_conflict(ranged):
    model = unlike(planner.with_caches(ranged))
    one, other = pin(model, KEY), pin(model, NEXT_KEY)
    with pytest.raises(planner.Conflict) as caught:
        planner.plan(model, "litert-int8")
    assert caught.value.message == f"{NEXT_KEY!r} leaves as {other} and comes back as {KEY!r}: {one}"
    assert caught.value.facts == (f"value {KEY!r}: {one}", f"value {NEXT_KEY!r}: {other}")
    plan = planner.plan(model, "litert-int8", best_effort=True)
    assert any("leaves as" in warning and "left out" in warning for warning in plan.warnings)
    assert pin(plan.graph, KEY) is None
    assert pin(plan.graph, NEXT_KEY) is None


def test_the_checker_sees_two_types_of_one_cache(ranged):
    model = planner.with_caches(ranged)
    plan = planner.plan(model, "litert-int8")
    planner.check(plan, model)
    broken = replace(planner.plan_from_json(plan.to_json()), graph=unlike(plan.graph))
    with pytest.raises(planner.PlanInvalid, match="the next run reads it as"):
        planner.check(broken)


@pytest.mark.parametrize("target", ["llm-w4", "litert-int8", "onnxruntime-cpu", "tensorrt-int8"])
def test_models_and_plans_keep_their_caches(ranged, target):
    model = planner.with_caches(ranged)
    assert read_annotated(write_annotated(planner.plan(model, target).graph)).caches == model.caches
    plan = planner.plan(model, target)
    assert planner.plan_from_json(plan.to_json()).graph.caches == model.caches
    assert planner.plan(replace(model, caches=()), target).cost == plan.cost
    assert "qplan.caches" in plan.to_mlir()


def as_held(model, plan):
    """The model with its caches as its kernels hold them, and its plan, where a warning says they do not."""
    told = [text for text in plan.warnings if text.startswith("cache ")]
    for past, present in model.caches if told else ():
        (held,) = (p.type for k in plan.kernels_in_order for p in k.inputs if p.value == past)
        assert any(repr(past) in text and str(held) in text for text in told)
        for name in (past, present):
            value = model.values[name]
            facts = [held if isinstance(fact, Uniform) else fact for fact in value.facts]
            model = replace(model, values={**model.values, name: replace(value, facts=tuple(facts))})
    plan = planner.plan(model, plan.target.id) if told else plan
    assert not any(text.startswith("cache ") for text in plan.warnings)
    return model, plan


def test_a_cache_that_its_kernels_hold_in_another_type_is_told(ranged):
    """Only symmetric types per tensor are TensorRT's: old rows would be rounded again in each run."""
    model = planner.with_caches(ranged, samples=samples(ranged))
    plan = planner.plan(model, "tensorrt-int8")
    assert [text.split(" is stored as ")[0] for text in plan.warnings] == [
        "cache 'past_key_values.0.key'",
        "cache 'past_key_values.0.value'",
    ]
    planner.check(plan, model)


@pytest.mark.parametrize("heads", [False, True], ids=["tensor", "heads"])
@pytest.mark.parametrize("target", ["llm-w4", "litert-int8", "onnxruntime-cpu", "tensorrt-int8"])
def test_steps_with_a_stored_cache_are_those_of_the_interpreter(ranged, target, heads):
    """Onnxruntime runs the file, the interpreter the plan; both hand on what they stored."""
    model = planner.with_caches(ranged, samples=samples(ranged) if heads else None)
    kernels = {"*": "float"} if target == "llm-w4" else None
    model = planner.annotate(model, kernels=kernels)
    model, plan = as_held(model, planner.plan(model, target))
    planner.check(plan, model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(planner.export(model, plan, "onnx-qdq"), options)
    outputs = [port.name for port in session.get_outputs()]
    held = {past: np.zeros((1, HEADS, 0, HEAD), np.int8) for past, _ in model.caches}
    rng, written = np.random.default_rng(9), {}
    for step in range(5):
        feeds = {"x": rng.standard_normal((1, 1, HEADS * HEAD)).astype(np.float32), **held}
        found = dict(zip(outputs, session.run(None, feeds), strict=True))
        own = planner.evaluate(model, plan, feeds, arithmetic="float32_qdq").outputs
        for past, present in model.caches:
            assert found[present].dtype == np.int8
            assert found[present].shape[2] == step + 1
            np.testing.assert_array_equal(own[present], found[present])
            # What was stored comes back as it was, step for step.
            np.testing.assert_array_equal(found[present][:, :, :step], held[past])
        np.testing.assert_allclose(own["y"], found["y"], atol=1e-5)
        held = {past: found[present] for past, present in model.caches}
        written = found
    assert np.abs(written["y"]).max() > 0.1
