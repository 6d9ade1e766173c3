"""Sparse tensors: which elements of a constant the stored numbers are; all others are zero.

Axes stand in the order of traversal, behind the tensor's own those of blocks, if any. Each level is dense, or
lists for every place of the level before the indices that it has (compressed rows).
Source: TensorFlow Lite's schema, `SparsityParameters`; TACO's format of levels.
"""

from math import prod
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.errors import ModelError

Array = npt.NDArray[Any]
_DENSE: Final = 0


class Levels:
    """The axes of one sparse tensor.

    Attributes:
      levels: size of each, as the shape and the blocks have it, and the step of its index in the whole.
      order: of each level the axis, those of blocks behind the tensor's own.
      blocks: of each axis of blocks the tensor's axis that it divides.
    """

    def __init__(self, table: Any, shape: tuple[int, ...], name: str) -> None:
        """Read the levels.

        Raises:
          ModelError: axes, blocks or levels that do not fit the shape.
        """
        self.name, self.shape = name, shape
        self.table = table
        self.order = _numbers(table.TraversalOrderAsNumpy(), table.TraversalOrderLength())
        self.blocks = _numbers(table.BlockMapAsNumpy(), table.BlockMapLength())
        axes = len(shape) + len(self.blocks)
        is_whole = sorted(self.order) == list(range(axes)) and table.DimMetadataLength() == axes
        if not is_whole or len({*self.blocks}) < len(self.blocks) or {*self.blocks} - {*range(len(shape))}:
            raise self.wrong(f"{table.DimMetadataLength()} levels, axes {self.order}, blocks {self.blocks}")
        inner = dict.fromkeys(range(len(shape)), 1)
        for level, axis in enumerate(self.order):
            if axis >= len(shape):
                inner[self.blocks[axis - len(shape)]] = table.DimMetadata(level).DenseSize()
        if any(size < 1 or shape[axis] % size for axis, size in inner.items()):
            raise self.wrong(f"blocks of {[*inner.values()]}")
        steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        own = [(shape[axis] // inner[axis], steps[axis] * inner[axis]) for axis in range(len(shape))]
        every = [*own, *((inner[axis], steps[axis]) for axis in self.blocks)]
        self.levels = [every[axis] for axis in self.order]

    def wrong(self, what: str) -> ModelError:
        """The refusal of what does not fit."""
        return ModelError(f"sparse tensor {self.name!r} of shape {list(self.shape)} has {what}")

    def places(self, schema: ModuleType, most: int) -> Array:
        """Return the flat index of each stored number.

        Args:
          most: places of a level; each takes a byte of the file, behind it or as a number.

        Raises:
          ModelError: a level whose size, rows or indices do not fit.
        """
        found = np.zeros(1, np.int64)
        for level, (size, step) in enumerate(self.levels):
            told = self.table.DimMetadata(level)
            if told.Format() == _DENSE:
                if told.DenseSize() != size or len(found) * size > most:
                    raise self.wrong(f"a level of {told.DenseSize()} for {len(found)} places")
                found = (found[:, None] + np.arange(size) * step).reshape(-1)
                continue
            ends = _vector(schema, told.ArraySegments(), told.ArraySegmentsType())
            indices = _vector(schema, told.ArrayIndices(), told.ArrayIndicesType())
            is_sound = len(ends) == len(found) + 1 and not ends[0] and ends[-1] == len(indices)
            if not is_sound or (np.diff(ends) < 0).any() or not ((indices >= 0) & (indices < size)).all():
                raise self.wrong(f"rows or indices at level {level} that do not fit")
            found = np.repeat(found, np.diff(ends)) + indices * step
        return found


def spread(values: Array, places: Array, shape: tuple[int, ...]) -> Array:
    """The whole tensor."""
    whole = np.zeros(prod(shape), values.dtype)
    whole[places] = values
    return whole.reshape(shape)


def _numbers(array: Any, length: int) -> list[int]:
    return [int(number) for number in array] if length else []


def _vector(schema: ModuleType, table: Any, kind: int) -> Array:
    """The numbers of a vector of 32, 16 or 8 bits."""
    names = {
        number: name for name, number in vars(schema.SparseIndexVector).items() if not name.startswith("_")
    }
    if table is None or not hasattr(schema, names.get(kind, "NONE")):
        return np.zeros(0, np.int64)
    vector = getattr(schema, names[kind])()
    vector.Init(table.Bytes, table.Pos)
    return np.asarray(vector.ValuesAsNumpy(), np.int64) if vector.ValuesLength() else np.zeros(0, np.int64)
