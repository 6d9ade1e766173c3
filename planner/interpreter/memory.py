"""Memory: the arrays of each value while a plan runs, in every requested type.

A value has a base: its fixed type (integer or float), else the type at its definition; consumers start from
it. Every (value, type) is stored once. A rescale between integer types dequantizes to float32 and quantizes;
in another arithmetic than `float32_even`, the row's of the first consumer (of the producer where it leads to
a fixed type), it multiplies integers.
Source: docs/specification.md, section 3; plans/rescales.
"""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Final

import numpy as np

from planner.constants.quantize import ARITHMETICS, dequantize_array, quantize_array
from planner.errors import ModelError
from planner.formats.onnx.dtypes import NUMPY
from planner.interpreter.calls import FLOAT32_EVEN, FLOAT32_QDQ, FLOAT32_SPEC, HTP, Operand
from planner.interpreter.kernels.table import rescale_onto
from planner.interpreter.requantize import Array
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of

# Every op in float32 between dequantize and quantize; they differ in when the zero point is added, and
# `float32_spec` sums dots and convolutions as integers.
OFFSET_FIRST: Final = frozenset({"float32_quant", FLOAT32_SPEC})
FLOAT32_STEPS: Final = frozenset({FLOAT32_QDQ, *OFFSET_FIRST})
_FLOAT_RESCALES: Final = frozenset({FLOAT32_EVEN, HTP, *FLOAT32_STEPS})


