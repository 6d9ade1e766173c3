"""Samples of torch, Hugging Face, onnxruntime and plain Python, recognised by duck typing.

Nothing is imported: a tensor has `detach`, a data reader has `get_next`, a data set has columns.
Sources: onnxruntime's CalibrationDataReader; datasets.Dataset; torch.utils.data.DataLoader; TensorFlow
Lite's representative data set, a function without arguments.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from planner.calibration.npz import Array
from planner.errors import SampleError
from planner.ir.graph import Graph

LABELS: Final = ("label", "labels")
"""Arrays of samples that say what should come out: never inputs, unless a model has one of that name."""


def as_array(data: Any, name: str) -> Array:
    """An array of what may be one: of numpy, torch, JAX or TensorFlow, a picture, nested lists.

    Raises:
      SampleError: lists of different lengths.
    """
    if hasattr(data, "detach"):
        return _of_torch(data)
    try:
        return np.asarray(data)
    except ValueError as error:
        raise SampleError(f"{name}: not an array: {' '.join(str(error).split())}") from error


def _of_torch(tensor: Any) -> Array:
    plain = tensor.detach().cpu()
    try:
        return np.asarray(plain.numpy())
    except TypeError:  # bfloat16, which numpy has not
        return np.asarray(plain.float().numpy())


def is_array(source: object) -> bool:
    """Whether samples are one array rather than a list of them."""
    return isinstance(source, np.ndarray) or (hasattr(source, "detach") and hasattr(source, "shape"))


def is_reader(source: object) -> bool:
    """Whether it is a CalibrationDataReader of onnxruntime, or works as one."""
    return callable(getattr(source, "get_next", None))


def is_dataset(source: object) -> bool:
    """Whether it is a data set with columns, as Hugging Face's."""
    return hasattr(source, "column_names") and hasattr(source, "features")


def unwrapped(source: Any, graph: Graph) -> Any:
    """Return samples as an iterable: a data reader is read from its beginning, a function called."""
    if is_reader(source):
        return _read(source)
    if is_dataset(source):
        return _rows(source, graph)
    if callable(source) and not isinstance(source, Iterable):
        return source()
    return source


def replayable(source: Any) -> Any:
    """Return samples that can be iterated again: an iterator's are kept in a list."""
    if is_reader(source) and not callable(getattr(source, "rewind", None)):
        return list(_read(source))
    return list(source) if isinstance(source, Iterator) and not is_reader(source) else source


def count_of(source: Any) -> int | None:
    """The number of samples of an iterable; None where only going through it tells."""
    return len(source) if isinstance(source, list | tuple) or is_dataset(source) else None


def _read(reader: Any) -> Iterator[Any]:
    if callable(getattr(reader, "rewind", None)):
        reader.rewind()
    return iter(reader.get_next, None)


def _rows(dataset: Any, graph: Graph) -> Iterable[Any]:
    """Rows without the columns that are neither inputs nor labels; whole where an input is missing."""
    wanted = {*graph.inputs, *LABELS}
    for row in dataset:
        if set(graph.inputs) <= set(row):
            yield {name: item for name, item in row.items() if name in wanted}
        else:
            yield row


def named(item: Any, graph: Graph, name: str) -> Mapping[str, Any]:
    """One item as arrays by input name: a mapping, or arrays in the order of the inputs, maybe labels.

    Raises:
      SampleError: another number of arrays than the model has inputs.
    """
    if isinstance(item, Mapping):
        return item
    parts = tuple(item) if isinstance(item, tuple) or _is_list_of_arrays(item) else (item,)
    inputs = graph.inputs
    if len(parts) == len(inputs):
        return dict(zip(inputs, parts, strict=True))
    if len(parts) == len(inputs) + 1:
        return dict(zip((*inputs, LABELS[0]), parts, strict=True))
    known = ", ".join(map(repr, inputs))
    raise SampleError(
        f"{name}: {_counted(len(parts), 'array')} for {_counted(len(inputs), 'input')}: {known}",
        hint="give a mapping from input name to array, or the arrays in the order of the inputs, labels last",
    )


def _is_list_of_arrays(item: Any) -> bool:
    """Whether a list holds arrays, as a data loader's batches do, rather than numbers or lists of them."""
    return isinstance(item, list) and bool(item) and all(hasattr(part, "shape") for part in item)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
