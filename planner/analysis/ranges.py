"""Ranges: what every element of every tensor lies between, from the ranges of a model's inputs.

Interval arithmetic, element by element, in float32 by the kernels that run the model: what an op that rises
gives for both ends, a sum of products by the signs of its weights. Quantizers bound what is behind them, so
an input may be without bounds. An op with no rule has none, and the reason names it. Source: QONNX
`util.range_analysis`, which runs both ends of ranges of channels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from planner.errors import ModelError, PlannerError, SampleError, require_name
from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.quantized.dialect import BIPOLAR, FLOAT_QUANT, MULTI_THRESHOLD, QUANT, TRUNC
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.shapes import infer
from planner.interpreter.models import ModelRunner
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.types.qtypes import Bipolar, Uniform
from planner.ops import defined, find_movements, of_form
from planner.ops.forms import Form
from planner.ops.operands import operands_of

Ends: TypeAlias = tuple[Array, Array]
Rule: TypeAlias = Callable[["_Work", Op, Sequence[Ends]], Ends | None]
ANY: Final = (-np.inf, np.inf)


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Bounds of a tensor's elements, or why there are none.

    Attributes:
      lo, hi: of each element, in the tensor's shape; infinite where nothing bounds it.
      why: the op that has no rule, of a tensor without bounds; "" of one with bounds.
    """

    lo: Array | None = None
    hi: Array | None = None
    why: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether the tensor follows from constants alone."""
        return self.lo is not None and self.lo is self.hi

    def per_channel(self, axis: int) -> tuple[Array, Array]:
        """Bounds of each slice of an axis; of the whole where the tensor has no such axis."""
        if self.lo is None or self.hi is None:
            raise ModelError(f"no bounds: {self.why}")
        if not -self.lo.ndim <= axis < self.lo.ndim:
            return np.atleast_1d(self.lo.min()), np.atleast_1d(self.hi.max())
        rest = tuple(i for i in range(self.lo.ndim) if i != axis % self.lo.ndim)
        return self.lo.min(axis=rest), self.hi.max(axis=rest)


def ranges(graph: Graph, inputs: Mapping[str, tuple[Array | float, Array | float]]) -> Mapping[str, Range]:
    """Bound every tensor that a model computes.

    Args:
      graph: as `onnx.read.read_written` gives it; a batch that is open counts as 1.
      inputs: least and largest numbers of an input, reals that broadcast to its shape; others have those of
        the datatype that the file says of them, or none.

    Raises:
      UnknownName: no such input.
      SampleError: ranges that do not fit their input.
    """
    for name in inputs:
        require_name("model input", name, graph.inputs)
    work = _Work(fold_constants(infer(_sized(graph))))
    for name in work.graph.inputs:
        work.known[name] = _of_input(work.graph, name, inputs.get(name))
    for op in work.graph.ops:
        _follow(work, op)
    folded = set(work.graph.constants) - set(graph.constants)
    for name in folded:
        array = np.asarray(work.graph.constants[name].array)
        work.known[name] = Range(array, array)
    return work.known


@dataclass(slots=True)
class _Work:
    graph: Graph
    known: dict[str, Range] = field(default_factory=dict)
    result: str = ""
    """The one that is being bounded, of an op with several."""

    def ends(self, name: str) -> Ends | None:
        if name in self.graph.constants:
            array = np.asarray(self.graph.constants[name].array)
            return array, array
        found = self.known[name]
        return None if found.lo is None or found.hi is None else (found.lo, found.hi)

    def run(self, op: Op, operands: Sequence[Array]) -> Array:
        """One op on arrays, by the kernel that runs the model; sums of infinities of both signs are NaN."""
        # An op that reads a value twice may meet both of its ends.
        names = tuple(
            f"{name}#{at}" if name and name in op.inputs[:at] else name for at, name in enumerate(op.inputs)
        )
        given = dict(zip(filter(None, names), operands, strict=True))
        fixed = {
            own for own, name in zip(names[1:], op.inputs[1:], strict=True) if name in self.graph.constants
        }
        out = self.result or op.outputs[0]
        values = dict(self.graph.values)
        for own, name in zip(names, op.inputs, strict=True):
            if name:
                values[own] = replace(values[name], name=own, shape=given[own].shape)
        values |= {name: replace(values[name], shape=None) for name in op.outputs if name}
        part = replace(
            self.graph,
            ops=(replace(op, inputs=names),),
            inputs=tuple(name for name in given if name not in fixed),
            outputs=(out,),
            values=values,
            constants={name: Constant(given[name]) for name in fixed},
        )
        with np.errstate(all="ignore"):
            return ModelRunner(part).run({name: given[name] for name in part.inputs})[out]


def _sized(graph: Graph) -> Graph:
    values = {
        name: replace(
            value,
            shape=tuple(
                1 if not i and not isinstance(dim, int) else dim for i, dim in enumerate(value.shape)
            ),
        )
        if value.shape and name in graph.inputs
        else value
        for name, value in graph.values.items()
    }
    return replace(graph, values=values)


def _of_input(graph: Graph, name: str, given: tuple[Array | float, Array | float] | None) -> Range:
    value = graph.values[name]
    given = _said(value) if given is None else given
    if value.shape is None or value.dtype not in NUMPY:
        return Range(why=f"the input {name!r} has no shape or is no tensor")
    open_ = [dim for dim in value.shape[1:] if not isinstance(dim, int)]
    if open_:
        # What padding does to sums depends on them.
        return Range(
            why=f"the input {name!r} leaves sizes open: give them with --dim {open_[0] or name}=SIZE"
        )
    shape = tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)
    try:
        low, high = (np.broadcast_to(np.asarray(end, np.float64), shape) for end in given)
    except ValueError as error:
        raise SampleError(f"the range of {name!r} does not fit its shape {list(shape)}") from error
    if np.any(low > high):
        raise SampleError(f"the range of {name!r} is empty: its least number is above its largest")
    kind = np.dtype(NUMPY[value.dtype])
    if kind.kind != "f":
        limits = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        low, high = np.clip(low, *limits), np.clip(high, *limits)
    return Range(low.astype(kind), high.astype(kind))


def _said(value: Value) -> tuple[float, float]:
    """The ends of the datatype that a file's annotation says."""
    for fact in value.facts:
        if isinstance(fact, Bipolar):
            return -fact.scale, fact.scale
        if isinstance(fact, Uniform) and fact.is_per_tensor:
            ends = (fact.storage.qmin, fact.storage.qmax)
            return (ends[0] - fact.zero_point) * fact.scale, (ends[1] - fact.zero_point) * fact.scale
    return ANY


