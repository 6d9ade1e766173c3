"""Scan: the tables of a LiteRT file walked before anything reads them, by a table of its schema.

Every offset has to stay inside the file, every vector and every table too; counts and lengths of names are
bounded, and so is what one file may refer to again and again. Builds nothing; the tables of one kind are
walked together, in numpy. Source: FlatBuffers, "Internals"; TensorFlow Lite's schema.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import ModelError
from planner.formats.litert.identifier import is_litert

Field: TypeAlias = int | str | tuple[int | str]
"""Bytes of a number; the name of a table, or `text`; in a tuple: a vector of these."""

MOST_TABLES: Final = 2_000_000
MOST_ITEMS: Final = 20_000_000
AT_ONCE: Final = 1 << 20
MOST_TEXT: Final = 65_536
OPTIONS: Final = "options"
_TEXT: Final = "text"

SCHEMA: Final[Mapping[str, Mapping[int, Field]]] = {
    "Buffer": {0: (1,), 1: 8, 2: 8},
    "DimensionMetadata": {0: 1, 1: 4, 2: 1, 3: OPTIONS, 4: 1, 5: OPTIONS},
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
    "SparsityParameters": {0: (4,), 1: (4,), 2: ("DimensionMetadata",)},
    "SubGraph": {0: ("Tensor",), 1: (4,), 2: (4,), 3: ("Operator",), 4: _TEXT, 5: 4},
    "Tensor": {
        0: (4,),
        1: 1,
        2: 4,
        3: _TEXT,
        4: "QuantizationParameters",
        5: 1,
        6: "SparsityParameters",
        7: (4,),
        8: 1,
        9: (OPTIONS,),
    },
    "TensorMap": {0: _TEXT, 1: 4},
    OPTIONS: {},
}
"""Fields of the tables that are read, by number. Of options only the table's own bounds are checked."""

Places: TypeAlias = npt.NDArray[np.int64]


def scan_litert(data: bytes) -> None:
    """Refuse a LiteRT file whose offsets lead out of it, or that claims more than its bytes hold.

    Raises:
      ModelError: what and at which byte.
    """
    if not is_litert(data):
        raise ModelError("no LiteRT file: bytes 4 to 8 are not TFL3")
    scanner = _Scanner(data)
    scanner.enter("Model", scanner.offsets(np.zeros(1, np.int64)))
    while scanner.waiting:
        kind = next(iter(scanner.waiting))
        scanner.tables(kind, np.concatenate(scanner.waiting.pop(kind)))


