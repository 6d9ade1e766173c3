"""Constants with a scale per block: the first size that divides, one scale per channel, rows that fail."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import Op, model_digest
from planner.propagation.propagate import propagate
from tests.plans.planned import forged
from tests.propagation.small import graph_of, target_of

SIZES = "granularity: block, block_size: [3, 4, 2]"
ROWS = target_of(f"""
- {{kernel: fc, in: {{x: a8, w: {{storage: i4, {SIZES}, symmetric: true}}}}, out: {{y: a8}}}}
- {{kernel: fc, in: {{x: a8, w: n8}}, out: {{y: a8}}}}
- {{kernel: lut, in: {{x: a8, w: {{storage: u4, {SIZES}}}}}, out: {{y: a8}}, axis: {{w: 0}}}}
""")
RANDOM = np.random.default_rng(7)


def model(op, shape, kernel="fc", **attributes):
    weights = RANDOM.normal(size=shape).astype(np.float32)
    graph = graph_of({"x": "[-1, 1]", "w": weights, "y": "[-4, 4]"}, [("k", kernel, "x w", "y")], outputs="y")
    ops = (Op("k_op", op, ("x", "w"), ("y",), attributes),) if op else ()
    return replace(graph, regions=(replace(graph.regions[0], ops=ops),)), weights


def plan_of(graph):
    plan = propagate(graph, ROWS, model=model_digest(graph))
    check(plan, graph, ROWS)
    return plan


@pytest.mark.parametrize(
    ("op", "attributes", "shape", "blocks", "grid"),
    [
        ("MatMul", {}, (8, 5), ((0, 4), (1, 1)), (2, 5)),
        ("MatMul", {}, (6, 5), ((0, 3), (1, 1)), (2, 5)),
        ("Gemm", {"transB": 1}, (5, 8), ((0, 1), (1, 4)), (5, 2)),
        ("Gemm", {}, (8, 5), ((0, 4), (1, 1)), (2, 5)),
        ("Conv", {}, (5, 4, 3, 3), ((0, 1), (1, 4)), (5, 1, 1, 1)),
    ],
)
def test_a_scale_per_channel_and_block(op, attributes, shape, blocks, grid):
    """Each is the largest magnitude of its block over 7."""
    graph, weights = model(op, shape, **attributes)
    kind = plan_of(graph).kernels["k"].inputs[1].type
    assert (kind.blocks, kind.grid) == (blocks, grid)
    scales = np.array(kind.scales).reshape(grid)
    for place in np.ndindex(*grid):
        part = weights[
            tuple(slice(i * shape[a] // grid[a], (i + 1) * shape[a] // grid[a]) for a, i in enumerate(place))
        ]
        assert scales[place] == pytest.approx(np.abs(part).max() / 7, rel=1e-6)


@pytest.mark.parametrize(
    ("axis", "blocks"),
    [(-1, ((0, 4), (1, 1))), (1, ((0, 4), (1, 1))), (-2, ((0, 1), (1, 4))), (0, ((0, 1), (1, 4)))],
)
def test_a_rows_axis_of_channels_may_count_from_the_end(axis, blocks):
    w = f"{{storage: i4, {SIZES}, symmetric: true}}"
    target = target_of(f"- {{kernel: fc, in: {{x: a8, w: {w}}}, out: {{y: a8}}, axis: {{w: {axis}}}}}")
    graph, _ = model("MatMul", (8, 8))
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    assert plan.kernels["k"].inputs[1].type.blocks == blocks


def test_unsigned_blocks_have_zero_points():
    graph, weights = model("", (3, 4), "lut")
    kind = plan_of(graph).kernels["k"].inputs[1].type
    lo, hi = np.minimum(weights.min(axis=1), 0), np.maximum(weights.max(axis=1), 0)
    assert kind.grid == (3, 1)
    assert kind.scales == pytest.approx(((hi - lo) / 15).tolist(), rel=1e-6)
    assert any(kind.zero_points)


def test_a_row_that_cannot_cut_is_no_match():
    """Seven divides by none of the sizes: the next row serves; a lone row leaves the kernel in float."""
    graph, _ = model("MatMul", (7, 5))
    assert plan_of(graph).kernels["k"].row == ROWS.rows["fc"][1].key
    graph, _ = model("", (3, 7), "lut")
    assert "port w ('w') cannot be cut into blocks of 3, 4, 2" in plan_of(graph).kernels["k"].reason


@pytest.mark.parametrize("change", ["coarser", "finer", "moved"])
def test_the_checker_looks_into_blocks(change):
    graph, _ = model("MatMul", (8, 5))
    plan = plan_of(graph)
    kind = plan.kernels["k"].inputs[1].type
    scales = list(kind.scales)
    scales = {
        "coarser": [scales[0] * 2, *scales[1:]],
        "finer": [scales[0] / 2, *scales[1:]],
        "moved": [*scales[1:], scales[0]],
    }[change]
    with pytest.raises(PlanInvalid) as caught:
        check(forged(plan, {"k.in[1]": replace(kind, scales=tuple(scales))}), graph, ROWS)
    assert caught.value.port == "k.in[1]"
