"""Samples as other libraries hold them; stand-ins have the methods that are asked for and nothing else."""

from collections import UserDict

import numpy as np
import pytest
from onnx import TensorProto, helper

import planner
from planner.calibration.samples import open_samples
from planner.calibration.sources.foreign import replayable
from planner.errors import InputError, SampleError


def model(**shapes):
    """An ONNX model that adds up each input along its last axis; `ids` are integers."""
    inputs = [
        helper.make_tensor_value_info(
            name, TensorProto.INT64 if name == "ids" else TensorProto.FLOAT, list(shape)
        )
        for name, shape in shapes.items()
    ]
    nodes = [helper.make_node("Abs", [name], [f"{name}_abs"]) for name in shapes]
    outputs = [
        helper.make_tensor_value_info(f"{port.name}_abs", port.type.tensor_type.elem_type, None)
        for port in inputs
    ]
    graph = helper.make_graph(nodes, "sums", inputs, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return planner.load_model(proto)


class _Tensor:
    """As torch's: no array until it is detached and on the CPU."""

    def __init__(self, array):
        self._array = np.asarray(array)
        self.shape = self._array.shape

    def __array__(self, *_):
        raise RuntimeError("can't convert a tensor that requires grad")

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self._array


class _BFloat16(_Tensor):
    """A tensor of a type that numpy has not."""

    def numpy(self):
        raise TypeError("Got unsupported ScalarType BFloat16")

    def float(self):
        return _Tensor(self._array)


class _Loader:
    """As torch's DataLoader: an iterable of batches, anew each time."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


class _Reader:
    """As onnxruntime's CalibrationDataReader."""

    def __init__(self, samples):
        self.left = list(samples)

    def get_next(self):
        return self.left.pop(0) if self.left else None


class _Rewinding(_Reader):
    """One that can begin again."""

    def __init__(self, samples):
        super().__init__(samples)
        self.all = list(samples)

    def rewind(self):
        self.left = list(self.all)


class _Dataset:
    """As Hugging Face's: rows, columns, features."""

    def __init__(self, rows):
        self.rows = rows
        self.column_names = list(rows[0])
        self.features = dict.fromkeys(rows[0])

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
ROWS = [{"ids": [1, 2, 3], "text": "one", "label": 1}, {"ids": [4, 5, 6], "text": "two", "label": 0}]

SOURCES = {
    "one array": (lambda: X, 4),
    "one tensor": (lambda: _Tensor(X), 4),
    "a mapping": (lambda: {"x": X}, 4),
    "a mapping of tensors": (lambda: {"x": _Tensor(X)}, 4),
    "a list of arrays": (lambda: list(X), 4),
    "a list of arrays with a batch axis": (lambda: [x[None] for x in X], 4),
    "a list of nested lists": (lambda: [[x.tolist()] for x in X], 4),
    "a generator": (lambda: (x for x in X), None),
    "a function that generates": (lambda: lambda: ([x[None]] for x in X), None),
    "dicts": (lambda: [{"x": x} for x in X], 4),
    "tuples with labels": (lambda: [(x, 3) for x in X], 4),
    "tensors of bfloat16": (lambda: [_BFloat16(x) for x in X], 4),
    "a loader of batches": (lambda: _Loader(_Tensor(X[:3]), _Tensor(X[3:])), None),
    "a loader of lists with labels": (
        lambda: _Loader([_Tensor(X[:3]), _Tensor([0, 1, 2])], [_Tensor(X[3:]), _Tensor([3])]),
        None,
    ),
    "a loader of dicts": (
        lambda: _Loader({"x": X[:2], "labels": [1, 2]}, {"x": X[2:], "labels": [3, 4]}),
        None,
    ),
    "a reader": (lambda: _Reader([{"x": x[None]} for x in X]), None),
    "a reader that rewinds": (lambda: _Rewinding([{"x": x[None]} for x in X]), None),
    "a mapping of another class": (lambda: [UserDict(x=x) for x in X], 4),
}


@pytest.mark.parametrize("batch", [1, "batch"])
@pytest.mark.parametrize("name", SOURCES)
def test_sources(name, batch):
    """All say the same four samples; a model of an open batch takes a loader's batches whole."""
    make, count = SOURCES[name]
    opened = open_samples(make(), model(x=(batch, 2, 3)))
    feeds = [feed.arrays["x"] for feed in opened.feeds]
    np.testing.assert_array_equal(np.concatenate(feeds), X)
    assert opened.count == count
    assert all(array.dtype == np.float32 for array in feeds)
    if batch == 1:
        assert len(feeds) == 4


@pytest.mark.parametrize(
    ("source", "labels"),
    [
        ([(X[0], 7), (X[1], 8)], [7, 8]),
        ([{"x": X[0], "label": 7}, {"x": X[1], "label": 8}], [7, 8]),
        (_Loader([X[:2], np.array([7, 8])]), [7, 8]),
        (_Loader({"x": X[:2], "labels": _Tensor([7, 8])}), [7, 8]),
    ],
)
def test_labels(source, labels):
    opened = open_samples(source, model(x=(1, 2, 3)), labeled=True)
    assert [int(np.ravel(feed.labels)[0]) for feed in opened.feeds] == labels


def test_columns_of_a_data_set_that_are_no_inputs_are_left_out():
    opened = open_samples(_Dataset(ROWS), model(ids=(1, 3)), labeled=True)
    assert opened.count == 2
    feeds = list(opened.feeds)
    assert [feed.arrays["ids"].tolist() for feed in feeds] == [[[1, 2, 3]], [[4, 5, 6]]]
    assert [int(feed.labels) for feed in feeds] == [1, 0]


def test_several_inputs_in_order():
    both = model(x=(1, 2, 3), ids=(1, 2))
    opened = open_samples([(x, np.array([1, 2])) for x in X], both)
    assert [sorted(feed.arrays) for feed in opened.feeds] == [["ids", "x"]] * 4


WRONG = {
    "another number of arrays": (
        [(X[0], X[1], X[2])],
        (
            "sample 0: 3 arrays for 1 input: 'x' (give a mapping from input name to array, or the arrays in "
            "the order of the inputs, labels last)"
        ),
    ),
    "lists of different lengths": (
        [[[1.0, 2.0], [3.0]]],
        (
            "sample 0: input 'x': not an array: setting an array element with a sequence. The requested "
            "array has an inhomogeneous shape after 1 dimensions. The "
            "detected shape was (2,) + inhomogeneous part."
        ),
    ),
    "a wrong shape": (
        [X[0][:, :2]],
        "sample 0: input 'x' has shape [2, 2], the model wants [1, 2, 3]",
    ),
    "a data set without the input": (
        _Dataset(ROWS),
        "sample 0: the model has no input 'ids' (the model's inputs: 'x')",
    ),
    "a number": (
        3,
        (
            "samples cannot be a int (a folder of .npz, one .npz, or an iterable of {input name: array} or "
            "arrays)"
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told(name):
    source, said = WRONG[name]
    with pytest.raises(SampleError) as caught:
        list(open_samples(source, model(x=(1, 2, 3))).feeds)
    assert str(caught.value) == said


def test_one_array_for_two_inputs_is_refused():
    with pytest.raises(SampleError, match=r"^samples: 1 array for 2 inputs: 'x', 'ids' "):
        open_samples(X, model(x=(1, 2, 3), ids=(1, 2)))


def test_what_ends_is_kept_and_what_begins_again_is_not():
    reader, rewinding, loader = _Reader([{"x": X}]), _Rewinding([{"x": X}]), _Loader(X)
    assert replayable(reader) == [{"x": X}]
    assert replayable(rewinding) is rewinding
    assert replayable(loader) is loader
    assert replayable(iter([1, 2])) == [1, 2]
    assert replayable("folder") == "folder"


@pytest.fixture
def folder(tmp_path):
    """Four pictures of two classes."""
    pillow = pytest.importorskip("PIL.Image")
    for k, name in enumerate(("cat/1.png", "cat/2.JPG", "dog/1.bmp", "dog/2.webp")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pillow.new("L", (5, 4), 60 * k).save(tmp_path / name, format={"2.JPG": "JPEG"}.get(name[4:]))
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    return tmp_path


def shrunk(picture):
    assert picture.mode == "RGB"
    return np.asarray(picture.resize((3, 2)), np.float32).mean(2) / 255


def test_pictures(folder):
    found = planner.images(folder, shrunk, labels=True)
    assert (len(found), repr(found)) == (4, "<Images: 4 pictures, with labels>")
    opened = open_samples(found, model(x=(1, 2, 3)), labeled=True)
    feeds = list(opened.feeds)
    assert [int(feed.labels) for feed in feeds] == [0, 0, 1, 1]
    means = [float(feed.arrays["x"].mean()) for feed in feeds]
    assert means == pytest.approx([0, 60 / 255, 120 / 255, 180 / 255], abs=0.01)
    assert [path.name for path in planner.images(folder, shrunk, limit=2).paths] == ["1.png", "1.bmp"]
    assert len(list(found)) == len(list(found)) == 4


def test_pictures_that_are_none(folder, tmp_path):
    (folder / "cat" / "broken.png").write_bytes(b"no picture")
    with pytest.raises(SampleError, match=r"broken.png: not a picture that Pillow reads"):
        list(planner.images(folder, shrunk))
    with pytest.raises(SampleError, match=r"nowhere: no such folder"):
        planner.images(tmp_path / "nowhere", shrunk)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SampleError, match=r"empty': no pictures in it .looked for .bmp, .gif"):
        planner.images(tmp_path / "empty", shrunk)
    with pytest.raises(InputError, match="transform is a function of a picture, not a NoneType"):
        planner.images(folder, None)


def test_a_folder_of_pictures_asks_for_a_transform(folder):
    with pytest.raises(SampleError, match=r"holds no .npz file .pictures need a transform: planner.images"):
        open_samples(folder / "cat", model(x=(1, 2, 3)))
