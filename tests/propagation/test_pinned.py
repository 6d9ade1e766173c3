"""Pinned constants in storages other than the pin's: the same numbers, or the row is out."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import Constant, model_digest
from planner.ir.types.typetext import parse_type
from planner.plans.read_json import plan_from_json
from planner.plans.write_json import plan_to_json
from planner.propagation.propagate import propagate
from tests.plans.planned import forged
from tests.propagation.small import graph_of, target_of

ROWS = target_of(
    """
- {kernel: fc, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: conv, in: {x: a8, w: w8}, out: {y: a8}, axis: {w: 0}}
- {kernel: unsigned, in: {x: a8, w: z8}, out: {y: a8}}
- {kernel: two, in: {x: a8, w: {storage: i4, range: [-7, 7], symmetric: true}}, out: {y: a8}}
- {kernel: two, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: few, in: {x: a8, w: {storage: u4}}, out: {y: a8}}
- {kernel: blocks, in: {x: a8, w: B8}, out: {y: a8}}
- {kernel: same, in: {a: a8, b: a8}, out: {y: a8}, computes: true, rules: [{same_scale: [a, b, y]}]}
""".replace("B8", "{storage: i8, granularity: block, block_size: [2], symmetric: true}")
)
GRID = np.array([[1.0, -2.0], [0.5, 0.0]], np.float32)


def graph(kernel, pin, numbers=GRID, *, own=False):
    """One kernel over a constant that is pinned, by its value or (`own`) at its port."""
    made = graph_of(
        {"x": "[-1, 1]", "w": GRID, "y": "[-4, 4]"},
        [("k", kernel, "x w", "y")],
        outputs="y",
        shapes={"x": (2, 2), "y": (2, 2)},
    )
    facts = (parse_type(pin),)
    values = dict(made.values)
    if own:
        made = replace(made, regions=(replace(made.regions[0], input_facts=((), facts)),))
    else:
        values["w"] = replace(values["w"], facts=facts)
    given = numbers if isinstance(numbers, Constant) else Constant(np.array(numbers, np.float32))
    return replace(made, values=values, constants={"w": given})


def planned(made):
    plan = propagate(made, ROWS, model=model_digest(made))
    check(plan, made, ROWS)
    check(plan_from_json(plan_to_json(plan)))
    return plan


@pytest.mark.parametrize("own", [False, True], ids=["value", "port"])
@pytest.mark.parametrize(
    ("kernel", "pin", "wanted"),
    [
        ("fc", "i3:f32, 0.5", "i8<-127:127>:f32, 0.5"),  # three bits in bytes
        ("fc", "i4<-7:7>:f32, 0.25", None),  # -8 steps: the pin itself cuts its numbers
        ("fc", "i4:f32, 0.25", "i8<-127:127>:f32, 0.25"),
        ("fc", "u4:f32, 0.5:8", "i8<-127:127>:f32, 0.5"),  # the zero point goes where the port has it
        ("fc", "u8:f32, 0.5:128", "i8<-127:127>:f32, 0.5"),
        ("fc", "i8:f32, 0.015625", None),  # -128 is in use, and is not one of the port's
        ("fc", "i8:f32, 0.0625", "i8<-127:127>:f32, 0.0625"),  # narrow in use
        ("fc", "i16:f32, 0.0625", "i8<-127:127>:f32, 0.0625"),
        ("fc", "i16:f32, 0.001", None),
        ("fc", "i3:f32:0, {0.5,0.25}", None),  # one scale in all
        ("conv", "i3:f32:0, {0.5,0.25}", "i8<-127:127>:f32:0, {0.5,0.25}"),
        ("unsigned", "i3:f32, 0.5", "u8:f32, 0.5:128"),
        ("two", "i4<-7:7>:f32, 0.5", "i4<-7:7>:f32, 0.5"),
        ("two", "i3:f32, 0.5", "i4<-7:7>:f32, 0.5"),  # the first row that says them
        ("two", "i6:f32, 0.125", "i8<-127:127>:f32, 0.125"),
        ("two", "i8<-127:127>:f32, 0.5", "i8<-127:127>:f32, 0.5"),  # a pin met comes before file order
        (
            "blocks",
            "i4:f32:{0:1, 1:2}, {{0.5}, {0.25}}",
            "i8:f32:{0:1, 1:2}, {{0.5}, {0.25}}",
        ),
    ],
)
def test_the_storage_is_the_ports_the_scale_the_pins(kernel, pin, wanted, own):
    plan = planned(graph(kernel, f"!quant.uniform<{pin}>", own=own))
    if wanted is None:
        assert "has the fixed type" in plan.kernels["k"].reason
    else:
        assert plan.kernels["k"].inputs[1].type == parse_type(f"!quant.uniform<{wanted}>")


@pytest.mark.parametrize(
    ("zero", "sign", "wanted"),
    [(15, -1, 15), (0, 1, 0), (16, -1, None), (14, -1, 14), (4, 1, 4), (128, 1, 0)],
)
def test_a_zero_point_may_be_the_storages_end(zero, sign, wanted):
    """The pin's own where it fits, else 0; of numbers on one side of it alone."""
    plan = planned(graph("few", f"!quant.uniform<u8:f32, 0.25:{zero}>", np.abs(GRID) * sign))
    kind = plan.kernels["k"].inputs[1].type
    assert (plan.kernels["k"].row is None) == (wanted is None)
    assert wanted is None or kind == parse_type(f"!quant.uniform<u4:f32, 0.25:{wanted}>")


