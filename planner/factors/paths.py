"""Paths of a factor to constants: back to those that make a value, forward to those that read it.

Views, sums with constants, Relu and pools lie on a path, a positive factor passes all of them; products and
norms end it. A move collects what would change; nothing does before `commit_back` or `commit_forward`.
In: the graph in the middle of `absorb.absorb_factors`. Source: ONNX operator schemas.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.factors.facts import is_observed, scaled_facts, with_readers_of
from planner.formats.onnx.naming import unused
from planner.ir.graph import FLOAT_DTYPES, Constant, Graph, Op, Value
from planner.ir.mapped import mapped_file
from planner.ops import defined
from planner.ops.forms import Factors, Form

MAX_BYTES: Final = 64 << 20
"""Of a constant that is multiplied: larger ones stay as they are, as do those that lie in a file."""
MOST_SHARED: Final = 1 << 12
"""Elements of a constant that gets a copy because others read it too."""
MOST_STEPS: Final = 64
"""Ops on the way of one factor."""

Reals: TypeAlias = npt.NDArray[np.float64]
BLOCK_ENDS: Final = frozenset({"Clip", "Div", "Erf", "Mul", "Pow", "Sqrt"})


@dataclass(slots=True)
class Work:
    """The graph as it stands in the middle of the pass.

    Attributes:
      ops: those that are left; None where a step was.
      writer, readers: indices into `ops`; a consumer twice where it reads twice.
      bound: values that keep their name and numbers: outputs of the model, and what bodies read.
      scaled: as `Graph.scaled` has it.
    """

    ops: list[Op | None]
    values: dict[str, Value]
    constants: dict[str, Constant]
    bound: frozenset[str]
    taken: set[str]
    scaled: dict[str, tuple[str, float]]
    writer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)

    def op(self, at: int) -> Op:
        """The op at an index where one is left."""
        found = self.ops[at]
        assert found is not None  # noqa: S101 - removed ops are read by nothing
        return found

    def put(self, at: int, op: Op | None) -> None:
        """Replace or remove an op."""
        old = self.ops[at]
        for name in old.inputs if old is not None else ():
            self.readers[name].remove(at)
        self.ops[at] = op
        for name in op.inputs if op is not None else ():
            self.readers.setdefault(name, []).append(at)
        for name in op.outputs if op is not None else ():
            self.writer[name] = at

    def rename(self, old: str, new: str) -> None:
        """Give a value another name, at the op that writes it and at all that read it."""
        for at in dict.fromkeys((self.writer[old], *self.readers.get(old, ()))):
            op = self.op(at)
            inputs, outputs = (
                [new if name == old else name for name in side] for side in (op.inputs, op.outputs)
            )
            self.put(at, replace(op, inputs=tuple(inputs), outputs=tuple(outputs)))

    def scale(self, name: str, factor: float) -> None:
        """Give a value the name of its new numbers, and its facts those numbers."""
        new, value = unused(f"{name}/scaled", self.taken), self.values.pop(name)
        self.rename(name, new)
        self.values[new] = replace(value, name=new, facts=scaled_facts(value, factor) or ())
        self.tell(name, new, factor)

    def tell(self, old: str, new: str, factor: float) -> None:
        """Note that a value holds another one's numbers times a factor."""
        for name, (held, before) in self.scaled.items():
            if held == old:
                self.scaled[name] = new, before * factor
        self.scaled[old] = new, factor

    def may_scale(self, name: str, factor: float | Reals) -> bool:
        """Whether a value may have other numbers: it has only observations, and is not in `bound`."""
        value = self.values[name]
        if name in self.bound or not is_observed(value):
            return False
        return bool(np.ndim(factor)) or scaled_facts(value, float(factor)) is not None


def work_on(graph: Graph, bound: Iterable[str] = ()) -> Work:
    """Index a graph; linear in operands.

    Args:
      bound: more values that keep their name and numbers.
    """
    own = frozenset(graph.outputs).union(bound, *(op.captures for op in graph.ops))
    empty: list[Op | None] = [None] * len(graph.ops)
    values, constants = dict(graph.values), dict(graph.constants)
    # Names that values had are not free: facts are known by them.
    taken = {*values, *graph.scaled}
    work = Work(empty, values, constants, own, taken, dict(graph.scaled))
    for at, op in enumerate(graph.ops):
        work.put(at, op)
    return work


