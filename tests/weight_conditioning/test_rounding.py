"""Rounding: by hand, against an exhaustive search, on every layout; plans store exactly its points."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import planner
from planner.calibration.run import calibrate
from planner.constants.quantize import dequantize_array, quantize_array
from planner.ir.graph import Constant, Op
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import parse_type
from planner.weight_conditioning.condition import condition
from planner.weight_conditioning.layers import as_rows, from_rows, grams, patches_of
from planner.weight_conditioning.rounding import given_slices, slices_of
from planner.weight_conditioning.second_order import Grid, factored, second_order
from tests.calibration.graphs import graph_of
from tests.weight_conditioning.nets import depthwise, images, normal, outputs

CPU = "onnxruntime-cpu"
TARGETS = (CPU, "litert-int8", "qnn-htp", "tensorrt-int8", "tosa-int8")


def grid_of_ones(shape, qmin=-8, qmax=7):
    return Grid(np.ones(shape), np.zeros(shape), qmin, qmax)


def error(weight, stored, gram):
    moved = stored - weight
    return float(np.einsum("oi,ij,oj->", moved, gram, moved))


def rounded(weight, gram, **limits):
    return second_order(weight, grid_of_ones(weight.shape, **limits), *factored(gram))


def test_by_hand():
    """Both inputs are nearly one: 0.4 + 0.4 is stored as 0 + 1, not as 0 + 0."""
    gram = np.array([[1.0, 0.99], [0.99, 1.0]])
    assert sorted(rounded(np.array([[0.4, 0.4]]), gram)[0].tolist()) == [0, 1]


def test_inputs_that_have_nothing_in_common_round_to_the_nearest():
    weight = normal(5, 9).astype(np.float64) * 3
    assert np.array_equal(rounded(weight, np.diag(np.arange(1.0, 10))), np.clip(np.rint(weight), -8, 7))


def test_it_comes_close_to_the_best():
    """Of 3^6 neighbours of each row the best one, by trying all."""
    rng = np.random.default_rng(0)
    lost = np.zeros(3)
    for _ in range(8):
        x = rng.normal(size=(6, 3)) @ rng.normal(size=(3, 40)) + 0.1 * rng.normal(size=(6, 40))
        gram, weight = x @ x.T, rng.normal(size=(1, 6)) * 3
        near = np.rint(weight)
        best = min(error(weight, near + step, gram) for step in product((-1, 0, 1), repeat=6))
        found = error(weight, rounded(weight, gram), gram)
        assert best <= found
        lost += (best, found, error(weight, near, gram))
    assert lost[1] < 0.5 * (lost[0] + lost[2])


def test_lazy_blocks_change_nothing(monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 90))
    weight, gram = rng.normal(size=(7, 40)) * 3, x @ x.T
    whole = rounded(weight, gram)
    monkeypatch.setattr("planner.weight_conditioning.second_order.LAZY", 16)
    assert np.array_equal(rounded(weight, gram), whole)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_inputs_that_were_never_seen(rank):
    """H has no inverse then: damping makes one; an input that is always 0 has no say."""
    x = np.random.default_rng(2).normal(size=(8, rank)) @ np.ones((rank, 20))
    x[0] = 0
    weight = normal(3, 8).astype(np.float64)
    found = rounded(weight, x @ x.T)
    assert np.isfinite(found).all()
    assert np.array_equal(found[:, 0], np.rint(weight[:, 0]))


def test_the_ends_of_the_grid_hold():
    found = rounded(np.array([[100.0, -100.0, 0.3]]), np.eye(3), qmin=-4, qmax=3)
    assert found.tolist() == [[3, -4, 0]]


def conv(kind="Conv", shape=(6, 2, 3, 3), size=7, **attributes):
    groups = attributes.get("group", 1)
    op = Op("layer", kind, ("x", "w"), ("y",), attributes)
    return graph_of((op,), {"x": (2, shape[1] * groups, size, size + 1)}, constants={"w": normal(*shape)})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"pads": (1, 0, 2, 1)},
        {"strides": (2, 3), "pads": (1, 1, 1, 1)},
        {"dilations": (2, 1)},
        {"group": 3, "pads": (1, 1, 1, 1), "strides": (2, 2)},
        {"auto_pad": "SAME_UPPER", "strides": (2, 2)},
        {"auto_pad": "VALID"},
    ],
)
def test_rows_meet_what_onnxruntime_multiplies(attributes):
    """The power of a layer's outputs is w H w^T, whatever its geometry."""
    graph = conv(**attributes)
    sample = {"x": normal(*graph.values["x"].shape)}
    op = graph.ops[0]
    patches = patches_of(graph, op)
    (gram,) = grams(graph, [sample], [patches]).values()
    rows = as_rows(op, graph.constants["w"].array).astype(np.float64)
    power = np.einsum("goi,gij,goj->go", rows, gram, rows).reshape(-1)
    (found,) = outputs(graph, sample)
    np.testing.assert_allclose(power, (found.astype(np.float64) ** 2).sum(axis=(0, 2, 3)), rtol=1e-4)


