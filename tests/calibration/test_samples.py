"""Samples: folders, stacked files and iterables become the same feeds; what does not fit says why."""

import numpy as np
import pytest

from planner.calibration.samples import extra_names, open_samples
from planner.errors import SampleError
from planner.ir.graph import Op
from tests.calibration.graphs import graph_of, two_inputs

IMAGES = np.arange(5 * 12, dtype=np.float32).reshape(5, 1, 3, 2, 2)
IDS = np.arange(5 * 4).reshape(5, 1, 4)


def one(k, **changes):
    return {"image": IMAGES[k], "ids": IDS[k], **changes}


def read(source, graph=None):
    opened = open_samples(source, graph or two_inputs())
    return opened.count, [feed.arrays for feed in opened.feeds]


def save(path, **arrays):
    np.savez(path, allow_pickle=False, **arrays)
    return path


def folder_source(path):
    for k in range(5):
        save(path / f"{k}.npz", **one(k))
    (path / "notes.txt").write_text("not a sample", encoding="utf-8")
    return path


SOURCES = {
    "folder": folder_source,
    "new first axis": lambda path: save(path / "a.npz", image=IMAGES, ids=IDS),
    "batch axis": lambda path: save(path / "a.npz", image=IMAGES[:, 0], ids=IDS[:, 0]),
    "both": lambda path: str(save(path / "a.npz", image=IMAGES[:, 0], ids=IDS)),
    "mapping": lambda _path: {"image": IMAGES, "ids": IDS[:, 0]},
    "list": lambda _path: [one(k) for k in range(5)],
    "casts": lambda _path: [
        {"image": IMAGES[k].astype(np.uint8), "ids": IDS[k].astype(np.int8).tolist()} for k in range(5)
    ],
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_feeds(source, tmp_path):
    count, feeds = read(SOURCES[source](tmp_path))
    assert count == 5
    assert [set(feed) for feed in feeds] == [{"image", "ids"}] * 5
    for k, feed in enumerate(feeds):
        assert (feed["image"].dtype, feed["ids"].dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(feed["image"], IMAGES[k])
        np.testing.assert_array_equal(feed["ids"], IDS[k])


def test_a_generator_has_no_count():
    count, feeds = read(one(k) for k in range(2))
    assert (count, len(feeds)) == (None, 2)


def test_one_sample_in_a_file_is_one():
    assert read(one(0))[0] == 1


def test_a_free_batch_is_cut_along_its_symbol():
    """A state that carries the batch in its second axis follows; what has no batch is shared."""
    op = Op("add", "Add", ("x", "x"), ("y",))
    graph = graph_of((op,), {"x": ("N", 4), "state": (2, "N", 3), "rate": ((), "i64")})
    data = {"x": np.zeros((6, 4)), "state": np.ones((2, 6, 3)), "rate": np.array(16000)}
    count, feeds = read(data, graph)
    assert count == 6
    assert {key: array.shape for key, array in feeds[5].items()} == {
        "x": (1, 4),
        "state": (2, 1, 3),
        "rate": (),
    }


def test_a_batch_of_two_is_cut_into_pairs():
    op = Op("add", "Add", ("x", "x"), ("y",))
    count, feeds = read({"x": np.arange(12.0).reshape(6, 2)}, graph_of((op,), {"x": (2, 2)}))
    assert count == 3
    assert feeds[1]["x"].tolist() == [[4, 5], [6, 7]]


def test_nan_is_no_error():
    assert np.isnan(read([one(0, image=np.full((1, 3, 2, 2), np.nan))])[1][0]["image"]).all()


def test_a_file_may_hold_more_than_the_inputs(tmp_path):
    """What else is there is not even read: labels as Python objects are no reason to refuse."""
    labels = np.asarray([{"label": 1}], object)
    for k in range(2):
        np.savez(tmp_path / f"{k}.npz", **one(k), label=labels, **{f"more{k}": np.zeros(3)})
    count, feeds = read(tmp_path)
    assert count == 2
    assert all(set(feed) == {"image", "ids"} for feed in feeds)
    assert extra_names(tmp_path, two_inputs()) == ("more0", "more1")
    np.savez(tmp_path / "stacked.npz", image=IMAGES, ids=IDS, label=labels)
    assert read(tmp_path / "stacked.npz")[0] == len(IMAGES)
    assert extra_names(tmp_path / "stacked.npz", two_inputs()) == ()


def test_an_array_in_the_place_of_an_input_is_no_extra(tmp_path):
    np.savez(tmp_path / "0.npz", img=IMAGES[:1], ids=IDS[:1])
    assert extra_names(tmp_path, two_inputs()) == ()
    with pytest.raises(SampleError) as caught:
        read(tmp_path)
    assert "the model has no input 'img' (did you mean 'image'?)" in str(caught.value)


BAD = [
    ([one(0), {"img": 1}], "sample 1: the model has no input 'img' (did you mean 'image'?)"),
    ([{**one(0), "zzz": 1}], "sample 0: the model has no input 'zzz' (the model's inputs: 'image', 'ids')"),
    ([{"image": IMAGES[0]}], "sample 0: input 'ids' is missing (given: 'image')"),
    ([{}], "sample 0: input 'image' is missing (given: nothing)"),
    (
        [one(0, image=np.zeros((1, 2, 2, 3)))],
        (
            "sample 0: input 'image' has shape [1, 2, 2, 3], the model wants [1, 3, 2, 2] (transpose to "
            "NCHW: np.moveaxis(x, -1, -3) has shape [1, 3, 2, 2], which fits)"
        ),
    ),
    ([one(0, ids=np.zeros((1, 4)))], "sample 0: input 'ids' has element type float64, the model wants i64"),
    (
        [one(0, image=np.full((1, 3, 2, 2), "a"))],
        "sample 0: input 'image' has element type <U1, the model wants f32",
    ),
    (
        [one(0, image=np.zeros((1, 3, 2, 2), complex))],
        "sample 0: input 'image' has element type complex128, the model wants f32",
    ),
    ([one(0, ids=np.full((1, 4), 2**63, np.uint64))], "sample 0: input 'ids' holds numbers beyond i64"),
    (
        [7],
        (
            "sample 0: 1 array for 2 inputs: 'image', 'ids' (give a mapping from input name to array, "
            "or the arrays in the order of the inputs, labels last)"
        ),
    ),
    (
        7,
        (
            "samples cannot be a int "
            "(a folder of .npz, one .npz, or an iterable of {input name: array} or arrays)"
        ),
    ),
    (
        {"image": IMAGES, "ids": IDS[:3]},
        "samples: different numbers of samples: 5 of 'image', 3 of 'ids'",
    ),
    (
        {"image": IMAGES[:, :, 0], "ids": IDS},
        (
            "samples: input 'image' has shape [5, 1, 2, 2], the model wants [1, 3, 2, 2] "
            "(several samples go along a new first axis or the batch axis)"
        ),
    ),
]


def test_an_input_without_its_batch_axis_gets_one():
    assert read([one(0, image=IMAGES[0, 0])])[1][0]["image"].shape == (1, 3, 2, 2)


@pytest.mark.parametrize(("source", "message"), BAD)
def test_bad_samples_say_which_and_why(source, message):
    with pytest.raises(SampleError) as caught:
        read(source)
    assert str(caught.value) == message


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("change", [np.asfortranarray, lambda array: array.astype(">f4"), np.float64])
def test_arrays_are_read_as_numpy_reads_them(write, change, tmp_path):
    write(tmp_path / "0.npz", image=change(IMAGES[0]), ids=IDS[0])
    _, [feed] = read(tmp_path)
    np.testing.assert_array_equal(feed["image"], IMAGES[0])
    assert feed["image"].dtype == np.float32


def test_pickled_objects_are_refused(tmp_path):
    np.savez(tmp_path / "0.npz", image=np.array([{}], object), ids=IDS[0])
    with pytest.raises(SampleError, match="'image' holds Python objects, not numbers"):
        read(tmp_path)


def test_bad_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.npz").write_text("hello", encoding="utf-8")
    np.save(tmp_path / "one.npy", IMAGES)
    save(tmp_path / "cut.npz", **one(0))
    data = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    (tmp_path / "many").mkdir()
    save(tmp_path / "many" / "007.npz", ids=IDS[0])
    expected = {
        "empty": "folder 'empty' holds no .npz file (one .npz per sample)",
        "missing.npz": "missing.npz: cannot read samples: No such file or directory",
        "text.npz": "text.npz: not a readable .npz file (write it with numpy.savez)",
        "one.npy": "one.npy: a single array; samples are .npz files keyed by input name",
        "cut.npz": "cut.npz: not a readable .npz file (write it with numpy.savez)",
        "many": "sample 0 (007.npz): input 'image' is missing (given: 'ids')",
    }
    found = {}
    for name in expected:
        with pytest.raises(SampleError) as caught:
            read(name)
        found[name] = str(caught.value)
    assert found == expected


def labels_of(source, graph=None) -> list:
    feeds = open_samples(source, graph or two_inputs(), labeled=True).feeds
    return [None if feed.labels is None else feed.labels.tolist() for feed in feeds]


def test_labels_come_with_their_sample(tmp_path):
    """From one file along the first axis, from a folder whole; never as inputs, and only where asked for."""
    stacked = {"image": IMAGES, "ids": IDS, "label": np.arange(len(IMAGES))}
    assert labels_of(stacked) == [[k] for k in range(len(IMAGES))]
    assert all(feed.labels is None for feed in open_samples(stacked, two_inputs()).feeds)
    for k in range(2):
        np.savez(tmp_path / f"{k}.npz", **one(k), labels=np.int64(7 + k))
    assert labels_of(tmp_path) == [7, 8]
    assert labels_of([one(0, label=np.array([3]))]) == [[3]]
    assert labels_of([one(0)]) == [None]
    assert set(read([one(0, labels=np.zeros(9))])[1][0]) == {"image", "ids"}


def test_labels_of_batches_are_cut_as_they_are():
    op = Op("add", "Add", ("x", "x"), ("y",))
    graph = graph_of((op,), {"x": (2, 2)})
    data = {"x": np.zeros((6, 2), np.float32)}
    assert labels_of({**data, "labels": np.arange(6)}, graph) == [[0, 1], [2, 3], [4, 5]]
    assert labels_of({**data, "labels": np.arange(3)}, graph) == [[0], [1], [2]]
    with pytest.raises(SampleError) as caught:
        labels_of({**data, "labels": np.arange(5)}, graph)
    assert str(caught.value) == (
        "samples: there are 5 labels, the samples are 6 (or one for each batch, 3) "
        "(labels lie along the first axis, in the order of the samples)"
    )


def test_an_input_that_is_called_labels_is_one():
    op = Op("add", "Add", ("labels", "labels"), ("y",))
    graph = graph_of((op,), {"labels": (2,)})
    assert [feed["labels"].tolist() for feed in read([{"labels": np.ones(2)}], graph)[1]] == [[1, 1]]
    assert labels_of([{"labels": np.ones(2)}], graph) == [None]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"label": np.arange(2)}, "samples: there are 2 labels, the samples are 5 (labels lie along"),
        ({"label": np.int64(2)}, "samples: there are 0 labels, the samples are 5 (labels lie along"),
        (
            {"label": IDS, "labels": IDS},
            "samples: 'label' and 'labels' are both there (labels are one",
        ),
    ],
)
def test_labels_that_do_not_fit(more, said):
    with pytest.raises(SampleError) as caught:
        labels_of({"image": IMAGES, "ids": IDS, **more})
    assert str(caught.value).startswith(said)


def test_labels_of_python_objects_are_refused_where_they_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", **one(0), label=np.asarray([{"a": 1}], object))
    with pytest.raises(SampleError) as caught:
        labels_of(tmp_path / "a.npz")
    assert str(caught.value) == f"{tmp_path / 'a.npz'}: 'label' holds Python objects, not numbers"