@dataclass(slots=True)
class Move:
    """One factor on its way.

    Attributes:
      edits: new numbers of constants, by the index of their consumer and the place there.
      renamed: values that will have other numbers, nearest to the step first.
    """

    work: Work
    scope: str
    steps: int = 0
    edits: dict[tuple[int, int], npt.NDArray[np.generic]] = field(default_factory=dict)
    renamed: list[str] = field(default_factory=list)

    def passes(self, op: Op) -> bool:
        """Whether the way may lead through an op."""
        self.steps += 1
        plain = op.scope == self.scope and not op.captures and not any(op.outputs[1:])
        return plain and self.steps <= MOST_STEPS

    def edit(self, at: int, index: int, factor: float | Reals) -> bool:
        """Multiply a constant operand; False where it is none that may change."""
        op = self.work.op(at)
        name = op.inputs[index] if index < len(op.inputs) else ""
        constant, value = self.work.constants.get(name), self.work.values.get(name)
        if constant is None or value is None or value.facts or value.dtype not in FLOAT_DTYPES:
            return False
        array = constant.array
        if array is None or array.nbytes > MAX_BYTES or mapped_file(array) is not None:
            return False
        if self.is_shared(name) and array.size > MOST_SHARED:
            return False
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exact = array.astype(np.float64) * factor
            numbers = exact.astype(array.dtype)
            off = np.abs(numbers.astype(np.float64) - exact)
        # A number beyond its type, or so small that it has fewer digits there, would be another number.
        if not (off <= np.abs(exact) * float(np.spacing(array.dtype.type(1)))).all():
            return False
        self.edits[at, index] = numbers
        return True

    def is_shared(self, name: str) -> bool:
        """Whether more than one op reads a constant."""
        return name in self.work.bound or len(self.work.readers[name]) > 1


def back(move: Move, name: str, factor: float) -> bool:
    """Multiply the constants that make a value; False where that cannot be said of all of them."""
    work = move.work
    at = work.writer.get(name)
    if at is None or not work.may_scale(name, factor) or len(work.readers[name]) != 1:
        return False
    op = work.op(at)
    one = defined(op.type)
    way = _back_through if one.factors else BACK.get(one.form)
    if way is None or op.outputs[0] != name or not move.passes(op):
        return False
    move.renamed.append(name)
    return way(move, at, op, factor)


def _back_through(move: Move, at: int, op: Op, factor: float) -> bool:
    if not _hands_on(op, factor, move.work):
        return False
    # Rows of a table that are looked up are constants, too.
    return (
        move.edit(at, 0, factor) if op.inputs[0] in move.work.constants else back(move, op.inputs[0], factor)
    )


def _hands_on(op: Op, factor: float | Reals, work: Work) -> bool:
    """Whether an op gives its first operand's factor to its result: `f(a x)` is `a f(x)`."""
    if op.type == "Pad":
        name = op.inputs[2] if len(op.inputs) > 2 else ""
        filling = work.constants[name].array if name in work.constants else None
        return not name or (filling is not None and not filling.any())
    return defined(op.type).factors is Factors.ANY or bool(factor > 0)


def _back_to_sum(move: Move, at: int, op: Op, factor: float) -> bool:
    """A sum, or operands joined: all have the factor."""
    return all(
        move.edit(at, index, factor) if name in move.work.constants else back(move, name, factor)
        for index, name in enumerate(op.inputs)
    )


def _back_to_product(move: Move, at: int, op: Op, factor: float) -> bool:
    """A product: one of its sides has the factor, a constant one if there is one; and what is added to it."""
    if len(op.inputs) > 2 and op.inputs[2] and not move.edit(at, 2, factor):
        return False
    for index in (1, 0):
        if op.inputs[index] in move.work.constants:
            return move.edit(at, index, factor)
    if op.type not in ("Gemm", "MatMul"):
        return False
    edits, renamed, steps = dict(move.edits), list(move.renamed), move.steps
    for name in op.inputs[:2]:
        if back(move, name, factor):
            return True
        move.edits, move.renamed, move.steps = dict(edits), list(renamed), steps
    return False


def _back_to_factor(move: Move, at: int, op: Op, factor: float) -> bool:
    """Another factor: both are one. Not the last op of a block that is spelled out, which stays as it is."""
    constants = [index for index, name in enumerate(op.inputs) if name in move.work.constants]
    if len(constants) != 1 or (op.type == "Div" and constants != [1]):
        return False
    before = move.work.writer.get(op.inputs[1 - constants[0]])
    elements = move.work.values[op.inputs[constants[0]]].elements
    if elements == 1 and before is not None and move.work.op(before).type in BLOCK_ENDS:
        return False
    return move.edit(at, constants[0], 1 / factor if op.type == "Div" else factor)


def _back_to_norm(move: Move, at: int, op: Op, factor: float) -> bool:
    return all(
        move.edit(at, index, factor) for index in (1, 2) if index < len(op.inputs) and op.inputs[index]
    )


def forward(move: Move, name: str, factor: Reals) -> bool:
    """Multiply the constants that read a value; False where that cannot be said of all that read it."""
    work = move.work
    with np.errstate(over="ignore"):
        inverse = 1 / factor
    if not work.may_scale(name, inverse) or not work.readers.get(name):
        return False
    for at in work.readers[name]:
        op = work.op(at)
        one = defined(op.type)
        way = _onward if one.factors else FORWARD.get(one.form)
        # Twice in the list where it reads the value twice: then it is no factor of its result.
        if way is None or op.inputs.count(name) != 1 or not move.passes(op):
            return False
        if not way(move, at, op, op.inputs.index(name), factor):
            return False
    return True