class _Scanner:
    """Tables that wait to be walked, by kind, and what has been counted."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)
        self.signs = np.frombuffer(data, np.uint8)
        self.waiting: dict[str, list[Places]] = {}
        self.tables_found = self.items = self.texts = self.layouts = 0

    def enter(self, kind: str, at: Places) -> None:
        """Note tables to walk."""
        self.tables_found += at.size
        if self.tables_found > MOST_TABLES:
            raise ModelError(f"too big to read at byte {int(at[0])}: at most {MOST_TABLES} tables")
        if at.size:
            self.waiting.setdefault(kind, []).append(at)

    def number(self, at: Places, width: int) -> Places:
        """Numbers without a sign; their bytes are in the file."""
        return sum(
            (self.signs.take(at + i).astype(np.int64) << 8 * i for i in range(width)), np.zeros_like(at)
        )

    def offsets(self, at: Places) -> Places:
        """The places that offsets lead to."""
        self.inside(at, 4)
        found = at + self.number(at, 4)
        self.inside(found, 4)
        return found

    def inside(self, at: Places, count: Places | int) -> None:
        """Refuse bytes that are not all in the file."""
        wrong = (at < 0) | (count > self.size - at)
        if wrong.any():
            first = int(np.argmax(wrong))
            length = count if isinstance(count, int) else int(count[first])
            raise ModelError(
                f"no LiteRT file, or a truncated one: byte {max(int(at[first]), 0)} should begin {length} "
                f"bytes of the {self.size} there are"
            )

    def tables(self, kind: str, at: Places) -> None:
        """Walk tables of one kind."""
        at = _once(at)  # once each, however often they are referred to
        self.inside(at, 4)
        back = self.number(at, 4)
        back[back >= 1 << 31] -= 1 << 32
        layouts = _once(at - back)
        which = np.searchsorted(layouts, at - back)
        self.inside(layouts, 4)
        lengths, extents = self.number(layouts, 2), self.number(layouts + 2, 2)
        self.inside(layouts, np.maximum(lengths, 4))
        self.inside(at, np.maximum(extents, 4)[which])
        _refuse(
            (lengths < 4) | (lengths % 2 > 0) | (extents < 4),
            lambda i: f"the layout at byte {int(layouts[i])} is none of a table",
        )
        self._check_layouts(kind, layouts, lengths, extents)
        for number, form in SCHEMA[kind].items():
            if isinstance(form, int):
                continue
            has = lengths >= 6 + 2 * number
            places = np.zeros_like(layouts)
            places[has] = self.number(layouts[has] + 4 + 2 * number, 2)
            own = places[which]
            self.field(form, self.offsets((at + own)[own > 0]))

    def _check_layouts(self, kind: str, layouts: Places, lengths: Places, extents: Places) -> None:
        """Refuse layouts whose fields lie outside of their tables."""
        counts = (lengths - 4) // 2
        self.layouts += int(lengths.sum())
        if self.layouts > 2 * self.size + MOST_TEXT:
            raise ModelError("no LiteRT file: the layouts of its tables share their bytes")
        known = SCHEMA[kind]
        widths = np.ones(MOST_TEXT // 2, np.int64)
        for number, form in known.items():
            widths[number] = form if isinstance(form, int) else 4
        firsts = np.concatenate(([0], np.cumsum(counts)))
        for start in range(0, int(firsts[-1]), AT_ONCE):
            places = np.arange(start, min(start + AT_ONCE, int(firsts[-1])))
            owner = np.searchsorted(firsts, places, side="right") - 1
            numbers = places - firsts[owner]
            found = self.number(layouts[owner] + 4 + 2 * numbers, 2)
            wrong = (found > 0) & ((found < 4) | (found + widths[numbers] > extents[owner]))
            _refuse(
                wrong,
                lambda i, numbers=numbers, owner=owner: (  # type: ignore[misc]
                    f"field {int(numbers[i])} of the table with the layout at byte "
                    f"{int(layouts[owner[i]])} is not in it"
                ),
            )

    def field(self, form: "str | tuple[int | str]", at: Places) -> None:
        """Walk what fields lead to."""
        if form == _TEXT:
            self.text(_once(at))
        elif isinstance(form, str):
            self.enter(form, at)
        else:
            self.vector(form[0], at)

    def text(self, at: Places) -> None:
        """Check strings."""
        counts = self.number(at, 4)
        self.inside(at + 4, counts)
        if (counts > MOST_TEXT).any():
            first = int(np.argmax(counts > MOST_TEXT))
            raise ModelError(
                f"a name at byte {int(at[first])} has {int(counts[first])} bytes; {MOST_TEXT} are the limit"
            )
        self.texts += int(counts.sum())
        if self.texts > 2 * self.size + MOST_TEXT:
            raise ModelError("no LiteRT file: its names share their bytes")
        for start, count in zip((at + 4).tolist(), counts.tolist(), strict=True):
            try:
                self.data[start : start + count].decode()
            except UnicodeDecodeError as error:
                raise ModelError(f"a name at byte {start + error.start} is no UTF-8") from None

    def vector(self, item: int | str, at: Places) -> None:
        """Walk vectors."""
        counts = self.number(at, 4)
        width = item if isinstance(item, int) else 4
        self.inside(at + 4, counts * width)
        if width > 1:
            self.items += int(counts.sum())
        if self.items > MOST_ITEMS:
            raise ModelError(f"too big to read at byte {int(at[0])}: at most {MOST_ITEMS} items of vectors")
        if not isinstance(item, str) or not at.size:
            return
        if self.tables_found + counts.sum() > MOST_TABLES:
            raise ModelError(f"too big to read at byte {int(at[0])}: at most {MOST_TABLES} tables")
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
        self.enter(item, self.offsets(np.repeat(at + 4, counts) + 4 * within))


def _once(places: Places) -> Places:
    """Each of some places once, in order; numpy's `unique` hashes, which takes ten times as long here."""
    found = np.sort(places)
    return found[np.append(True, found[1:] != found[:-1])] if found.size else found


def _refuse(wrong: npt.NDArray[np.bool_], words: Callable[[int], str]) -> None:
    """Refuse a file where something is wrong, in the words for the first thing that is."""
    if wrong.any():
        raise ModelError(f"no LiteRT file: {words(int(np.argmax(wrong)))}")
