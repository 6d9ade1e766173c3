"""Store: arrays that are read again later, in memory up to a limit, the rest in files without a name.

Source: docs/accuracy.md.
"""

import tempfile
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

LIMIT: Final = 1 << 30
"""Bytes that are kept in memory; the rest goes into files."""


@dataclass(slots=True)
class Store:
    """Arrays kept; those beyond the limit lie in files."""

    limit: int = field(default_factory=lambda: LIMIT)
    held: int = 0

    def kept(self, array: Array) -> Array:
        """The array, or the same in a file that is mapped."""
        self.held += array.nbytes
        if self.held <= self.limit or array.dtype.hasobject or not array.nbytes:
            return array
        self.held -= array.nbytes
        # The file has no name and goes with the array.
        with tempfile.TemporaryFile(prefix="qplan-") as file:
            array.tofile(file)
            return np.memmap(file, array.dtype, "r", shape=array.shape)
