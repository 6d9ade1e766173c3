"""A scan of ONNX files before anything parses them: their wire format by a table of its messages.

Nothing is built; the time is linear in the bytes: a step for each message, one look for the fields between.
Bounded are depth, counts and texts, and a tensor's bytes have to hold the shape it claims. Source: design 06,
"Untrusted input"; protobuf's wire format; onnx.proto.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeAlias, cast

from planner.errors import ModelError

MAX_DEPTH: Final = 64
MAX_FIELDS: Final = 20_000_000
MAX_NODES: Final = 500_000
FREE_STEPS: Final = 200_000
BYTES_A_STEP: Final = 12
"""Bytes of a message, on average, beyond the first so many: real models have 40 and more."""
MAX_TEXT: Final = 65_536
MAX_ELEMENTS: Final = 1 << 40
MAX_SPARSE: Final = 1 << 24
_ELEMENTS_PER_BYTE: Final = 8

_TEXT: Final = "text"
_MESSAGES: Final[Mapping[str, Mapping[int, str]]] = {
    "attribute": {
        1: _TEXT,
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        14: "type",
        15: "type",
        21: _TEXT,
        22: "sparse",
        23: "sparse",
    },
    "function": {1: _TEXT, 4: _TEXT, 5: _TEXT, 6: _TEXT, 7: "node", 10: _TEXT, 11: "attribute", 12: "info"},
    "graph": {1: "node", 2: _TEXT, 5: "tensor", 11: "info", 12: "info", 13: "info", 15: "sparse"},
    "info": {1: _TEXT, 2: "type"},
    "map": {2: "type"},
    "model": {7: "graph", 20: "training", 25: "function"},
    "node": {1: _TEXT, 2: _TEXT, 3: _TEXT, 4: _TEXT, 5: "attribute", 7: _TEXT},
    "sequence": {1: "type"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {8: _TEXT},
    "training": {1: "graph", 2: "graph"},
    "type": {4: "sequence", 5: "map", 9: "sequence"},
}
_DIMS: Final[Mapping[str, int]] = {"sparse": 3, "tensor": 1}
_DATA: Final = frozenset({4, 5, 6, 7, 9, 10, 11})
_EXTERNAL: Final = 14
_EXTERNAL_DATA: Final = 1


class _Open:
    """A message being walked: its kind and end, and of a tensor its dims and bytes held."""

    __slots__ = ("dims", "end", "external", "held", "kind")

    def __init__(self, kind: str, end: int) -> None:
        self.kind = kind
        self.end = end
        self.dims: list[int] = []
        self.held = 0
        self.external = False


_WHOLE_NUMBER: Final = rb"(?:[\x80-\xff]{0,9}+[\x00-\x7f])"
_SHORT: Final = b"(?:" + b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(128)) + b")"
_BODIES: Final = {0: _WHOLE_NUMBER, 1: b".{8}", 2: _SHORT, 5: b".{4}"}


_Run: TypeAlias = Callable[[bytes, int, int], re.Match[bytes]]


def _run_of(numbers: Iterable[int], *, opened: Collection[int] = ()) -> _Run:
    """Fields of some numbers, one after the other, in one look; of those that are `opened` numbers alone.

    Tags have one byte, texts and packed values at most 127: what is left is walked.
    """
    found = [
        (wire, [number for number in numbers if not (wire == _LENGTH and number in opened)])
        for wire in _BODIES
    ]
    fields = [
        b"[%b]" % b"".join(b"\\x%02x" % (number << 3 | wire) for number in own) + _BODIES[wire]
        for wire, own in found
        if own
    ]
    # No fields are a run too, so there always is a match.
    return cast("_Run", re.compile(b"(?:" + b"|".join(fields) + b")*+", re.DOTALL).match)


def _noted(kind: str) -> frozenset[int]:
    return frozenset({_DIMS[kind], *(() if kind == "sparse" else (*_DATA, _EXTERNAL))}) & _SHORT_TAGS


_LENGTH: Final = 2
_SHORT_TAGS: Final = frozenset(range(16))
_RUNS: Final = {
    kind: _run_of(
        sorted(_SHORT_TAGS - (_noted(kind) if kind in _DIMS else frozenset())),
        opened=[number for number, what in fields.items() if what is not _TEXT],
    )
    for kind, fields in _MESSAGES.items()
}
"""Of each message, the fields of which nothing is noted and that open nothing."""
_HELD: Final = _run_of(sorted(_DATA))


def scan_onnx(data: bytes, *, whole: bool = False) -> None:
    """Refuse an ONNX file whose wire format is broken, or claims more than its bytes can hold.

    Fields that open nothing are passed in runs; the others take a step each, and steps are bounded by the
    bytes they are made of, so that junk of tiny messages costs no more time than a model of its length.

    Args:
      whole: also refuse tensors whose numbers lie in another file.

    Raises:
      ModelError: what and at which byte; nested too deep, too many fields or nodes, too many messages for
        their bytes, a name too long, a tensor with fewer bytes than its dimensions claim.
    """
    position, fields, nodes, steps = 0, 0, 0, 0
    stack = [_Open("model", len(data))]
    while stack:
        here = stack[-1]
        run = _RUNS[here.kind](data, position, here.end).end()
        if here.kind == "tensor":
            run = _pass_numbers(data, run, here)
        fields, position = fields + (run - position) // 2, run
        if position >= here.end:
            done = stack.pop()
            if whole and done.external:
                raise ModelError(f"the tensor that ends at byte {position} has its numbers in another file")
            _close(done, position)
            continue
        fields += 1
        steps += 1
        tag = data[position]
        tag, position = (tag, position + 1) if tag < 0x80 else _varint(data, position, here.end)
        number, wire = tag >> 3, tag & 7
        if wire != _LENGTH:
            start = position
            value, position = _skip(data, position, here.end, wire)
            _note(here, number, [value] if wire == 0 else [], position - start)
        else:
            length, position = _varint(data, position, here.end)
            if length > here.end - position:
                raise ModelError(
                    f"no ONNX model, or a truncated one: byte {position} promises {length} bytes, "
                    f"{here.end - position} are left"
                )
            kind = _MESSAGES[here.kind].get(number)
            if kind is None:
                dims = _DIMS.get(here.kind) == number
                packed = _packed(data, position, position + length) if dims else []
                _note(here, number, packed, length + 1)
                position += length
            elif kind is _TEXT:
                if length > MAX_TEXT:
                    raise ModelError(
                        f"a name at byte {position} has {length} bytes; {MAX_TEXT} are the limit"
                    )
                position += length
            else:
                nodes += kind == "node"
                end = position + length
                is_leaf = kind not in _DIMS and _RUNS[kind](data, position, end).end() == end
                if is_leaf and len(stack) < MAX_DEPTH:
                    fields, position = fields + length // 2, end
                else:
                    stack.append(_Open(kind, end))
        if len(stack) > MAX_DEPTH or fields > MAX_FIELDS or nodes > MAX_NODES:
            raise ModelError(
                f"too big to read at byte {position}: at most {MAX_DEPTH} messages deep, {MAX_FIELDS} fields "
                f"and {MAX_NODES} nodes"
            )
        if steps > FREE_STEPS + position // BYTES_A_STEP:
            raise ModelError(
                f"too big to read: the messages before byte {position} "
                f"have fewer than {BYTES_A_STEP} bytes each"
            )


def _pass_numbers(data: bytes, position: int, here: _Open) -> int:
    """Pass the numbers that a tensor holds; where they end."""
    end = _HELD(data, position, here.end).end()
    here.held += end - position
    return end


def _note(here: _Open, number: int, values: list[int], size: int) -> None:
    if here.kind not in _DIMS:
        return
    if number == _DIMS[here.kind]:
        here.dims += values
        if len(here.dims) > MAX_DEPTH:
            raise ModelError(f"a tensor of more than {MAX_DEPTH} dimensions")
    elif here.kind == "tensor" and number in _DATA:
        here.held += size
    elif here.kind == "tensor" and number == _EXTERNAL:
        # protobuf keeps the lower 32 bits of an enumeration, however it was spelled.
        here.external = any(value & 0xFFFFFFFF == _EXTERNAL_DATA for value in values)


def _close(done: _Open, position: int) -> None:
    if done.kind not in _DIMS:
        return
    elements = 1
    for dim in done.dims:
        elements *= dim if dim < 1 << 63 else 0
    limit = MAX_SPARSE if done.kind == "sparse" else MAX_ELEMENTS
    if done.kind == "tensor" and not done.external:
        limit = min(limit, done.held * _ELEMENTS_PER_BYTE)
    if elements > limit and elements != 1:
        held = f", its {done.held} bytes hold less" if done.kind == "tensor" else ""
        raise ModelError(f"the tensor that ends at byte {position} claims {elements} elements{held}")


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ModelError(f"no ONNX model, or a truncated one: no whole number ends at byte {position}")


def _skip(data: bytes, position: int, end: int, wire: int) -> tuple[int, int]:
    if wire == 0:
        return _varint(data, position, end)
    size = {1: 8, 5: 4}.get(wire)
    if size is None:
        raise ModelError(f"no ONNX model: wire type {wire} before byte {position}")
    if size > end - position:
        raise ModelError(f"no ONNX model, or a truncated one: it ends inside a field at byte {position}")
    return 0, position + size


def _packed(data: bytes, position: int, end: int) -> list[int]:
    found = []
    while position < end:
        value, position = _varint(data, position, end)
        found.append(value)
        if len(found) > MAX_DEPTH:
            raise ModelError(f"a tensor of more than {MAX_DEPTH} dimensions at byte {position}")
    return found
