"""Axes of a model's outputs: places, classes, and what a softmax or a sigmoid decides."""

import pytest

from planner.ir.operators.axes import axes_of
from planner.target.modeltext import read_model_text

PLACE, WORD, CLASS = "place", "word", "class"
MODELS = {
    "a picture": ("c = Conv(x, w) : f32[1,8,6,6]; y = Relu(c) : f32[1,8,6,6]", ["", "", PLACE, PLACE], ""),
    "channels last": (
        "c = Conv(x, w) : f32[1,8,6,6]; y = Transpose(c) [perm=[0,2,3,1]] : f32[1,6,6,8]",
        ["", PLACE, PLACE, ""],
        "",
    ),
    "a detector": (
        """c = Conv(x, w) : f32[1,8,6,6]; d = Reshape(c) : f32[1,2,4,36]
        e = Transpose(d) [perm=[0,1,3,2]] : f32[1,2,36,4]; y = Reshape(e) : f32[1,72,4]""",
        ["", PLACE, ""],
        "",
    ),
    "boxes and scores": (
        """c = Conv(x, w) : f32[1,8,6,6]; d = Sigmoid(c) : f32[1,8,6,6]
        y = Concat(c, d) [axis=1] : f32[1,16,6,6]""",
        ["", "", PLACE, PLACE],
        "",
    ),
    "boxes of a distribution, and scores": (
        """c = Conv(x, w) : f32[1,8,6,6]; d = Reshape(c) : f32[1,8,36]; e = Reshape(d) : f32[1,2,4,36]
        p = Softmax(e) [axis=1] : f32[1,2,4,36]; q = Conv(p, w1) : f32[1,1,4,36]
        k = Reshape(q) : f32[1,4,36]; h = Sigmoid(d) : f32[1,8,36]
        y = Concat(k, h) [axis=1] : f32[1,12,36]""",
        ["", "", PLACE],
        "",
    ),
    "places of several sizes": (
        """c = Conv(x, w) : f32[1,8,6,6]; d = Reshape(c) : f32[1,8,36]
        e = MaxPool(c) [kernel_shape=[2,2], strides=[2,2]] : f32[1,8,3,3]; k = Reshape(e) : f32[1,8,9]
        y = Concat(d, k) [axis=2] : f32[1,8,45]""",
        ["", "", PLACE],
        "",
    ),
    "what came before, and a step": (
        """a = MatMul(t, m) : f32[1,5,9]; y = Concat(before, a) [axis=1] : f32[1,12,9]""",
        ["", PLACE, ""],
        "",
    ),
    "classes of pixels": (
        "c = Conv(x, w) : f32[1,8,6,6]; y = Softmax(c) [axis=1] : f32[1,8,6,6]",
        ["", CLASS, PLACE, PLACE],
        "softmax",
    ),
    "the class of each pixel": (
        "c = Conv(x, w) : f32[1,8,6,6]; y = ArgMax(c) [axis=1, keepdims=0] : i64[1,6,6]",
        ["", PLACE, PLACE],
        "index",
    ),
    "the class of each pixel, its axis kept": (
        """c = Conv(x, w) : f32[1,8,6,6]; a = ArgMax(c) [axis=1] : i64[1,1,6,6]
        y = Cast(a) [to=1] : f32[1,1,6,6]""",
        ["", "", PLACE, PLACE],
        "index",
    ),
    "words": (
        """a = MatMul(t, m) : f32[1,5,9]; b = Softmax(a) : f32[1,5,9]
        y = Transpose(b) [perm=[1,0,2]] : f32[5,1,9]""",
        [PLACE, "", CLASS],
        "softmax",
    ),
    "one answer": ("a = MatMul(f, m) : f32[1,9]; y = Softmax(a) : f32[1,9]", ["", CLASS], "softmax"),
    "classes that are mixed": (
        """a = MatMul(t, m) : f32[1,5,9]; b = Softmax(a) : f32[1,5,9]
        y = Reshape(b) : f32[1,45]""",
        ["", PLACE],
        "",
    ),
    "attention": (
        """q = MatMul(t, m) : f32[1,5,9]; k = Transpose(q) [perm=[0,2,1]] : f32[1,9,5]
        a = MatMul(q, k) : f32[1,5,5]; p = Softmax(a) : f32[1,5,5]; y = MatMul(p, q) : f32[1,5,9]""",
        ["", PLACE, ""],
        "",
    ),
    "words of a table": (
        """e = Gather(v, i) : f32[1,5,4]; a = MatMul(e, m) : f32[1,5,9]
        b = Transpose(a) [perm=[0,2,1]] : f32[1,9,5]; c = Conv(b, u) : f32[1,2,5]
        d = Add(c, b2) : f32[1,2,5]; y = Softmax(d) [axis=1] : f32[1,2,5]""",
        ["", CLASS, WORD],
        "softmax",
    ),
    "a recurrent layer": (
        "y, h = GRU(s, g, r) [hidden_size=4] : f32[7,1,1,4], f32[1,1,4]",
        [PLACE, "", "", ""],
        "",
    ),
    "a sigmoid": (
        """a = MatMul(f, m) : f32[1,9]; b = Sigmoid(a) : f32[1,9]
        y = Unsqueeze(b) : f32[1,1,9]""",
        ["", "", ""],
        "sigmoid",
    ),
}
HEAD = """
x : f32[1,3,6,6]
t : f32[1,5,4]
f : f32[1,4]
s : f32[7,1,3]
w = constant : f32[8,3,1,1] {-1, 1}
m = constant : f32[4,9] {-1, 1}
g = constant : f32[1,12,3] {-1, 1}
i : i64[1,5]
v = constant : f32[30,4] {-1, 1}
u = constant : f32[2,9,1] {-1, 1}
b2 = constant : f32[1,2,1] {-1, 1}
w1 = constant : f32[1,2,1,1] {-1, 1}
before : f32[1,7,9]
r = constant : f32[1,12,4] {-1, 1}
"""


@pytest.mark.parametrize("name", MODELS)
def test_axes(name):
    text, kinds, decides = MODELS[name]
    lines = text.replace("; ", "\n").replace("  ", "")
    found = axes_of(read_model_text(f"{HEAD}{lines}\nreturn y", "m"))["y"]
    assert (list(found.kinds), found.decides) == (kinds, decides)