@pytest.mark.parametrize(("high", "served"), [(1.5, True), (9.0, False)])
def test_of_an_annotated_constant_the_range_is_known(high, served):
    made = graph("fc", "!quant.uniform<i4:f32, 0.5>", Constant(None, (-2.0,), (high,)))
    assert (planned(made).kernels["k"].row is not None) == served


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_what_is_no_number_is_on_no_grid(number):
    plan = planned(graph("fc", "!quant.uniform<i4:f32, 0.5>", [[number, 1.0], [0.0, 0.0]]))
    assert plan.kernels["k"].row is None


def test_a_constant_of_a_class_has_the_classs_type():
    """Case 36: its fixed type gives its numbers, not its storage; that is no secret."""
    made = graph("same", "!quant.uniform<i8:f32, 0.03125>")
    plan = planned(made)
    x, w = (port.type for port in plan.kernels["k"].inputs)
    assert (w.scales, w.zero_points) == (x.scales, x.zero_points)
    assert plan.warnings == (
        f"k.in[1] stores 'w' as {w}, as its class does, not as {made.values['w'].facts[0]}",
    )


def test_a_pin_of_the_port_is_the_types_of_its_class():
    plan = planned(graph("same", "!quant.uniform<i4:f32, 0.25>", own=True))
    assert {str(port.type) for port in plan.kernels["k"].inputs} == {"!quant.uniform<i8:f32, 0.25>"}


@pytest.mark.parametrize(
    "wrong",
    [
        "i8<-127:127>:f32, 0.25",  # another scale
        "i8<-127:127>:f32, 0.5:1",
        "i8<-127:127>:f32:0, {0.5,0.5}",
    ],
)
def test_the_checker_refuses_other_numbers(wrong):
    made = graph("fc", "!quant.uniform<i4:f32, 0.5>")
    plan = planned(made)
    with pytest.raises(PlanInvalid) as caught:
        check(forged(plan, {"k.in[1]": parse_type(f"!quant.uniform<{wrong}>")}), made, ROWS)
    assert caught.value.port == "k.in[1]"


def test_the_checker_looks_at_the_numbers():
    """Of a plan made for weights that fit, with weights that do not."""
    made = graph("fc", "!quant.uniform<i9:f32, 0.0625>")
    other = graph("fc", "!quant.uniform<i9:f32, 0.0625>", GRID * 8)
    plan = replace(planned(made), model=model_digest(other))
    with pytest.raises(PlanInvalid) as caught:
        check(plan, other, ROWS)
    assert caught.value.port == "k.in[1]"
