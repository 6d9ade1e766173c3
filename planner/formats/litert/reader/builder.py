"""Builder: the draft of a graph while a file's operators are read; tensors are values by index.

A tensor with scales is a value of reals with its type as a constraint, a constant the reals on its grid.
LiteRT stores images channels last: what ONNX computes channels first stands between transposes, which
`onnx.drafts.simplify` takes away again. Source: LiteRT 8-bit quantization specification; ONNX, opset 21.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from planner.errors import ModelError
from planner.formats.litert.reader.file import STORED, Array, File, Operator, Tensor
from planner.formats.litert.vocabulary import FUSED, Builtin
from planner.formats.onnx.drafts.draft import Draft
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Constant, Facts, Graph, Op, Value
from planner.ir.types.qtypes import AnyType, Storage, Uniform, storage

NONE: Final = 0
_TANH: Final = 4
_OF_BIAS: Final = 1e-5
"""How far a bias' scale may be from that of its accumulator, relatively: converters round it to float32."""
_EXACT: Final = 1 << 24
_BYTE: Final = storage("i8")
DEEPEST: Final = 64
"""Subgraphs that run each other, one within another."""


class Unread(Exception):
    """An operator that no ONNX op equals; the reason."""


@dataclass
class State:
    """Values, constants and ops so far; see `onnx.drafts.draft.State`."""

    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    stated: dict[str, Facts] = field(default_factory=dict)

    def fresh(self, base: str) -> str:
        """Make a name no value has yet."""
        count = 1
        while f"{base}#{count}" in self.values:
            count += 1
        return f"{base}#{count}"


