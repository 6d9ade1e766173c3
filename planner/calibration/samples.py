"""Samples: files of arrays, or arrays as libraries hold them, as feeds that fit the model's inputs.

One sample is in memory at a time (of a single `.npz`: the file). Every array is checked against the
input it feeds and cast to its element type. Nothing here runs a model. Source: ARCHITECTURE.md.
"""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from planner.calibration.npz import Array, array_names, read_arrays
from planner.calibration.sources.channels import moved_hint
from planner.calibration.sources.foreign import LABELS, as_array, count_of, is_array, named, unwrapped
from planner.calibration.sources.images import has_images
from planner.errors import SampleError, nearest_names
from planner.formats.onnx.dtypes import NUMPY
from planner.ir.graph import Dim, Graph, Shape, Value
from planner.ir.types.fit import shape_text

Sample: TypeAlias = Mapping[str, Array]
Source: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any] | Callable[[], Iterable[Any]]
"""The sources that `open_samples` takes; also data readers of onnxruntime, which have a `get_next`."""


@dataclass(frozen=True, slots=True)
class Feed:
    """Inputs of one run of the model: arrays by input name, a name for messages, labels on request.

    Attributes:
      given: the element types that arrays had before they were cast, of inputs that need others.
    """

    name: str
    arrays: Sample
    labels: Array | None = None
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Feeds in order, read on demand, once; `count` is the number of samples if known."""

    feeds: Iterator[Feed]
    count: int | None


def open_samples(source: Source, graph: Graph, *, labeled: bool = False) -> Samples:
    """Open samples for a model.

    Args:
      source: a folder of `.npz` files (one sample each, keys are input names); one `.npz`, mapping or array
        (of a model with one input) with the samples along a new first axis or along the batch axis; or an
        iterable, function without arguments or CalibrationDataReader that gives mappings, arrays, or arrays
        in the order of the inputs, labels behind them or not: one sample each, which may lack the batch
        axis, or a batch. Files and data sets may hold more than the model's inputs; `extra_names` says what
        is left out of files.
      graph: whose inputs the samples are to fit.
      labeled: read arrays named as `LABELS`, too: of one `.npz` or mapping an entry for each sample.

    Raises:
      SampleError: nothing to read there, or another number of labels than of samples. A sample that does
        not fit raises when its turn comes: a name that is no input (with the nearest), a missing input, a
        wrong shape or element type.
    """
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir():
            return _folder(path, graph, labeled=labeled)
        arrays = _read_npz(path, graph, labeled=labeled)
        return _stacked(arrays, path.name, graph, labeled=labeled)
    if isinstance(source, Mapping) or is_array(source):
        return _stacked(named(source, graph, "samples"), "samples", graph, labeled=labeled)
    items = unwrapped(source, graph)
    if not isinstance(items, Iterable):
        raise SampleError(f"samples cannot be a {type(source).__name__}", hint=_ACCEPTED)
    return Samples(_each(items, graph, labeled=labeled), count_of(source))


def extra_names(source: str | os.PathLike[str], graph: Graph) -> tuple[str, ...]:
    """Return arrays of a file or folder of samples that are left out, as they are neither inputs nor labels.

    If an input is missing, none are left out: the error names the array that is there in its place.

    Raises:
      SampleError: a file that cannot be read.
    """
    path = Path(source)
    found: dict[str, None] = {}
    for file in sorted(path.glob("*.npz")) if path.is_dir() else [path]:
        names = array_names(file)
        found |= dict.fromkeys(names if set(graph.inputs) <= set(names) else ())
    return tuple(name for name in found if name not in graph.inputs and name not in LABELS)


_ACCEPTED: Final = "a folder of .npz, one .npz, or an iterable of {input name: array} or arrays"


def fit(sample: Mapping[str, Any], graph: Graph, name: str) -> Sample:
    """Check one sample against the model's inputs and cast it to their element types; labels are left out.

    Args:
      name: in messages, such as `sample 3 (0003.npz)`.

    Raises:
      SampleError: as `open_samples` says.
    """
    if not isinstance(sample, Mapping):
        raise SampleError(f"{name}: expected a mapping of input names, found a {type(sample).__name__}")
    _check_names(sample, graph, name)
    return {key: _fit_array(sample[key], graph.values[key], name) for key in graph.inputs}


def _folder(path: Path, graph: Graph, *, labeled: bool) -> Samples:
    files = sorted(path.glob("*.npz"))
    if not files:
        hint = "pictures need a transform: planner.images" if has_images(path) else "one .npz per sample"
        raise SampleError(f"folder {str(path)!r} holds no .npz file", hint=hint)
    feeds = (
        _feed(_read_npz(file, graph, labeled=labeled), graph, f"sample {k} ({file.name})", labeled=labeled)
        for k, file in enumerate(files)
    )
    return Samples(feeds, len(files))


def _each(source: Iterable[Any], graph: Graph, *, labeled: bool) -> Iterator[Feed]:
    for k, item in enumerate(source):
        name = f"sample {k}"
        sample = named(item, graph, name)
        _check_names(sample, graph, name)
        arrays = {key: as_array(data, f"{name}: input {key!r}") for key, data in sample.items()}
        try:
            yield _feed(_with_batch_axis(arrays, graph), graph, name, labeled=labeled)
        except SampleError:
            # A data loader gives batches, of which a model of a fixed batch takes one part after the other.
            try:
                parts = [*_stacked(arrays, name, graph, labeled=labeled).feeds]
            except SampleError:
                parts = []
            if len(parts) < 2:  # no batch: what is wrong with the sample as it is says more
                raise
            yield from parts


def _with_batch_axis(sample: Sample, graph: Graph) -> Sample:
    """The sample, a first axis of size 1 in front of inputs that lack just that."""
    return {
        key: array[None] if key in graph.values and _lacks_batch(array, graph.values[key].shape) else array
        for key, array in sample.items()
    }


def _lacks_batch(array: Array, shape: Shape | None) -> bool:
    has_room = bool(shape) and (shape[0] == 1 or not isinstance(shape[0], int)) if shape else False
    return has_room and shape is not None and _shape_fits(array.shape, shape[1:])


def _feed(sample: Mapping[str, Any], graph: Graph, name: str, *, labeled: bool) -> Feed:
    arrays = fit(sample, graph, name)
    labels = _labels_of(sample, graph, name) if labeled else None
    return Feed(name, arrays, labels, _given(sample, arrays))


def _labels_of(sample: Mapping[str, Any], graph: Graph, name: str) -> Array | None:
    """The labels that come with a sample, or with all.

    Raises:
      SampleError: two arrays of them.
    """
    found = [key for key in LABELS if key in sample and key not in graph.inputs]
    if len(found) > 1:
        raise SampleError(f"{name}: 'label' and 'labels' are both there", hint="labels are one array")
    return as_array(sample[found[0]], f"{name}: {found[0]!r}") if found else None


def _read_npz(path: Path, graph: Graph, *, labeled: bool) -> Sample:
    """The model's inputs and, on request, labels; all arrays of the file where an input is missing."""
    names = array_names(path)
    if not set(graph.inputs) <= set(names):
        return read_arrays(path, names)
    labels = [name for name in LABELS if labeled and name in names and name not in graph.inputs]
    return read_arrays(path, (*graph.inputs, *labels))


