"""Values: which tensor holds which value of a plan in which type, for all formats alike.

A value has a base: its fixed type (an integer type, or float), else the type at its definition. Each pair of
value and type has one stored tensor and one float form; both come into being at their first use, so nothing
unread is written. How a tensor changes its type is the format's own: `Casts`.
Source: docs/specification.md, section 3; plans/rescales.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy.typing as npt

from planner.errors import UnsupportedExport
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of

Array: TypeAlias = npt.NDArray[Any]
Tensor = TypeVar("Tensor")


def numbers_of(graph: Graph, value: str) -> Array:
    """The numbers of a constant.

    Raises:
      UnsupportedExport: only its range is known.
    """
    array = graph.constants[value].array
    if array is None:
        raise UnsupportedExport(
            f"constant {value!r} has a range but no numbers", hint="export needs the model's weights"
        )
    return array


class Casts(Protocol[Tensor]):
    """How a format writes a change of type; each method returns the new tensor."""

    def quantize(self, value: str, tensor: Tensor, kind: Uniform, /) -> Tensor:
        """Write a float tensor of a value as integers of a type."""

    def dequantize(self, value: str, tensor: Tensor, kind: Uniform, /) -> Tensor:
        """Write stored integers as the value's own element type."""

    def rescale(self, value: str, tensor: Tensor, source: Uniform, wanted: Uniform, /) -> Tensor:
        """Write stored integers as those of another type; the tensor itself where they are the same."""

    def store(self, value: str, kind: Uniform, /) -> Tensor:
        """Write a constant as integers of a type."""

    def realize(self, value: str, kind: Uniform | None, /) -> Tensor:
        """Write the float form of a value: seen through a type, or a constant's own (None)."""


def is_cut(source: Uniform, wanted: Uniform) -> bool:
    """Whether a type is another with a part of its integers: cutting the rest off is all of the rescale."""
    inner, store = wanted.storage, source.storage
    parameters = (source.scales, source.zero_points, source.expressed)
    same = source.is_per_tensor and parameters == (wanted.scales, wanted.zero_points, wanted.expressed)
    return same and inner != store and inner.lies_in(store)


def _cut_to(kind: Uniform, pinned: Uniform) -> Uniform | None:
    """A type restricted to the integers of a fixed type's numbers; None where it lacks some of them."""
    store, pin = kind.storage, pinned.storage
    plain = kind.is_per_tensor and pinned.is_per_tensor and not (store.float_name or pin.float_name)
    same = plain and (kind.scale, kind.expressed) == (pinned.scale, pinned.expressed)
    if not same or pin.bits >= store.bits:
        return None
    shift = kind.zero_point - pinned.zero_point
    low, high = pin.qmin + shift, pin.qmax + shift
    if low < store.qmin or high > store.qmax:
        return None
    return replace(kind, storage=replace(store, qmin=low, qmax=high))


def _own(kind: Uniform) -> Uniform:
    return kind