def _onward(move: Move, at: int, op: Op, index: int, factor: Reals) -> bool:  # noqa: ARG001 - as FORWARD has it
    if factor.ndim or index or not _hands_on(op, factor, move.work):
        return False
    move.renamed.append(op.outputs[0])
    return forward(move, op.outputs[0], factor)


def _past_sum(move: Move, at: int, op: Op, index: int, factor: Reals) -> bool:
    """A sum with a constant, which is divided: `a x + k` is `a (x + k / a)`."""
    if factor.ndim or not move.edit(at, 1 - index, float(1 / factor)):
        return False
    move.renamed.append(op.outputs[0])
    return forward(move, op.outputs[0], factor)


def _into_factor(move: Move, at: int, op: Op, index: int, factor: Reals) -> bool:
    if op.type == "Div":
        return not factor.ndim and index == 0 and move.edit(at, 1, float(1 / factor))
    return not factor.ndim and move.edit(at, 1 - index, factor)


def _into_product(move: Move, at: int, op: Op, index: int, factor: Reals) -> bool:
    if not factor.ndim:
        return index < 2 and move.edit(at, 1 - index, factor)
    rows = _as_rows(move.work, op, factor) if index == 0 else None
    if rows is None:
        return False
    groups = int(op.attributes.get("group", 1)) if op.type == "Conv" else 1
    return move.edit(at, 1, rows) if groups == 1 else False


def _as_rows(work: Work, op: Op, factor: Reals) -> Reals | None:
    """A vector of factors, one a channel that a product sums over, as it broadcasts against its weight."""
    x, weight = work.values[op.inputs[0]].shape, work.values[op.inputs[1]].shape
    if x is None or weight is None or len(weight) < 2 or op.attributes.get("transA", 0):
        return None
    channels = 1 if op.type in ("Conv", "ConvTranspose") else len(x) - 1
    shape = (1,) * (len(x) - factor.ndim) + factor.shape
    if len(x) < 2 or shape[channels] != factor.size or x[channels] != factor.size:
        return None
    axis = {"Conv": 1, "ConvTranspose": 0, "Gemm": op.attributes.get("transB", 0)}.get(
        op.type, len(weight) - 2
    )
    return factor.reshape([-1 if i == axis else 1 for i in range(len(weight))])


def commit_back(move: Move, at: int, factor: float) -> str:
    """Change the constants and take the step away; what was changed, in words."""
    work = move.work
    y = work.op(at).outputs[0]
    told = _commit(move)
    work.put(at, None)
    nearest, *others = move.renamed
    work.rename(nearest, y)
    del work.values[nearest]
    work.tell(nearest, y, factor)
    for name in others:
        work.scale(name, factor)
    return told


def commit_forward(move: Move, at: int, source: str, factor: Reals) -> str:
    """Change the constants and take the step away; what was changed, in words."""
    work = move.work
    y = work.op(at).outputs[0]
    told = _commit(move)
    work.put(at, None)
    for reader in dict.fromkeys(work.readers[y]):
        op = work.op(reader)
        work.put(reader, replace(op, inputs=tuple(source if name == y else name for name in op.inputs)))
    work.values[source] = with_readers_of(work.values[source], work.values.pop(y))
    # Of a vector, no one factor leads back from the numbers that are left.
    work.tell(y, source, float("nan") if factor.ndim else float(1 / factor))
    for name in move.renamed:
        work.scale(name, float(1 / factor))
    return told


def _commit(move: Move) -> str:
    work = move.work
    told = []
    for (at, index), array in move.edits.items():
        op = work.op(at)
        old = new = op.inputs[index]
        if move.is_shared(old):
            new = unused(f"{old}/{op.name}", work.taken)
        work.constants[new] = Constant(array)
        work.values[new] = replace(work.values[old], name=new, shape=array.shape)
        work.put(at, replace(op, inputs=(*op.inputs[:index], new, *op.inputs[index + 1 :])))
        told.append(repr(new))
    return ", ".join(dict.fromkeys(told))


_Back: TypeAlias = Callable[[Move, int, Op, float], bool]
_Forward: TypeAlias = Callable[[Move, int, Op, int, Reals], bool]
BACK: Final[Mapping[Form, _Back]] = {
    Form.CONCAT: _back_to_sum,
    Form.LINEAR: _back_to_product,
    Form.NORM: _back_to_norm,
    Form.PRODUCT: _back_to_factor,
    Form.SUM: _back_to_sum,
}
FORWARD: Final[Mapping[Form, _Forward]] = {
    Form.LINEAR: _into_product,
    Form.PRODUCT: _into_factor,
    Form.SUM: _past_sum,
}
