"""A planned model for another target: coarse kernels taken apart, their ports pinned."""

import pytest

import planner
from planner.errors import Conflict, InputError
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from tests.fusion.test_groups import COARSE, MODEL

WHOLE = COARSE + "  - {kernel: block, in: {x: a8, w: w8}, out: {y: a8}}\n"


def both():
    model = read_model_text(MODEL, "m")
    return model, planner.plan(model, load_target(WHOLE)), load_target(COARSE)


def test_a_coarse_kernel_is_taken_apart():
    model, plan, fine = both()
    again = planner.retarget(plan, fine)
    planner.check(again, model, fine)
    before = plan.kernels["block0"]
    assert [k.name for k in again.kernels_in_order] == ["block0/a", "block0/y"]
    assert again.kernels["block0/a"].inputs[0].type == before.inputs[0].type
    # What a row fixes wins over the pin, and the plan says so.
    assert again.kernels["block0/y"].outputs[0].type.scale == 1 / 256
    assert any("block0/y.out[0]" in warning for warning in again.warnings)


def test_and_again_for_the_first_target():
    """As often as needed: finer kernels stay as they are where nothing takes them apart."""
    _, plan, fine = both()
    back = planner.retarget(planner.retarget(plan, fine), load_target(WHOLE))
    assert [k.name for k in back.kernels_in_order] == ["block0/a", "block0/y"]


STRICT = COARSE.partition("  - kernel: Softmax")[0].replace(
    "legalize", "defaults: {on_no_kernel: error}\nlegalize"
)


def test_best_effort_gives_up_what_cannot_hold_there():
    """A kernel that the other target has to serve and does not: a conflict, or float with a warning."""
    model, plan, _ = both()
    strict = load_target(STRICT)
    with pytest.raises(Conflict, match=r"no row of coarse serves Softmax"):
        planner.retarget(plan, strict)
    found = planner.retarget(plan, strict, best_effort=True)
    planner.check(found, model, strict)
    assert found.kernels["block0/y"].row is None
    assert any("runs in float: block0/y" in warning for warning in found.warnings)
    # What was planned so is moved so.
    assert planner.retarget(found, load_target(STRICT)).options == {
        "strategy": "minimal",
        "best_effort": True,
    }


def test_a_plan_from_a_file_needs_its_model():
    model, plan, fine = both()
    read = planner.plan_from_json(plan.to_json())
    with pytest.raises(InputError, match="read from a file"):
        planner.retarget(read, fine)
    again = planner.retarget(read, fine, model=model, source=load_target(WHOLE))
    assert again.to_json() == planner.retarget(plan, fine).to_json()
