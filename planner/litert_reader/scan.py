"""Scan: the tables of a LiteRT file walked before anything reads them, by a table of its schema.

Every offset has to stay inside the file, every vector and every table too; counts, lengths of names and what
tensors claim to hold are bounded. Builds nothing. Source: FlatBuffers, "Internals"; TensorFlow Lite's schema.
"""

from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import Final, TypeAlias

from planner.errors import ModelError
from planner.litert_reader.vocabulary import IDENTIFIER

Field: TypeAlias = int | str | tuple[int | str]
"""Bytes of a number; the name of a table, or `text`; in a tuple: a vector of these."""

MOST_TABLES: Final = 2_000_000
MOST_ITEMS: Final = 20_000_000
MOST_TEXT: Final = 65_536
OPTIONS: Final = "options"
_TEXT: Final = "text"

SCHEMA: Final[Mapping[str, Mapping[int, Field]]] = {
    "Buffer": {0: (1,), 1: 8, 2: 8},
    "Metadata": {0: _TEXT, 1: 4},
    "Model": {
        0: 4,
        1: ("OperatorCode",),
        2: ("SubGraph",),
        3: _TEXT,
        4: ("Buffer",),
        5: (4,),
        6: ("Metadata",),
        7: ("SignatureDef",),
    },
    "Operator": {
        0: 4,
        1: (4,),
        2: (4,),
        3: 1,
        4: OPTIONS,
        5: (1,),
        6: 1,
        7: (1,),
        8: (4,),
        9: 8,
        10: 8,
        11: 1,
        12: OPTIONS,
        13: 4,
    },
    "OperatorCode": {0: 1, 1: _TEXT, 2: 4, 3: 4},
    "QuantizationParameters": {0: (4,), 1: (4,), 2: (4,), 3: (8,), 4: 1, 5: OPTIONS, 6: 4},
    "SignatureDef": {0: ("TensorMap",), 1: ("TensorMap",), 2: _TEXT, 4: 4},
    "SubGraph": {0: ("Tensor",), 1: (4,), 2: (4,), 3: ("Operator",), 4: _TEXT, 5: 4},
    "Tensor": {
        0: (4,),
        1: 1,
        2: 4,
        3: _TEXT,
        4: "QuantizationParameters",
        5: 1,
        6: OPTIONS,
        7: (4,),
        8: 1,
        9: (OPTIONS,),
    },
    "TensorMap": {0: _TEXT, 1: 4},
    OPTIONS: {},
}
"""Fields of the tables that are read, by number. Of options only the table's own bounds are checked."""

_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_I32: Final = Struct("<i")


def is_litert(data: bytes) -> bool:
    """Whether bytes begin as a LiteRT file does."""
    return data[4:8] == IDENTIFIER


def starts_as_litert(source: str | Path | bytes) -> bool:
    """Whether a file, or its bytes, begin as a LiteRT file does; False where it cannot be read."""
    if isinstance(source, bytes):
        return is_litert(source)
    try:
        with Path(source).open("rb") as file:
            return is_litert(file.read(8))
    except (OSError, TypeError):
        return False


def scan_litert(data: bytes) -> None:
    """Refuse a LiteRT file whose offsets lead out of it, or that claims more than its bytes hold.

    Raises:
      ModelError: what and at which byte.
    """
    if not is_litert(data):
        raise ModelError("no LiteRT file: bytes 4 to 8 are not TFL3")
    scanner = _Scanner(data)
    scanner.enter("Model", scanner.offset(0))
    while scanner.waiting:
        scanner.table(*scanner.waiting.pop())


class _Scanner:
    """Tables that wait to be walked, and what has been counted."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)
        self.waiting: list[tuple[str, int]] = []
        self.tables = self.items = 0

    def enter(self, kind: str, at: int) -> None:
        """Note a table to walk."""
        self.tables += 1
        if self.tables > MOST_TABLES:
            raise ModelError(f"too big to read at byte {at}: at most {MOST_TABLES} tables")
        self.waiting.append((kind, at))

    def offset(self, at: int) -> int:
        """The place that an offset leads to."""
        self.inside(at, 4)
        found = at + int(_U32.unpack_from(self.data, at)[0])
        self.inside(found, 4)
        return found

    def inside(self, at: int, count: int) -> None:
        """Refuse bytes that are not all in the file."""
        if at < 0 or count > self.size - at:
            raise ModelError(
                f"no LiteRT file, or a truncated one: byte {max(at, 0)} should begin {count} bytes of the "
                f"{self.size} there are"
            )

    def table(self, kind: str, at: int) -> None:
        """Walk the fields of a table."""
        self.inside(at, 4)
        layout = at - int(_I32.unpack_from(self.data, at)[0])
        self.inside(layout, 4)
        length, extent = (int(_U16.unpack_from(self.data, layout + i)[0]) for i in (0, 2))
        self.inside(layout, max(4, length))
        self.inside(at, max(4, extent))
        if length < 4 or length % 2 or extent < 4:
            raise ModelError(f"no LiteRT file: the layout at byte {layout} is none of a table")
        known = SCHEMA[kind]
        for number in range((length - 4) // 2):
            place = int(_U16.unpack_from(self.data, layout + 4 + 2 * number)[0])
            if not place:
                continue
            form = known.get(number, 1)
            width = form if isinstance(form, int) else 4
            if place < 4 or place + width > extent:
                raise ModelError(f"no LiteRT file: field {number} of the table at byte {at} is not in it")
            if not isinstance(form, int):
                self.field(form, self.offset(at + place))

    def field(self, form: "str | tuple[int | str]", at: int) -> None:
        """Walk what a field leads to."""
        if form == _TEXT:
            self.text(at)
        elif isinstance(form, str):
            self.enter(form, at)
        else:
            self.vector(form[0], at)

    def text(self, at: int) -> None:
        """Check a string."""
        count = int(_U32.unpack_from(self.data, at)[0])
        self.inside(at + 4, count)
        if count > MOST_TEXT:
            raise ModelError(f"a name at byte {at} has {count} bytes; {MOST_TEXT} are the limit")
        try:
            self.data[at + 4 : at + 4 + count].decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"a name at byte {at + 4 + error.start} is no UTF-8") from None

    def vector(self, item: int | str, at: int) -> None:
        """Walk a vector."""
        count = int(_U32.unpack_from(self.data, at)[0])
        width = item if isinstance(item, int) else 4
        self.inside(at + 4, count * width)
        if width > 1:
            self.items += count
        if self.items > MOST_ITEMS:
            raise ModelError(f"too big to read at byte {at}: at most {MOST_ITEMS} items of vectors")
        if isinstance(item, str):
            for i in range(count):
                self.enter(item, self.offset(at + 4 + 4 * i))
