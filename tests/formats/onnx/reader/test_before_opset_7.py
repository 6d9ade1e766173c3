"""Files of opset 1 to 6: those with expected results that onnx ships, and each change since by hand.

onnxruntime has no kernels of most of these opsets, so files of onnx and numpy say what is expected.
"""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from planner.errors import ModelError
from planner.formats.onnx.read import read_onnx, read_written
from planner.formats.onnx.write import write_graph
from planner.interpreter.models import ModelRunner, run_model
from tests.formats.onnx.reader.runs import model, outputs

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data"


@cache
def shipped():
    """Folders of onnx's models before opset 7, by name."""
    found = {}
    for path in sorted(FOLDER.glob("pytorch-*/*/model.onnx")):
        opsets = {entry.domain: entry.version for entry in onnx.load(path).opset_import}
        if opsets.get("", 1) < 7:
            found[f"{path.parent.parent.name}/{path.parent.name}"] = path
    return found


def tensors(folder, kind):
    paths = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(TensorProto.FromString(path.read_bytes())) for path in paths]


def test_there_are_many():
    assert len(shipped()) == 112


@pytest.mark.parametrize("name", list(shipped()))
def test_a_file_of_onnx_gives_what_it_expects(name):
    path = shipped()[name]
    read, planned = read_written(path), read_onnx(path)
    assert planned.opsets[""] == read.opsets[""] == 21
    runner, plain = ModelRunner(read), write_graph(planned)
    for folder in path.parent.glob("test_data_set_*"):
        given = [port.name for port in onnx.load(path).graph.input]
        feeds = dict(zip(given, tensors(folder, "input"), strict=False))
        feeds = {key: array for key, array in feeds.items() if key in read.inputs}
        for got in (runner.run(feeds), outputs(plain, feeds)):
            for output, wanted in zip(read.outputs, tensors(folder, "output"), strict=True):
                assert got[output].dtype == wanted.dtype
                np.testing.assert_allclose(got[output], wanted, rtol=1e-3, atol=1e-5)


X = np.linspace(-3, 4, 24, dtype=np.float32).reshape(2, 3, 4)
C = np.asarray([2.0, -1.0, 0.5], np.float32)
SEVENTH = [
    (6, "x, c) { y = Mul<broadcast=1, axis=1>(x, c) }", X * C[:, None]),
    (6, "x, c) { y = Sub<broadcast=1, axis=-2>(x, c) }", X - C[:, None]),
    (1, "x, c) { a = Exp(x) y = Pow<broadcast=1, axis=1, consumed_inputs=[0]>(a, c) }",
     np.power(np.exp(X), C[:, None])),
    (6, "x, d) { y = Add<broadcast=1>(x, d) }", X + np.float32([0, 1, 2, 3])),
    (6, "x, c) { y = PRelu(x, c) }", np.where(X < 0, X * C[:, None], X)),
    (1, "x) { y = Concat(x, x) }", np.concatenate([X, X], axis=1)),
    (3, "x) { y = Concat<axis=2>(x, x) }", np.concatenate([X, X], axis=2)),
    (1, 'x) { a = Cast<to="INT32">(x) y = Cast<to="float">(a) }', np.trunc(X)),
    (1, "x) { y = Pad<paddings=[0,1,0,0,0,2], value=7.0>(x) }",
     np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=7)),
    (1, "x) { y = Reshape<shape=[4,-1]>(x) }", X.reshape(4, 6)),
    (5, "x) <int64[2] s = {6,4}> { y = Reshape(x, s) }", X.reshape(6, 4)),
    (1, "x) <float[2] s = {1,2}> { z, y = Split<axis=1>(x, s) }", X[:, 1:]),
    (2, "x) { z, y = Split(x) }", X[1:]),
    (1, "x) <float t = {3}, float a = {2}> { y = Tile(x, t, a) }", np.tile(X, (1, 1, 3))),
    (6, "x) <int64[3] r = {1,2,1}> { y = Tile(x, r) }", np.tile(X, (1, 2, 1))),
    (1, "x) { y = Selu(x) }", np.where(X > 0, X, np.float32(1.6732) * np.expm1(X)) * np.float32(1.0507)),
    (6, "x) { y = Selu<alpha=2.0, gamma=3.0>(x) }", np.where(X > 0, X, 2 * np.expm1(X)) * 3),
    (6, "x) { y, m = Dropout<is_test=1, ratio=0.5>(x) }", X),
    (1, "x) { y = GlobalLpPool<p=1.0>(x) }", np.abs(X).sum(axis=2, keepdims=True)),
    (6, "x, c, s) { y = BatchNormalization<is_test=1, epsilon=0.5>(x, c, c, c, s) }",
     (X - C[:, None]) / np.sqrt(C[:, None] ** 2 + 0.5) * C[:, None] + C[:, None]),
]  # fmt: skip
GIVEN = {
    "x": ("float[2,3,4]", X),
    "c": ("float[3]", C),
    "d": ("float[4]", np.float32([0, 1, 2, 3])),
    "s": ("float[3]", C**2),
}


def old(opset, text):
    names, rest = text.split(")", 1)
    ports = ", ".join(f"{GIVEN[name.strip()][0]} {name.strip()}" for name in names.split(","))
    return model(f"g ({ports}) => (float[] y) {rest}".replace("float[] y", "y"), opset=opset, ir=3)


