"""Scan of samples before numpy has them: an `.npz` is a zip file, and a zip file can claim anything.

Its directory and the head of each array are read, no array is. Nothing is unpacked to disk, ever.
Source: APPNOTE.TXT (PKWARE), 4.3; numpy's NEP 1.
"""

import math
import mmap
import re
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from numpy.lib import format as npy

from planner.errors import SampleError, quantity

MAX_MEMBERS: Final = 100_000
FREE_MEMBERS: Final = 10_000
BYTES_A_MEMBER: Final = 4096
"""Bytes of the file for each array, on average, beyond the first so many: looking at one takes 60 us."""
MAX_ARRAYS_BYTES: Final = 1 << 30
MAX_DIMENSIONS: Final = 32
MAX_SAMPLES: Final = 1_000_000
"""Entries along the first axis: a file of a few hundred kB unfolds to 50 million of them."""
HEADER_BYTES: Final = 10_000
_NAME: Final = re.compile(r"[^/\\\x00]{1,1000}\.npy")
_ENTRY: Final = b"PK\x01\x02"
_LOCAL_HEADER: Final = 30
_ENCRYPTED: Final = 1
_READERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def scan_npz(path: Path, *, most: int = MAX_ARRAYS_BYTES) -> None:
    """Refuse samples that are no `.npz`, unpack to too much, overlap, or hold objects.

    Args:
      most: bytes of all arrays together.

    Raises:
      SampleError: what, and in which array.
    """
    try:
        _count_entries(path)
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _scan_directory(members, path.stat().st_size, most)
            for member in members:
                with archive.open(member) as file:
                    _scan_array(file, member)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, RuntimeError) as error:
        raise SampleError(
            "the samples are no readable .npz file", hint="write it with numpy.savez"
        ) from error


def _count_entries(path: Path) -> None:
    """Refuse a directory of too many entries before it is read: one takes as long as 300 bytes of data."""
    size = path.stat().st_size
    most = min(MAX_MEMBERS, FREE_MEMBERS + size // BYTES_A_MEMBER)
    if size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = data.find(_ENTRY)
        for _ in range(most):
            if at < 0:
                return
            at = data.find(_ENTRY, at + 1)
    if at >= 0:
        raise SampleError(f"the samples hold more than {quantity(most, 'array')}, the limit for {size} bytes")


def _scan_directory(members: Sequence[zipfile.ZipInfo], size: int, most: int) -> None:
    names: set[str] = set()
    for member in members:
        name = member.filename
        if not _NAME.fullmatch(name) or name in names:
            raise SampleError(f"the samples hold {name[:100]!r}, which is no array's name, or twice")
        if member.flag_bits & _ENCRYPTED or member.compress_type not in (
            zipfile.ZIP_STORED,
            zipfile.ZIP_DEFLATED,
        ):
            raise SampleError(f"array {name[:100]!r} is encrypted, or packed in an unusual way")
        names.add(name)
    total = sum(member.file_size for member in members)
    if total > most:
        raise SampleError(f"the samples unpack to {total} bytes; {most} are the limit")
    ends = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset < ends:
            raise SampleError(f"array {member.filename[:100]!r} overlaps another")
        ends = member.header_offset + _LOCAL_HEADER + len(member.filename) + member.compress_size
    if ends > size:
        raise SampleError("the samples promise more bytes than the file has")


def _scan_array(file: IO[bytes], member: zipfile.ZipInfo) -> None:
    name = repr(member.filename[:100])
    try:
        reader = _READERS.get(npy.read_magic(file))
        if reader is None:
            raise SampleError(f"array {name} is of an unknown version of .npy")
        shape, _, dtype = reader(file, max_header_size=HEADER_BYTES)
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError, RecursionError) as error:
        raise SampleError(f"array {name} is no .npy file", hint="write it with numpy.savez") from error
    if dtype.hasobject:
        raise SampleError(f"array {name} holds Python objects", hint="give it a number type")
    if len(shape) > MAX_DIMENSIONS or any(dim < 0 for dim in shape):
        raise SampleError(f"array {name} has an impossible shape")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > member.file_size:
        raise SampleError(
            f"array {name} claims {claimed} bytes, and holds {member.file_size} with its header"
        )
    if shape and shape[0] > MAX_SAMPLES:
        raise SampleError(
            f"array {name} holds {quantity(shape[0], 'sample')}; {MAX_SAMPLES} are the limit",
            hint="statistics of a few hundred are as good",
        )
