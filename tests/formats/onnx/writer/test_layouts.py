"""Files load and run where onnxruntime's optimisations move Transposes over a Resize.

A position embedding that is interpolated, a picture made smaller between convolutions: the Resize runs in
another layout then, which not every Resize can.
"""

import numpy as np
import onnx
import pytest

import planner
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.writer.guards.layouts import COPY, relaid
from planner.ir.dtypes import UNKNOWN
from tests.formats.plans import model, op, op_types
from tests.formats.test_levels import FORMATS, hold_in_every_format

SMALLER, LARGER = (1.0, 1.0, 0.5, 0.5), (1.0, 1.0, 2.0, 2.0)
TURN, BACK = [0, 3, 1, 2], [0, 2, 3, 1]
MODES = ("align_corners", "asymmetric", "half_pixel")


def net(ops, shape, constants, **more):
    graph = model(ops, inputs={"x": shape}, outputs={ops[-1].outputs[0]: None}, constants=constants, **more)
    return infer(graph)


def turned(inputs, constants, *, shape=(1, 8, 8, 4), perms=(TURN, BACK), **attributes):
    """A Resize between Transposes."""
    ops = [
        op("Relu", "x", "r"),
        op("Transpose", "r", "t", perm=perms[0]),
        op("Resize", f"t {inputs}", "z", **attributes),
        op("Transpose", "z", "y", perm=perms[1]),
    ]
    return net(ops, shape, constants)


def by_scales(scales, **attributes):
    return turned("- s", {"s": np.array(scales, np.float32)}, **attributes)


def between_convs(rng, *, mode="cubic"):
    """A picture made smaller between convolutions, which run with channels last."""
    weights = {name: rng.normal(size=(8, 8, 3, 3)).astype(np.float32) * 0.1 for name in "vw"}
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    ops = [
        op("Conv", "x v", "a", **same),
        op("Resize", "a - s", "b", mode=mode, coordinate_transformation_mode="half_pixel"),
        op("Conv", "b w", "y", **same),
    ]
    return net(ops, (1, 8, 8, 8), weights | {"s": np.array(SMALLER, np.float32)})


def held(graph, rng, targets=("onnxruntime-cpu",)):
    """Count formats whose files run at every level as they do with all off."""
    shape = graph.values["x"].shape
    samples = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(2)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    return sum(hold_in_every_format(ready, target, samples) for target in targets)


@pytest.mark.parametrize(
    ("graph", "is_kept"),
    [
        (by_scales(SMALLER, mode="cubic"), True),
        (by_scales(LARGER, mode="cubic"), False),
        (by_scales(SMALLER, mode="cubic", antialias=1), False),
        (by_scales(SMALLER, mode="linear"), False),
        # Behind this Transpose the other layout has the picture at its end, which no linear Resize has.
        (by_scales(SMALLER, mode="linear", perms=(BACK, TURN)), True),
        (by_scales(SMALLER, mode="nearest"), False),
        (turned("- s", {"s": np.array([0.5, 2], np.float32)}, mode="nearest", axes=[2, 3]), True),
        (turned("- - s", {"s": np.array([16, 4])}, mode="linear", axes=[2, 3]), True),
        (turned("- - s", {"s": np.array([1, 4, 16, 4])}, mode="cubic"), True),
        (turned("- - s", {"s": np.array([1, 4, 16, 16])}, mode="cubic"), False),
    ],
)
def test_a_resize_stays_in_its_layout_where_the_other_has_none_such(graph, is_kept):
    assert bool(relaid(graph)) == is_kept
    assert held(graph, np.random.default_rng(0)) >= 3


