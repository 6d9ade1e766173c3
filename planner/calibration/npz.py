"""Npz: the arrays of one file of samples, read without pickles and only as far as requested.

`numpy.load` parses every header anew; the samples of a folder have few. Nothing here knows a model.
"""

import io
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from planner.errors import SampleError

Array: TypeAlias = NDArray[Any]


def array_names(path: Path) -> tuple[str, ...]:
    """Names of the arrays of a file.

    Raises:
      SampleError: a file that cannot be read.
    """
    with _opened(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def read_arrays(path: Path, names: Iterable[str]) -> Mapping[str, Array]:
    """The arrays of these names, all of which the file has.

    Raises:
      SampleError: a file that cannot be read, or Python objects in place of numbers.
    """
    with _opened(path) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        return {name: _array(archive.read(members[name]), f"{path}: {name!r}") for name in names}


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise SampleError(f"{path}: cannot read samples: {error.strerror or 'not an .npz file'}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if _is_array(path):
            raise SampleError(
                f"{path}: a single array; samples are .npz files keyed by input name"
            ) from error
        raise SampleError(f"{path}: not a readable .npz file", hint="write it with numpy.savez") from error


def _is_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX


def _array(data: bytes, label: str) -> Array:
    """The array of a `.npy`: `numpy.load` without pickles, which parses every header anew.

    Raises:
      ValueError: another content.
      SampleError: Python objects.
    """
    width = 2 if data[6:7] == b"\1" else 4
    end = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    shape, is_fortran, dtype = _header(data[:end])
    if dtype.hasobject:
        raise SampleError(f"{label} holds Python objects, not numbers")
    return np.frombuffer(data, dtype, math.prod(shape), end).reshape(shape, order="F" if is_fortran else "C")


@lru_cache(maxsize=64)
def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and element type; the samples of a folder have few headers."""
    stream = io.BytesIO(data)
    read = npy.read_array_header_1_0 if npy.read_magic(stream) == (1, 0) else npy.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(stream)
    return found
