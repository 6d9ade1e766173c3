"""Predicates as planning and as the checker ask for them: one evaluator, two ways to say what a kernel is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.checker.check import check
from planner.errors import PlanInvalid, TargetError
from planner.ir.types.qtypes import Calibrated
from planner.target.load import load_target
from planner.target.records import Target
from tests.formats.plans import model, op
from tests.plans.planned import planned

ROW = {
    "kernel": "conv",
    "in": {"x": {"storage": "i8"}, "w": {"storage": "i8", "symmetric": True}, "b?": {"storage": "i32"}},
    "out": {"y": {"storage": "i8"}},
    "rules": [{"multiplier_scale": {"out": "y", "of": ["x", "w"]}}],
}
MODEL = model(
    [op("Conv", "x w", "c", strides=[1, 2], pads=[0, 0, 0, 0], group=2), op("Clip", "c lo hi", "y")],
    inputs={"x": (1, 8, 9, "width")},
    outputs={"y": (1, 6, 7, "half")},
    constants={
        "w": np.ones((6, 4, 3, 3), np.float32),
        "lo": np.array(0, np.float32),
        "hi": np.array(6, np.float32),
    },
    facts={"x": (Calibrated((-1,), (1,)),), "y": (Calibrated((0,), (6,)),)},
    shapes={"c": (1, 6, 7, "half")},
)


def target_with(when: dict[str, Any]) -> Target:
    return load_target(
        {
            "apiVersion": "planner/v1",
            "kind": "Target",
            "id": "conditions",
            "version": "1.0.0",
            "title": "One row",
            "defaults": {"port": {"storage": "i8"}},
            "fusions": [{"kernel": "conv", "pattern": "Clip(Conv(x, w, b?))"}],
            "kernels": [{**ROW, "when": when}],
        }
    )


FREE = planned(MODEL, target_with({})).plan
SERVED = {key: row.row for key, row in FREE.kernels.items() if row.row}


def holds_to_planning(when: dict[str, Any]) -> bool:
    return any(kernel.row for kernel in planned(MODEL, target_with(when)).plan.kernels_in_order)


def holds_to_the_checker(when: dict[str, Any]) -> bool:
    (key,) = SERVED.values()
    rows = {**FREE.target.rows, key: replace(FREE.target.rows[key], when=when)}
    try:
        check(replace(FREE, target=replace(FREE.target, rows=rows)), model=MODEL)
    except PlanInvalid:
        return False
    return True


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"Conv.strides": "<= 2"}, True),
        ({"Conv.strides": "1"}, False),  # text
        ({"Conv.strides": 2}, False),
        ({"Conv.strides": [1, 2]}, True),  # this list
        ({"Conv.strides": [[2, 2], "1..2"]}, True),
        ({"Conv.strides[0]": 1, "Conv.strides[-1]": 2}, True),
        ({"Conv.strides[2]": 1}, False),
        ({"Conv.dilations": [[1, 1], [3, 3]]}, True),  # the default is 1 along every axis
        ({"Conv.kernel_shape": 3}, True),  # of the weights
        ({"Clip.max": "<= 6", "Clip.range": [[0, 6]]}, True),
        ({"x.shape[1]": "% 8 == 0 and 1..8"}, True),
        ({"x.shape[1]": "not 8"}, False),
        ({"x.shape[3]": "1..8"}, False),
        ({"holds": "not x.shape[3] == 4"}, False),  # unknown: neither it nor its contrary
        ({"holds": "x.shape[3] == 4 or x.rank == 4"}, True),
        ({"holds": ["x.rank == 4", "w.elements == 216", "b.count == 0", "w.count == 1"]}, True),
        ({"holds": "b.rank == 3"}, True),  # nothing to ask
        ({"holds": "not b.rank == 3"}, True),
        ({"holds": "b.rank == 3 or x.rank == 3"}, False),
        ({"holds": "Conv.strides * Conv.kernel_shape <= 6"}, True),
        ({"holds": "Conv.strides * Conv.kernel_shape <= 5"}, False),
        ({"holds": "Conv.strides != Conv.pads"}, True),  # lists of other lengths
        ({"holds": "Conv.strides == Conv.pads"}, False),
        ({"holds": "Conv.auto_pad == NOTSET and Conv.auto_pad != 3"}, True),
        ({"holds": "Conv.auto_pad < 3"}, False),
        ({"holds": "x.shape[1] / (x.rank - 4) == 1"}, False),
        ({"holds": "floor(y.shape[2] / 2) == 3 and ceil(y.shape[2] / 2) == 4"}, True),
        ({"y.dtype": "f32", "x.dtype": ["f16", "f32"]}, True),
    ],
)
def test_both_say_the_same(when, holds):
    assert (holds_to_planning(when), holds_to_the_checker(when)) == (holds, holds)


TERMS = st.sampled_from(
    ["x.rank", "x.shape[1]", "x.shape[3]", "w.elements", "b.count", "b.rank", "Conv.group", "Conv.strides",
     "Conv.strides[1]", "Conv.dilations", "Conv.auto_pad", "Clip.max", "Gemm.transA", "1", "2", "8", "text"]
)  # fmt: skip
SIDES = st.one_of(TERMS, st.builds("({} {} {})".format, TERMS, st.sampled_from("+-*/%"), TERMS))
TESTS = st.one_of(
    st.builds("{} {} {}".format, SIDES, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), SIDES),
    st.builds("{} in {}..{}".format, SIDES, TERMS, TERMS),
)
CONDITIONS = st.recursive(
    TESTS,
    lambda parts: st.one_of(
        st.builds("not ({})".format, parts),
        st.builds("({}) and ({})".format, parts, parts),
        st.builds("({}) or ({})".format, parts, parts),
    ),
    max_leaves=4,
)


@given(CONDITIONS)
def test_planning_and_the_checker_agree_on_any_condition(text):
    try:
        holds = holds_to_planning({"holds": text})
    except TargetError:
        # An order between words: refused as the file is read.
        return
    assert holds_to_the_checker({"holds": text}) is holds
