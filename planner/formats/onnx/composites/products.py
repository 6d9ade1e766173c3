"""Products: matrix products in other spellings, packed weights among them, as MatMul and DequantizeLinear.

Source: ONNX Einsum; onnxruntime's contrib operators FusedMatMul, MatMulNBits, GatherBlockQuantized.
"""

import string
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from planner.formats.onnx.composites.body import Body, StaysWhole
from planner.formats.onnx.dtypes import NUMPY

_PACKED: Final = {2: "u2", 4: "u4", 8: "u8"}
_ELLIPSIS: Final = "..."
_FIRST_STANDARD: Final = 4
"""Bits of the narrowest storage of opset 21."""


def fused_matmul(body: Body) -> None:
    """FusedMatMul: operands turned, and a factor."""
    if body.attribute("transBatchA", 0) or body.attribute("transBatchB", 0):
        raise StaysWhole("batch dimensions are moved")
    sides = []
    for i, key in enumerate(("transA", "transB")):
        name = body.input(i)
        if body.attribute(key, 0) and body.rank(name) > 1:
            *batch, rows, columns = range(body.rank(name))
            name = body("Transpose", name, perm=(*batch, columns, rows))
        sides.append(name)
    alpha = body.attribute("alpha", 1.0)
    if alpha == 1.0:
        body("MatMul", *sides, out=body.op.outputs[0])
        return
    body("Mul", body("MatMul", *sides), body.real(alpha, body.input(0)), out=body.op.outputs[0])


def einsum(body: Body) -> None:
    """Einsum of two operands that is one MatMul.

    Each side is brought into the order batch, own, summed letters. Several summed letters become one axis,
    several own ones too, but for those of the left side where there is no batch: MatMul takes them so.
    """
    (left, right), out = _equation(body)
    batch = [c for c in left if c in right and c in out]
    summed = [c for c in left if c in right and c not in out]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    if not summed or {*batch, *rows, *columns} != set(out):
        raise StaysWhole("its equation is no product of matrices")
    sizes = {
        c: dim
        for name, letters in zip(body.op.inputs, (left, right), strict=True)
        for c, dim in zip(letters, body.shape(name) or (), strict=True)
    }
    kept = [*batch, *rows] if rows and not batch else batch
    own = [rows] if kept is batch else []
    a = _joined(
        body, _moved(body, body.input(0), left, [*batch, *rows, *summed]), kept, [*own, summed], sizes
    )
    b = _moved(body, body.input(1), right, [*batch, *summed, *columns])
    b = _joined(body, b, batch, [summed, columns], sizes)
    product = body("MatMul", a, b)
    apart = [*(rows if own else ()), *columns]
    if len(apart) != len(own) + 1:
        product = body("Reshape", product, body.integers(*[0] * len(kept), *_sizes(apart, sizes)))
    made = [*batch, *rows, *columns]
    body("Transpose", product, out=body.op.outputs[0], perm=tuple(made.index(c) for c in out))


