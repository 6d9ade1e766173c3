"""Channels: whether samples have their channels where the model wants them.

Pictures come with channels last from most libraries, and most ONNX models want them first. Only words: no
sample is turned. Source: ONNX Conv.
"""

import math
from typing import Final

from planner.ir.graph import Graph, Shape
from planner.ir.types.fit import shape_text

_COLOURS: Final = (1, 3, 4)
_RANK: Final = 4
_CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose"})


def moved_hint(shape: tuple[int, ...], wanted: Shape) -> str:
    """Return what to do where a sample fits as soon as its channels are moved; "" where that does not help.

    Args:
      shape: of the sample, with its batch axis, without it, or of several samples along one more.
      wanted: of the input.
    """
    rank = len(wanted)
    if rank < 3:
        return ""
    for whole in (shape, (1, *shape)):
        if len(whole) not in (rank, rank + 1):
            continue
        before, inner = whole[: len(whole) - rank + 1], whole[len(whole) - rank + 1 :]
        for is_first, turned in ((True, (inner[-1], *inner[:-1])), (False, (*inner[1:], inner[0]))):
            if turned != inner and _fits(turned, wanted[1:]):
                here, there = (-1, 1 - rank) if is_first else (1 - rank, -1)
                moved = shape_text((*before, *turned)[len(whole) - len(shape) :])
                return (
                    f"transpose to {_layout(rank, is_first=is_first)}: np.moveaxis(x, {here}, {there}) has "
                    f"shape {moved}, which fits"
                )
    return ""


def open_channels_hint(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    """Return the fault of a sample that fits an input only because the size of its channels is open; else "".

    The convolutions that read the input say how many channels it has; where none does, pictures of one, three
    or four colours are known by a last axis of so many.
    """
    wanted = graph.values[name].shape
    if wanted is None or len(wanted) != len(shape) or len(shape) != _RANK or isinstance(wanted[1], int):
        return ""
    channels = _channels(graph, name)
    if shape[1] == channels or isinstance(wanted[-1], int):
        return ""
    is_last = shape[-1] == channels if channels else shape[-1] in _COLOURS and min(shape[1:3]) > max(_COLOURS)
    if not is_last:
        return ""
    told = f"the model reads {channels} channels" if channels else "few models read so many channels"
    return f"{told}, and axis 1 of shape {shape_text(shape)} has {shape[1]}: {moved_hint(shape, wanted)}"


def _channels(graph: Graph, name: str) -> int | None:
    """How many channels the convolutions that read a value take."""
    for op in graph.all_ops():
        if op.type not in _CONVOLUTIONS or op.inputs[0] != name:
            continue
        weight = graph.values[op.inputs[1]].shape
        axis = 1 if op.type == "Conv" else 0
        size = weight[axis] if weight else None
        if isinstance(size, int):
            return math.prod((size, int(op.attributes.get("group", 1)) if axis else 1))
    return None


def _layout(rank: int, *, is_first: bool) -> str:
    space = {3: "W", 4: "HW", 5: "DHW"}.get(rank)
    if space is None:
        return "channels first" if is_first else "channels last"
    return f"NC{space}" if is_first else f"N{space}C"


def _fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    # Of open sizes alone anything fits, which says nothing.
    if shape[0] not in _COLOURS and not any(isinstance(want, int) for want in wanted):
        return False
    pairs = zip(shape, wanted, strict=True)
    return all(not isinstance(want, int) or have == want for have, want in pairs)