@pytest.mark.parametrize(("opset", "text", "wanted"), SEVENTH, ids=[case[1][:40] for case in SEVENTH])
def test_what_changed_until_opset_7(opset, text, wanted):
    data = old(opset, text)
    feeds = {name: array for name, (_, array) in GIVEN.items() if name in read_written(data).inputs}
    for got in (run_model(data, feeds)["y"], outputs(write_graph(read_onnx(data)), feeds)["y"]):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_upsample_of_two_factors():
    text = (
        'g (float[1,1,2,2] x) => (y) { y = Upsample<height_scale=2.0, width_scale=3.0, mode="nearest">(x) }'
    )
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    got = run_model(model(text, opset=1, ir=3), {"x": x})["y"]
    np.testing.assert_array_equal(got, x.repeat(2, axis=2).repeat(3, axis=3))


def test_ranks_that_follow_from_other_old_ops():
    """The first operand is behind ops of which ONNX inferred nothing then."""
    text = (
        "g (float[6,4] x, float[3] c) => (y) { a = Reshape<shape=[2,3,4]>(x) "
        "b = Mul<broadcast=1, axis=1>(a, c) y = Div<broadcast=1, axis=1>(b, c) }"
    )
    feeds = {"x": X.reshape(6, 4), "c": C}
    np.testing.assert_allclose(run_model(model(text, opset=1, ir=3), feeds)["y"], X, rtol=1e-6)


@pytest.mark.parametrize(
    ("opset", "text", "message"),
    [
        (1, 'x) { [c] y = Cast<to="BOOLEAN">(x) }', "Cast at 'c': its attribute 'to' is 'BOOLEAN'"),
        (1, "x) { [p] y = GlobalLpPool<p=1.5>(x) }", "GlobalLpPool at 'p': its attribute 'p' is 1.5"),
        (6, "x, c) { [m] y = Mul<broadcast=1, axis=3>(x, c) }", "Mul at 'm'"),
        (1, "x, c) { [s] z, y = Split(x, c) }", "Split at 's' computes its sizes"),
        (6, "x, c) { [b] y, m, v, a, b = BatchNormalization(x, c, c, c, c) }",
         "BatchNormalization at 'b' has is_test=0 and gives the statistics of its batch"),
        *((1, f"x) <float t = {{2}}, float a = {{{axis}}}> {{ [t] y = Tile(x, t, a) }}",
           f"Tile at 't': port t.in[2] is given {axis}.0 (accepted: one whole number of -3 to 2)")
          for axis in (3, -4)),
        *((1, f"x) <float t = {{{count}}}, float a = {{1}}> {{ [t] y = Tile(x, t, a) }}",
           "Tile at 't': port t.in[1] is given")
          for count in ("1e30", "1.5", "-1")),
        (1, "x) <float[2] t = {2,2}, float a = {1}> { [t] y = Tile(x, t, a) }",
         "Tile at 't': port t.in[1] is given [2.0, 2.0] (accepted: one whole number of 0 to 2147483647)"),
        (1, "x) <float[2] s = {1e30,2}> { [s] z, y = Split<axis=1>(x, s) }",
         "Split at 's': port s.in[1] is given [1.0000000150474662e+30, 2.0] (accepted: whole numbers of 0"),
        (1, 'x) { [r] y = Reshape<shape="ab">(x) }',
         "Reshape at 'r': its attribute 'shape' is 'ab' (accepted: a list of integers)"),
        (1, "x) { [r] y = Reshape<shape=[6.5,4.0]>(x) }",
         "Reshape at 'r': its attribute 'shape' is [6.5, 4.0] (accepted: a list of integers)"),
        (6, 'x, c) { [a] y = Add<broadcast=1, axis="q">(x, c) }',
         "Add at 'a': its attribute 'axis' is 'q' (accepted: an integer)"),
        (6, "x, c) { [a] y = Add<broadcast=1, axis=[1]>(x, c) }",
         "Add at 'a': its attribute 'axis' is [1] (accepted: an integer)"),
        (6, "x, c) { [a] y = Add<broadcast=1, axis=4>(x, c) }",
         "Add at 'a': its attribute 'axis' is 4 (accepted: -3 to 3, of 3 dimensions)"),
        (6, "x) { [a] y = Add<broadcast=1, axis=1>(x) }",
         "Add at 'a': port a.in[1] is missing (accepted: 2 operands)"),
        (6, 'x) { [a] y = Add<broadcast=1, axis=1>(x, "") }', "Add at 'a': port a.in[1] is missing"),
        (6, "x, c) { [a] y = Add<broadcast=1, axis=1>(x, c, c) }",
         "Add at 'a': port a.in[2] is one too many (accepted: 2 operands)"),
        (6, "x) { [p] y = PRelu(x) }", "PRelu at 'p': port p.in[1] is missing"),
        (1, 'x) { [p] y = GlobalLpPool<p="a">(x) }',
         "GlobalLpPool at 'p': its attribute 'p' is 'a' (accepted: a float or an integer)"),
        (1, "x) { [p] y = GlobalLpPool<p=1e30>(x) }", "GlobalLpPool at 'p': its attribute 'p' is 1.0"),
    ],
)  # fmt: skip
def test_what_has_no_later_form_is_refused(opset, text, message):
    with pytest.raises(ModelError) as caught:
        read_onnx(old(opset, text))
    assert message in str(caught.value)
