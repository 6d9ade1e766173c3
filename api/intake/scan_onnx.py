"""A scan of ONNX files before anything parses them: their wire format by a table of its messages.

Nothing is built; the time is linear in the bytes: a step for each message, one look for the fields between.
Bounded are depth, counts and texts, and a tensor's bytes have to hold the shape it claims. Source:
docs/service.md; protobuf's wire format; onnx.proto.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Final, NoReturn, TypeAlias, cast

from planner.errors import ModelError, quantity

MAX_DEPTH: Final = 64
MAX_FIELDS: Final = 20_000_000
MAX_NODES: Final = 500_000
FREE_STEPS: Final = 400_000
BYTES_A_STEP: Final = 64
"""Bytes of a step of work, on average, beyond the first so many steps; real models have 10 and more without
their weights (`benchmarks.scanners`), so that graphs of 50,000 nodes with a small tensor each need
none, and of 100,000 without.
"""
MAX_TEXT: Final = 65_536
MAX_DIMS: Final = 64
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
_SPARSE_DIMS: Final = 3
_DATA: Final = frozenset({4, 5, 6, 7, 9, 10, 11})
_SINGLE: Final[Mapping[int, int]] = {5: 1, 22: 2}
"""Fields of an attribute of which parsers join two: its tensor, dense and sparse; a bit for each."""
_TENSORS: Final = frozenset({"sparse", "tensor"})
_RAW: Final = 9 << 3 | 2
_EXTERNAL: Final = 14
_EXTERNAL_DATA: Final = 1


_TWO_BYTES: Final = 1 << 14
_NUMBER: Final = 0
_LENGTH: Final = 2
_WHOLE_NUMBER: Final = rb"(?:[\x80-\xff]{0,9}+[\x00-\x7f])"
_SHORT: Final = b"(?:" + b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(128)) + b")"
_BODIES: Final = {_NUMBER: _WHOLE_NUMBER, 1: b".{8}", _LENGTH: _SHORT, 5: b".{4}"}
_ANY: Final = frozenset(range(16))
_ALSO: Final = {
    "attribute": [rb"\xa0\x01[\x00-\x7f]"],  # its type: in every one, the only usual tag of two bytes
    "info": [  # a short type of one field, which says what a tensor holds: nearly every value has one
        b"\\x12(?:%b)"
        % b"|".join(b"\\x%02x\\x0a\\x%02x.{%d}" % (size + 2, size, size) for size in range(126))
    ],
}

_INFO_BYTES: Final = 48
_ATTRIBUTE_BYTES: Final = 40
_NAME_BYTES: Final = 16
"""Up to here messages of one form are passed together with those beside them; nearly all real ones are."""

_Run: TypeAlias = Callable[[bytes, int, int], re.Match[bytes]]


def _fields(numbers: Iterable[int], *, but: Iterable[int] = ()) -> bytes:
    """A pattern of one field of these numbers; of `but`, whose bytes are looked into, numbers alone.

    Tags have one byte, texts and packed values at most 127: what is left is walked. Empty texts, of which the
    most fit into a byte, are a loop of their own.
    """
    opened = frozenset(but)
    found = []
    for wire, body in _BODIES.items():
        own = [n for n in sorted(numbers) if not (wire == _LENGTH and n in opened)]
        tags = b"[%b]" % b"".join(b"\\x%02x" % (number << 3 | wire) for number in own)
        found += [b"(?:%b\\x00)++" % tags] if own and wire == _LENGTH else []
        found += [tags + body] if own else []
    return b"|".join(found)


def _short_infos() -> bytes:
    """A pattern of a name and a type of one field: where the name ends, the lengths of all are known."""
    lengths = []
    for size in range(6, _INFO_BYTES):
        rest = ((name, size - name - 4) for name in range(size - 5))
        ways = (b"\\x%02x.{%d}\\x12\\x%02x\\x0a\\x%02x.{%d}" % (n, n, t, t - 2, t - 2) for n, t in rest)
        lengths.append(b"\\x%02x\\x0a(?:%b)" % (size, b"|".join(ways)))
    return b"[\\x5a\\x62\\x6a](?:%b)" % b"|".join(lengths)


def _short_attributes() -> bytes:
    """A pattern of a name, a value and its type: a number, a real, a text, whole numbers of a byte each."""
    lengths = []
    for size in range(7, _ATTRIBUTE_BYTES):
        ways = []
        for name in range(min(_NAME_BYTES, size - 6)):
            value = size - name - 5
            forms = [b"\\x22\\x%02x.{%d}" % (value - 2, value - 2)]
            forms += [b"(?:[\\x18\\x40][\\x00-\\x7f]){%d}" % (value // 2)] if value % 2 == 0 else []
            forms += [b"\\x15.{4}"] if value == 5 else []
            ways.append(b"\\x%02x.{%d}(?:%b)" % (name, name, b"|".join(forms)))
        lengths.append(b"\\x%02x\\x0a(?:%b)" % (size, b"|".join(ways)))
    return rb"\x2a(?:%b)\xa0\x01[\x00-\x7f]" % b"|".join(lengths)


def _run_of(*fields: bytes) -> _Run:
    """Fields one after the other, in one look; none are a run too, so there always is a match."""
    return cast("_Run", re.compile(b"(?:" + b"|".join(fields) + b")*+", re.DOTALL).match)


_RUNS: Final = {
    kind: _run_of(
        _fields(_ANY, but=[number for number, what in fields.items() if what is not _TEXT]),
        *_ALSO.get(kind, []),
    )
    for kind, fields in _MESSAGES.items()
}
"""Of each message, the fields that open nothing."""
_OPENED: Final = {
    kind: {
        number << 3 | _LENGTH: what for number, what in fields.items() if what is not _TEXT and number < 16
    }
    for kind, fields in _MESSAGES.items()
}
"""Of each message, what its tags of one byte open."""
TOGETHER: Final = {
    "attribute": cast("_Run", re.compile(b"(?:%b)*+" % _short_attributes(), re.DOTALL).match),
    "info": cast("_Run", re.compile(b"(?:%b)*+" % _short_infos(), re.DOTALL).match),
}
"""Of messages that come in rows, those of the usual form, one after the other in one look."""
_PLAIN: Final = _fields(_ANY - _DATA - {1, _EXTERNAL})
_PASSED: Final = _run_of(_PLAIN)
_HELD: Final = _run_of(_fields(_DATA))
_TENSOR: Final = cast(
    "_Run",
    re.compile(
        b"((?:\\x08%b)*+)(?:%b)*+((?:%b)*+)(?:%b)*+(?:\\x70([\\x00\\x01]))?+"
        % (_WHOLE_NUMBER, _PLAIN, _fields(_DATA), _PLAIN),
        re.DOTALL,
    ).match,
)
"""A tensor as it is usually written: dims, its type and name, numbers or entries that name a file, where."""


def scan_onnx(data: bytes, *, whole: bool = False) -> None:
    """Refuse an ONNX file whose wire format is broken, or claims more than its bytes can hold.

    Fields that open nothing are passed in runs. A message, and whatever is spelled unusually, takes steps of
    about a microsecond, and those are bounded by the length of the file, so that junk takes no more time than
    a model of its length.

    Args:
      whole: also refuse tensors whose numbers lie in another file.

    Raises:
      ModelError: what and at which byte; nested too deep, too many fields or nodes, too many messages for
        its bytes, a name too long, a tensor with fewer bytes than its dimensions claim.
    """
    kind, position, end = "model", 0, len(data)
    work, fields, nodes = 0, 0, 0
    most = FREE_STEPS + end // BYTES_A_STEP
    last = end - 2
    outer: list[tuple[str, int, int]] = []
    told = 0  # which of `_SINGLE` an attribute has had
    while True:
        run, opened, alike = _RUNS[kind], _OPENED[kind], True
        while position < end:
            if work > most:
                _refuse(position, steps=True)
            tag = data[position]
            child = opened.get(tag) if position < last else None
            start, length = position + 2, 0
            if child is not None:
                length = data[position + 1]
                if length > 127:
                    length, start = length - 128 + 128 * data[start], start + 1
            stop = start + length
            if child is None or length >= _TWO_BYTES or stop > end:
                work += 1
                passed = run(data, position, end).end()
                if passed > position:
                    fields, position = fields + (passed - position) // 2, passed
                    if fields > MAX_FIELDS:
                        _refuse(position, steps=False)
                    continue
                work += 3
                tag, start, stop = _field(data, position, end)
                child = _MESSAGES[kind].get(tag >> 3) if tag & 7 == _LENGTH else None
                if child is None or child is _TEXT:
                    if child:
                        _check_text(start, stop)
                    position = stop
                    continue
            work += 1
            position = stop
            if child in _TENSORS:
                one = _SINGLE.get(tag >> 3, 0) if kind == "attribute" else 0
                if told & one:
                    _refuse_second(stop)
                told |= one
                scan = _scan_tensor if child == "tensor" else _scan_sparse
                work += scan(data, start, stop, most - work, len(outer) + 2, whole=whole)
                continue
            if child == "node":
                nodes += 1
                if nodes > MAX_NODES:
                    _refuse(position, steps=False)
            passed = _RUNS[child](data, start, stop).end()
            if passed == stop and child in TOGETHER and len(outer) + 3 < MAX_DEPTH and alike and stop < end:
                position = TOGETHER[child](data, stop, end).end()
                fields, alike = fields + (position - stop) // 2, position > stop
                if fields > MAX_FIELDS:
                    _refuse(position, steps=False)
                continue
            if passed < stop or len(outer) + 2 > MAX_DEPTH:
                outer.append((kind, end, told))
                if len(outer) >= MAX_DEPTH:
                    _refuse_depth(start)
                work += 1
                kind, position, end, told = child, passed, stop, 0
                break
        else:
            if not outer:
                break
            kind, end, told = outer.pop()
    if work > most:
        _refuse(position, steps=True)


def _refuse(position: int, *, steps: bool) -> NoReturn:
    if steps:
        raise ModelError(
            f"too big to read: at byte {position} its messages took more steps than a file of its length may "
            f"take, {FREE_STEPS} and one for each {BYTES_A_STEP} bytes"
        )
    raise ModelError(f"too big to read at byte {position}: at most {MAX_FIELDS} fields and {MAX_NODES} nodes")


def _refuse_second(position: int) -> NoReturn:
    """Refuse it: parsers join the dimensions of both, and keep the bytes of one."""
    raise ModelError(f"no ONNX model: a tensor comes a second time, before byte {position}, where one may be")


def _refuse_depth(position: int) -> NoReturn:
    raise ModelError(f"too big to read at byte {position}: at most {MAX_DEPTH} messages deep")


def _scan_tensor(data: bytes, position: int, end: int, left: int, depth: int, *, whole: bool) -> int:
    """Refuse a tensor that claims more than it holds; how many of the steps left that took, beyond one."""
    if depth > MAX_DEPTH:
        _refuse_depth(position)
    found, steps = _TENSOR(data, position, end), 2
    start, stop = found.span(2)
    held, external, position = stop - start, found[3] == b"\x01", found.end()
    dims: Sequence[int] = found[1][1::2]
    if not found[1].isascii():
        dims = _values(found[1])
        steps += len(found[1]) // 2
    if position < end and data[position] == _RAW:  # usually the last field, of any length
        _, start, position = _field(data, position, end)
        held, steps = held + position - start + 1, steps + 1
    if position < end:
        more, more_held, where, more_steps = _walk_tensor(data, position, end, left)
        dims, held, steps = [*dims, *more], held + more_held, steps + more_steps
        external = external if where is None else where
    if whole and external:
        raise ModelError(f"the tensor that ends at byte {end} has its numbers in another file")
    elements = _elements(dims, end)
    most = MAX_ELEMENTS if external else min(MAX_ELEMENTS, held * _ELEMENTS_PER_BYTE)
    if elements > most and elements != 1:
        raise ModelError(
            f"the tensor that ends at byte {end} claims {quantity(elements, 'element')}, its {held} "
            "bytes hold less"
        )
    return steps


def _values(run: bytes) -> list[int]:
    """The dimensions in a run of fields of one."""
    found, position = [], 0
    while position < len(run):
        value, position = _varint(run, position + 1, len(run))
        found.append(value)
        if len(found) > MAX_DIMS:
            break
    return found


def _walk_tensor(data: bytes, position: int, end: int, left: int) -> tuple[list[int], int, bool | None, int]:
    """Dimensions, bytes of numbers, whether they lie in another file where that is said, and steps taken."""
    dims: list[int] = []
    external: bool | None = None
    held, steps = 0, 2
    while True:
        position = _PASSED(data, position, end).end()
        passed = _HELD(data, position, end).end()
        held, position = held + passed - position, passed
        if position == end:
            return dims, held, external, steps
        if steps > left:
            _refuse(position, steps=True)
        tag, start, position = _field(data, position, end)
        number, wire = tag >> 3, tag & 7
        steps += 5
        if number == 1 and wire in (_NUMBER, _LENGTH):
            dims += _packed(data, start, position)
            steps += min(position - start, 10 * MAX_DIMS) // 2
            if len(dims) > MAX_DIMS:
                raise ModelError(f"a tensor of more than {MAX_DIMS} dimensions at byte {position}")
        elif number in _DATA:
            held += position - start + (wire == _LENGTH)
        elif number == _EXTERNAL and wire == _NUMBER:
            # protobuf keeps the lower 32 bits of an enumeration, and drops values that it does not know.
            value = _varint(data, start, position)[0] & 0xFFFFFFFF
            steps += position - start
            external = {0: False, _EXTERNAL_DATA: True}.get(value, external)
        elif wire == _LENGTH and _MESSAGES["tensor"].get(number) is _TEXT:
            _check_text(start, position)


def _scan_sparse(data: bytes, position: int, end: int, left: int, depth: int, *, whole: bool) -> int:
    """Refuse a sparse tensor that claims too much, or one of whose two tensors does; steps taken."""
    if depth > MAX_DEPTH:
        _refuse_depth(position)
    dims: list[int] = []
    told: set[int] = set()
    steps = 2
    while position < end:
        if steps > left:
            _refuse(position, steps=True)
        tag, start, position = _field(data, position, end)
        number, wire = tag >> 3, tag & 7
        steps += 3
        if number == _SPARSE_DIMS and wire in (_NUMBER, _LENGTH):
            dims += _packed(data, start, position)
            steps += min(position - start, 10 * MAX_DIMS) // 2
        elif wire == _LENGTH and number in _MESSAGES["sparse"]:
            if number in told:
                _refuse_second(position)
            told.add(number)
            steps += _scan_tensor(data, start, position, left - steps, depth + 1, whole=whole)
    elements = _elements(dims, end)
    if elements > MAX_SPARSE:
        raise ModelError(f"the tensor that ends at byte {end} claims {quantity(elements, 'element')}")
    return steps


def _elements(dims: Sequence[int], position: int) -> int:
    """How many there are of such dimensions; protobuf keeps the lower 64 bits, the highest is a sign."""
    if len(dims) > MAX_DIMS:
        raise ModelError(f"the tensor that ends at byte {position} has more than {MAX_DIMS} dimensions")
    if isinstance(dims, bytes):
        return prod(dims)
    known = [dim & 0xFFFF_FFFF_FFFF_FFFF for dim in dims]
    return 0 if any(dim >> 63 for dim in known) else prod(known)


def _check_text(start: int, stop: int) -> None:
    if stop - start > MAX_TEXT:
        raise ModelError(f"a name at byte {start} has {stop - start} bytes; {MAX_TEXT} are the limit")


def _field(data: bytes, position: int, end: int) -> tuple[int, int, int]:
    """The tag of a field, where its value starts and where it stops; protobuf keeps a tag's lower 32 bits."""
    tag, start = _varint(data, position, end)
    if tag & 7 != _LENGTH:
        return tag & 0xFFFFFFFF, start, _skip(data, start, end, tag & 7)
    length, start = _varint(data, start, end)
    if length > end - start:
        raise ModelError(
            f"no ONNX model, or a truncated one: byte {start} promises {length} bytes, {end - start} are left"
        )
    return tag & 0xFFFFFFFF, start, start + length


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ModelError(f"no ONNX model, or a truncated one: no whole number ends at byte {position}")


def _skip(data: bytes, position: int, end: int, wire: int) -> int:
    if wire == _NUMBER:
        return _varint(data, position, end)[1]
    size = {1: 8, 5: 4}.get(wire)
    if size is None:
        raise ModelError(f"no ONNX model: wire type {wire} before byte {position}")
    if size > end - position:
        raise ModelError(f"no ONNX model, or a truncated one: it ends inside a field at byte {position}")
    return position + size


def _packed(data: bytes, position: int, end: int) -> list[int]:
    found = []
    while position < end:
        value, position = _varint(data, position, end)
        found.append(value)
        if len(found) > MAX_DIMS:
            raise ModelError(f"a tensor of more than {MAX_DIMS} dimensions at byte {position}")
    return found