def _check_names(sample: Mapping[str, Any], graph: Graph, name: str) -> None:
    for key in sample:
        if key not in graph.inputs and key not in LABELS:
            near = nearest_names(str(key), graph.inputs, n=1)
            known = ", ".join(repr(known) for known in graph.inputs)
            hint = f"did you mean {near[0]!r}?" if near else f"the model's inputs: {known}"
            raise SampleError(f"{name}: the model has no input {key!r}", hint=hint)
    for key in graph.inputs:
        if key not in sample:
            given = ", ".join(repr(given) for given in sample) or "nothing"
            raise SampleError(f"{name}: input {key!r} is missing", hint=f"given: {given}")


def _fit_array(data: Any, value: Value, name: str) -> Array:
    array = as_array(data, f"{name}: input {value.name!r}")
    if value.shape is not None and not _shape_fits(array.shape, value.shape):
        hint = ""
        if value.shape[:1] == (1,) and _shape_fits(array.shape, value.shape[1:]):
            hint = "add a first axis of size 1"
        hint = hint or moved_hint(array.shape, value.shape)
        shape = shape_text(array.shape)
        wanted = shape_text(value.shape)
        raise SampleError(
            f"{name}: input {value.name!r} has shape {shape}, the model wants {wanted}", hint=hint
        )
    return _cast(array, value, name)


def _cast(array: Array, value: Value, name: str) -> Array:
    dtype = NUMPY.get(value.dtype)
    if dtype is None or array.dtype == dtype:
        return array
    is_number = array.dtype.kind in "biuf" and dtype.kind in "biuf"
    if is_number and (dtype.kind in ("f", array.dtype.kind) or array.dtype.kind in "biu"):
        with np.errstate(over="ignore"):
            cast = array.astype(dtype)
        if dtype.kind == "f" or np.array_equal(cast, array):
            return cast
        raise SampleError(f"{name}: input {value.name!r} holds numbers beyond {value.dtype}")
    raise SampleError(
        f"{name}: input {value.name!r} has element type {array.dtype}, the model wants {value.dtype}"
    )


