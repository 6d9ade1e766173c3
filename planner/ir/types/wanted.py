"""Requests for a kernel rather than for a value: to run in float, or by a row with given storages.

Text: `float`, `any`, `dynamic`, `i16`, `{in: [i16, i8], out: [i16]}`. Source: docs/specification.md, section
11; docs/library.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from planner.errors import AnnotationError, QTypeError
from planner.ir.types.qtypes import EXPRESSED, FloatType, Storage
from planner.ir.types.typetext import parse_storage

Stored: TypeAlias = Storage | FloatType | None
"""The requested storage of a port; None is `*`, any storage that the row has."""

DYNAMIC: Final = "dynamic"
FORMS: Final = "float, any, a storage such as i16, or {in: [i16, i8], out: [i16]}, or dynamic"
_SIDES: Final = ("in", "out")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request for a kernel; `any` is an empty one: it exempts a name from a glob.

    Attributes:
      float: it runs in float.
      result: the storage of all results of its row.
      inputs, outputs: storages of the first ports of its row, as many as are listed.
      dynamic: its row quantizes the activation at run time.
    """

    float: bool = False
    result: Stored = None
    inputs: tuple[Stored, ...] = ()
    outputs: tuple[Stored, ...] = ()
    dynamic: bool = False

    @property
    def is_row(self) -> bool:
        """Whether a row is requested, by its storages or because it quantizes at run time."""
        return self.dynamic or self.result is not None or bool(self.inputs or self.outputs)

    def __str__(self) -> str:
        if self.float:
            return "float"
        if self.dynamic:
            return DYNAMIC
        if not (self.inputs or self.outputs):
            return "any" if self.result is None else str(self.result)
        return row_text(self.inputs, self.outputs)


def row_text(inputs: Iterable[Stored], outputs: Iterable[Stored]) -> str:
    """`{in: [i16, i8], out: [i16]}`."""
    sides = [(name, list(stores)) for name, stores in zip(_SIDES, (inputs, outputs), strict=True)]
    listed = (
        f"{name}: [{', '.join('*' if s is None else str(s) for s in stores)}]"
        for name, stores in sides
        if stores
    )
    return f"{{{', '.join(listed)}}}"


def is_stored_in(wanted: Stored, store: Stored) -> bool:
    """Whether this storage meets the request: `i8` stands for `i8<-127:127>` too, not the reverse."""
    if wanted is None or wanted == store:
        return True
    if not (isinstance(wanted, Storage) and isinstance(store, Storage)):
        return False
    return wanted.is_full and wanted.name == store.name


def wanted_at(wanted: Wanted, side: tuple[str, int]) -> Stored:
    """Return the requested storage of one port; None where there is none."""
    if wanted.result is not None:
        return wanted.result if side[0] == "out" else None
    stores = wanted.inputs if side[0] == "in" else wanted.outputs
    return stores[side[1]] if side[1] < len(stores) else None


def wanted_bits(wanted: Wanted, side: tuple[str, int]) -> int:
    """Return the requested bits of a port: those of its own storage, or of the results."""
    store = wanted.result if wanted.result is not None else wanted_at(wanted, side)
    return store.bits if isinstance(store, Storage) else 0


def wanted_from_data(data: Any) -> Wanted:
    """Read the request for a kernel, as annotations have it.

    Raises:
      AnnotationError: none of the accepted forms, or a text that is no storage.
    """
    if isinstance(data, Wanted):
        return data
    if isinstance(data, str):
        if data == DYNAMIC:
            return Wanted(dynamic=True)
        return Wanted(float=data == "float", result=None if data in ("float", "any") else _stored(data))
    sides = {side: data[side] for side in _SIDES if side in data} if isinstance(data, Mapping) else {}
    lists = all(
        isinstance(texts, list | tuple) and all(isinstance(t, str) for t in texts) for texts in sides.values()
    )
    if not sides or len(sides) != len(data) or not lists or not any(sides.values()):
        raise AnnotationError(f"{data!r:.60} is no request for a kernel; accepted: {FORMS}")
    inputs, outputs = (tuple(_stored(text) for text in sides.get(side, ())) for side in _SIDES)
    return Wanted(inputs=inputs, outputs=outputs)


def wanted_to_data(wanted: Wanted) -> Any:
    """Write what is asked of a kernel, for `wanted_from_data`."""
    if not (wanted.inputs or wanted.outputs):
        return str(wanted)
    sides = zip(_SIDES, (wanted.inputs, wanted.outputs), strict=True)
    return {
        side: ["*" if store is None else str(store) for store in stores] for side, stores in sides if stores
    }


def _stored(text: str) -> Stored:
    if text == "*":
        return None
    try:
        return FloatType(text) if text in EXPRESSED else parse_storage(text)
    except QTypeError as error:
        raise AnnotationError(f"{error.message}; accepted of a kernel: {FORMS}") from error
