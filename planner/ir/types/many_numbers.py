"""Numbers: very many scales or zero points of a type, in an array instead of a Python object each.

A sequence that equals the tuple of its numbers, hashes as it does, and is an array to numpy.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, cast, overload

import numpy as np
import numpy.typing as npt

_CHUNK: Final = 1 << 14


class Numbers(Sequence[Any]):
    """Numbers of one array, floats or integers of Python where they are read one by one."""

    __slots__ = ("_array", "_hash")

    def __init__(self, array: npt.NDArray[Any]) -> None:
        """Hold a flat array, which nobody changes any more."""
        self._array, self._hash = array, 0

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        found = self._array[index].tolist()
        return tuple(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Any]:
        begins = range(0, len(self._array), _CHUNK)
        return chain.from_iterable(self._array[begin : begin + _CHUNK].tolist() for begin in begins)

    def __array__(
        self,
        dtype: npt.DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001 - numpy's protocol
    ) -> npt.NDArray[Any]:
        own = np.float64 if self._array.dtype.kind == "f" else np.int64
        return self._array.astype(own if dtype is None else dtype, copy=bool(copy))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbers):
            return np.array_equal(self._array, other._array)
        if not isinstance(other, tuple):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        if not self._hash:
            self._hash = hash(tuple(self))
        return self._hash

    def __reduce__(self) -> tuple[type["Numbers"], tuple[npt.NDArray[Any]]]:
        return Numbers, (self._array,)

    def __repr__(self) -> str:
        return f"<{len(self)} numbers>"

    def count(self, value: Any) -> int:
        """How many of them equal a value."""
        return int(np.count_nonzero(self._array == value))


def ends(numbers: Sequence[Any] | npt.NDArray[Any]) -> tuple[Any, Any]:
    """The least and the greatest of some numbers."""
    if isinstance(numbers, tuple | list):
        return min(numbers), max(numbers)
    array = np.asarray(numbers)
    return array.min().item(), array.max().item()


def compact(
    scales: Sequence[float] | npt.NDArray[Any], zero_points: Sequence[int] | npt.NDArray[Any]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Scales and zero points in little memory: sequences that stand for the tuples they equal."""
    wide = np.asarray(scales, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    held = Numbers(narrow if np.array_equal(narrow, wide) else wide)
    least, most = ends(zero_points)
    zeros = np.broadcast_to(np.int64(least), len(held)) if least == most else np.asarray(zero_points)
    return cast("tuple[float, ...]", held), cast("tuple[int, ...]", Numbers(zeros))