class Memory:
    """Arrays of one run.

    Attributes:
      defined: stored integers of values at the type they were defined in.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        pinned: Mapping[str, Uniform | None],
        weights: MutableMapping[tuple[str, Uniform], Array],
    ) -> None:
        """Start empty; `weights` keeps quantized constants from run to run."""
        self.graph = graph
        self.defined: dict[str, Array] = {}
        self._costs = plan.target.costs
        self._pinned = pinned
        self._weights = weights
        self._bases: dict[str, PortTyped] = {}
        self._stored: dict[tuple[str, Uniform], Array] = {}
        self._reals: dict[tuple[str, PortTyped], Array] = {}

    def is_same(self, source: PortTyped, wanted: PortTyped) -> bool:
        """Whether no rescale stands between two types."""
        return kind_of(source, wanted, self._costs) is None

    def base(self, value: str) -> PortTyped:
        """The type that consumers of a value start from; None: float."""
        return self._bases.get(value)

    def names(self) -> tuple[str, ...]:
        """Values defined so far, in order."""
        return tuple(self._bases)

    def define(self, value: str, array: Array) -> None:
        """Give a value its float (or integer, if that is its element type) array, then its fixed type."""
        self._forget(value)
        pinned = self._pinned.get(value)
        self._bases[value] = pinned
        if pinned is None:
            self._reals[value, None] = array
        else:
            self._stored[value, pinned] = quantize_array(as_f32(array), pinned)

    def define_stored(self, value: str, kind: Uniform, stored: Array, arithmetic: str) -> None:
        """Give a value its stored integers; a rescale to its fixed type follows."""
        self._forget(value)
        self.defined[value] = stored
        pinned = self._pinned.get(value, kind)
        self._bases[value] = pinned
        if pinned is None:
            self._reals[value, None] = self._dequantized(value, stored, kind)
        elif pinned == kind or self.is_same(kind, pinned):
            self._stored[value, kind] = self._stored[value, pinned] = stored
        else:
            self._stored[value, pinned] = rescaled(stored, kind, pinned, arithmetic)

    def _forget(self, value: str) -> None:
        """Drop arrays of a value from another trip of a loop."""
        if value in self._bases:
            for kind in [kind for name, kind in self._stored if name == value]:
                del self._stored[value, kind]
            for seen in [seen for name, seen in self._reals if name == value]:
                del self._reals[value, seen]

    def stored(self, value: str, wanted: Uniform, arithmetic: str = FLOAT32_EVEN) -> Array:
        """A value's integers in a type: quantized or rescaled from its base at first use."""
        known = self._stored.get((value, wanted))
        if known is not None:
            return known
        base = self.base(value)
        if value in self.graph.constants:
            return self._weight(value, wanted)
        if not isinstance(base, Uniform):
            result = quantizer(arithmetic)(as_f32(self.real(value)), wanted)
        elif self.is_same(base, wanted):
            result = self._stored[value, base]
        else:
            result = rescaled(self._stored[value, base], base, wanted, arithmetic)
        self._stored[value, wanted] = result
        return result

    def real(self, value: str, seen: PortTyped = None, arithmetic: str = FLOAT32_EVEN) -> Array:
        """A value's array in its own element type, seen through a type (None: through its base)."""
        kind = seen if isinstance(seen, Uniform) else self.base(value)
        known = self._reals.get((value, kind))
        if known is not None:
            return known
        if isinstance(kind, Uniform):
            result = self._dequantized(value, self.stored(value, kind, arithmetic), kind)
        else:
            result = self._numbers(value)
        self._reals[value, kind] = result
        return result

    def real_f32(self, value: str, seen: PortTyped = None, arithmetic: str = FLOAT32_EVEN) -> Array:
        """As `real`; a float in float32, without a detour through a narrower element type."""
        kind = seen if isinstance(seen, Uniform) else self.base(value)
        if self.graph.values[value].dtype == "f32" or not self.graph.values[value].is_float:
            return self.real(value, seen, arithmetic)
        if isinstance(kind, Uniform):
            return dequantize_array(self.stored(value, kind, arithmetic), kind)
        return as_f32(self.real(value))

    def operand(self, value: str, kind: Uniform, arithmetic: str) -> Operand:
        """A value at an integer port."""
        stored = self.stored(value, kind, arithmetic)
        return Operand(stored, kind, self.graph.values[value].shape, value in self.graph.constants)

    def known(self, value: str) -> Array | None:
        """The numbers of a constant; None of another value."""
        constant = self.graph.constants.get(value)
        return None if constant is None else constant.array

    def _weight(self, value: str, wanted: Uniform) -> Array:
        if (value, wanted) not in self._weights:
            self._weights[value, wanted] = quantize_array(self._numbers(value), wanted)
        return self._weights[value, wanted]

    def _numbers(self, value: str) -> Array:
        array = self.known(value)
        if array is None:
            raise ModelError(f"value {value!r} is read, but neither computed nor known in numbers")
        return array

    def _dequantized(self, value: str, stored: Array, kind: Uniform) -> Array:
        real = dequantize_array(stored, kind)
        return real.astype(NUMPY[self.graph.values[value].dtype], copy=False)


def rescaled(stored: Array, source: Uniform, wanted: Uniform, arithmetic: str) -> Array:
    """Stored integers of one type as those of another; from and to a float storage through reals."""
    is_integer = arithmetic not in _FLOAT_RESCALES and source.is_per_tensor and wanted.is_per_tensor
    is_integer = is_integer and not (source.storage.float_name or wanted.storage.float_name)
    if not is_integer:
        return quantizer(arithmetic)(dequantize_array(stored, source), wanted)
    result = rescale_onto(Operand(stored, source), wanted, arithmetic)
    return np.clip(result, wanted.storage.qmin, wanted.storage.qmax)


def as_f32(array: Array) -> Array:
    """A float array in float32."""
    return array.astype(np.float32, copy=False)


def quantizer(arithmetic: str) -> Callable[[Array, Uniform], Array]:
    """Conversion of reals to stored values in an arithmetic; ONNX's where it does not say."""
    return _quantize_spec if arithmetic in OFFSET_FIRST else quantize_array


def _quantize_spec(array: Array, kind: Uniform) -> Array:
    # A float storage has one rounding: to its nearest float.
    return quantize_array(array, kind, ARITHMETICS[FLOAT32_EVEN if kind.storage.float_name else FLOAT32_SPEC])
