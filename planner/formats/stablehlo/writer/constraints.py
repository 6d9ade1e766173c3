"""Constraints of the StableHLO specification on operations on quantized tensors, by its numbers.

Only those a plan could break: shapes and attributes come from our own code, and jaxlib's verifier reads
every export in the tests. Source: StableHLO specification, docs/spec.md of August 2026.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from planner.formats.stablehlo.writer.tensors import Tensor, storage_element
from planner.ir.types.qtypes import Uniform

Check: TypeAlias = Callable[[Sequence[Tensor], Tensor, Mapping[str, Sequence[int]]], bool]


def broken(
    kind: str, operands: Sequence[Tensor], result: Tensor, numbers: Mapping[str, Sequence[int]]
) -> str:
    """The first constraint that an operation on quantized tensors breaks, in words; "" if none."""
    if result.kind is None and not any(operand.kind for operand in operands):
        return ""
    for tensor in (*operands, result):
        problem = "" if tensor.kind is None else _type_problem(tensor, tensor.kind)
        if problem:
            return problem
    for number, words, check in CONSTRAINTS.get(kind, ()):
        if not check(operands, result, numbers):
            types = ", ".join(_short(operand.element) for operand in operands)
            return f"{kind} of {types} to {_short(result.element)} breaks ({kind}, {number}): {words}"
    return ""


def _type_problem(tensor: Tensor, kind: Uniform) -> str:
    if kind.axis is not None and (kind.axis >= tensor.rank or tensor.shape[kind.axis] != len(kind.scales)):
        return (
            f"{_short(tensor.element)} on a tensor of shape {list(tensor.shape)} breaks "
            "(quantized tensor types, C13): one scale for each slice of the quantization dimension"
        )
    low, high = kind.storage.qmin, kind.storage.qmax
    if any(not low <= zero <= high for zero in kind.zero_points):
        return f"{_short(tensor.element)} breaks (quantized types, C7): zero points lie in the storage range"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:97]}..."


def _kinds(operands: Sequence[Tensor], result: Tensor) -> Iterator[Uniform | None]:
    yield from (operand.kind for operand in operands)
    yield result.kind


def _all_quantized(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    return all(kind is not None for kind in _kinds(operands, result))


def _one_storage(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    return len({storage_element(kind) for kind in _kinds(operands, result) if kind}) == 1


def _baseline(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    """Storage types agree; ranges, scales and zero points are free."""
    return all(_kinds(operands, result)) and _one_storage(operands, result, _)


def _same_element(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    return len({tensor.element for tensor in (*operands, result)}) == 1


def _element_passes(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    kind, other = operands[0].kind, result.kind
    if kind is None or other is None:
        return kind is other
    if kind.axis is None:
        return operands[0].element == result.element
    return (kind.storage, kind.scales, kind.zero_points) == (other.storage, other.scales, other.zero_points)


def _axis_follows(operands: Sequence[Tensor], result: Tensor, index: int) -> bool:
    kind = operands[index].kind
    return kind is None or kind.axis is None or (result.kind is not None and result.kind.axis == kind.axis)


def _is_axis(kind: Uniform | None) -> bool:
    return kind is not None and kind.axis is not None


def _rhs_axis(operands: Sequence[Tensor], _: Tensor, numbers: Mapping[str, Sequence[int]]) -> bool:
    kind = operands[1].kind
    return kind is None or kind.axis is None or kind.axis == numbers["_kernel_output_feature"][0]


def _result_axis(_: Sequence[Tensor], result: Tensor, numbers: Mapping[str, Sequence[int]]) -> bool:
    kind = result.kind
    return kind is None or kind.axis is None or kind.axis == numbers["_output_feature"][0]


def _sides_like_result(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    return (operands[0].kind is None) == (result.kind is None) and operands[1].kind is not None


def _sides_one_storage(operands: Sequence[Tensor], _result: Tensor, _: object) -> bool:
    kinds = [operand.kind for operand in operands]
    return any(kind is None for kind in kinds) or len({storage_element(kind) for kind in kinds if kind}) == 1


def _result_per_tensor(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    return operands[0].kind is None or _is_axis(operands[1].kind) or not _is_axis(result.kind)


def _hybrid(operands: Sequence[Tensor], result: Tensor, _: object) -> bool:
    return operands[0].kind is not None or operands[0].element == result.element == "f32"


def _rhs_zero(operands: Sequence[Tensor], _result: Tensor, _: object) -> bool:
    return operands[1].kind is None or not any(operands[1].kind.zero_points)


def _not_contracted(operands: Sequence[Tensor], _: Tensor, numbers: Mapping[str, Sequence[int]]) -> bool:
    kind = operands[1].kind
    return kind is None or kind.axis is None or kind.axis not in numbers["_rhs_contracting"]


_ONE_BASELINE: Final = (("C1", "operands and result are quantized, of one storage type", _baseline),)
_MOVES: Final = (("C1", "the element type passes unchanged", _element_passes),)

CONSTRAINTS: Final[Mapping[str, tuple[tuple[str, str, Check], ...]]] = {
    "add": (
        ("C2", "operands and result are quantized", _all_quantized),
        ("C3", "operands and result have one storage type", _one_storage),
        (
            "C5",
            "the result is per axis where an operand is",
            lambda o, r, _: (_is_axis(o[0].kind) or _is_axis(o[1].kind)) == _is_axis(r.kind),
        ),
        ("C6", "lhs and result have one quantization dimension", lambda o, r, _: _axis_follows(o, r, 0)),
        ("C7", "rhs and result have one quantization dimension", lambda o, r, _: _axis_follows(o, r, 1)),
    ),
    "broadcast_in_dim": _MOVES,
    "clamp": (
        ("C3", "bounds and operand have one storage type", lambda o, _r, n: _baseline(o, o[0], n)),
        ("C4", "operand and result have one storage type", lambda o, r, n: _baseline(o[1:2], r, n)),
    ),
    "compare": (("C1", "both sides have one storage type", lambda o, _r, n: _baseline(o, o[0], n)),),
    "concatenate": (("C1", "operands and result have one element type", _same_element),),
    "convolution": (
        ("C28", "lhs is quantized where the result is, and rhs is", _sides_like_result),
        ("C29", "rhs is per axis along its output features only", _rhs_axis),
        ("C30", "the result is per axis along its features only", _result_axis),
        ("C31", "lhs and rhs have one storage type", _sides_one_storage),
        ("C33", "the result is per tensor where rhs is", _result_per_tensor),
        ("C34", "a float lhs and result have the expressed type of rhs", _hybrid),
    ),
    "divide": _ONE_BASELINE,
    "dot_general": (
        ("C14", "lhs is quantized where the result is, and rhs is", _sides_like_result),
        ("C15", "the zero points of rhs are 0", _rhs_zero),
        ("C16", "rhs is not per axis along a contracted dimension", _not_contracted),
        ("C17", "lhs and rhs have one storage type", _sides_one_storage),
        ("C19", "the result is per tensor where rhs is", _result_per_tensor),
        ("C20", "a float lhs and result have the expressed type of rhs", _hybrid),
    ),
    "gather": (("C23", "the element type passes unchanged", lambda o, r, n: _element_passes(o[:1], r, n)),),
    "maximum": _ONE_BASELINE,
    "minimum": _ONE_BASELINE,
    "multiply": _ONE_BASELINE,
    "pad": (("C1", "operand, padding value and result have one element type", _same_element),),
    "power": _ONE_BASELINE,
    "reduce_window": (("C3", "operands and initial values have one element type", _same_element),),
    "reshape": _MOVES,
    "select": (
        ("C2", "both branches and the result have one storage type", lambda o, r, n: _baseline(o[1:], r, n)),
    ),
    "slice": _MOVES,
    "subtract": _ONE_BASELINE,
    "transpose": _MOVES,
    "uniform_dequantize": (
        ("C2", "the result has the expressed type", lambda _o, r, _: r.kind is None and r.element == "f32"),
    ),
    "uniform_quantize": (
        (
            "C2",
            "a float operand has the expressed type",
            lambda o, _r, _: bool(o[0].kind) or o[0].element == "f32",
        ),
    ),
    **dict.fromkeys(
        ("abs", "ceil", "cosine", "exponential", "floor", "log", "logistic", "negate", "round_nearest_even"),
        _ONE_BASELINE,
    ),
    **dict.fromkeys(("sign", "sine", "sqrt", "tan", "tanh"), _ONE_BASELINE),
}