@dataclass
class Builder(Draft[State]):
    """The draft, and the value that each tensor is.

    Attributes:
      names: of values, by the index of the tensor.
      taken: names of the model's inputs and outputs, which no other value may have.
      functions: subgraphs read so far, of the whole file.
      graph_of: reads a subgraph.
      chain: subgraphs that this one is run by, and itself.
      hybrid: tensors that a kernel quantizes by their own range: as bytes, with no type of their own.
      handles: names of variables, by the tensor that stands for one.
      held, states: by name of a variable, the value that it holds, and the input that it held at first.
    """

    file: File = field(kw_only=True)
    names: dict[int, str] = field(default_factory=dict, kw_only=True)
    taken: set[str] = field(default_factory=set, kw_only=True)
    functions: dict[str, Graph] = field(default_factory=dict, kw_only=True)
    graph_of: "Callable[[Builder, File], Graph]" = field(kw_only=True)
    chain: tuple[int, ...] = field(default=(0,), kw_only=True)
    hybrid: frozenset[int] = field(default=frozenset(), kw_only=True)
    known_functions: dict[tuple[int, tuple[int, ...]], str] = field(default_factory=dict, kw_only=True)
    handles: dict[int, str] = field(default_factory=dict, kw_only=True)
    held: dict[str, str] = field(default_factory=dict, kw_only=True)
    states: dict[str, str] = field(default_factory=dict, kw_only=True)

    def subgraph(self, index: int) -> File:
        """Another subgraph of the file.

        Raises:
          ModelError: there is none, it runs itself, or it is run by too many others, one within another.
        """
        if len(self.chain) >= DEEPEST:
            raise ModelError(f"subgraph {index} is run {DEEPEST} subgraphs deep; accepted: fewer")
        if index in self.chain:
            raise ModelError(f"subgraph {index} runs itself: {' -> '.join(map(str, (*self.chain, index)))}")
        return self.file.subgraph(index)

    def function(self, file: File) -> str:
        """The name of the function that a subgraph is; read once for the same results."""
        key = file.index, tuple([place for _, place in file.outputs])
        if key not in self.known_functions:
            graph = self.graph_of(self, file)
            name = self.known_functions[key] = self.named(file.name)
            self.functions[name] = replace(graph, name=name)
        return self.known_functions[key]

    def named(self, base: str) -> str:
        """A name that no function has."""
        count, name = 1, base
        while name in self.functions:
            count += 1
            name = f"{base}_{count}"
        return name

    def zeros(self, value: Value) -> Constant:
        """Zeros of a value's shape, for an operand that nothing reads."""
        shape = tuple([size for size in value.shape or () if isinstance(size, int)])
        return Constant(np.zeros(shape, NUMPY[value.dtype]))

    def tensor(self, op: Operator, index: int) -> Tensor:
        """An operand; one that is absent ends the reading of the operator."""
        if not self.has(op, index):
            raise Unread(f"operand {index} is absent")
        return self.file.tensors[op.inputs[index]]

    def has(self, op: Operator, index: int) -> bool:
        """Whether an operand is there."""
        return len(op.inputs) > index and op.inputs[index] >= 0

    def value(self, op: Operator, index: int) -> str:
        """The value of an operand."""
        self.tensor(op, index)
        return self.known(op.inputs[index])

    def known(self, place: int) -> str:
        """The value of a tensor that is an input, a constant or a result.

        Raises:
          ModelError: nothing before has defined it.
        """
        if place in self.names:
            return self.names[place]
        tensor = self.file.tensors[place]
        if tensor.data is None:
            if 0 in tensor.shape:
                # A tensor without elements has no buffer.
                return self.defined(place, np.zeros(tensor.shape, np.float32))
            raise ModelError(f"tensor {tensor.name!r} is read, and nothing before defines it")
        return self.defined(place, reals_of(tensor))

    def defined(self, place: int, array: Array) -> str:
        """Enter a constant, with the type of its tensor."""
        tensor = self.file.tensors[place]
        name = self.enter(place, tensor.element if array.dtype != np.float32 else "f32")
        self.read.constants[name] = Constant(array)
        if tensor.kind is not None and tensor.data is not None:
            self.read.stated[name] = (tight(tensor),)
        return name

    def enter(self, place: int, dtype: str = "", name: str = "") -> str:
        """Name a tensor and make it a value."""
        tensor = self.file.tensors[place]
        found = name or tensor.name or f"tensor_{place}"
        if found in self.read.values or (not name and found in self.taken):
            found = self.read.fresh(found)
        self.names[place] = found
        is_real = tensor.kind is not None or tensor.element == "f16"
        self.read.values[found] = Value(found, tensor.shape, dtype or ("f32" if is_real else tensor.element))
        if tensor.kind is not None and tensor.kind.is_per_tensor:
            self.read.stated[found] = (tensor.kind,)
        elif place in self.hybrid:
            self.read.stated[found] = (AnyType(_BYTE),)
        return found

    def result(
        self,
        op: Operator,
        kind: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        *,
        activation: int = NONE,
        order: Sequence[int] = (),
        index: int = 0,
    ) -> None:
        """Add the ops that define a result: the op itself, an activation, a transpose.

        Args:
          activation: of the operator's options.
          order: of the transpose behind, where the op computes in another order than the file.
        """
        place = op.outputs[index]
        if place < 0 or place in self.names:
            raise ModelError(f"operator {op.name} defines tensor {place}, which is defined already")
        shape = made = self.file.tensors[place].shape
        if activation != NONE and self.file.tensors[place].element not in ("f32", *STORED):
            raise Unread(f"its activation is on {self.file.tensors[place].element}")
        steps = [(kind, list(inputs), dict(attributes or {})), *self.activated(activation)]
        if order:
            inner = [0] * len(shape)
            for at, axis in enumerate(order):
                inner[axis] = shape[at]
            steps.append(("Transpose", [], {"perm": tuple(order)}))
            made = tuple(inner)
        name = self.enter(place)
        value, last = self.read.values[name], ""
        for i, (what, operands, given) in enumerate(steps):
            last = name
            if i < len(steps) - 1:
                last = self.read.fresh(name)
                self.read.values[last] = replace(value, name=last, shape=made)
            before = [self.read.ops[-1].outputs[0]] if i else []
            self.read.ops.append(Op(last, what, (*before, *operands), (last,), given))
            # What stands in front of the transpose has the type already.
            if order and i == len(steps) - 2 and name in self.read.stated:
                self.read.stated[last] = self.read.stated[name]

    def activated(self, activation: int) -> list[tuple[str, list[str], dict[str, Any]]]:
        """The op of an activation inside an operator."""
        if activation == NONE:
            return []
        if activation == _TANH:
            return [("Tanh", [], {})]
        if activation not in FUSED:
            raise Unread(f"its activation is number {activation} of the schema")
        low, high = FUSED[activation]
        if high is None:
            return [("Relu", [], {})]
        ends = [self.constant(np.array(end, np.float32), "bound") for end in (low, high)]
        return [("Clip", ends, {})]

    def turned(self, name: str, order: Sequence[int]) -> str:
        """A value with its axes in another order, its type with it."""
        found = self.transposed(name, order)
        facts = self.read.stated.get(name, ())
        if found != name and facts and found not in self.read.stated:
            self.read.stated[found] = facts
        return found

    def shaped(self, name: str, shape: Sequence[int]) -> str:
        """A value in another shape, its type with it."""
        found = self.reshaped(name, shape)
        facts = self.read.stated.get(name, ())
        if found != name and facts and found not in self.read.stated:
            self.read.stated[found] = facts
        return found

    def options(self, op: Operator, table: str) -> Any:
        """The options of an operator; without them nobody can tell what it computes."""
        found = op.options(table)
        if found is None:
            raise Unread(f"it has no {table}")
        return found

    def attributes(self, op: Operator, builtin: Builtin) -> dict[str, object]:
        """The attributes that an operator's options say, where it computes what our op does."""
        if not builtin.fields and not builtin.fixed:
            return {}
        options = self.options(op, builtin.table)
        for name, number in builtin.fixed.items():
            if getattr(options, name)() != number:
                raise Unread(f"its {name.lower()} is {getattr(options, name)()}")
        return {field.attribute: field.read(options) for field in builtin.fields}

    def image(self, op: Operator, index: int = 0) -> str:
        """An operand of four axes, channels first."""
        if len(self.tensor(op, index).shape) != 4:
            raise Unread(f"operand {index} has {len(self.tensor(op, index).shape)} axes, not 4")
        return self.turned(self.value(op, index), FIRST)

    def numbers(self, op: Operator, index: int) -> tuple[int, ...]:
        """The integers of a constant operand, flat."""
        tensor = self.tensor(op, index)
        if tensor.data is None or tensor.data.dtype.kind not in "iu":
            raise Unread(f"operand {index} is no constant of integers")
        return tuple(map(int, tensor.data.reshape(-1)))

    def bias(self, op: Operator, index: int, x: int, w: int) -> list[str]:
        """The bias of a product, as reals; none where it is absent."""
        if not self.has(op, index):
            return []
        tensor = self.tensor(op, index)
        if tensor.data is None or tensor.data.dtype.kind == "f":
            return [self.value(op, index)]
        place = op.inputs[index]
        if place in self.names and self.names[place] in self.read.constants:
            shared = self.read.constants[self.names[place]].array
            if shared is not None and np.array_equal(shared, self.bias_reals(op, tensor, x, w)):
                return [self.names[place]]
        array = self.bias_reals(op, tensor, x, w)
        if np.abs(tensor.data.astype(np.float64)).max(initial=0) > _EXACT:
            self.notes.append(f"bias {tensor.name!r} has integers beyond 24 bits, which reals of f32 round")
        if place in self.names:
            return [self.constant(array, tensor.name)]
        return [self.defined(place, array)]

    def bias_reals(self, op: Operator, tensor: Tensor, x: int, w: int) -> Array:
        """The reals of a bias: at the scale of the accumulator, where the file's is that up to rounding."""
        assert tensor.data is not None  # noqa: S101 - the caller has looked
        left, right = (self.file.tensors[op.inputs[i]] for i in (x, w))
        own = np.asarray(tensor.scales or (1.0,), np.float64)
        if left.kind is not None and right.kind is not None:
            scales = np.float64(left.kind.scale) * np.asarray(right.kind.scales, np.float64)
            scales = np.broadcast_to(scales, own.shape) if own.size > scales.size else scales
            if not tensor.scales or np.allclose(own, scales, rtol=_OF_BIAS, atol=0):
                own = scales
        if not (np.isfinite(own).all() and (own > 0).all()):
            raise Unread(f"its bias {tensor.name!r} has scales that are not positive and finite")
        with np.errstate(over="ignore"):
            reals = (tensor.data.astype(np.float64) * own).astype(np.float32)
        if not np.isfinite(reals).all():
            raise Unread(f"its bias {tensor.name!r} has numbers beyond float32")
        # Beyond 24 bits a real of f32 may be rounded up to a number that 32 bits do not hold.
        return np.where(
            np.abs(reals.astype(np.float64) / own) > _most(tensor), np.nextafter(reals, np.float32(0)), reals
        )


