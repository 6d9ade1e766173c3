"""Windows: stretches of protobuf's wire format, of which numpy says for every byte where a field would end.

Whether a field begins at a byte is not known here; whoever walks from one that is follows `next_` without
reading a byte again. What is rare (a field that leaves the window, groups, numbers of more than ten bytes)
leads to a place beyond, for a walk byte by byte to judge. Source: protobuf's encoding.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.int64]

SIZE: Final = 1 << 16
EXACT: Final = 1 << 21
"""Whole numbers below are told as they are, others (of more than three bytes) as at least this."""
_PAD: Final = 16
_STRIDE: Final = 8
_STEPS: Final = 4096
"""Of one field, before eight are taken at once."""
_TEN: Final = 10
_NEVER: Final = 1 << 24
_FIXED: Final = np.array([{0: 0, 1: 8, 2: 0, 5: 4}.get(sign & 7, _NEVER) for sign in range(256)], np.int64)
"""By the first byte of a tag: bytes of what follows, where that tells them."""


class Window:
    """The bytes of a file from `first` on; all places here count from there.

    Attributes:
      next_: where a field that begins at a byte ends; `size` + 1 where that is rare.
    """

    def __init__(self, data: bytes, first: int) -> None:
        self.first = first
        self.size = size = min(SIZE, len(data) - first)
        self.reaches_end = first + size == len(data)
        beyond = size + 2
        signs = np.full(size + _PAD, 0x80, np.uint8)
        signs[:size] = np.frombuffer(data, np.uint8, size, first)
        more = (signs & 0x80).astype(np.int64)
        places = np.arange(1, size + _PAD + 1)
        # Of the whole number that begins at each byte: where it ends, and its value, by Horner's rule.
        ends = np.minimum.accumulate((places + more * beyond)[::-1])[::-1]
        np.minimum(ends, beyond, out=ends)
        widths = (ends - places)[:size]
        if widths.max(initial=0) >= _TEN:
            ends[:size][widths >= _TEN] = beyond
        value = (signs & 0x7F).astype(np.int64)
        value[:-2] += more[:-2] * (value[1:-1] + more[1:-1] * (value[2:] + more[2:]))
        self.ends, self.value = ends, value
        bodies, wire = ends[:size], signs[:size] & 7
        self.next_: Places = np.full(size + 2, size + 1)
        found = self.next_[:size]
        np.subtract(ends.take(bodies), bodies, out=found)
        found *= (wire & 5) == 0
        found += value.take(bodies) * (wire == 2)
        found += bodies
        found += _FIXED.take(wire)
        np.minimum(found, size + 1, out=found)
        self._far: memoryview | None = None

    def keys(self, fields: Places) -> Places:
        """Number and wire type of fields, as protobuf packs them into one number."""
        return self.value.take(fields)

    def numbers(self, fields: Places) -> Places:
        """The values of whole numbers, or lengths."""
        return self.value.take(self.ends.take(fields))

    def bodies(self, fields: Places) -> Places:
        """Where the contents of fields begin that have a length."""
        return self.ends.take(self.ends.take(fields))

    def fields(self, at: int, end: int) -> Places:
        """Where fields begin that follow each other from a place on and end at another one at the latest."""
        steps: list[int] = []
        place, next_ = at, self.next_.data
        for _ in range(_STEPS):
            if place >= end:
                break
            steps.append(place)
            place = next_[place]
        starts = np.array(steps, np.int64)
        if place < end:
            starts = np.append(starts, self._many(place, end))
        return starts[self.next_[starts] <= end]

    def _many(self, place: int, end: int) -> Places:
        """The same of a place where fields are short: eight in one step."""
        if self._far is None:
            far = self.next_
            for _ in range(_STRIDE.bit_length() - 1):
                far = far.take(far)
            self._far = far.data
        steps, far_from = [], self._far
        while place < end:
            steps.append(place)
            place = far_from[place]
        rows = [np.array(steps, np.int64)]
        for _ in range(_STRIDE - 1):
            rows.append(self.next_.take(rows[-1]))
        starts = np.stack(rows, axis=1).reshape(-1)
        return starts[starts < end]