def _shape_fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(
        not isinstance(want, int) or have == want for have, want in zip(shape, wanted, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Split:
    """The way to cut one input's array into samples.

    Attributes:
      axis: along which; None hands the whole array to every sample.
      step: elements of that axis in one sample.
      keep: whether the axis stays (a batch axis) or goes (a new first axis).
      samples: their number.
    """

    axis: int | None = None
    step: int = 1
    keep: bool = True
    samples: int = 1


def _stacked(data: Mapping[str, Any], name: str, graph: Graph, *, labeled: bool) -> Samples:
    """Cut one mapping of arrays into samples."""
    _check_names(data, graph, name)
    arrays = {key: as_array(data[key], f"{name}: input {key!r}") for key in graph.inputs}
    splits = {key: _split(arrays[key], graph.values[key], name) for key in graph.inputs}
    free = {
        (graph.values[key].shape or (None,))[0]
        for key, split in splits.items()
        if split.axis == 0 and split.keep
    }
    for key, split in splits.items():
        splits[key] = _along_symbol(arrays[key], graph.values[key].shape or (), split, free)
    counts = {split.samples for split in splits.values() if split.axis is not None}
    if len(counts) > 1:
        found = ", ".join(f"{split.samples} of {key!r}" for key, split in splits.items())
        raise SampleError(f"{name}: different numbers of samples: {found}")
    count = counts.pop() if counts else 1
    feeds = _cut(arrays, splits, count, name, graph)
    labels = _labels_of(data, graph, name) if labeled else None
    if labels is None:
        return Samples(feeds, count)
    parts = _cut_labels(labels, splits.values(), count, name)
    return Samples((replace(feed, labels=part) for feed, part in zip(feeds, parts, strict=True)), count)


def _cut_labels(labels: Array, splits: Iterable[_Split], count: int, name: str) -> list[Array]:
    """The labels of each sample, which lie along the first axis as the samples do.

    Raises:
      SampleError: another number of them.
    """
    cut = [split for split in splits if split.axis is not None]
    if not cut:
        return [labels]
    step = max((split.step for split in cut if split.keep), default=1)
    found = labels.shape[0] if labels.ndim else 0
    if found not in (count, count * step):
        wanted = f"{count * step}" if step == 1 else f"{count * step} (or one for each batch, {count})"
        raise SampleError(
            f"{name}: there are {found} labels, the samples are {wanted}",
            hint="labels lie along the first axis, in the order of the samples",
        )
    return np.split(labels, count) if count else []


def _split(array: Array, value: Value, name: str) -> _Split:
    """Find the axis that counts samples.

    Raises:
      SampleError: neither the model's shape, nor one more axis, nor a multiple of its batch.
    """
    shape = value.shape
    if shape is None:
        return _Split()
    if array.ndim == len(shape) + 1 and _shape_fits(array.shape[1:], shape):
        return _Split(0, keep=False, samples=array.shape[0])
    if array.ndim == len(shape) and shape and _shape_fits(array.shape[1:], shape[1:]):
        batch = shape[0]
        if not isinstance(batch, int):
            return _Split(0, samples=array.shape[0])
        if batch and array.shape[0] != batch and array.shape[0] % batch == 0:
            return _Split(0, step=batch, samples=array.shape[0] // batch)
    if _shape_fits(array.shape, shape):
        return _Split()
    found, wanted = shape_text(array.shape), shape_text(shape)
    raise SampleError(
        f"{name}: input {value.name!r} has shape {found}, the model wants {wanted}",
        hint=moved_hint(array.shape, shape) or "several samples go along a new first axis or the batch axis",
    )


def _along_symbol(array: Array, shape: Shape, split: _Split, free: Container[Dim]) -> _Split:
    """Cut a whole array along the axis that has the batch's symbol: a state of shape `[2, N, 128]`."""
    axes = [axis for axis, dim in enumerate(shape) if isinstance(dim, str) and dim in free]
    if split.axis is not None or not axes:
        return split
    return _Split(axes[0], samples=array.shape[axes[0]])


def _cut(arrays: Sample, splits: Mapping[str, _Split], count: int, name: str, graph: Graph) -> Iterator[Feed]:
    for k in range(count):
        label = f"{name}, sample {k}"
        part = {key: _slice(arrays[key], splits[key], k) for key in arrays}
        fitted = fit(part, graph, label)
        yield Feed(label, fitted, given=_given(part, fitted))


def _given(sample: Mapping[str, Any], arrays: Sample) -> dict[str, str]:
    """The element types that arrays had, where the inputs have others."""
    types = {key: getattr(sample[key], "dtype", None) for key in arrays}
    return {key: str(kind) for key, kind in types.items() if kind is not None and kind != arrays[key].dtype}


def _slice(array: Array, split: _Split, k: int) -> Array:
    if split.axis is None:
        return array
    if not split.keep:
        return np.asarray(array[k])
    index = [slice(None)] * array.ndim
    index[split.axis] = slice(k * split.step, (k + 1) * split.step)
    return np.asarray(array[tuple(index)])
