"""Storages: the integer (and narrow float) formats of stored values, and the part of their range in use.

Text: `i8`, `u4`, `i8<-127:127>`, `f8E4M3FN`. The floats are those of the OCP formats whose largest number is
an integer; f6E2M3FN, which ends at 7.5, is none. Source: MLIR quant dialect, storage types; OCP Microscaling
Formats (MX) 1.0, section 5.3; docs/specification.md, section 2.
"""

import re
from dataclasses import dataclass
from typing import Final

from planner.errors import QTypeError

FLOAT_STORAGE: Final = {"f4E2M1FN": 6, "f6E3M2FN": 28, "f8E4M3FN": 448, "f8E5M2": 57344}
"""Largest number of each float format."""
MAX_BITS: Final = 64
_ELSEWHERE: Final = re.compile(r"q?(u?)(?:int|s)[-_]?([1-9][0-9]?)", re.IGNORECASE)
"""Integer formats as numpy, ONNX, PyTorch (`qint8`), TOSA (`s8`) spell them."""


@dataclass(frozen=True, slots=True)
class Storage:
    """An integer format: width, sign, and the part of its range in use. Text: `i8<-127:127>`.

    Float storages (`f8E4M3FN`, `f4E2M1FN`) name themselves in `float_name`; their range is in reals.
    """

    bits: int
    signed: bool
    qmin: int
    qmax: int
    float_name: str = ""

    def __post_init__(self) -> None:
        if self.float_name:
            self._check_float()
            return
        if not 1 <= self.bits <= MAX_BITS:
            raise QTypeError(f"storage of {self.bits} bits: a storage has 1 to {MAX_BITS} bits")
        low, high = full_range(self.bits, signed=self.signed)
        if not low <= self.qmin < self.qmax <= high:
            raise QTypeError(
                f"storage range {self.qmin}:{self.qmax} must not be empty and lie within "
                f"{low}:{high} of {'i' if self.signed else 'u'}{self.bits}"
            )

    def _check_float(self) -> None:
        limit = FLOAT_STORAGE.get(self.float_name)
        if limit is None:
            raise QTypeError(f"float storage {self.float_name!r} is none of {', '.join(FLOAT_STORAGE)}")
        if not -limit <= self.qmin < self.qmax <= limit:
            raise QTypeError(
                f"storage range {self.qmin}:{self.qmax} must not be empty and lie within "
                f"{-limit}:{limit} of {self.float_name}"
            )

    @property
    def name(self) -> str:
        """The format without its range: `i8`, `u4`, `f8E4M3FN`."""
        return self.float_name or f"{'i' if self.signed else 'u'}{self.bits}"

    @property
    def offset(self) -> int:
        """The shift of a zero point from the signed format of this width to this one: 128 for `u8`."""
        return 0 if self.signed or self.float_name else 1 << self.bits - 1

    @property
    def is_full(self) -> bool:
        """Whether the whole range of the format is in use."""
        if self.float_name:
            limit = FLOAT_STORAGE[self.float_name]
            return (self.qmin, self.qmax) == (-limit, limit)
        return (self.qmin, self.qmax) == full_range(self.bits, signed=self.signed)

    def lies_in(self, other: "Storage") -> bool:
        """Whether its integers are integers of another storage as they are, bit for bit."""
        alike = (self.bits, self.signed, self.float_name) == (other.bits, other.signed, other.float_name)
        return alike and other.qmin <= self.qmin and self.qmax <= other.qmax

    def fits_shifted(self, other: "Storage") -> bool:
        """Whether its integers are integers of another storage once both have one sign: `i8` fits `u8`."""
        alike = (self.bits, self.float_name) == (other.bits, other.float_name)
        low, high = other.qmin - other.offset, other.qmax - other.offset
        return alike and low <= self.qmin - self.offset and self.qmax - self.offset <= high

    @property
    def steps(self) -> int:
        """Number of steps between the smallest and the largest stored value."""
        return self.qmax - self.qmin

    @property
    def range_bits(self) -> int:
        """Bits that the range in use needs: 4 for `i8<-8:7>`."""
        if self.float_name:
            return self.bits
        if not self.signed:
            return max(1, self.qmax.bit_length())
        # Two's complement is lopsided: n bits hold -2^(n - 1), so -8 needs as few bits as 7.
        return max((-self.qmin - 1).bit_length() if self.qmin < 0 else 0, self.qmax.bit_length()) + 1

    def __str__(self) -> str:
        return self.name if self.is_full else f"{self.name}<{self.qmin}:{self.qmax}>"


def full_range(bits: int, *, signed: bool) -> tuple[int, int]:
    """Smallest and largest stored value of an integer format."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def storage(name: str, qmin: int | None = None, qmax: int | None = None) -> Storage:
    """Build a storage from its format name (`i8`, `u4`, `ui8`, `f8E4M3FN`) and, if narrower, its range.

    Raises:
      QTypeError: unknown format, or a range outside it.
    """
    if name in FLOAT_STORAGE:
        limit = FLOAT_STORAGE[name]
        return Storage(
            int(name[1]), True, -limit if qmin is None else qmin, limit if qmax is None else qmax, name
        )
    match = re.fullmatch(r"(i|u|ui|si)([1-9][0-9]{0,2})", name)
    if match is None:
        known = f"i1..i64, u1..u64 or {', '.join(FLOAT_STORAGE)}"
        raise QTypeError(f"unknown storage {name!r}{_here(name)}; a storage is {known}")
    bits, signed = int(match[2]), match[1] in ("i", "si")
    if bits > MAX_BITS:
        raise QTypeError(f"storage {name!r} has more than {MAX_BITS} bits")
    low, high = full_range(bits, signed=signed)
    return Storage(bits, signed, low if qmin is None else qmin, high if qmax is None else qmax)


def _here(name: str) -> str:
    """` (i8 here)` for another tool's word."""
    found = _ELSEWHERE.fullmatch(name)
    return f" ({'u' if found[1] else 'i'}{found[2]} here)" if found else ""
