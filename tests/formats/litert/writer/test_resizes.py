"""Nearest Resizes for devices without GATHER: what is on a row is one operator of the file."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.ir.types.qtypes import AnyType, storage
from tests.formats.litert.writer.running import told
from tests.formats.tosa.writer.test_operators import made

SHAPE = (1, 4, 8, 6)
# Sizes or scales of all axes or the spatial ones: whole factors, others, scales beside the ratio of sizes.
WAYS = {
    **{f"{n}-fold": {"n": [1, 4, 8 * n, 6 * n]} for n in (2, 3, 4, 8)},
    "less": {"n": [1, 4, 5, 3]},
    "more": {"n": [1, 4, 11, 9]},
    "two factors": {"n": [1, 4, 16, 24]},
    "channels": {"n": [1, 8, 16, 12]},
    "by 2": {"f": [1, 1, 2, 2]},
    "by 2, two axes": {"f": [2, 2]},
    "by 2.06": {"f": [1, 1, 2.06, 2.06]},
    "by 0.6": {"f": [1, 1, 0.6, 0.6]},
}
FOLDS = ("2-fold", "4-fold", "8-fold", "by 2", "by 2, two axes")


def operators(target, way, coordinates, pick):
    """Operators of the file that do the Resize, and whether a row has it."""
    ((key, numbers),) = WAYS[way].items()
    axes = ", axes=[2, 3]" if len(numbers) == 2 else ""
    text = (
        f'y = Resize <mode="nearest", coordinate_transformation_mode="{coordinates}", nearest_mode="{pick}"'
        f"{axes}> (x, {', , n' if key == 'n' else ', f'})"
    )
    array = np.array(numbers, np.int64 if key == "n" else np.float32)
    graph = planner.load_model(made(text, SHAPE, {key: array}))
    sample = {"i": np.linspace(-1.5, 2, np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)}
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [sample]))
    asked = replace(graph.values["y"], facts=(*graph.values["y"].facts, AnyType(storage("i8"))))
    graph = replace(graph, values={**graph.values, "y": asked})
    plan = planner.plan(graph, target)
    counts = told(planner.export(graph, plan, "litert")).counts
    around = {"TANH", "TRANSPOSE", "RESHAPE", "QUANTIZE", "DEQUANTIZE"}
    return counts.keys() - around, plan.kernels_in_order[-1].row is not None


@pytest.mark.parametrize("target", ["ethos-u55", "edgetpu"])
@pytest.mark.parametrize(
    "coordinates", ["asymmetric", "align_corners", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("pick", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_a_row_has_what_is_one_operator(target, coordinates, pick):
    for way in WAYS:
        found, has_row = operators(target, way, coordinates, pick)
        if has_row:
            assert found == {"RESIZE_NEAREST_NEIGHBOR"}, way
        elif target == "ethos-u55" and way in FOLDS and coordinates != "align_corners":
            # No row is narrower than the device: these are GATHERs for LiteRT too.
            assert operators("litert-int8", way, coordinates, pick) == ({"GATHER"}, True), way
