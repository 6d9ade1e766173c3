"""The messages of an ONNX file that a scan walks, by field: what each opens, and what is noted of it.

As expressions that pass runs of fields in which there is nothing to see, and as a table for numpy.
Source: onnx.proto; protobuf's encoding.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

TEXT: Final = "text"
MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    "attribute": {
        1: TEXT,
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        14: "type",
        15: "type",
        21: TEXT,
        22: "sparse",
        23: "sparse",
    },
    "function": {1: TEXT, 4: TEXT, 5: TEXT, 6: TEXT, 7: "node", 10: TEXT, 11: "attribute", 12: "info"},
    "graph": {1: "node", 2: TEXT, 5: "tensor", 11: "info", 12: "info", 13: "info", 15: "sparse"},
    "info": {1: TEXT, 2: "type"},
    "map": {2: "type"},
    "model": {7: "graph", 20: "training", 25: "function"},
    "node": {1: TEXT, 2: TEXT, 3: TEXT, 4: TEXT, 5: "attribute", 7: TEXT},
    "sequence": {1: "type"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {8: TEXT},
    "training": {1: "graph", 2: "graph"},
    "type": {4: "sequence", 5: "map", 9: "sequence"},
}
DIMS: Final[Mapping[str, int]] = {"sparse": 3, "tensor": 1}
DATA: Final = frozenset({4, 5, 6, 7, 9, 10, 11})
EXTERNAL: Final = 14

_WHOLE_NUMBER: Final = rb"(?:[\x80-\xff]{0,9}+[\x00-\x7f])"
_SHORT: Final = b"(?:" + b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(128)) + b")"
_BODIES: Final = {0: _WHOLE_NUMBER, 1: b".{8}", 2: _SHORT, 5: b".{4}"}


Run: TypeAlias = Callable[[bytes, int, int], re.Match[bytes]]


def _run_of(numbers: Iterable[int], *, opened: Collection[int] = ()) -> Run:
    """Fields of some numbers, one after the other, in one look; of those that are `opened` numbers alone.

    Tags have one byte, texts and packed values at most 127: what is left is walked.
    """
    found = [
        (wire, [number for number in numbers if not (wire == LENGTH and number in opened)])
        for wire in _BODIES
    ]
    fields = [
        b"[%b]" % b"".join(b"\\x%02x" % (number << 3 | wire) for number in own) + _BODIES[wire]
        for wire, own in found
        if own
    ]
    # No fields are a run too, so there always is a match.
    return cast("Run", re.compile(b"(?:" + b"|".join(fields) + b")*+", re.DOTALL).match)


def _noted(kind: str) -> frozenset[int]:
    return frozenset({DIMS[kind], *(() if kind == "sparse" else (*DATA, EXTERNAL))}) & _SHORT_TAGS


LENGTH: Final = 2
_SHORT_TAGS: Final = frozenset(range(16))
RUNS: Final = {
    kind: _run_of(
        sorted(_SHORT_TAGS - (_noted(kind) if kind in DIMS else frozenset())),
        opened=[number for number, what in fields.items() if what is not TEXT],
    )
    for kind, fields in MESSAGES.items()
}
"""Of each message, the fields of which nothing is noted and that open nothing."""
HELD: Final = _run_of(sorted(DATA))


OPENED: Final = tuple(sorted({what for fields in MESSAGES.values() for what in fields.values()} - {TEXT}))
"""Messages that fields open, in the order of their numbers in `ACTS`, from 1 on."""
DIM, RARE, HOLDS, REFERS = 100, 101, 102, 103
LAST_KEY: Final = (1 << 14) - 1
"""Of what no message has; whatever is beyond counts as this."""


def _acts() -> npt.NDArray[np.uint8]:
    """By message, and number and wire type of a field: what it opens, or what is noted of it."""
    acts = np.zeros((len(OPENED) + 1, LAST_KEY + 1), np.uint8)
    acts[:, LAST_KEY] = RARE
    for place, kind in enumerate(("model", *OPENED)):
        for number, what in MESSAGES[kind].items():
            if what is not TEXT:
                acts[place, number << 3 | LENGTH] = OPENED.index(what) + 1
        if kind in DIMS:
            acts[place, DIMS[kind] << 3] = DIM
            acts[place, DIMS[kind] << 3 | LENGTH] = RARE
        if kind == "tensor":
            for number in DATA:
                acts[place, number << 3 : (number + 1) << 3] = HOLDS
            acts[place, EXTERNAL << 3 : (EXTERNAL + 1) << 3] = RARE
            acts[place, EXTERNAL << 3] = REFERS
    return acts


ACTS: Final = _acts()