@pytest.mark.parametrize(
    "op", [Op("m", "MatMul", ("x", "w"), ("y",)), Op("g", "Gemm", ("x", "w"), ("y",), {"transB": 1})]
)
def test_rows_of_matrices(op):
    weight = normal(5, 3) if op.type == "MatMul" else normal(3, 5)
    rows = as_rows(op, weight)
    assert rows.shape == (1, 3, 5)
    assert np.array_equal(from_rows(op, rows, weight.shape), weight)


def test_each_weight_is_in_the_slice_of_its_scale():
    op = Op("m", "MatMul", ("x", "w"), ("y",))
    kind = parse_type("!quant.uniform<i4:f32:{0:2, 1:1}, {{1.0, 2.0}, {3.0, 4.0}}>")
    own = slices_of(op, np.zeros((4, 2)), kind)
    assert own.scales[own.of][0].tolist() == [[1, 1, 3, 3], [2, 2, 4, 4]]


def test_a_last_block_may_be_shorter():
    ops = (Op("a", "MatMul", ("x", "w"), ("y",)), Op("b", "Gemm", ("x", "v"), ("z",), {"transB": 1}))
    constants = {"w": normal(10, 3), "v": normal(3, 8)}
    graph = graph_of(ops, {"x": (2, 10)}, constants=constants)
    found = given_slices(graph, 4, 4)
    assert found["a"].kind.grid == (3, 3)
    assert found["a"].of[0, 1].tolist() == [1, 1, 1, 1, 4, 4, 4, 4, 7, 7]
    assert found["b"].kind.grid == (3, 2)


def test_a_convolution_in_blocks_has_no_type():
    """A type has a block of an axis; these are blocks of a row over all axes but the first."""
    assert given_slices(conv(), 4, 4)["layer"].kind is None


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("block", ["", "x4"])
def test_weights_are_points_of_their_grid(bits, block):
    ops = (Op("a", "MatMul", ("x", "w"), ("y",)),)
    weight = normal(10, 5)
    graph = graph_of(ops, {"x": (6, 10)}, constants={"w": weight}, shapes={"y": (6, 5)})
    samples = [{"x": normal(6, 10)} for _ in range(4)]
    done = condition(graph, f"round:{bits}{block}", samples=samples)
    assert done.changes[0].method == f"round:{bits}{block}"
    new = done.model.constants["w"].array
    size = 4 if block else 10
    for begin in range(0, 10, size):
        for column in new[begin : begin + size].T:
            steps = np.unique(np.abs(column[column != 0]))
            assert np.unique(column).size <= 2**bits
            # Every number is a multiple of one step that its slice has.
            assert any(
                np.allclose(column / (steps[0] / k), np.rint(column / (steps[0] / k)), atol=1e-3)
                for k in range(1, 2**bits)
            )
    (pin,) = done.model.values["w"].facts
    assert np.array_equal(dequantize_array(quantize_array(new, pin), pin), new)


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_outputs_move_less_than_by_the_nearest(bits):
    """On samples that it has not seen, of smooth pictures as cameras take them."""
    graph = conv(pads=(1, 1, 1, 1))
    pictures = [{"x": normal(*graph.values["x"].shape).cumsum(2).cumsum(3)} for _ in range(12)]
    done = condition(graph, f"round:{bits}", samples=pictures[:8])
    (kind,) = done.model.values["w"].facts
    near = dequantize_array(quantize_array(graph.constants["w"].array, kind), kind)
    nearest = replace(graph, constants={"w": Constant(near)})
    lost = np.zeros(2)
    for sample in pictures[8:]:
        (was,), (best,), (plain,) = (outputs(model, sample) for model in (graph, done.model, nearest))
        lost += (((best - was) ** 2).sum(), ((plain - was) ** 2).sum())
    assert lost[0] < 0.7 * lost[1]


