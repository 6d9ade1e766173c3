"""A pin that uses a part of its storage without 0 (a Clip behind a quantizer) on every shipped target.

Rows with symmetric wildcards take the pin's storage, and their zero point has to be one of its numbers.
"""

import pytest

import planner
from planner.target.load import target_ids
from planner.target.modeltext import read_model_text

MODEL = """
x : f32[1,4,6,6] {{-3, 3}} !quant.uniform<u8:f32, 0.02:128>
w = constant : f32[4,4,1,1] {{-0.5, 0.5}}
c = Conv(x, w) : f32[1,4,6,6] {{-2, 2}} {pin}
r = Concat(c, x) [axis=1] : f32[1,8,6,6] {{-3, 3}}
m = MaxPool(r) [kernel_shape=[2,2]] : f32[1,8,5,5] {{-3, 3}}
y = Relu(m) : f32[1,8,5,5] {{0, 3}} {pin}
"""


@pytest.mark.parametrize("target", target_ids())
@pytest.mark.parametrize(
    "pin",
    [
        "!quant.uniform<u8<67:255>:f32, 0.0125:67>",
        "!quant.uniform<i8<-128:-20>:f32, 0.025:-128>",
        "!quant.uniform<i8<20:127>:f32, 0.03125:20>",
        "!quant.uniform<u4<3:15>:f32, 0.25:3>",
    ],
)
def test_a_plan_is_made_and_holds(target, pin):
    model = read_model_text(MODEL.format(pin=pin), "pinned")
    planner.check(planner.plan(model, target), model, target)
