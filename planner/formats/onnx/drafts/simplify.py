"""Small rewrites of a graph read from another format, so that fusions recognise its ops.

Transposes go behind the op that reads them where it computes element by element, along one axis, or moves
data (its constants turn the other way), and past reductions; two in a row become one, or none: a program
with channels last is one with channels first again. `exp(x - max) / sum` over one axis is Softmax. A value
with a constraint of its own stays as it is.
Source: ONNX operators, opset 21.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.drafts.draft import Draft
from planner.ir.graph import Facts, Op, Value
from planner.ops import of_form
from planner.ops.forms import Form

Order: TypeAlias = tuple[int, ...]

_BROADCAST: Final = (
    Form.BINARY,
    Form.COMPARISON,
    Form.LOGICAL,
    Form.PRODUCT,
    Form.SELECT,
    Form.SUM,
    Form.VARIADIC,
)


def tidy(draft: Draft[Any], outputs: Sequence[str], *, pools: bool = True) -> None:
    """Rewrite a draft's ops, in one pass front to back, and drop unread ones.

    Args:
      pools: whether a mean of all spatial axes becomes GlobalAveragePool.
    """
    work = _Work(draft, {}, frozenset(outputs), pools)
    ops, draft.read.ops = draft.read.ops, []
    for op in ops:
        work.take(op)
    _sweep(draft, outputs)


def _sweep(draft: Draft[Any], outputs: Sequence[str]) -> None:
    wanted = set(outputs)
    kept = []
    for op in reversed(draft.read.ops):
        if not wanted.isdisjoint(op.outputs) or "::" in op.type:
            kept.append(op)
            wanted.update((*op.inputs, *op.captures))
    draft.read.ops = kept[::-1]


@dataclass
class _Work:
    """The ops so far, by their results."""

    draft: Draft[Any]
    makers: dict[str, Op]
    outputs: frozenset[str]
    pools: bool = True
    names: dict[str, str] = field(default_factory=dict)

    def take(self, op: Op) -> None:
        op = replace(op, inputs=tuple([self.names.get(name, name) for name in op.inputs]))
        rewrite = _REWRITES.get(op.type)
        if rewrite is None or len(op.outputs) != 1 or not rewrite(self, op):
            self.put(op)

    def put(self, op: Op) -> None:
        self.draft.read.ops.append(op)
        self.makers |= dict.fromkeys(op.outputs, op)

    def made(self, name: str, kind: str) -> Op | None:
        """The op that gives a value without constraints, where it is of this kind."""
        op = self.makers.get(name)
        return op if op is not None and op.type == kind and not self.facts(name) else None

    def turned(self, name: str) -> tuple[str, Order] | None:
        """The operand and order of a transpose; None where the value is none, or has constraints."""
        op = self.makers.get(name)
        if op is None or op.type != "Transpose" or not self.is_same(op.inputs[0], name):
            return None
        order = tuple(op.attributes["perm"])
        shapes = self.draft.shape(op.inputs[0]), self.draft.shape(name)
        # A file may declare other ranks than its transpose has: shape inference refuses it, not we.
        whole = all(shape is None or sorted(order) == list(range(len(shape))) for shape in shapes)
        return (op.inputs[0], order) if whole else None

    def moved(self, op: Op, axes: Sequence[int], order: Order) -> list[int]:
        """Axes of an op's operand as they were before a transpose of it.

        Raises:
          ModelError: the operand has no such axis.
        """
        rank = len(order)
        for axis in axes:
            if not -rank <= axis < rank:
                raise ModelError(f"{op.type} at {op.name!r}: no axis {axis} in {rank} dimensions")
        return [order[axis] for axis in axes]

    def facts(self, name: str) -> Facts:
        """Constraints of a value."""
        found: Facts = self.draft.read.stated.get(name, ())
        return found

    def is_same(self, source: str, name: str) -> bool:
        """Whether a value that moves another has no constraints of its own."""
        found = self.facts(name)
        return not found or (found == self.facts(source) and self.is_plain(name))

    def is_plain(self, name: str) -> bool:
        """Whether a value's constraints are of the whole tensor, whatever the order of its axes."""
        facts: tuple[Any, ...] = self.facts(name)
        return all(getattr(fact, "axis", None) is None and not getattr(fact, "grid", ()) for fact in facts)

    def before(self, op: Op, inputs: Sequence[str], order: Order, attributes: Mapping[str, object]) -> None:
        """Put an op on untransposed operands, and the transpose of its result."""
        name = op.outputs[0]
        value = self.draft.read.values[name]
        shape = self.draft.shape(name) or ()
        if len(shape) != len(order):
            raise ModelError(
                f"{op.type} at {op.name!r}: its result has {len(shape)} dimensions, its operand {len(order)}"
            )
        inner = self.draft.read.fresh(name)
        sizes = [0] * len(order)
        for place, axis in enumerate(order):
            sizes[axis] = shape[place]
        self.draft.read.values[inner] = Value(inner, tuple(sizes), value.dtype)
        if self.facts(name):
            self.draft.read.stated[inner] = self.facts(name)
        self.take(replace(op, name=inner, inputs=tuple(inputs), outputs=(inner,), attributes=attributes))
        self.take(Op(name, "Transpose", (inner,), (name,), {"perm": order}))


