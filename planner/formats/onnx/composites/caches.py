"""Caches: rows put into a buffer of fixed size, as ops that only move data.

Each row of the result is a row of the buffer or a new one, so one gather of both serves: all three keep one
type. Source: ONNX TensorScatter 24.
"""

from planner.formats.onnx.composites.body import Body


def tensor_scatter(body: Body) -> None:
    """TensorScatter: new rows behind `write_indices`, in a row or around the end of the buffer."""
    past, new, starts = (body.input(i) for i in range(3))
    rank, circular = body.rank(past), body.attribute("mode", "linear") in ("circular", b"circular")
    axis = body.attribute("axis", -2) % rank
    room, rows = body.size(past, axis), body.size(new, axis)
    if not starts:
        end = body.integers(1 << 62)
        rest = body("Slice", past, body("Unsqueeze", rows, body.integers(0)), end, body.integers(axis))
        body.joined(new, rest, out=body.op.outputs[0], axis=axis)
        return
    place = body("Range", body.integer(0), room, body.integer(1))
    behind = body("Sub", place, body("Unsqueeze", starts, body.integers(1)))
    if circular:
        behind = body("Mod", behind, room)
    is_new = body("And", body("GreaterOrEqual", behind, body.integer(0)), body("Less", behind, rows))
    taken = body("Where", is_new, body("Add", behind, room), place)
    # GatherND counts along the axis behind the batch.
    perm = (0, axis, *(i for i in range(1, rank) if i != axis))
    joined = body.joined(_turned(body, past, perm), _turned(body, new, perm), axis=1)
    found = body("GatherND", joined, body("Unsqueeze", taken, body.integers(2)), batch_dims=1)
    back = tuple(perm.index(i) for i in range(rank))
    body("Transpose", found, out=body.op.outputs[0], perm=back)


def _turned(body: Body, name: str, perm: tuple[int, ...]) -> str:
    return name if perm == tuple(range(len(perm))) else body("Transpose", name, perm=perm)