@pytest.mark.parametrize("target", TARGETS)
def test_a_plan_stores_exactly_these_weights(target):
    """Same rows, same scales as without; the stored integers say the very numbers."""
    graph, samples = depthwise(), images()
    stats = calibrate(graph, samples)
    done = condition(graph, "round", target=target, stats=stats, samples=samples)
    before = planner.annotate(graph, stats=stats)
    after = planner.annotate(done.model, stats=done.stats)
    old, new = planner.plan(before, target), planner.plan(after, target)
    planner.check(new, after, planner.load_target(target))
    stored = 0
    for kernel in new.kernels_in_order:
        twin = old.kernels[kernel.name]
        assert kernel.row == twin.row
        for port, was in zip(kernel.inputs, twin.inputs, strict=True):
            if port.value in done.changes[0].values and isinstance(port.type, Uniform):
                array = done.model.constants[port.value].array
                integers = quantize_array(array, port.type)
                assert np.array_equal(dequantize_array(integers, port.type), array)
                assert port.type.scales == was.type.scales
                stored += 1
    assert stored == 3


def test_weights_in_blocks_on_a_target():
    ops = (Op("a", "MatMul", ("x", "w"), ("y",)),)
    graph = graph_of(ops, {"x": (6, 64)}, constants={"w": normal(64, 5)}, shapes={"y": (6, 5)})
    samples = [{"x": normal(6, 64)} for _ in range(4)]
    done = condition(graph, "round", target="llm-w4", samples=samples)
    plan = planner.plan(planner.annotate(done.model, stats=done.stats), "llm-w4")
    kind = plan.kernels["a"].inputs[1].type
    assert kind.grid == (2, 5)
    array = done.model.constants["w"].array
    assert np.array_equal(dequantize_array(quantize_array(array, kind), kind), array)
    assert done.model.values["w"].facts == (kind,)


def test_shared_weights_are_rounded_each_for_its_own():
    ops = (
        Op("one", "MatMul", ("x", "w"), ("a",)),
        Op("act", "Relu", ("a",), ("r",)),
        Op("two", "MatMul", ("r", "w"), ("y",)),
    )
    shapes = dict.fromkeys(("a", "r", "y"), (4, 4))
    graph = graph_of(ops, {"x": (4, 4)}, constants={"w": normal(4, 4)}, shapes=shapes)
    done = condition(graph, "round:3", samples=[{"x": normal(4, 4)} for _ in range(3)])
    assert done.changes[0].values == ("w@one", "w@two")
    assert "w" not in done.model.constants


@pytest.mark.parametrize("case", ["ConvTranspose", "pinned", "NaN"])
def test_what_cannot_be_rounded_stays(case):
    graph = conv("ConvTranspose" if case == "ConvTranspose" else "Conv", (2, 2, 3, 3))
    sample = {"x": normal(*graph.values["x"].shape)}
    if case == "pinned":
        pinned = replace(graph.values["w"], facts=(parse_type("!quant.uniform<i8:f32, 0.5>"),))
        graph = replace(graph, values={**graph.values, "w": pinned})
    if case == "NaN":
        sample["x"][0, 0, 0, 0] = np.nan
    done = condition(graph, "round:4", samples=[sample])
    assert done.changes[0].values == ()
    assert np.array_equal(done.model.constants["w"].array, graph.constants["w"].array)
    told = "'layer': its input was not observed, or was not a number"
    assert done.changes[0].left == ((told,) if case == "NaN" else ())


def test_biases_are_corrected_for_what_rounding_moved():
    """The weights' error against what they stood for, though on their grid they have none."""
    op = Op("layer", "Gemm", ("x", "w", "b"), ("y",))
    constants = {"w": normal(6, 4), "b": normal(4)}
    graph = graph_of((op,), {"x": (8, 6)}, constants=constants, shapes={"y": (8, 4)})
    samples = [{"x": normal(8, 6) + np.float32(3)} for _ in range(4)]
    done = condition(graph, "round:2,correct", target=CPU, samples=samples)
    assert [change.values for change in done.changes] == [("w",), ("b@layer",)]
    moved = [outputs(done.model, sample)[0] - outputs(graph, sample)[0] for sample in samples]
    assert np.abs(np.mean(moved, axis=(0, 1))).max() < 1e-4
    plain = condition(graph, "round:2", samples=samples).model
    moved = [outputs(plain, sample)[0] - outputs(graph, sample)[0] for sample in samples]
    assert np.abs(np.mean(moved, axis=(0, 1))).max() > 1e-3