def _transpose(work: _Work, op: Op) -> bool:
    """Two transposes are one, or none."""
    source = work.turned(op.inputs[0])
    if source is None:
        return False
    if sorted(op.attributes["perm"]) != sorted(source[1]):
        raise ModelError(f"Transpose at {op.name!r}: {list(op.attributes['perm'])} is no order of its axes")
    # perm[i] is the source of axis i, so a transpose of a transpose picks from the first by the second.
    order = tuple([source[1][axis] for axis in op.attributes["perm"]])
    if order == tuple(range(len(order))):
        if work.is_same(source[0], op.outputs[0]) and op.outputs[0] not in work.outputs:
            work.names[op.outputs[0]] = source[0]
        else:
            work.put(replace(op, type="Identity", inputs=(source[0],), attributes={}))
    else:
        work.put(replace(op, inputs=(source[0],), attributes={"perm": order}))
    return True


def _unary(work: _Work, op: Op) -> bool:
    source = work.turned(op.inputs[0])
    if source is None or not work.is_plain(op.outputs[0]):
        return False
    work.before(op, [source[0], *op.inputs[1:]], source[1], op.attributes)
    return True


def _binary(work: _Work, op: Op) -> bool:
    """Both operands transposed alike, or one of them and a constant; a bias goes into its convolution."""
    if op.type == "Add" and _bias(work, op):
        return True
    sources = [work.turned(name) for name in op.inputs]
    known = [source for source in sources if source is not None]
    # Operands turned in different ways have no common order in which to compute first.
    if not known or not work.is_plain(op.outputs[0]) or any(source[1] != known[0][1] for source in known):
        return False
    order = known[0][1]
    if len(order) != len(work.draft.shape(op.outputs[0]) or ()):
        return False
    inputs = []
    for name, source in zip(op.inputs, sources, strict=True):
        back = source[0] if source is not None else _turned_back(work, name, order)
        if back is None:
            return False
        inputs.append(back)
    work.before(op, inputs, order, op.attributes)
    return True


def _turned_back(work: _Work, name: str, order: Order) -> str | None:
    """A constant as it is before a transpose; None for any other value."""
    array = work.draft.array(name)
    if array is None or array.size == 1:
        return None if array is None else name
    ahead = len(order) - array.ndim
    if ahead < 0:
        return None
    back = array.reshape((1,) * ahead + array.shape).transpose(np.argsort(order))
    facts = work.draft.moved(name, {axis: order[axis + ahead] for axis in range(array.ndim)})
    return None if facts is None else work.draft.constant(np.ascontiguousarray(back), name, facts)