def matmul_nbits(body: Body) -> None:
    """MatMulNBits: a weight in blocks along the sum, packed, as DequantizeLinear in front of MatMul."""
    bits, block = body.attribute("bits", 4), body.attribute("block_size", 32)
    inner, outer = body.attribute("K", 0), body.attribute("N", 0)
    if any(body.input(4)) or bits not in _PACKED or bits < _FIRST_STANDARD:
        raise StaysWhole(f"its weight has {bits} bits or is in another order")
    if body.attribute("weight_prepacked", 0):
        raise StaysWhole("its weight is packed for one engine")
    blocks = -(-inner // block)
    stored = _unpacked(body.array(body.input(1)).reshape(outer, -1), bits)[:, :inner]
    scales = body.array(body.input(2)).reshape(outer, blocks)
    zeros = _zeros(body, outer, blocks, bits)
    kind = NUMPY[_PACKED[bits]]
    operands = (
        body.constant("weight", np.ascontiguousarray(stored.T).astype(kind)),
        body.constant("scale", np.ascontiguousarray(scales.T)),
        body.constant("zero_point", np.ascontiguousarray(zeros.T).astype(kind)),
    )
    weight = body("DequantizeLinear", *operands, axis=0, block_size=block)
    bias = body.input(5)
    product = body("MatMul", body.input(0), weight, out="" if bias else body.op.outputs[0])
    if bias:
        body("Add", product, bias, out=body.op.outputs[0])


def gather_block_quantized(body: Body) -> None:
    """GatherBlockQuantized: a table in blocks, as DequantizeLinear in front of Gather."""
    data, indices, scales, zeros = (body.input(i) for i in range(4))
    axis, block = body.attribute("quantize_axis", 1), body.attribute("block_size", 128)
    operands: tuple[str, ...] = (data, scales, zeros) if zeros else (data, scales)
    if body.dtype(data) not in ("u4", "i4"):
        operands = _from_bytes(body, body.attribute("bits", 4))
    table = body("DequantizeLinear", *operands, axis=axis, block_size=block)
    body("Gather", table, indices, out=body.op.outputs[0], axis=body.attribute("gather_axis", 0))


def _from_bytes(body: Body, bits: int) -> tuple[str, ...]:
    """The operands of a table that lies in bytes, several numbers in one along the last axis."""
    stored, scales = body.array(body.input(0)), body.array(body.input(2))
    if stored.dtype != np.uint8 or bits not in _PACKED or bits < _FIRST_STANDARD:
        raise StaysWhole(f"its table of {bits} bits is packed in another way")
    numbers = _unpacked(stored.reshape(-1, stored.shape[-1]), bits).reshape(*stored.shape[:-1], -1)
    if not body.input(3):
        # Without zero points half the range is 0: signed integers say the same.
        signed = (numbers.astype(np.int16) - (1 << bits - 1)).astype(NUMPY[f"i{bits}"])
        return body.constant("table", signed), body.input(2)
    kind, packed = NUMPY[_PACKED[bits]], body.array(body.input(3))
    zeros = _unpacked(packed.reshape(-1, packed.shape[-1]), bits)[:, : scales.shape[-1]]
    zeros = np.ascontiguousarray(zeros.reshape(scales.shape)).astype(kind)
    return body.constant("table", numbers.astype(kind)), body.input(2), body.constant("zero_point", zeros)


def _equation(body: Body) -> tuple[tuple[str, str], str]:
    """Letters of the two operands and of the result; those that an ellipsis stands for are capitals."""
    text = body.attribute("equation", "")
    text = (text.decode() if isinstance(text, bytes) else text).replace(" ", "")
    given, arrow, out = text.partition("->")
    operands = given.split(",")
    if len(operands) != 2:
        raise StaysWhole(f"its equation is {text!r}")
    once = sorted(c for c in set(given) - {",", "."} if given.count(c) == 1)
    # Both ellipses, where there are two, stand for as many dimensions: onnx refuses others.
    spread = [
        body.rank(name) - len(side.replace(_ELLIPSIS, ""))
        for side, name in _sides(body, operands)
        if _ELLIPSIS in side
    ]
    hidden = max(spread, default=0)
    free = "".join([c for c in string.ascii_uppercase if c not in text][:hidden])
    left, right = (side.replace(_ELLIPSIS, free) for side in operands)
    # Without a result in the equation it has the ellipsis, then the letters that come once, in order.
    out = out.replace(_ELLIPSIS, free) if arrow else "".join([free, *once])
    for letters, name in _sides(body, (left, right)):
        if not letters.isalpha() or len(set(letters)) != len(letters) or len(letters) != body.rank(name):
            raise StaysWhole(f"its equation is {text!r}")
    return (left, right), out


def _sides(body: Body, letters: Sequence[str]) -> Iterator[tuple[str, str]]:
    return zip(letters, body.op.inputs, strict=True)


def _moved(body: Body, name: str, letters: str, order: list[str]) -> str:
    perm = tuple(letters.index(c) for c in order)
    return name if perm == tuple(range(len(perm))) else body("Transpose", name, perm=perm)


def _joined(body: Body, name: str, kept: list[str], groups: list[list[str]], sizes: dict[str, Any]) -> str:
    """A value whose axes behind the kept ones are one for each group of letters."""
    if all(len(group) == 1 for group in groups):
        return name
    wanted = [int(np.prod(found)) if -1 not in (found := _sizes(group, sizes)) else -1 for group in groups]
    if wanted.count(-1) > 1:
        raise StaysWhole("sizes are open that are joined")
    return body("Reshape", name, body.integers(*[0] * len(kept), *wanted))


def _sizes(letters: list[str], sizes: dict[str, Any]) -> list[int]:
    """Fixed sizes; -1 for the one that is open.

    Raises:
      StaysWhole: several are open.
    """
    found = [sizes[c] if isinstance(sizes[c], int) else -1 for c in letters]
    if found.count(-1) > 1 or (-1 in found and 0 in found):
        raise StaysWhole("sizes are open that are joined")
    return found


def _unpacked(stored: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Bytes of rows as numbers, low bits first."""
    if bits == 8:
        return stored
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (stored[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return numbers.reshape(*stored.shape[:-1], -1)


def _zeros(body: Body, outer: int, blocks: int, bits: int) -> np.ndarray[Any, Any]:
    name = body.input(3)
    if not name:
        return np.full((outer, blocks), 1 << (bits - 1), np.uint8)
    array = body.array(name)
    if array.dtype != np.uint8:
        raise StaysWhole("its zero points are floats")
    return _unpacked(array.reshape(outer, -1), bits)[:, :blocks]