def test_an_interpolated_position_embedding_runs():
    """As a ViT has it: quantized, brought to a picture and made as small as the input's."""
    rng = np.random.default_rng(1)
    ops = [
        op("Shape", "x", "full"),
        op("Slice", "full two four", "sizes"),
        op("Concat", "head sizes", "wanted", axis=0),
        op("Reshape", "embedding square", "p"),
        op("Transpose", "p", "q", perm=TURN),
        op("Resize", "q - - wanted", "r", mode="cubic"),
        op("Transpose", "r", "s", perm=BACK),
        op("Transpose", "x", "u", perm=BACK),
        op("Add", "u s", "y"),
    ]
    constants = {
        "embedding": rng.normal(size=(1, 121, 6)).astype(np.float32),
        "square": np.array([1, 11, 11, 6]),
        "head": np.array([1, 6]),
        "two": np.array([2]),
        "four": np.array([4]),
    }
    kinds = dict.fromkeys(("full", "sizes", "wanted"), "i64")
    graph = net(ops, (1, 6, 4, 4), constants, dtypes=kinds)
    assert relaid(graph)
    assert held(graph, rng) >= 3


def test_a_smaller_picture_between_convolutions_runs():
    assert held(between_convs(np.random.default_rng(2)), np.random.default_rng(2)) >= 3


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"onnx-matmulnbits"}))
def test_the_copy_is_gone_when_the_file_is_read(form):
    graph = between_convs(np.random.default_rng(3))
    samples = [{"x": np.random.default_rng(4).normal(size=(1, 8, 8, 8)).astype(np.float32)}]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    data = planner.export(ready, planner.plan(ready, "onnxruntime-cpu"), form)
    assert COPY in op_types(data)
    assert COPY not in {item.type for item in planner.load_model(data).all_ops()}


def without_copies(data):
    """A file as another tool writes it."""
    proto = onnx.load_from_string(data)
    copies = {node.output[0]: node.input[0] for node in proto.graph.node if node.op_type == COPY}
    kept = [node for node in proto.graph.node if node.op_type != COPY]
    for node in kept:
        node.input[:] = [copies.get(name, name) for name in node.input]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    return proto.SerializeToString()


def test_a_converted_file_has_the_copies_of_an_exported_one():
    graph = between_convs(np.random.default_rng(5))
    samples = [{"x": np.random.default_rng(6).normal(size=(1, 8, 8, 8)).astype(np.float32)}]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plain = without_copies(planner.export(ready, planner.plan(ready, "onnxruntime-cpu"), "onnx-qdq"))
    assert COPY not in op_types(plain)
    assert COPY in op_types(planner.convert(plain, "onnx-qcdq"))


def random_resize(rng):
    """A Resize of random attributes that reads a tensor of random layout."""
    attributes = {
        "mode": str(rng.choice(["cubic", "linear", "nearest"])),
        "coordinate_transformation_mode": str(rng.choice(MODES)),
    }
    if attributes["mode"] != "nearest":
        attributes["antialias"] = int(rng.integers(2))
    perms = (TURN, BACK) if rng.integers(4) else (BACK, TURN)
    shape = (1, *rng.integers(4, 9, size=3).tolist())
    places = [shape[axis] for axis in perms[0]]
    factors = rng.choice([0.5, 1.0, 1.5, 2.0], size=2).astype(np.float32)
    sizes = [int(place * factor) for place, factor in zip(places[2:], factors, strict=True)]
    if rng.integers(3) == 0:
        attributes["axes"] = [2, 3]
    else:
        factors, sizes = [1, 1, *factors], [*places[:2], *sizes]
    if rng.integers(2):
        return turned("- s", {"s": np.array(factors, np.float32)}, shape=shape, perms=perms, **attributes)
    return turned("- - s", {"s": np.array(sizes)}, shape=shape, perms=perms, **attributes)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.soak) for n in range(8, 150))]
)
def test_any_resize_between_transposes_runs(seed):
    rng = np.random.default_rng(seed)
    graph = random_resize(rng)
    assert graph.values["z"].dtype != UNKNOWN
    held(graph, rng, ("onnxruntime-cpu", "tensorrt-int8"))
