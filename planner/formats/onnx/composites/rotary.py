"""Rotary: rotary position embeddings as products, a difference and a sum.

Pairs of numbers of a head are turned by an angle that grows with the position: halves of the head apart, or
neighbours where it is interleaved. Source: ONNX RotaryEmbedding; onnxruntime's contrib operators; Su et al.,
RoFormer, 2021.
"""

from planner.formats.onnx.composites.body import Body, StaysWhole


def rotary_embedding(body: Body) -> None:
    """RotaryEmbedding of ONNX: the cache by position, or of every row."""
    x, cos, sin, ids = (body.input(i) for i in range(4))
    if ids:
        cos, sin = (body("Gather", cache, ids, axis=0) for cache in (cos, sin))
    _embedded(body, x, cos, sin, body.attribute("rotary_embedding_dim", 0))


def contrib_rotary_embedding(body: Body) -> None:
    """RotaryEmbedding of onnxruntime: positions come second, one alone is the first of a row of them."""
    if body.attribute("is_packed_batching", 0):
        raise StaysWhole("its rows are packed")
    if body.attribute("scale", 1.0) != 1.0:
        raise StaysWhole("it scales positions")
    x, ids, cos, sin = (body.input(i) for i in range(4))
    if body.rank(ids) == 1:
        rows = body.size(x, 1 if body.rank(x) == 3 else 2)
        following = body("Range", body.integer(0), rows, body.integer(1))
        ids = body("Unsqueeze", body("Add", following, ids), body.integers(0))
    cos, sin = (body("Gather", cache, ids, axis=0) for cache in (cos, sin))
    _embedded(body, x, cos, sin, body.attribute("rotary_embedding_dim", 0))


def _embedded(body: Body, x: str, cos: str, sin: str, dim: int) -> None:
    """From (batch, rows, heads x head) or (batch, heads, rows, head); the cache is (batch, rows, dim / 2)."""
    interleaved = bool(body.attribute("interleaved", 0))
    out = body.op.outputs[0]
    if body.rank(x) == 4:
        cos, sin = (body("Unsqueeze", cache, body.integers(1)) for cache in (cos, sin))
        body.same(rotated(body, x, cos, sin, dim=dim, interleaved=interleaved), out)
        return
    heads = body.attribute("num_heads", 0)
    if not heads:
        if dim:
            raise StaysWhole("it says no number of heads")
        # All of a head is turned, so the cache's width tells the head's.
        heads = body.fixed(x, 2) // (2 * body.fixed(body.input(2), -1))
    split = body("Reshape", x, body.integers(0, 0, heads, -1))
    cos, sin = (body("Unsqueeze", cache, body.integers(2)) for cache in (cos, sin))
    turned = rotated(body, split, cos, sin, dim=dim, interleaved=interleaved)
    body("Reshape", turned, body.integers(0, 0, -1), out=out)


def rotated(body: Body, x: str, cos: str, sin: str, *, dim: int, interleaved: bool) -> str:
    """The first `dim` (0: all) numbers of a head turned; `cos` and `sin` broadcast against half of them."""
    rest = ""
    if dim:
        last = body.integers(-1)
        whole, x = x, body("Slice", x, body.integers(0), body.integers(dim), last)
        rest = body("Slice", whole, body.integers(dim), body.integers(1 << 62), last)
    if interleaved:
        pairs = body("Reshape", x, body.integers(0, 0, 0, -1, 2))
        first, second = (
            body("Squeeze", part, body.integers(-1))
            for part in body.parts("Split", pairs, count=2, axis=-1, num_outputs=2)
        )
    else:
        first, second = body.parts("Split", x, count=2, axis=-1, num_outputs=2)
    real = body("Sub", body("Mul", first, cos), body("Mul", second, sin))
    imaginary = body("Add", body("Mul", first, sin), body("Mul", second, cos))
    if interleaved:
        columns = [body("Unsqueeze", part, body.integers(-1)) for part in (real, imaginary)]
        turned = body("Reshape", body.joined(*columns, axis=-1), body.integers(0, 0, 0, -1))
    else:
        turned = body.joined(real, imaginary, axis=-1)
    return body.joined(turned, rest, axis=-1) if rest else turned
