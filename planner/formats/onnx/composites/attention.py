"""Attention: scaled dot products as two MatMuls and a Softmax, as ONNX and onnxruntime spell them.

The mask adds a quarter of the least float. A row that is masked whole therefore comes out as a mean of
values; ONNX says 0 there, onnxruntime anything. Source: ONNX Attention 23 to 25; onnxruntime's Attention,
MultiHeadAttention, GroupQueryAttention; Vaswani et al., 2017; Ainslie et al., GQA, 2023.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.formats.onnx.composites.body import Body, StaysWhole
from planner.formats.onnx.composites.normalization import root_mean_square
from planner.formats.onnx.composites.rotary import rotated
from planner.formats.onnx.dtypes import NAMES, NUMPY

_BY_HEAD: Final = (0, 2, 1, 3)
_BOOL: Final = "bool"
_MODES: Final = ("scores", "capped", "biased", "weights")
"""The values of ONNX's `qk_matmul_output_mode`, in order."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """Query, key and value of (batch, heads, rows, head), heads alike in number."""

    query: str
    key: str
    value: str


def attention(body: Body) -> None:
    """Attention of ONNX 23 and 24."""
    x = body.input(0)
    flat = body.rank(x) == 3
    own, groups = (body.attribute(key, 0) for key in ("q_num_heads", "kv_num_heads"))
    if not flat:
        own, groups = body.fixed(x, 1), body.fixed(body.input(1), 1)
    counts = (own, groups, groups)
    query, key, value = (_apart(body, body.input(i), counts[i]) if flat else body.input(i) for i in range(3))
    key = _cached(body, body.input(4), key, body.output(1))
    value = _cached(body, body.input(5), value, body.output(2))
    filled = body.input(6)
    bias = [*_mask(body, body.input(3), key), *_filled(body, filled, key)]
    left, right = (body.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if body.attribute("is_causal", 0):
        right = 0
    if (left >= 0 or right >= 0) and body.output(3) and _mode(body) == "biased":
        raise StaysWhole("its masked scores are read")
    if left >= 0 or right >= 0:
        before = body("Sub", filled, body.size(query, 2)) if filled else _length(body, body.input(4))
        bias.append(_window(body, query, key, before, left=left, right=right))
    heads = _repeated(body, _Heads(query, key, value), own, groups)
    mixed = _attended(
        body,
        heads,
        bias,
        scale=body.attribute("scale", 0.0) or _scale(_head(body, x, own)),
        softcap=body.attribute("softcap", 0.0),
        precision=NAMES.get(body.attribute("softmax_precision", 0), ""),
        shown=(body.output(3), _mode(body)),
    )
    _written(body, mixed, joined=flat)


def multi_head_attention(body: Body) -> None:
    """MultiHeadAttention of onnxruntime: query, key and value apart, or packed."""
    if any(body.input(i) for i in (8, 9)) or body.output(3):
        raise StaysWhole("a buffer that is shared, or scores that are read")
    count = body.attribute("num_heads", 0)
    query, key, value = (body.input(i) for i in range(3))
    bias = body.input(3)
    packed = _packed(body, query, key, value)
    if packed and bias:
        raise StaysWhole("packed operands with a bias")
    width = _head(body, query, count)
    if bias:
        sizes = [body.fixed(name, -1) for name in (query, query, value)]
        parts = _sliced(body, body.array(bias), sizes, "bias")
        by_head = body.rank(key) == 4
        query = body("Add", query, parts[0])
        # Keys and values that come by head are those of an encoder, with their bias in them.
        key, value = (key, value) if by_head else (body("Add", key, parts[1]), body("Add", value, parts[2]))
    elif not packed:
        by_head = body.rank(key) == 4
    if packed:
        query, key, value = (body("Transpose", part, perm=_BY_HEAD) for part in packed)
    else:
        query = _apart(body, query, count)
        key, value = (part if by_head else _apart(body, part, count) for part in (key, value))
    key = _cached(body, body.input(6), key, body.output(1))
    value = _cached(body, body.input(7), value, body.output(2))
    added = [*_padding(body, body.input(4), key), *filter(None, (body.input(5),))]
    if body.attribute("unidirectional", 0):
        added.append(_window(body, query, key, _length(body, body.input(6))))
    scale = body.attribute("scale", 0.0) or _scale(width)
    _written(body, _attended(body, _Heads(query, key, value), added, scale=scale), joined=True)


def contrib_attention(body: Body) -> None:
    """Attention of onnxruntime: the products that make query, key and value are in it."""
    if body.attribute("past_present_share_buffer", 0) or body.attribute("do_rotary", 0):
        raise StaysWhole("a buffer that is shared, or positions that are turned")
    count = body.attribute("num_heads", 0)
    x, weight, bias, mask, past, added = (body.input(i) for i in range(6))
    weights = body.array(weight)
    sizes = body.attribute("qkv_hidden_sizes", ()) or (weights.shape[1] // 3,) * 3
    biases = _sliced(body, body.array(bias), sizes, "bias") if bias else ("",) * 3
    made = []
    for part, sum_ in zip(_sliced(body, weights, sizes, "weight"), biases, strict=True):
        product = body("MatMul", x, part)
        made.append(_apart(body, body("Add", product, sum_) if sum_ else product, count))
    query, key, value = made
    pasts = ("", "")
    if past:
        pasts = tuple(  # type: ignore[assignment]
            body("Squeeze", part, body.integers(0))
            for part in body.parts("Split", past, count=2, axis=0, num_outputs=2)
        )
    key, value = (_cached(body, before, part, "") for before, part in zip(pasts, (key, value), strict=True))
    if body.output(1):
        stacked = [body("Unsqueeze", part, body.integers(0)) for part in (key, value)]
        body.joined(*stacked, out=body.output(1), axis=0)
    bias_of_scores = [*_padding(body, mask, key), *filter(None, (added,))]
    if body.attribute("unidirectional", 0):
        bias_of_scores.append(_window(body, query, key, _length(body, pasts[0])))
    scale = body.attribute("scale", 0.0) or _scale(sizes[0] / count)
    mixed = _attended(body, _Heads(query, key, value), bias_of_scores, scale=scale)
    _written(body, mixed, joined=True)


def group_query_attention(body: Body) -> None:
    """GroupQueryAttention of onnxruntime: fewer keys than queries, a cache, positions turned inside.

    Sample b has `seqlens_k[b] + 1` tokens, the last of them new. A cache may be longer than what is in it, so
    the new rows do not stand behind it but in it: each row of `present` is taken from one or the other.
    """
    _refuse_cache_of_its_own(body)
    own, groups = body.attribute("num_heads", 0), body.attribute("kv_num_heads", 0)
    query, key, value = (body.input(i) for i in range(3))
    if key:
        width = body.fixed(query, 2) // own
        parts = [
            body("Reshape", name, body.integers(0, 0, count, width))
            for name, count in ((query, own), (key, groups), (value, groups))
        ]
    else:
        width = body.fixed(query, 2) // (own + 2 * groups)
        split = body("Reshape", query, body.integers(0, 0, own + 2 * groups, width))
        sizes = body.integers(own, groups, groups)
        parts = list(body.parts("Split", split, sizes, count=3, axis=2))
    if body.input(14):
        epsilon = body.attribute("qk_norm_epsilon", 1e-6)
        for i in (0, 1):
            parts[i] = body("Mul", root_mean_square(body, parts[i], epsilon), body.input(14 + i))
    rows = body.size(query, 1)
    # (batch,): tokens in front of the new ones. A prompt, whose rows are all new, may be padded at its end.
    before = body("Sub", body.cast(body("Add", body.input(5), _one(body, body.input(5))), "i64"), rows)
    before = body("Reshape", body("Max", before, body.integer(0)), body.integers(-1))
    if body.attribute("do_rotary", 0):
        interleaved = bool(body.attribute("rotary_interleaved", 0))
        cos, sin = (_turns(body, body.input(i), before, rows) for i in (7, 8))
        dim = 2 * body.fixed(body.input(7), -1)
        for i in (0, 1):
            parts[i] = rotated(
                body, parts[i], cos, sin, dim=0 if dim == width else dim, interleaved=interleaved
            )
    query, key, value = (body("Transpose", part, perm=_BY_HEAD) for part in parts)
    key = _placed(body, body.input(3), key, before, body.output(1))
    value = _placed(body, body.input(4), value, before, body.output(2))
    bias = [body.input(10)] if body.input(10) else []
    if body.attribute("causal", 1):
        window = body.attribute("local_window_size", -1)
        bias.append(_window(body, query, key, before, left=window - 1 if window > 0 else -1, right=0))
    heads = _repeated(body, _Heads(query, key, value), own, groups)
    scale = body.attribute("scale", 0.0) or _scale(width)
    mixed = _attended(body, heads, bias, scale=scale, softcap=body.attribute("softcap", 0.0))
    _written(body, mixed, joined=True)


def _refuse_cache_of_its_own(body: Body) -> None:
    told = {
        "a quantized cache": body.input(12) or body.input(13),
        "a window that it keeps itself": body.attribute("sliding_window_cache", 0),
        "a sink of attention": body.input(11) or body.attribute("smooth_softmax", 0) == 1,
        "scores that are read": body.output(3),
        "positions of its own": body.input(9),
        "attention to later positions": not body.attribute("causal", 1),
    }
    for what, found in told.items():
        if found:
            raise StaysWhole(what)


def _attended(
    body: Body,
    heads: _Heads,
    bias: list[str],
    *,
    scale: float,
    softcap: float = 0.0,
    precision: str = "",
    shown: tuple[str, str] = ("", ""),
) -> str:
    """Softmax of the scaled, capped and biased scores, times the values.

    The query is scaled, the smaller of the two: what multiplies the scores would be a kernel on all of them.
    """
    query = body("Mul", heads.query, body.real(scale, body.input(0)))
    scores = body("MatMul", query, body("Transpose", heads.key, perm=(0, 1, 3, 2)))
    stages = {"scores": scores}
    if softcap:
        cap = body.real(softcap, body.input(0))
        scores = body("Mul", body("Tanh", body("Div", scores, cap)), cap)
    stages["capped"] = scores
    for each in bias:
        scores = body("Add", scores, each)
    stages["biased"] = scores
    kind = body.dtype(body.input(0))
    if precision and precision != kind:
        weights = body.cast(body("Softmax", body.cast(scores, precision), axis=-1), kind)
    else:
        weights = body("Softmax", scores, axis=-1)
    stages["weights"] = weights
    if shown[0]:
        body.same(stages[shown[1]], shown[0])
    return body("MatMul", weights, heads.value)


def _written(body: Body, mixed: str, *, joined: bool) -> None:
    out = body.op.outputs[0]
    if not joined:
        body.same(mixed, out)
        return
    body("Reshape", body("Transpose", mixed, perm=_BY_HEAD), body.integers(0, 0, -1), out=out)


def _apart(body: Body, name: str, count: int) -> str:
    """(batch, rows, heads x head) by head."""
    return body("Transpose", body("Reshape", name, body.integers(0, 0, count, -1)), perm=_BY_HEAD)


def _packed(body: Body, query: str, key: str, value: str) -> tuple[str, ...]:
    """Query, key and value of (batch, rows, heads, head), where they came as one or two; () else."""
    if not key and body.rank(query) == 5:
        return tuple(_slices(body, query, 3))
    if key and not value:
        if body.rank(key) != 5:
            raise StaysWhole("keys without values")
        count = body.attribute("num_heads", 0)
        return (body("Reshape", query, body.integers(0, 0, count, -1)), *_slices(body, key, 2))
    if not value:
        raise StaysWhole("a query alone")
    return ()


def _slices(body: Body, name: str, count: int) -> list[str]:
    parts = body.parts("Split", name, count=count, axis=3, num_outputs=count)
    return [body("Squeeze", part, body.integers(3)) for part in parts]


def _sliced(body: Body, array: np.ndarray, sizes: tuple[int, ...] | list[int], part: str) -> list[str]:
    """Constants, side by side along the last axis."""
    if array.shape[-1] != sum(sizes):
        raise StaysWhole(f"{array.shape[-1]} columns of {part} where {sum(sizes)} are expected")
    cuts = np.cumsum(sizes)[:-1]
    pieces = np.split(array, cuts, axis=-1)
    return [body.constant(part, np.ascontiguousarray(piece)) for piece in pieces]


def _scale(width: float) -> float:
    """The default factor of scores: 1 over the root of the numbers in a head."""
    if width <= 0:
        raise StaysWhole("heads of no numbers")
    return 1 / math.sqrt(width)


def _head(body: Body, name: str, count: int) -> int:
    """Numbers in a head."""
    shape = body.shape(name) or ()
    if len(shape) == 3:
        return body.fixed(name, 2) // count
    return body.fixed(body.input(0), -1)


def _length(body: Body, past: str) -> str:
    """Rows of a cache, 0 without one."""
    return body.size(past, 2) if past else body.integer(0)


def _cached(body: Body, past: str, new: str, present: str) -> str:
    """New rows behind those of a cache; what is present is a result, too."""
    if not past:
        body.same(new, present)
        return new
    return body.joined(past, new, out=present, axis=2)


def _placed(body: Body, past: str, new: str, before: str, present: str) -> str:
    """New rows among those of a cache, behind the `before` rows of a sample that are in use."""
    if not past or (body.shape(past) or (None,) * 4)[2] == 0:
        body.same(new, present)
        return new
    room = body.size(past, 2)
    total = body.cast(
        body("Squeeze", body("Reshape", body.input(6), body.integers(-1)), body.integers(0)), "i64"
    )
    place = body("Range", body.integer(0), body("Max", room, total), body.integer(1))
    start = body("Unsqueeze", before, body.integers(1))
    behind = body("Sub", body("Add", place, room), start)
    # Rows behind the last new one are nobody's: of those the last new one stands for all.
    last = body("Sub", body("Add", room, body.size(new, 2)), body.integer(1))
    taken = body("Where", body("Less", place, start), place, body("Min", behind, last))
    by_row = body("Transpose", body.joined(past, new, axis=2), perm=_BY_HEAD)
    rows = body("GatherND", by_row, body("Unsqueeze", taken, body.integers(2)), batch_dims=1)
    return body("Transpose", rows, out=present, perm=_BY_HEAD)


def _repeated(body: Body, heads: _Heads, own: int, groups: int) -> _Heads:
    """Keys and values once for each query of their group."""
    if own == groups:
        return heads
    if not groups or own % groups:
        raise StaysWhole(f"{own} heads in {groups} groups")
    picked = body.constant("heads", np.repeat(np.arange(groups), own // groups))
    return _Heads(heads.query, *(body("Gather", name, picked, axis=1) for name in (heads.key, heads.value)))


def _window(body: Body, query: str, key: str, before: str, *, left: int = -1, right: int = 0) -> str:
    """The mask that lets a row see few earlier rows and few later ones (-1: all): 0 or the least.

    Row i stands at `before + i`; `before` is one number, or one of each sample.
    """
    like = body.input(0)
    rows = body("Range", body.integer(0), body.size(query, 2), body.integer(1))
    columns = body("Range", body.integer(0), body.size(key, 2), body.integer(1))
    rows = body("Unsqueeze", rows, body.integers(1))
    places = body("Add", rows, body("Reshape", before, body.integers(-1, 1, 1, 1)))
    sides = []
    if right >= 0:
        sides.append(body("LessOrEqual", columns, _moved(body, places, right)))
    if left >= 0:
        sides.append(body("GreaterOrEqual", columns, _moved(body, places, -left)))
    allowed = sides[0] if len(sides) == 1 else body("And", *sides)
    return body("Where", allowed, body.real(0.0, like), body.lowest(like))


def _moved(body: Body, places: str, by: int) -> str:
    return body("Add", places, body.integer(by)) if by else places


def _mode(body: Body) -> str:
    number = body.attribute("qk_matmul_output_mode", 0)
    if not 0 <= number < len(_MODES):
        raise StaysWhole(f"no scores have the mode {number}")
    return _MODES[number]


def _mask(body: Body, mask: str, key: str) -> list[str]:
    """The mask of ONNX, booleans or numbers to add; opset 24 lets it be shorter than the keys."""
    if not mask:
        return []
    like = body.input(0)
    if body.dtype(mask) == _BOOL:
        mask = body("Where", mask, body.real(0.0, like), body.lowest(like))
    shape = body.shape(body.input(3))
    keys = (body.shape(body.input(1)) or (None,))[2 if body.rank(body.input(1)) == 4 else 1]
    whole = shape is not None and shape[-1] is not None and shape[-1] == keys and not body.input(4)
    if whole or body.graph.opsets.get("", 0) < 24:
        return [mask]
    missing = body("Sub", body.size(key, 2), body.size(mask, -1))
    pads = body.joined(body.integers(0), body("Unsqueeze", missing, body.integers(0)), axis=0)
    return [body("Pad", mask, pads, body.lowest(like), body.integers(-1))]


def _filled(body: Body, filled: str, key: str) -> list[str]:
    """Rows of a cache of fixed size that are in use, by sample (opset 24)."""
    if not filled:
        return []
    like = body.input(0)
    columns = body("Range", body.integer(0), body.size(key, 2), body.integer(1))
    used = body("Less", columns, body("Reshape", filled, body.integers(-1, 1, 1, 1)))
    return [body("Where", used, body.real(0.0, like), body.lowest(like))]


def _padding(body: Body, mask: str, key: str) -> list[str]:
    """Masks of onnxruntime: 1 for what is seen, of (batch, keys) or (batch, rows, keys), or lengths."""
    if not mask:
        return []
    shape = body.shape(mask) or (None,)
    like = body.input(0)
    # Lengths of 1 say that the batch is 1: other forms of one dimension are longer.
    if shape == (1,) or (shape != (None,) and shape == (body.shape(like) or ())[:1]):
        columns = body("Range", body.integer(0), body.size(key, 2), body.integer(1))
        ends = body.cast(body("Unsqueeze", mask, body.integers(1)), "i64")
        seen, rank = body("Less", columns, ends), 2
    else:
        rank = body.rank(mask)
        if rank not in (2, 3):
            raise StaysWhole(f"a mask of {rank} dimensions, {shape}")
        seen = body.cast(mask, _BOOL)
    out = body.real(body.attribute("mask_filter_value", -10000.0), like)
    bias = body("Where", seen, body.real(0.0, like), out)
    return [body("Unsqueeze", bias, body.integers(*((1, 2) if rank == 2 else (1,))))]


def _turns(body: Body, cache: str, before: str, rows: str) -> str:
    """Cosines or sines of new rows, (batch, rows, 1, half a head)."""
    following = body("Range", body.integer(0), rows, body.integer(1))
    ids = body("Add", body("Unsqueeze", before, body.integers(1)), following)
    return body("Unsqueeze", body("Gather", cache, ids, axis=0), body.integers(2))


def _one(body: Body, like: str) -> str:
    return body.constant("one", np.asarray(1, NUMPY[body.dtype(like)]))
