"""Operations: the LiteRT operators written so far, and the tensors they define.

Nothing here knows plans or the file's bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planner.formats.common.layouts import Order, plain
from planner.formats.common.ordered import OrderedProgram, OrderedTensor
from planner.formats.common.values import Array
from planner.formats.litert.writer.versions import HYBRID, Sight, version_of
from planner.ir.types.qtypes import Uniform

Options: TypeAlias = Mapping[str, int | float | bool]

DTYPES: Final[Mapping[str, Any]] = {
    "bool": np.bool_,
    "f32": np.float32,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "i8": np.int8,
}
"""Element types of tensors, and how numpy holds them."""


@dataclass(frozen=True, slots=True)
class Tensor(OrderedTensor):
    """A tensor of the file.

    Attributes:
      index: its place in the list of tensors.
      element: a key of `DTYPES`.
      kind: its quantized type; None: plain numbers.
    """

    index: int
    shape: tuple[int, ...]
    element: str
    order: Order
    kind: Uniform | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A tensor as the file lists it.

    Attributes:
      data: the numbers of a constant; None: computed, or given.
      dimension: the stored axis that scales go along.
      is_variable: whether it keeps its numbers from call to call.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    kind: Uniform | None
    data: Array | None = None
    dimension: int = 0
    is_variable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """An operator as the file lists it: tensors by index, options by their schema's table.

    Attributes:
      bodies: what it runs, by the field of its options that names it.
      intermediates: tensors that hold the types of what it computes inside.
    """

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: str
    options: Options
    bodies: "Mapping[str, Body]" = field(default_factory=dict)
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The contents of a subgraph: operators, the tensors that enter, and those that leave."""

    name: str
    operators: tuple[Operator, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Subgraph:
    """A body with its own list of tensors, by which its operators name them."""

    name: str
    entries: tuple[Entry, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(slots=True)
class Program(OrderedProgram[Tensor]):
    """Tensors of all subgraphs, and the operators of the one being written, appended one by one.

    Attributes:
      inputs, outputs: (name in the model, index of the tensor).
    """

    entries: list[Entry] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[tuple[str, int]] = field(default_factory=list)
    outputs: list[tuple[str, int]] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _constants: dict[tuple[Any, ...], int] = field(default_factory=dict)
    forms: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    identity = "index"

    def argument(self, name: str, shape: Sequence[int], element: str, kind: Uniform | None) -> Tensor:
        """Append an input of the model."""
        index = self._entry(Entry(self._fresh(name), tuple(shape), element, kind))
        self.inputs.append((name, index))
        return Tensor(index, tuple(shape), element, plain(len(shape)), kind)

    def result(self, name: str, tensor: Tensor) -> None:
        """Append an output of the model."""
        self.outputs.append((name, tensor.index))

    def emit(  # noqa: PLR0917
        self,
        operator: str,
        operands: Sequence[Tensor | None],
        like: Tensor,
        stem: str,
        options: tuple[str, Options] = ("", {}),
        intermediates: Sequence[Tensor] = (),
    ) -> Tensor:
        """Append an operator; its result has shape, element, order and type of `like`.

        Args:
          operands: None: an optional one that is absent.
          options: the table of the schema that holds them, and its fields.
        """
        entry = Entry(self._fresh(stem), like.shape, like.element, like.kind)
        result = replace(like, index=self._entry(entry))
        sight = _sight(operator, operands, like, options[1])
        inputs = tuple(-1 if item is None else item.index for item in operands)
        version = version_of(operator, sight)
        inner = tuple(item.index for item in intermediates)
        self.operators.append(
            Operator(operator, version, inputs, (result.index,), *options, intermediates=inner)
        )
        return result

    def constant(
        self,
        array: Array,
        element: str,
        stem: str,
        *,
        order: Order | None = None,
        kind: Uniform | None = None,
        dimension: int = 0,
    ) -> Tensor:
        """A constant given by the model's axes, stored in an order; equal ones are one tensor.

        Args:
          kind: its quantized type; `array` then holds stored integers.
          dimension: the stored axis that the scales of `kind` go along.
        """
        order = plain(array.ndim) if order is None else order
        stored = np.asarray(array.transpose(order), DTYPES[element], order="C")
        key = (element, stored.shape, kind, dimension, stored.tobytes())
        if key not in self._constants:
            entry = Entry(self._fresh(stem), stored.shape, element, kind, stored, dimension)
            self._constants[key] = self._entry(entry)
        return Tensor(self._constants[key], stored.shape, element, order, kind)

    def numbers(self, values: Sequence[int], stem: str = "sizes") -> Tensor:
        """A constant of 32-bit integers: axes, sizes, paddings."""
        return self.constant(np.asarray(values, np.int32), "i32", stem)

    def transposed(self, tensor: Tensor, like: Tensor, perms: tuple[int, ...]) -> Tensor:
        """TRANSPOSE."""
        operands, stem = (tensor, self.numbers(perms, "perm")), f"{self.entries[tensor.index].name}_t"
        return self.emit("TRANSPOSE", operands, like, stem, ("TransposeOptions", {}))

    def viewed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """RESHAPE."""
        operands, stem = (tensor, self.numbers(like.shape, "shape")), f"{self.entries[tensor.index].name}_r"
        return self.emit("RESHAPE", operands, like, stem, ("ReshapeOptions", {}))

    @contextmanager
    def inside(self) -> Iterator[list[Operator]]:
        """Write what follows into a list of its own, for a body; it may read tensors from around it."""
        outer, own = (self.operators, self.forms), list[Operator]()
        self.operators, self.forms = own, dict(self.forms)
        try:
            yield own
        finally:
            self.operators, self.forms = outer

    def variable(self, like: Tensor, stem: str) -> Tensor:
        """A tensor that an operator keeps from call to call, zero before the first."""
        return replace(like, index=self._entry(Entry(self._fresh(stem), *_form(like), is_variable=True)))

    def twin_of(self, like: Tensor, stem: str) -> Tensor:
        """A tensor that nothing computes."""
        return replace(like, index=self._entry(Entry(self._fresh(stem), *_form(like))))

    def twin(self, tensor: Tensor) -> Tensor:
        """Another tensor of the same type, for an argument of a body."""
        return self.twin_of(tensor, self.entries[tensor.index].name)

    def named(self, index: int) -> Tensor:
        """A tensor by its index, its axes as they are stored."""
        entry = self.entries[index]
        return Tensor(index, entry.shape, entry.element, plain(len(entry.shape)), entry.kind)

    def closed(
        self, name: str, operators: Sequence[Operator], arguments: Sequence[Tensor], results: Sequence[Tensor]
    ) -> Body:
        """A body, without the operators whose results nobody reads."""
        ends = tuple(tensor.index for tensor in results)
        return Body(name, self._kept(operators, ends), tuple(tensor.index for tensor in arguments), ends)

    def captured(self, body: Body) -> tuple[int, ...]:
        """Tensors that a body reads from around it, in order; constants stand in every subgraph."""
        made = {index for operator in body.operators for index in operator.outputs}
        read = [index for operator in body.operators for index in operator.inputs]
        met = dict.fromkeys(index for index in (*read, *body.results) if index >= 0)
        outside = met.keys() - made - set(body.arguments)
        return tuple(
            index
            for index in met
            if index in outside and self.entries[index].data is None and not self.entries[index].is_variable
        )

    def emit_bodies(
        self,
        operator: str,
        operands: Sequence[int],
        likes: Sequence[tuple[str, Tensor]],
        table: str,
        bodies: Mapping[str, Body],
    ) -> tuple[Tensor, ...]:
        """Append an operator that runs bodies.

        Args:
          likes: the stem of a name, and shape, element, order and type, of each result.
          bodies: by the field of the options that names them.
        """
        found = tuple(
            replace(like, index=self._entry(Entry(self._fresh(stem), *_form(like)))) for stem, like in likes
        )
        outputs = tuple(tensor.index for tensor in found)
        self.operators.append(Operator(operator, 1, tuple(operands), outputs, table, {}, bodies))
        return found

    def subgraphs(self, name: str) -> tuple[Subgraph, ...]:
        """All subgraphs, that of the model first; what no output rests on is left out."""
        ends = tuple(index for _, index in self.outputs)
        bodies = [
            Body(name, self._kept(self.operators, ends), tuple(index for _, index in self.inputs), ends)
        ]
        return tuple(
            self._subgraph(body, bodies) for body in bodies
        )  # the list grows while it is gone through

    def _subgraph(self, body: Body, bodies: list[Body]) -> Subgraph:
        """A body with the tensors it meets, in order; its own bodies go to the end of the list."""
        met = [*body.arguments]
        for operator in body.operators:
            met += (*operator.inputs, *operator.outputs, *operator.intermediates)
        met += body.results
        places = {index: i for i, index in enumerate(dict.fromkeys(index for index in met if index >= 0))}
        places[-1] = -1
        operators = []
        for operator in body.operators:
            options = dict(operator.options)
            for key, run in operator.bodies.items():
                options[key] = len(bodies)
                bodies.append(run)
            inputs, outputs, inner = (
                tuple(places[index] for index in indices)
                for indices in (operator.inputs, operator.outputs, operator.intermediates)
            )
            operators.append(
                replace(operator, inputs=inputs, outputs=outputs, options=options, intermediates=inner)
            )
        return Subgraph(
            body.name,
            tuple(self.entries[index] for index in places if index >= 0),
            tuple(operators),
            tuple(places[index] for index in body.arguments),
            tuple(places[index] for index in body.results),
        )

    def _kept(self, operators: Sequence[Operator], results: Sequence[int]) -> tuple[Operator, ...]:
        """The operators that results rest on; one that keeps a tensor from call to call gives it, too."""
        needed, kept = set(results), []
        for operator in reversed(operators):
            states = [index for index in operator.inputs if index >= 0 and self.entries[index].is_variable]
            if not needed.isdisjoint((*operator.outputs, *states)):
                kept.append(operator)
                needed.update(operator.inputs)
        return tuple(reversed(kept))

    def _entry(self, entry: Entry) -> int:
        self.entries.append(entry)
        return len(self.entries) - 1

    def _fresh(self, stem: str) -> str:
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name


def _form(tensor: Tensor) -> tuple[tuple[int, ...], str, Uniform | None]:
    """The properties that a tensor and its entry have in common."""
    return tensor.shape, tensor.element, tensor.kind


def _sight(operator: str, operands: Sequence[Tensor | None], like: Tensor, options: Options) -> Sight:
    there = [item for item in operands if item is not None]
    # The first operand of TRANSPOSE_CONV is a size, and SELECT_V2 has one version for all.
    decisive = like if operator in ("QUANTIZE", "TRANSPOSE_CONV") else there[0]
    kinds = [item.kind for item in (*there, like)]
    scales = tuple(kind.scale for kind in kinds if kind is not None)
    weight = there[1].element if len(there) > 1 else ""
    return Sight(
        # Versions of their own: a float beside weights in bytes.
        "hybrid" if operator in HYBRID and (decisive.element, weight) == ("f32", "i8") else decisive.element,
        max(len(item.shape) for item in there),
        len({item.shape for item in there}) > 1,
        scales,
        options,
        any(kind is not None and not kind.is_per_tensor for kind in kinds),
    )
