"""Programs of fixed sizes take open dimensions for 1; what cannot be computed so says which ones are open."""

from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.common.known_shapes import taken_for_one
from planner.formats.table import FORMATS

TEXT = """
<ir_version: 10, opset_import: ["" : 21]> m (float[N, T, SIZE] x) => (float[N, T, P] y)
<int64[6] p = {0, 0, 3, 0, 0, 3}> { r = Relu(x) y = Pad<mode = "reflect">(r, p) }
"""
FIRST = {
    "tosa": "cannot be computed where ",
    "stablehlo": "Pad at 'Pad_1': reflected by more than (1, 1, 1) has; ",
    "stablehlo-int": "Pad at 'Pad_1': reflected by more than (1, 1, 1) has; ",
}
OPEN = "x[0] 'N', x[1] 'T', x[2] 'S' are left open and set to 1 "
HINT = (
    "(fix open sizes: load_model(..., dims={'N': N, 'T': N, 'S': N}), "
    "or --dim N=N --dim T=N --dim S=N where qplan reads the model"
)


def planned(form, size, **dims):
    data = onnx.parser.parse_model(TEXT.replace("SIZE", size)).SerializeToString()
    model = planner.load_model(data, dims=dims)
    stats = planner.calibrate(model, [{"x": np.ones((1, 2, 8), np.float32)}])
    # As statistics of before, which say no sizes: those of the samples would do.
    ready = planner.annotate(model, stats=replace(stats, sizes={}))
    return ready, planner.plan(ready, "tosa-int8" if form == "tosa" else "stablehlo")


@pytest.mark.parametrize("form", FIRST)
def test_what_is_open_is_listed(form):
    with pytest.raises(UnsupportedExport) as error:
        planner.export(*planned(form, "S"), form)
    place, _, words = str(error.value).partition(": ")
    assert place == "Pad_1.out[0] (in float)"
    assert words.startswith(FIRST[form] + OPEN + HINT)


@pytest.mark.parametrize("form", FIRST)
def test_what_is_sized_is_written(form):
    assert planner.export(*planned(form, "S", S=8), form)


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_of_fixed_sizes_warns_of_open_ones(form):
    is_fixed = form in {"litert", "stablehlo", "stablehlo-int", "tosa"}
    ready, _ = planned("tosa", "S")
    words = f"{form} has fixed sizes; these are open and set to 1: x[0] 'N', x[1] 'T', x[2] 'S'; give them: "
    assert taken_for_one(ready, form).startswith(words if is_fixed else "")
    assert bool(taken_for_one(ready, form)) == is_fixed
    assert taken_for_one(planned("tosa", "S", N=1, T=2, S=8)[0], form) == ""
