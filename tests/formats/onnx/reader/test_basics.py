"""Basics: every rule computes what onnx's own node cases and onnxruntime say, by ops that have no rule."""

from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from planner.formats.onnx.composites.basics import BASICS
from planner.formats.onnx.composites.body import Body, StaysWhole
from planner.formats.onnx.read import read_onnx
from tests.formats.onnx.reader.runs import check_each, every_node_case, kind_of

WHOLE = {
    "test_batchnorm_epsilon_training_mode": "it trains",
    "test_batchnorm_example_training_mode": "it trains",
    "test_lstm_with_peepholes": "it has peepholes",
    "test_resize_tf_crop_and_resize": "it is no linear one",
    "test_resize_tf_crop_and_resize_axes_2_3": "it is no linear one",
    "test_resize_tf_crop_and_resize_axes_3_2": "it is no linear one",
    "test_resize_tf_crop_and_resize_extrapolation_value": "it is no linear one",
}
"""Forms that have no other spelling, and why."""
AS_ONNXRUNTIME = {"test_resize_downsample_scales_linear_align_corners"}
"""Where onnx counts 2.4 rows of a result of 2, and we compute what onnxruntime does."""


def spelled_out(data):
    """A file of one op as one of its parts, by its rule."""
    graph = read_onnx(data)
    (op,) = [one for one in graph.ops if one.type in BASICS]
    body = Body(graph, op, op.name, set(graph.values))
    found = BASICS[op.type](body)
    results = (found,) if isinstance(found, str) else found
    assert not {part.type for part in body.ops} & BASICS.keys()
    file = onnx.load_from_string(data)
    (node,) = [one for one in file.graph.node if one.op_type in BASICS]
    nodes = [helper.make_node(part.type, part.inputs, part.outputs, **part.attributes) for part in body.ops]
    nodes += [
        helper.make_node("Identity", [new], [old])
        for new, old in zip(results, node.output, strict=False)
        if new and old
    ]
    at = list(file.graph.node).index(node)
    every = [*file.graph.node[:at], *nodes, *file.graph.node[at + 1 :]]
    del file.graph.node[:]
    file.graph.node.extend(every)
    held = {one.name for one in file.graph.initializer}
    made = [(name, array) for name, array in body.constants.items() if name not in held]
    file.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in made)
    file.ir_version, file.opset_import[0].version = 10, 21
    return file


@cache
def node_cases():
    """The onnx package's cases of one op that has a rule; the reader turns the axes of those in batches."""
    return {
        case.name: case
        for case in every_node_case()
        if [node.op_type for node in case.model.graph.node] == [kind := case.model.graph.node[0].op_type]
        and kind in BASICS
        and "batchwise" not in case.name
        and case.model.opset_import[0].version >= 13
    }


@pytest.mark.parametrize("kind", BASICS)
def test_node_cases_are_computed(kind):
    check_each([case for case in node_cases().values() if kind_of(case, BASICS) == kind], is_computed)


def is_computed(case):
    name, model, (sets,) = case.name, case.model, case.data_sets
    feeds = {info.name: array_of(item) for info, item in zip(model.graph.input, sets[0], strict=True)}
    file = onnx.ModelProto()
    file.CopyFrom(model)
    fixed = [*file.graph.input][2 if model.graph.node[0].op_type == "GatherElements" else 1 :]
    file.graph.initializer.extend(numpy_helper.from_array(feeds.pop(info.name), info.name) for info in fixed)
    for info in fixed:
        file.graph.input.remove(info)
    if model.graph.node[0].op_type == "LayerNormalization":
        with pytest.raises(StaysWhole, match="something reads its statistics"):
            spelled_out(file.SerializeToString())
        del file.graph.output[1:], file.graph.node[0].output[1:]
    if is_other_resize(model.graph.node[0]):
        with pytest.raises(StaysWhole, match="it is no linear one of known sizes"):
            spelled_out(file.SerializeToString())
        return
    if name in WHOLE:
        with pytest.raises(StaysWhole, match=WHOLE[name]):
            spelled_out(file.SerializeToString())
        return
    parts = spelled_out(file.SerializeToString())
    wanted_all = sets[1]
    if name in AS_ONNXRUNTIME:
        whole = onnxruntime.InferenceSession(file.SerializeToString())
        wanted_all = whole.run(None, feeds)
    with np.errstate(divide="ignore"):  # the logarithm of an empty sum
        results = ReferenceEvaluator(parts).run(None, feeds)
    for have, want in zip(results, wanted_all, strict=False):
        wanted, rough = array_of(want), "16" in name
        assert (have.dtype, have.shape) == (wanted.dtype, wanted.shape)
        found, wanted = have.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(found, wanted, rtol=2e-2 if rough else 1e-3, atol=2e-2 if rough else 1e-5)


def is_other_resize(node):
    told = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    is_linear = told.get("mode", b"nearest") == b"linear" and not told.get("antialias", 0)
    return node.op_type == "Resize" and not is_linear


def array_of(item):
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else np.asarray(item)


def test_every_rule_has_a_node_case():
    kinds = {case.model.graph.node[0].op_type for case in node_cases().values()}
    assert kinds == BASICS.keys()