class Values(Generic[Tensor]):
    """The tensors written so far, by value and type.

    Attributes:
      graph: the float model, with the numbers of its constants.
      plan: types of all ports; its graph has the regions.
      arithmetic: of the row being written.
      pins: the type that consumers of a value start from, whatever defines it; None for float.
      bases: the type that they start from, of every value defined so far.
      stored: tensors of integers, by the value and what `held` makes of the type.
      reals: float forms, by the value and the integer type it is seen through.
      numbers: values that follow from constants alone.
    """

    def __init__(
        self, graph: Graph, plan: Plan, casts: Casts[Tensor], held: Callable[[Uniform], Uniform] = _own
    ) -> None:
        """Start without a tensor; `held` gives types that one tensor holds the same name."""
        self.graph, self.plan, self.arithmetic = graph, plan, ""
        self.pins = plan.held_pins
        self._facts = plan.stored_pins
        self.bases: dict[str, PortTyped] = {}
        self.stored: dict[tuple[str, Uniform], Tensor] = {}
        self.reals: dict[tuple[str, PortTyped], Tensor] = {}
        self.numbers: dict[str, Array] = {}
        self._casts, self._held = casts, held

    def is_same(self, source: PortTyped, wanted: PortTyped) -> bool:
        """Whether no rescale stands between two types."""
        return kind_of(source, wanted, self.plan.target.costs) is None

    def is_constant(self, value: str) -> bool:
        """Whether a value is known before running."""
        return value in self.graph.constants or value in self.numbers

    def array(self, value: str) -> Array:
        """The numbers of a constant, or of what follows from constants.

        Raises:
          UnsupportedExport: only its range is known.
        """
        return self.numbers[value] if value in self.numbers else numbers_of(self.graph, value)

    def known(self, value: str) -> Array | None:
        """The same; None where they come at run time."""
        return self.array(value) if self.is_constant(value) else None

    def enter(self, value: str, kind: Uniform | None, tensor: Tensor) -> None:
        """Say what the model is handed a value in: integers of a type, or float."""
        self.bases[value] = kind
        if kind is None:
            self.reals[value, None] = tensor
        else:
            self.stored[value, self._held(kind)] = tensor

    def define_real(self, value: str, tensor: Tensor) -> None:
        """Say that a value is defined in its own element type; a change to its fixed type follows at once."""
        pinned = self.pins.get(value)
        self.enter(value, pinned, tensor if pinned is None else self._casts.quantize(value, tensor, pinned))

    def define_stored(self, value: str, kind: Uniform, tensor: Tensor) -> None:
        """Say that a value is defined in stored integers; a rescale to its fixed type follows at once.

        A fixed type of fewer bits stays in the integers of a kernel that has its scale: clamped to its range,
        they are the same numbers, and a consumer that expects the kernel's own type takes them as they are.
        The model's results get their fixed types.
        """
        pinned = self.bases[value] = self.pins.get(value, kind)
        if pinned is None:
            self.reals[value, None] = self._casts.dequantize(value, tensor, kind)
            return
        pinned = self.cut_to_pin(value, kind) or pinned
        self.enter(value, pinned, self._casts.rescale(value, tensor, kind, pinned))

    def cut_to_pin(self, value: str, kind: Uniform) -> Uniform | None:
        """The type that a value is clamped to for its fixed type; None where a clamp is not enough."""
        pinned = self.pins.get(value)
        if pinned is None or value in self.graph.outputs:
            return None
        return pinned if is_cut(kind, pinned) else _cut_to(kind, self._facts[value] or pinned)

    def define_seen(self, value: str, kind: Uniform, tensor: Tensor) -> None:
        """Say that a value is defined in float, on the grid of a type throughout: that is its base."""
        self.bases[value] = kind
        self.reals[value, kind] = tensor

    def integers(self, value: str, kind: Uniform) -> Tensor:
        """The tensor that holds a value's integers in a type; rescaled or quantized at its first use."""
        key = value, self._held(kind)
        if key not in self.stored:
            self.stored[key] = self._stored_anew(value, kind)
        return self.stored[key]

    def _stored_anew(self, value: str, kind: Uniform) -> Tensor:
        base = self.bases.get(value)
        if self.is_constant(value):
            return self._casts.store(value, kind)
        if isinstance(base, Uniform) and (value, self._held(base)) in self.stored:
            return self._casts.rescale(value, self.stored[value, self._held(base)], base, kind)
        return self._casts.quantize(value, self.real(value), kind)

    def real(self, value: str, seen: PortTyped = None) -> Tensor:
        """The float form of a value, seen through the type a port reads it in (None: its base)."""
        kind = seen if isinstance(seen, Uniform) else self.bases.get(value)
        key = value, kind if isinstance(kind, Uniform) else None
        if key not in self.reals:
            self.reals[key] = self._casts.realize(*key)
        return self.reals[key]

    def form(self, value: str) -> Tensor:
        """The tensor of a value in the form it is defined in."""
        base = self.bases.get(value)
        if isinstance(base, Uniform) and (value, self._held(base)) in self.stored:
            return self.stored[value, self._held(base)]
        return self.real(value)