def _follow(work: _Work, op: Op) -> None:
    unknown = next((name for name in op.inputs if name and work.ends(name) is None), "")
    operands = [ends for ends in map(work.ends, filter(None, op.inputs)) if ends is not None]
    for work.result in filter(None, op.outputs):
        work.known[work.result] = work.known[unknown] if unknown else _bounded(work, op, operands)


def _bounded(work: _Work, op: Op, operands: Sequence[Ends]) -> Range:
    constant = all(low is high for low, high in operands)
    rule = _rising if constant else _rule_of(op.type)
    if op.captures or op.structure is not None:
        return _no_rule(op)
    try:
        ends = rule(work, op, operands)
    except PlannerError as error:
        return Range(why=f"{op.type} at {op.name!r}: {error}")
    if ends is None:
        return _no_rule(op)
    low, high = ends
    if low is high:
        return Range(low, low)
    if low.dtype.kind == "f":
        low = np.where(np.isnan(low), -np.inf, low).astype(low.dtype)
        high = np.where(np.isnan(high), np.inf, high).astype(high.dtype)
    return Range(low, high)


def _no_rule(op: Op) -> Range:
    return Range(why=f"{op.type.rpartition('::')[2]} at {op.name!r} has no rule for ranges")


def _rising(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """An op that rises with all it reads: what it makes of both ends."""
    low = work.run(op, [ends[0] for ends in operands])
    return (low, low) if all(a is b for a, b in operands) else (low, work.run(op, [b for _, b in operands]))


def _moved(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """An op that moves data by what is known before: the bounds of the elements that it moves."""
    movements = find_movements(operands_of(op, work.graph))
    if movements is None:
        return None
    data = movements[0].operands
    is_fixed = all(low is high for at, (low, high) in enumerate(operands) if at not in data)
    return _rising(work, op, operands) if is_fixed else None


def _rises_where(holds: Callable[[Op, Sequence[Ends]], bool]) -> Rule:
    """`_rising` where parameters say so, else nothing."""
    return lambda work, op, operands: _rising(work, op, operands) if holds(op, operands) else None


def _is_above_0(at: int) -> Callable[[Op, Sequence[Ends]], bool]:
    return lambda _op, operands: bool(np.all(operands[at][0] > 0))


def _cast(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """To floats alone: to integers it wraps around, to truth it falls and rises."""
    is_float = work.graph.values[op.outputs[0]].is_float
    return _rising(work, op, operands) if is_float else None


def _monotone(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """An op that rises or falls with each operand, its parameters fixed."""
    one = defined(op.type)
    signs = one.monotone(op) if one.monotone is not None else ""
    if not signs or (one.parameters and any(low is not high for low, high in operands[1:])):
        return None
    falls = [signs[min(at, len(signs) - 1)] == "-" for at in range(len(operands))]
    least = work.run(op, [ends[fall] for ends, fall in zip(operands, falls, strict=True)])
    return least, work.run(op, [ends[not fall] for ends, fall in zip(operands, falls, strict=True)])


def _corners(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """Products and quotients lie between those of the ends; 0 times what is unbounded is 0."""
    first, second = operands
    if op.type == "Div" and bool(np.any((second[0] <= 0) & (second[1] >= 0))):
        return None
    with np.errstate(all="ignore"):
        found = [np.nan_to_num(work.run(op, [a, b]), nan=0, posinf=np.inf, neginf=-np.inf)
                 for a in _apart(first) for b in _apart(second)]  # fmt: skip
    return np.minimum.reduce(found), np.maximum.reduce(found)


def _apart(ends: Ends) -> tuple[Array, ...]:
    return ends[:1] if ends[0] is ends[1] else ends


def _linear(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """Sums of products: weights above 0 take the same end, those below the other one."""
    (a, b), (w, w_end), *bias = operands
    if w is not w_end:
        (w, w_end), (a, b) = (a, b), (w, w_end)
        if w is not w_end or op.type not in ("Gemm", "MatMul"):
            return None

        def product(weight: Array, x: Array) -> Array:
            return work.run(without, [weight, x])

    else:

        def product(weight: Array, x: Array) -> Array:
            return work.run(without, [x, weight])

    without = replace(op, inputs=op.inputs[:2])
    up, down = np.maximum(w, 0), np.minimum(w, 0)
    # Infinite times 0 is no number, and what is unbounded stays so wherever a weight is not 0.
    sides = [_reached(product, ends, (up, down)) for ends in ((a, b), (b, a))]
    if bias:
        beta = op.attributes.get("beta", 1.0) if op.type == "Gemm" else 1.0
        spread = (-1, *[1] * (sides[0].ndim - 2)) if op.type.startswith("Conv") else bias[0][0].shape
        sides = [
            side + np.float32(beta) * end.reshape(spread) for side, end in zip(sides, bias[0], strict=True)
        ]
    low, high = sides
    if op.type == "Gemm" and op.attributes.get("alpha", 1.0) < 0:
        return None
    return low, high


def _reached(
    product: Callable[[Array, Array], Array], ends: tuple[Array, Array], weights: tuple[Array, Array]
) -> Array:
    total = None
    for end, weight in zip(ends, weights, strict=True):
        part = product(weight, np.where(np.isinf(end), 0, end).astype(end.dtype))
        if np.isinf(end).any():
            far = product((weight != 0).astype(weight.dtype), np.isinf(end).astype(end.dtype))
            sign = np.sign(end[np.isinf(end)][0]) * (1 if (weight > 0).any() else -1)
            part = np.where(far > 0, sign * np.inf, part).astype(part.dtype)
        total = part if total is None else total + part
    return np.asarray(total)


def _normalised(work: _Work, op: Op, operands: Sequence[Ends]) -> Ends | None:
    """BatchNormalization: a channel rises or falls by the sign of its factor."""
    (a, b), *parameters = operands
    if not all(low is high for low, high in parameters) or len([out for out in op.outputs if out]) > 1:
        return None
    rest = [low for low, _ in parameters]
    found = [work.run(op, [end, *rest]) for end in (a, b)]
    return np.minimum(*found), np.maximum(*found)


def _between(_work: _Work, op: Op, operands: Sequence[Ends]) -> Ends:
    """Bounds that the op has by itself, in the shape of its operand."""
    (low, high), like = defined(op.type).bounds or ANY, operands[0][0]
    return np.full(like.shape, low, like.dtype), np.full(like.shape, high, like.dtype)


def _not_negative(_op: Op, operands: Sequence[Ends]) -> bool:
    return bool(np.all(operands[1][0] >= 0)) and operands[1][0] is operands[1][1]


def _rule_of(kind: str) -> Rule:
    one = defined(kind)
    if kind in RULES:
        return RULES[kind]
    if one.monotone is not None:
        return _monotone
    return _moved if one.bounds is None else _between


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(of_form(Form.LINEAR), _linear),
    **dict.fromkeys(of_form(Form.PRODUCT), _corners),
    **dict.fromkeys(
        ("DequantizeLinear", "QuantizeLinear", BIPOLAR, FLOAT_QUANT, QUANT, TRUNC),
        _rises_where(_is_above_0(1)),
    ),
    MULTI_THRESHOLD: _rises_where(lambda op, _operands: op.attributes["out_scale"] > 0),
    "BatchNormalization": _normalised,
    "Cast": _cast,
    "PRelu": _rises_where(_not_negative),
}
