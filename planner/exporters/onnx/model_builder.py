"""ModelBuilder: the ONNX model being written, and which tensor holds which value in which type.

Every (value, type) has one stored tensor, every value one float form per type it is seen through;
both come into being at their first use, so nothing unread is written. A value has a base: its pin
(an integer type, or float), else the type at its definition. The float form of the base keeps the
value's own name, unless the model's boundary is pinned: then the stored tensor has it.
Source: design 01, section 3; plans/rescales.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, TypeAlias

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.common.names import Names
from planner.exporters.onnx.accepts import numbers_of
from planner.exporters.onnx.holding import (
    ONNX_FLOATS,
    Array,
    axis_of,
    dtype_text,
    held,
    held_dtype,
    whole_range,
)
from planner.exporters.onnx.opsets import choose_opset
from planner.ir.borders import homes
from planner.ir.graph import Graph, Op, Shape
from planner.ir.types.qtypes import Uniform
from planner.onnx.write import Node, write_model
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of, pins

Rescale: TypeAlias = Callable[["ModelBuilder", str, Uniform, Uniform, str], bool]

SHAPE_READERS: Final = frozenset({"Shape", "Size"})
MICROSOFT: Final = "com.microsoft"


class ModelBuilder:
    """Nodes and constants written so far, and the tensors that hold each value.

    Attributes:
      graph: the float model, with the numbers of its constants.
      plan: types of all ports; its graph has the regions.
      integer_clamps: element types whose stored tensors the format clamps as they are.
      arithmetic: of the row being written, for formats that rescale by it.
      scope: of the body that what is written stands in.
    """

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        *,
        integer_clamps: frozenset[np.dtype[Any]],
        clips_constants: bool = False,
        rescale: Rescale | None = None,
    ) -> None:
        """Start with the model's inputs: float, or stored where they are pinned."""
        self.graph, self.plan, self.integer_clamps = graph, plan, integer_clamps
        self.arithmetic = ""
        self._rescale = rescale
        self._clips_constants = clips_constants
        self._names = Names(graph, plan.graph)
        self._pins = pins(plan.graph)
        fixed = {name: kind for name, kind in self._pins.items() if kind is not None}
        self._boundary = {name: fixed[name] for name in (*graph.inputs, *graph.outputs) if name in fixed}
        self._nodes: list[Node] = []
        self._constants: dict[str, Array | tuple[Array, str]] = {}
        self._bases: dict[str, PortTyped] = {}
        self._stored: dict[tuple[str, Uniform], str] = {}
        self._reals: dict[tuple[str, PortTyped], str] = {}
        self._reals_f32: dict[tuple[str, Uniform], str] = {}
        self._parameters: dict[Uniform, tuple[str, str]] = {}
        self._scalars: dict[tuple[str, float], str] = {}
        self.scope = ""
        self._homes = homes(plan.graph)
        self._border_types: dict[str, tuple[str, Shape | None]] = {}
        for name in graph.inputs:
            self._bases[name] = pinned = self._pins.get(name)
            if pinned is None:
                self._reals[name, None] = name
            else:
                self._stored[name, pinned] = name

    def emit(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str = "",
        domain: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Append a node; without a name it gets one from its type and first result."""
        node_name = name or self._names.fresh(f"{outputs[0]}_{kind}")
        self._nodes.append(
            Node(kind, tuple(inputs), tuple(outputs), node_name, domain, attributes or {}, self.scope)
        )

    def _beside(self, value: str) -> AbstractContextManager[None]:
        """Put what is written meanwhile where a value is defined: whoever reads it can read that."""
        home = self._homes.get(value, "") if self._homes else self.scope
        return nullcontext() if home == self.scope else self._standing(home)

    @contextmanager
    def _standing(self, scope: str) -> Iterator[None]:
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    def emit_border(self, op: Op, inputs: Sequence[str], output: str, kind: PortTyped) -> None:
        """Append what hands a value over the border of a body, as float or as stored integers."""
        value = self.graph.values[op.outputs[0]]
        dtype = dtype_text(kind) if isinstance(kind, Uniform) else value.dtype
        self._border_types[output] = dtype, value.shape
        self.emit_op(op, inputs, [output])

    def emit_op(self, op: Op, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Append a source op on other tensors, its name and attributes as they are."""
        domain, _, kind = op.type.rpartition("::")
        attributes = op.attributes
        self._nodes.append(Node(kind, tuple(inputs), tuple(outputs), op.name, domain, attributes, self.scope))

    def fresh(self, stem: str) -> str:
        """A tensor name that is free."""
        return self._names.fresh(stem)

    def base(self, value: str) -> PortTyped:
        """The type readers of a value start from: its pin, else its type at its definition."""
        return self._bases.get(value)

    def is_same(self, source: PortTyped, wanted: PortTyped) -> bool:
        """Whether no rescale stands between two types."""
        return kind_of(source, wanted, self.plan.target.costs) is None

    def raw_name(self, value: str, defined: PortTyped) -> str:
        """Name for the float result of the op that defines a value, before any quantization."""
        if defined is None and self._pins.get(value) is None:
            return value
        return self.fresh(f"{value}_float")

    def stored_name(self, value: str, kind: Uniform) -> str:
        """Name for the stored tensor a value is defined in: its own where the boundary is pinned to it."""
        if value in self._boundary and self.is_same(kind, self._boundary[value]):
            return value
        return self.fresh(f"{value}_quantized")

    def define_real(self, value: str, tensor: str) -> None:
        """Say that a value is defined in float; its pin, if any, follows right behind."""
        pinned = self._pins.get(value)
        self._bases[value] = pinned
        if pinned is None:
            self._reals[value, None] = tensor
            return
        result = self.stored_name(value, pinned)
        with self._beside(value):
            self._quantize_in_range(self.as_f32(value, tensor), pinned, result)
        self._stored[value, pinned] = result

    def define_stored(self, value: str, kind: Uniform, tensor: str) -> None:
        """Say that a value is defined in stored integers; a rescale to its pin follows right behind."""
        with self._beside(value):
            self._define_stored(value, kind, tensor)

    def _define_stored(self, value: str, kind: Uniform, tensor: str) -> None:
        pinned = self._pins.get(value, kind)
        self._bases[value] = pinned
        if pinned is None or pinned == kind:
            self._stored[value, kind] = tensor
        if pinned is None:
            self._dequantize_value(value, tensor, kind, value)
            self._reals[value, None] = value
        if pinned is None or pinned == kind:
            return
        if self.is_same(kind, pinned):
            self._stored[value, pinned] = tensor
            return
        result = self.stored_name(value, pinned)
        if self._rescale is None or not self._rescale(self, tensor, kind, pinned, result):
            between = self.fresh(f"{value}_dequantized")
            self.dequantize(tensor, kind, between)
            self._quantize_in_range(between, pinned, result)
        self._stored[value, pinned] = result

    def stored(self, value: str, wanted: Uniform) -> str:
        """The tensor that holds a value's integers in a type; rescaled or quantized if need be."""
        known = self._stored.get((value, wanted))
        if known is not None:
            return known
        with self._beside(value):
            return self._made_stored(value, wanted)

    def _made_stored(self, value: str, wanted: Uniform) -> str:
        base = self.base(value)
        if value in self.graph.constants:
            is_own = self._boundary.get(value) == wanted
            result = value if is_own else self.fresh(f"{value}_quantized")
            self._store_constant(
                result, held(quantize_array(self.array(value), wanted), value, wanted), wanted
            )
        elif isinstance(base, Uniform) and self.is_same(base, wanted):
            result = self._stored[value, base]
        else:
            result = self.fresh(f"{value}_quantized")
            self._quantize_stored(value, base, wanted, result)
        self._stored[value, wanted] = result
        return result

    def _quantize_stored(self, value: str, base: PortTyped, wanted: Uniform, result: str) -> None:
        is_written = False
        if isinstance(base, Uniform) and self._rescale is not None:
            is_written = self._rescale(self, self._stored[value, base], base, wanted, result)
        if not is_written:
            self._quantize_in_range(self._real_f32(value, base), wanted, result)

    def _store_constant(self, name: str, stored: Array, kind: Uniform) -> None:
        """Keep stored integers, behind a Clip where the format says a narrower range that way."""
        bounds, store = whole_range(stored.dtype), kind.storage
        is_whole = (store.qmin, store.qmax) == (bounds.min, bounds.max)
        if not self._clips_constants or is_whole or stored.dtype not in self.integer_clamps:
            self._constants[name] = stored
            return
        whole = self.constant(f"{name}_unclamped", stored)
        limits = [self.number(stored.dtype.name, end) for end in (store.qmin, store.qmax)]
        self.emit("Clip", [whole, *limits], [name])

    def real(self, value: str, seen: PortTyped = None) -> str:
        """The float tensor of a value, seen through the type a port reads it in (None: its base)."""
        if not isinstance(seen, Uniform):
            seen = self.base(value)
        known = self._reals.get((value, seen))
        if known is not None:
            return known
        if not isinstance(seen, Uniform):
            return self.operand(value)
        stored = self.stored(value, seen)
        owns_name = seen == self.base(value) and value not in self._boundary
        result = value if owns_name else self.fresh(f"{value}_dequantized")
        with self._beside(value):
            self._dequantize_value(value, stored, seen, result)
        self._reals[value, seen] = result
        return result

    def real_f32(self, value: str, seen: Uniform) -> str:
        """A value in float32 whatever its own element type, seen through the type a port reads it in."""
        if self.graph.values[value].dtype == "f32":
            return self.real(value, seen)
        if (value, seen) not in self._reals_f32:
            stored, result = self.stored(value, seen), self.fresh(f"{value}_f32")
            with self._beside(value):
                self.dequantize(stored, seen, result)
            self._reals_f32[value, seen] = result
        return self._reals_f32[value, seen]

    def constant_f32(self, value: str) -> str:
        """A constant operand in float32 whatever its own element type."""
        if self.graph.values[value].dtype == "f32":
            return self.operand(value)
        return self.constant(f"{value}_f32", self.array(value).astype(np.float32))

    def operand(self, value: str) -> str:
        """The tensor of an operand that is no port: a shape, an index, a bound; "" stays absent."""
        if value in self.graph.constants:
            self._constants.setdefault(value, (self.array(value), self.graph.values[value].dtype))
            return value
        if not value or not self.graph.values[value].is_float:
            return value
        return self.real(value)

    def any_form(self, value: str) -> str:
        """The tensor of a value in whatever form it is in, for readers of its shape."""
        base = self.base(value)
        return self._stored[value, base] if isinstance(base, Uniform) else self.operand(value)

    def array(self, value: str) -> Array:
        """The numbers of a constant.

        Raises:
          UnsupportedExport: only its range is known.
        """
        return numbers_of(self.graph, value)

    def number(self, dtype: str, value: float) -> str:
        """A scalar constant, one per dtype and value."""
        if (dtype, value) not in self._scalars:
            stem = f"{dtype}_{value:g}".replace("-", "minus_").replace(".", "_")
            self._scalars[dtype, value] = self.constant(stem, np.asarray(value, dtype))
        return self._scalars[dtype, value]

    def constant(self, stem: str, array: Array) -> str:
        """A constant of our own under a fresh name."""
        name = self.fresh(stem)
        self._constants[name] = array
        return name

    def reshaped(self, tensor: str, shape: tuple[int, ...]) -> str:
        """A constant tensor of the file in another shape."""
        data = self._constants[tensor]
        return self.constant(f"{tensor}_flat", (data[0] if isinstance(data, tuple) else data).reshape(shape))

    def parameters(self, kind: Uniform, stem: str) -> tuple[str, str]:
        """Names of a type's scale (float32) and zero point (stored dtype): scalars, or one per slice."""
        known = self._parameters.get(kind)
        if known is not None:
            return known
        shape = () if kind.is_per_tensor else (len(kind.scales),)
        scale = np.asarray(kind.scales, np.float32).reshape(shape)
        zero = np.asarray(kind.zero_points, held_dtype(kind)).reshape(shape)
        names = self.constant(f"{stem}_scale", scale), self.constant(f"{stem}_zero_point", zero)
        self._parameters[kind] = names
        return names

    def quantize_f32(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a QuantizeLinear of a float32 tensor."""
        scale, zero = self.parameters(kind, result)
        self.emit("QuantizeLinear", [tensor, scale, zero], [result], attributes=axis_of(kind))

    def _quantize_in_range(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a QuantizeLinear whose result keeps to a storage range narrower than its integers."""
        dtype, store = held_dtype(kind), kind.storage
        bounds = whole_range(dtype)
        if (store.qmin, store.qmax) == (bounds.min, bounds.max):
            self.quantize_f32(tensor, kind, result)
        elif dtype in self.integer_clamps:
            whole = self.fresh(f"{result}_unclamped")
            self.quantize_f32(tensor, kind, whole)
            limits = [self.number(dtype.name, store.qmin), self.number(dtype.name, store.qmax)]
            self.emit("Clip", [whole, *limits], [result])
        elif kind.is_per_tensor:
            cut = self.fresh(f"{result}_clamped")
            scale, ends = np.float32(kind.scale), (store.qmin - kind.zero_point, store.qmax - kind.zero_point)
            limits = [self.number("float32", float(np.float32(end) * scale)) for end in ends]
            self.emit("Clip", [tensor, *limits], [cut])
            self.quantize_f32(cut, kind, result)
        else:
            raise UnsupportedExport(
                f"{result!r} is stored in {store} with a scale per slice, and no clamp here does that",
                hint="use a type per tensor, or the storage's full range",
            )

    def dequantize(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a DequantizeLinear to float32."""
        scale, zero = self.parameters(kind, tensor)
        self.emit("DequantizeLinear", [tensor, scale, zero], [result], attributes=axis_of(kind))

    def finish(self) -> bytes:
        """Bind the model's outputs to their own names and serialise."""
        for name in dict.fromkeys(self.graph.outputs):
            if not self.graph.values[name].is_float:
                tensor = self.operand(name)
            elif name in self._boundary:
                tensor = self.stored(name, self._boundary[name])
            else:
                tensor = self.real(name)
            if tensor != name:
                self.emit("Identity", [tensor], [name])
        versions = {domain: number for domain, number in self.graph.opsets.items() if domain}
        used = {node.domain for node in self._nodes}
        return write_model(
            name=self.graph.name,
            nodes=self._nodes,
            inputs=[self._port(name) for name in self.graph.inputs],
            outputs=[self._port(name) for name in self.graph.outputs],
            constants=self._constants,
            opset=choose_opset(self.plan),
            domains={domain: number for domain, number in versions.items() if domain in used},
            scopes=self.plan.graph.scopes,
            typed=self._border_types.__getitem__,
        )

    def _port(self, name: str) -> tuple[str, str, Any]:
        value = self.graph.values[name]
        pinned = self._pins.get(name)
        return name, value.dtype if pinned is None else dtype_text(pinned), value.shape

    def _dequantize_value(self, value: str, tensor: str, kind: Uniform, result: str) -> None:
        dtype = self.graph.values[value].dtype
        if dtype == "f32":
            self.dequantize(tensor, kind, result)
            return
        between = self.fresh(f"{value}_f32")
        self.dequantize(tensor, kind, between)
        self.emit("Cast", [between], [result], attributes={"to": ONNX_FLOATS[dtype]})

    def _real_f32(self, value: str, base: PortTyped) -> str:
        """A value in float32; of a stored one without a detour through a narrower element type."""
        if not isinstance(base, Uniform) or self.graph.values[value].dtype == "f32":
            return self.as_f32(value, self.real(value))
        result = self.fresh(f"{value}_f32")
        self.dequantize(self._stored[value, base], base, result)
        return result

    def as_f32(self, value: str, tensor: str) -> str:
        """Cast a float tensor that holds a value to float32, where it is none."""
        if self.graph.values[value].dtype == "f32":
            return tensor
        result = self.fresh(f"{value}_f32")
        self.emit("Cast", [tensor], [result], attributes={"to": ONNX_FLOATS["f32"]})
        return result