def _bias(work: _Work, op: Op) -> bool:
    """Make the addend of a convolution's channels its bias."""
    # Add commutes; the convolution may be either operand.
    for value, added in (op.inputs, op.inputs[::-1]):
        made = work.made(value, "Conv") or work.made(value, "ConvTranspose")
        shape, array = work.draft.shape(value), work.draft.array(added)
        if made is None or len(made.inputs) != 2 or shape is None or len(shape) < 2 or array is None:
            continue
        wide = (1,) * (len(shape) - array.ndim) + array.shape
        if wide != (1, shape[1], *(1,) * (len(shape) - 2)):
            continue
        facts = work.draft.moved(added, {array.ndim - len(shape) + 1: 0})
        if facts is None:
            continue
        bias = work.draft.constant(np.ascontiguousarray(array.reshape(-1)), added, facts)
        work.put(replace(op, type=made.type, inputs=(*made.inputs, bias), attributes=made.attributes))
        return True
    return False


def _reduction(work: _Work, op: Op) -> bool:
    """Reduce before a transpose, where the axes that stay keep their order."""
    source, axes = work.turned(op.inputs[0]), work.draft.array(op.inputs[1])
    shape = work.draft.shape(op.inputs[0])
    if axes is None or shape is None:
        return False
    if op.attributes.get("keepdims", 1):
        return _kept_reduction(work, op, axes.tolist())
    name, order = source or (op.inputs[0], tuple(range(len(shape))))
    reduced = sorted(work.moved(op, axes.tolist(), order))
    stay = [axis for place, axis in enumerate(order) if place not in axes.tolist()]
    # Only if the axes that stay keep their order, the transpose can go without another behind.
    if stay != sorted(stay):
        return False
    if (
        work.pools
        and op.type == "ReduceMean"
        and len(shape) > 3
        and stay == [0, 1]
        and work.is_plain(op.outputs[0])
    ):
        _global_pool(work, op, name)
    else:
        work.put(replace(op, inputs=(name, work.draft.integers(reduced))))
    return True


def _kept_reduction(work: _Work, op: Op, axes: Sequence[int]) -> bool:
    """Reduce before a transpose, every axis kept."""
    source = work.turned(op.inputs[0])
    if source is None or not work.is_plain(op.outputs[0]):
        return False
    moved = work.draft.integers(sorted(work.moved(op, axes, source[1])))
    work.before(op, [source[0], moved], source[1], op.attributes)
    return True


def _along(work: _Work, op: Op) -> bool:
    """Run along the same axis before a transpose."""
    source = work.turned(op.inputs[0])
    axis = op.attributes.get("axis", -1)
    if source is None or not work.is_plain(op.outputs[0]) or not -len(source[1]) <= axis < len(source[1]):
        return False
    axis = source[1][axis]
    work.before(op, [source[0]], source[1], {**op.attributes, "axis": axis})
    return True


def _concat(work: _Work, op: Op) -> bool:
    """Join before a transpose that all operands have, constants turned the other way."""
    sources = [work.turned(name) for name in op.inputs]
    known = [source for source in sources if source is not None]
    if not known or not work.is_plain(op.outputs[0]) or any(source[1] != known[0][1] for source in known):
        return False
    order, inputs = known[0][1], []
    for name, source in zip(op.inputs, sources, strict=True):
        back = source[0] if source is not None else _turned_back(work, name, order)
        shape = None if back is None else work.draft.shape(back)
        if back is None or shape is None or len(shape) != len(order):
            return False
        inputs.append(back)
    (axis,) = work.moved(op, [op.attributes["axis"]], order)
    work.before(op, inputs, order, {**op.attributes, "axis": axis})
    return True


def _pad(work: _Work, op: Op) -> bool:
    """Pad before a transpose."""
    source, pads = work.turned(op.inputs[0]), work.draft.array(op.inputs[1])
    if source is None or pads is None or len(op.inputs) > 3 or not work.is_plain(op.outputs[0]):
        return False
    order, rank = source[1], len(source[1])
    if pads.size != 2 * rank:
        return False
    moved = [int(pads[side * rank + order.index(axis)]) for side in (0, 1) for axis in range(rank)]
    inputs = [source[0], work.draft.integers(moved), *op.inputs[2:]]
    work.before(op, inputs, order, op.attributes)
    return True