def _most(tensor: Tensor) -> float:
    """The largest number of the element type of a bias."""
    return float((1 << 31) - 1 if tensor.element == "i32" else (1 << 63) - 1)


FIRST: Final = (0, 3, 1, 2)
"""Order that takes channels last to channels first."""
LAST: Final = (0, 2, 3, 1)


def tight(tensor: Tensor) -> Uniform:
    """The type of a constant, without a lowest number that none of its symmetric slices has."""
    kind, stored = tensor.kind, tensor.data
    assert kind is not None and stored is not None  # noqa: S101, PT018 - the caller has looked
    store = kind.storage
    if any(kind.zero_points) or store.qmin != -store.qmax - 1 or np.any(stored == store.qmin):
        return kind
    return replace(kind, storage=Storage(store.bits, store.signed, -store.qmax, store.qmax))


def reals_of(tensor: Tensor) -> Array:
    """The numbers of a constant: on its grid, or as they are; halves as f32.

    Raises:
      ModelError: some on its grid are beyond float32.
    """
    stored, kind = tensor.data, tensor.kind
    assert stored is not None  # noqa: S101 - the caller has looked
    if kind is None:
        return stored.astype(np.float32) if tensor.element == "f16" else stored
    along = [-1 if axis == kind.axis else 1 for axis in range(stored.ndim)]
    scales = np.asarray(kind.scales, np.float32).reshape(along if kind.axis is not None else ())
    zeros = np.asarray(kind.zero_points, np.float32).reshape(along if kind.axis is not None else ())
    with np.errstate(over="ignore"):
        reals = np.asarray((stored.astype(np.float32) - zeros) * scales, np.float32)
    if not np.isfinite(reals).all():
        most = float(scales.max())
        raise ModelError(
            f"tensor {tensor.name!r} has numbers beyond float32: {most:.6g} is a step of its grid"
        )
    return reals
