"""Scan of an ONNX file before protobuf has it: its wire format, walked by a table of its messages.

Nothing is built. Messages of which a stretch of the file has many are walked together, field by field, in
numpy (`wire_windows`); what is rare, and everything that is wrong, is walked byte by byte, and judged there.
Source: design 06, "Untrusted input"; protobuf's encoding; onnx.proto.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from api.intake.onnx_messages import (
    ACTS,
    DATA,
    DIM,
    DIMS,
    EXTERNAL,
    HELD,
    HOLDS,
    LAST_KEY,
    LENGTH,
    MESSAGES,
    OPENED,
    RARE,
    REFERS,
    RUNS,
    TEXT,
)
from api.intake.wire_windows import EXACT, Places, Window
from planner.errors import ModelError

MAX_DEPTH: Final = 64
MAX_FIELDS: Final = 20_000_000
MAX_NODES: Final = 500_000
FREE_STEPS: Final = 200_000
BYTES_A_STEP: Final = 12
"""Bytes of a message, on average, beyond the first so many: real models have 40 and more."""
BYTES_A_LONE_STEP: Final = 40
"""Bytes for each step that serves one message alone, beyond the first so many."""
MAX_TEXT: Final = 65_536
MAX_ELEMENTS: Final = 1 << 40
MAX_SPARSE: Final = 1 << 24
_ELEMENTS_PER_BYTE: Final = 8

FEW: Final = 16
"""Messages that are not worth walking together."""
SHORT: Final = 2048
"""Bytes of a message whose fields are not worth finding together."""
ROUNDS: Final = 64
"""Fields of messages that are walked together; who has more is walked alone."""
ROUND_STEPS, STRETCH_STEPS = 16, 40
"""Lone steps that take as long as what numpy does for a round, and for a stretch."""

_PLACES: Final = {kind: place for place, kind in enumerate(("model", *OPENED))}
_NODE, _TENSOR, _SPARSE = (_PLACES[kind] for kind in ("node", "tensor", "sparse"))


class _Open:
    """A message being walked: its kind and end, and of a tensor its dims and bytes held."""

    __slots__ = ("dims", "end", "external", "held", "kind")

    def __init__(self, kind: str, end: int) -> None:
        self.kind = kind
        self.end = end
        self.dims: list[int] = []
        self.held = 0
        self.external = False


def scan_onnx(data: bytes, *, whole: bool = False) -> None:
    """Refuse an ONNX file whose wire format is broken, or claims more than its bytes can hold.

    Messages are bounded by the bytes they are made of, and so are steps for one message alone: junk of tiny
    messages costs no more time than a model of its length.

    Args:
      whole: also refuse tensors whose numbers lie in another file.

    Raises:
      ModelError: what and at which byte; nested too deep, too many fields or nodes, too many messages for
        their bytes, a name too long, a tensor with fewer bytes than its dimensions claim.
    """
    _Scan(data, whole=whole).walk("model", 0, len(data), 1)


class _Scan:
    """One file, and what was counted in it."""

    def __init__(self, data: bytes, *, whole: bool) -> None:
        self.data = data
        self.whole = whole
        self.fields = self.nodes = self.messages = self.alone = 0
        self.window: Window | None = None

    def walk(self, kind: str, position: int, end: int, depth: int) -> None:
        """Walk a message and all in it.

        Raises:
          ModelError: see `scan_onnx`.
        """
        data = self.data
        stack = [_Open(kind, end)]
        blocked = -1
        while stack:
            here = stack[-1]
            run = RUNS[here.kind](data, position, here.end).end()
            if here.kind == "tensor":
                run = _pass_numbers(data, run, here)
            self.fields, position = self.fields + (run - position) // 2, run
            if position >= here.end:
                done = stack.pop()
                if self.whole and done.external:
                    raise ModelError(
                        f"the tensor that ends at byte {position} has its numbers in another file"
                    )
                _close(done, position)
                continue
            if here.end - position >= SHORT and here.kind not in DIMS and position > blocked:
                reached = self._stretch(here, position, depth + len(stack))
                if reached > position:
                    position = reached
                    continue
                blocked = position + SHORT // 4
            position = self._step(stack, position, depth)

    def _step(self, stack: list[_Open], position: int, depth: int) -> int:
        """Pass a field, or enter it; the place from which to go on."""
        data, here = self.data, stack[-1]
        self.fields += 1
        self.messages += 1
        self.alone += 1
        tag = data[position]
        tag, position = (tag, position + 1) if tag < 0x80 else _varint(data, position, here.end)
        number, wire = tag >> 3, tag & 7
        if wire != LENGTH:
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
            kind = MESSAGES[here.kind].get(number)
            if kind is None:
                dims = DIMS.get(here.kind) == number
                packed = _packed(data, position, position + length) if dims else []
                _note(here, number, packed, length + 1)
                position += length
            elif kind is TEXT:
                if length > MAX_TEXT:
                    raise ModelError(
                        f"a name at byte {position} has {length} bytes; {MAX_TEXT} are the limit"
                    )
                position += length
            else:
                self.nodes += kind == "node"
                end = position + length
                is_leaf = kind not in DIMS and RUNS[kind](data, position, end).end() == end
                if is_leaf and depth + len(stack) <= MAX_DEPTH:
                    self.fields, position = self.fields + length // 2, end
                else:
                    stack.append(_Open(kind, end))
        self._require(position, depth + len(stack) - 1)
        return position

    def _require(self, position: int, depth: int) -> None:
        if depth > MAX_DEPTH or self.fields > MAX_FIELDS or self.nodes > MAX_NODES:
            raise ModelError(
                f"too big to read at byte {position}: at most {MAX_DEPTH} messages deep, {MAX_FIELDS} fields "
                f"and {MAX_NODES} nodes"
            )
        for steps, least in ((self.messages, BYTES_A_STEP), (self.alone, BYTES_A_LONE_STEP)):
            if steps > FREE_STEPS + position // least:
                raise ModelError(
                    f"too big to read: the messages before byte {position} have fewer than {least} bytes each"
                )

    def _stretch(self, here: _Open, position: int, depth: int) -> int:
        """Pass the fields of a message that lie in one window, and all that is in them; where they end.

        Args:
          depth: of the messages that the fields open.
        """
        window = self._window_at(position)
        self.alone += STRETCH_STEPS
        starts = window.fields(position - window.first, min(here.end - window.first, window.size))
        kind = _PLACES[here.kind]
        acts = ACTS[kind][np.minimum(window.keys(starts), LAST_KEY)]
        if (acts == RARE).any():
            kept = int(np.argmax(acts == RARE))
            starts, acts = starts[:kept], acts[:kept]
        if not starts.size:
            return position
        opening = starts[acts > 0]
        self.fields += starts.size
        reached = window.first + int(window.next_[starts[-1]])
        if opening.size:
            self._together(window, acts[acts > 0], opening, reached, depth)
        return reached

    def _window_at(self, position: int) -> Window:
        found = self.window
        good = 0 if found is None else found.size if found.reaches_end else found.size // 2
        if found is None or not found.first <= position < found.first + good:
            found = self.window = Window(self.data, position)
        return found

    def _together(
        self, window: Window, kinds: npt.NDArray[np.uint8], fields: Places, reached: int, depth: int
    ) -> None:
        """Walk messages of one window, all of one depth, and what is in them.

        Args:
          kinds, fields: of each message what it is, and the field that it is the content of.
          reached: the byte of the file before which all of them end.
        """
        starts, ends = window.bodies(fields), window.next_[fields]
        self.messages += fields.size
        self.nodes += int(np.count_nonzero(kinds == _NODE))
        self._require(reached, depth)
        alone = np.ones(fields.size, np.bool_)
        if fields.size >= FEW and depth < MAX_DEPTH:
            round_ = _Rounds(window, kinds, starts, ends, whole=self.whole)
            self.alone += ROUND_STEPS * round_.walk()
            alone = round_.alone
            self.fields += int(round_.passed[~alone].sum())
            inner_kinds, inner = round_.opened()
            if inner.size:
                self._together(window, inner_kinds, inner, reached, depth + 1)
        for one in np.flatnonzero(alone).tolist():
            first, end = window.first + int(starts[one]), window.first + int(ends[one])
            self.alone += 1
            self.walk(OPENED[int(kinds[one]) - 1], first, end, depth)
            self._require(reached, depth)


class _Rounds:
    """Messages that are walked together: in each round one field of each.

    Attributes:
      alone: those that have to be walked alone instead; what was opened in them is forgotten.
      passed: fields of each.
    """

    def __init__(
        self,
        window: Window,
        kinds: npt.NDArray[np.uint8],
        starts: Places,
        ends: Places,
        *,
        whole: bool,
    ) -> None:
        count = kinds.size
        self.window, self.kinds, self.ends, self.whole = window, kinds, ends, whole
        self.place = starts.copy()
        self.passed = np.zeros(count, np.int64)
        self.alone = np.zeros(count, np.bool_)
        self.elements = np.ones(count)
        self.dims = np.zeros(count, np.int64)
        self.held = np.zeros(count, np.int64)
        self.external = np.zeros(count, np.bool_)
        self.found: list[tuple[Places, Places, npt.NDArray[np.uint8]]] = []

    def walk(self) -> int:
        """Walk all, and judge the tensors; how many rounds it took."""
        rounds = 0
        going = np.flatnonzero(self.place < self.ends)
        while going.size >= FEW and rounds < ROUNDS:
            going = self._round(going)
            rounds += 1
        self.alone[going] = True
        is_tensor, is_sparse = self.kinds == _TENSOR, self.kinds == _SPARSE
        if is_tensor.any() or is_sparse.any():
            held = np.minimum(self.held * _ELEMENTS_PER_BYTE, MAX_ELEMENTS)
            most = np.where(self.external, MAX_ELEMENTS, held)
            most[is_sparse] = MAX_SPARSE
            too_many = (self.elements > most) & (self.elements != 1)
            wrong = too_many | (self.dims > MAX_DEPTH) | (self.external & self.whole)
            self.alone |= wrong & (is_tensor | is_sparse)
        return rounds

    def opened(self) -> tuple[npt.NDArray[np.uint8], Places]:
        """The fields that open messages, with what each opens."""
        if not self.found:
            return np.zeros(0, np.uint8), np.zeros(0, np.int64)
        owners, fields, acts = (np.concatenate(part) for part in zip(*self.found, strict=True))
        kept = ~self.alone[owners]
        return acts[kept], fields[kept]

    def _round(self, going: Places) -> Places:
        """Pass the next field of each of some messages; those that have another one."""
        fields = self.place[going]
        nexts, ends = self.window.next_[fields], self.ends[going]
        acts = ACTS[self.kinds[going], np.minimum(self.window.keys(fields), LAST_KEY)]
        wrong = nexts > ends
        if acts.any():
            wrong |= self._note(going, fields, nexts, np.where(wrong, 0, acts))
        self.place[going] = nexts
        self.passed[going] += 1
        self.alone[going[wrong]] = True
        return going[~wrong & (nexts < ends)]

    def _note(
        self, going: Places, fields: Places, nexts: Places, acts: npt.NDArray[np.uint8]
    ) -> npt.NDArray[np.bool_]:
        """Note what fields hold or open; which of them are rare."""
        rare: npt.NDArray[np.bool_] = acts == RARE
        opens = (acts > 0) & (acts < DIM)
        if opens.any():
            self.found.append((going[opens], fields[opens], acts[opens]))
        dims = acts == DIM
        if dims.any():
            number = self.window.numbers(fields)
            rare |= dims & (number >= EXACT)
            self.elements[going[dims]] *= number[dims]
            self.dims[going[dims]] += 1
        holds = acts == HOLDS
        self.held[going[holds]] += nexts[holds] - fields[holds]
        refers = acts == REFERS
        self.external[going[refers]] = self.window.numbers(fields[refers]) == 1
        return rare


def _pass_numbers(data: bytes, position: int, here: _Open) -> int:
    """Pass the numbers that a tensor holds; where they end."""
    end = HELD(data, position, here.end).end()
    here.held += end - position
    return end


def _note(here: _Open, number: int, values: list[int], size: int) -> None:
    if here.kind not in DIMS:
        return
    if number == DIMS[here.kind]:
        here.dims += values
        if len(here.dims) > MAX_DEPTH:
            raise ModelError(f"a tensor of more than {MAX_DEPTH} dimensions")
    elif here.kind == "tensor" and number in DATA:
        here.held += size
    elif here.kind == "tensor" and number == EXTERNAL:
        here.external = values == [1]


def _close(done: _Open, position: int) -> None:
    if done.kind not in DIMS:
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