def _slice(work: _Work, op: Op) -> bool:
    """Slice before a transpose."""
    source = work.turned(op.inputs[0])
    axes = work.draft.array(op.inputs[3]) if len(op.inputs) > 3 else None
    if source is None or axes is None or not work.is_plain(op.outputs[0]):
        return False
    moved = work.draft.integers(work.moved(op, axes.tolist(), source[1]))
    work.before(op, [source[0], *op.inputs[1:3], moved, *op.inputs[4:]], source[1], op.attributes)
    return True


def _global_pool(work: _Work, op: Op, name: str) -> None:
    """The mean of every channel, and its shape without the spatial axes."""
    shape, result = work.draft.shape(name) or (), op.outputs[0]
    inner = work.draft.read.fresh(result)
    sizes = (*shape[:2], *(1,) * (len(shape) - 2))
    work.draft.read.values[inner] = Value(inner, sizes, work.draft.read.values[result].dtype)
    if work.facts(result):
        work.draft.read.stated[inner] = work.facts(result)
    work.put(
        replace(op, name=inner, type="GlobalAveragePool", inputs=(name,), outputs=(inner,), attributes={})
    )
    work.take(Op(result, "Reshape", (inner, work.draft.integers(shape[:2])), (result,)))


def _reshape(work: _Work, op: Op) -> bool:
    """Two reshapes are one; a transpose that moves axes of size 1 alone is none in front of one."""
    before = work.makers.get(op.inputs[0])
    if before is not None and before.type == "Transpose" and work.is_same(before.inputs[0], op.inputs[0]):
        shape = work.draft.shape(before.inputs[0]) or ()
        wide = [axis for axis in before.attributes["perm"] if axis >= len(shape) or shape[axis] != 1]
        if shape and wide == sorted(wide):
            work.take(replace(op, inputs=(before.inputs[0], op.inputs[1])))
            return True
    if before is None or before.type != "Reshape" or not work.is_same(before.inputs[0], op.inputs[0]):
        return False
    work.put(replace(op, inputs=(before.inputs[0], op.inputs[1])))
    return True


def _softmax(work: _Work, op: Op) -> bool:
    """`exp(x - max(x)) / sum(exp(..))` along one axis."""
    power, total = work.made(op.inputs[0], "Exp"), _reduced(work, op.inputs[1], "ReduceSum")
    difference = None if power is None else work.made(power.inputs[0], "Sub")
    if power is None or difference is None or total is None or total[0] != op.inputs[0]:
        return _binary(work, op)
    largest = _reduced(work, difference.inputs[1], "ReduceMax")
    # exp(x - max(x)) / sum: subtracting the maximum changes nothing
    # but overflow. It must be of the same x, along the same axis.
    if largest is None or largest != (difference.inputs[0], total[1]):
        return _binary(work, op)
    work.put(replace(op, type="Softmax", inputs=(difference.inputs[0],), attributes={"axis": total[1]}))
    return True


def _reduced(work: _Work, name: str, kind: str) -> tuple[str, int] | None:
    """The operand of a reduction along one axis, and the axis; a reshape may keep the axis."""
    reshape = work.made(name, "Reshape")
    op = work.made(reshape.inputs[0] if reshape is not None else name, kind)
    if op is None:
        return None
    axes, shape = work.draft.array(op.inputs[1]), work.draft.shape(op.inputs[0])
    if axes is None or axes.size != 1 or shape is None:
        return None
    axis = int(axes[0])
    kept = tuple([1 if place == axis else size for place, size in enumerate(shape)])
    return (op.inputs[0], axis) if work.draft.shape(name) == kept else None


_REWRITES: Final[Mapping[str, Callable[[_Work, Op], bool]]] = {
    **dict.fromkeys(of_form(Form.UNARY), _unary),
    **dict.fromkeys(of_form(*_BROADCAST), _binary),
    **dict.fromkeys(of_form(Form.REDUCTION), _reduction),
    **dict.fromkeys(of_form(Form.ALONG), _along),
    **dict.fromkeys(of_form(Form.CONCAT), _concat),
    "Div": _softmax,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Transpose": _transpose,
}
