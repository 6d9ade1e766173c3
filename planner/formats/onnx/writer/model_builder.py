"""ModelBuilder: the ONNX model being written, with QuantizeLinear and DequantizeLinear between types.

Which tensor holds which value is kept in `values`. The float form of a value's base keeps the value's own
name, unless the model's boundary has a fixed type: then the stored tensor has it.
Source: docs/specification.md, section 3.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.values import Values, is_cut
from planner.formats.onnx.write import Port
from planner.formats.onnx.writer.blocked import (
    block_attributes,
    block_dtype,
    block_parameters,
    kept_scales,
    own_scales,
)
from planner.formats.onnx.writer.onnx_file import OnnxFile
from planner.formats.onnx.writer.opsets import OLDER_OPSET, choose_opset
from planner.formats.onnx.writer.storage_types import (
    ONNX_FLOATS,
    Array,
    axis_of,
    dtype_text,
    fits,
    held,
    held_dtype,
    whole_range,
)
from planner.ir.borders import homes
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Op, Shape
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Operand
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

Rescale: TypeAlias = Callable[["ModelBuilder", str, Uniform, Uniform, str], bool]

SHAPE_READERS: Final = frozenset({"Shape", "Size"})
MICROSOFT: Final = "com.microsoft"


class ModelBuilder:
    """The file, and the tensors that hold each value.

    Attributes:
      graph: the float model, with the numbers of its constants.
      plan: types of all ports; its graph has the regions.
      integer_clamps: element types whose stored tensors the format clamps as they are.
      file: nodes and constants written so far.
      values: which tensor holds which value in which type.
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
        """Start with the model's inputs: float, or quantized where their types are fixed."""
        self.graph, self.plan, self.integer_clamps = graph, plan, integer_clamps
        self.file, self.values = OnnxFile(graph, plan), Values[str](graph, plan, self)
        self._rescale, self._clips_constants = rescale, clips_constants
        pinned = self.values.pins
        self._boundary = {
            name: kind for name in (*graph.inputs, *graph.outputs) if (kind := pinned.get(name))
        }
        self._reals_f32: dict[tuple[str, Uniform], str] = {}
        self._parameters: dict[Uniform, tuple[str, str]] = {}
        self._kept_scales = kept_scales(plan)
        self._homes, self._opset = homes(plan.graph), choose_opset(plan, self._kept_scales.values())
        self._border_types: dict[str, tuple[str, Shape | None]] = {}
        for name in graph.inputs:
            self.values.enter(name, pinned.get(name), name)

    def _beside(self, value: str) -> AbstractContextManager[None]:
        """Put what is written meanwhile where a value is defined: whoever reads it can read that."""
        home = self._homes.get(value, "") if self._homes else self.file.scope
        return nullcontext() if home == self.file.scope else self._standing(home)

    @contextmanager
    def _standing(self, scope: str) -> Iterator[None]:
        before, self.file.scope = self.file.scope, scope
        try:
            yield
        finally:
            self.file.scope = before

    def emit_border(self, op: Op, inputs: Sequence[str], output: str, kind: PortTyped) -> None:
        """Append what hands a value over the border of a body, as float or as stored integers."""
        value = self.graph.values[op.outputs[0]]
        dtype = dtype_text(kind) if isinstance(kind, Uniform) else value.dtype
        self._border_types[output] = dtype, value.shape
        self.file.emit_op(op, inputs, [output])

    def raw_name(self, value: str, defined: PortTyped) -> str:
        """Name for the float result of the op that defines a value, before any quantization."""
        if defined is None and self.values.pins.get(value) is None:
            return value
        return self.file.fresh(f"{value}_float")

    def stored_name(self, value: str, kind: Uniform) -> str:
        """Name for the stored tensor of a value: the value's own where the boundary has that fixed type."""
        if value in self._boundary and self.values.is_same(kind, self._boundary[value]):
            return value
        return self.file.fresh(f"{value}_quantized")

    def define_stored(self, value: str, kind: Uniform, tensor: str) -> None:
        """Say that a value is defined in stored integers; a rescale to its fixed type follows at once."""
        with self._beside(value):
            if self.values.pins.get(value, kind) is None:
                self.values.stored[value, kind] = tensor
            self.values.define_stored(value, kind, tensor)

    def stored(self, value: str, wanted: Uniform) -> str:
        """The tensor that holds a value's integers in a type; rescaled or quantized if need be."""
        with self._beside(value):
            return self.values.integers(value, wanted)

    def store(self, value: str, kind: Uniform) -> str:
        """A constant as stored integers."""
        is_own = self._boundary.get(value) == kind
        result = value if is_own else self.file.fresh(f"{value}_quantized")
        array = self.values.array(value)
        self._store_constant(result, held(quantize_array(array, kind), value, kind), kind)
        let_go(array)
        return result

    def quantize(self, value: str, tensor: str, kind: Uniform) -> str:
        """Append a QuantizeLinear of a value's float tensor, where consumers of the value can read it."""
        result = self.stored_name(value, kind)
        with self._beside(value):
            self._quantize_in_range(self.as_f32(value, tensor), kind, result)
        return result

    def dequantize(self, value: str, tensor: str, kind: Uniform) -> str:
        """Append a DequantizeLinear of a value that is defined quantized and read in float."""
        self._dequantize_value(value, tensor, kind, value)
        return value

    def rescale(self, value: str, tensor: str, source: Uniform, wanted: Uniform) -> str:
        """Append a rescale of stored integers: the format's own, or one through float."""
        if self.values.is_same(source, wanted):
            return tensor
        result = self.stored_name(value, wanted)
        if is_cut(source, wanted) and self.clamps_integers(wanted):
            self._clip(tensor, wanted, result)
            return result
        if self._rescale is not None and self._rescale(self, tensor, source, wanted, result):
            return result
        if source == self.values.bases.get(value):
            between = self._base_f32(value, source)
        else:  # right behind the definition, in front of the pin: no reader sees this float
            between = self.file.fresh(f"{value}_dequantized")
            self.dequantize_f32(tensor, source, between)
        self._quantize_in_range(between, wanted, result)
        return result

    def _store_constant(self, name: str, stored: Array, kind: Uniform) -> None:
        """Keep stored integers, behind a Clip where the format says a narrower range that way."""
        if kind.grid:
            self.file.constants[name] = stored, block_dtype(kind)
            return
        store = kind.storage
        is_whole = (store.qmin, store.qmax) == whole_range(kind)
        if not self._clips_constants or is_whole or stored.dtype not in self.integer_clamps:
            self.file.constants[name] = stored, dtype_text(kind)
            return
        self._clip(self.file.constant(f"{name}_unclamped", stored), kind, name)

    def realize(self, value: str, kind: Uniform | None) -> str:
        """The float form of a value seen through a type, or as it is."""
        if kind is None:
            return self.operand(value)
        if (long := self._too_long(value, kind)) is not None:
            dtype, name = self.graph.values[value].dtype, self.file.fresh(f"{value}_dequantized")
            self.file.constants[name] = long.astype(NUMPY[dtype]), dtype
            return name
        stored = self.stored(value, kind)
        owns_name = kind == self.values.bases.get(value) and value not in self._boundary
        result = value if owns_name else self.file.fresh(f"{value}_dequantized")
        with self._beside(value):
            self._dequantize_value(value, stored, kind, result)
        return result

    def real_f32(self, value: str, seen: Uniform) -> str:
        """A value in float32 whatever its own element type, seen through the type a port reads it in."""
        if self.graph.values[value].dtype == "f32":
            return self.values.real(value, seen)
        if (value, seen) not in self._reals_f32 and (long := self._too_long(value, seen)) is not None:
            self._reals_f32[value, seen] = self.file.constant(f"{value}_f32", long)
        if (value, seen) not in self._reals_f32:
            stored, result = self.stored(value, seen), self.file.fresh(f"{value}_f32")
            with self._beside(value):
                self.dequantize_f32(stored, seen, result)
            self._reals_f32[value, seen] = result
        return self._reals_f32[value, seen]

    def _too_long(self, value: str, kind: Uniform) -> Array | None:
        """The reals of a constant whose integers need more than 32 bits, which ONNX does not dequantize.

        A bias of 64 bits beside a weight that is next to nothing is such; None for all others.
        """
        if value not in self.graph.constants or kind.storage.bits <= 32 or value in self._boundary:
            return None
        stored = quantize_array(self.values.array(value), kind)
        return None if fits(stored, kind) else dequantize_array(stored, kind)

    def constant_f32(self, value: str) -> str:
        """A constant operand in float32 whatever its own element type."""
        if self.graph.values[value].dtype == "f32":
            return self.operand(value)
        return self.file.constant(f"{value}_f32", self.values.array(value).astype(np.float32))

    def operand(self, value: str) -> str:
        """The tensor of an operand that is no port: a shape, an index, a bound; "" stays absent."""
        if value in self.graph.constants:
            self.file.constants.setdefault(value, (self.values.array(value), self.graph.values[value].dtype))
            return value
        if not value or not self.graph.values[value].is_float:
            return value
        return self.values.real(value)

    def any_form(self, value: str) -> str:
        """The tensor of a value in whatever form it is in, for consumers of its shape."""
        is_stored = isinstance(self.values.bases.get(value), Uniform)
        return self.values.form(value) if is_stored else self.operand(value)

    def reshaped(self, tensor: str, shape: tuple[int, ...]) -> str:
        """A constant tensor of the file in another shape."""
        data = self.file.constants[tensor]
        return self.file.constant(
            f"{tensor}_flat", (data[0] if isinstance(data, tuple) else data).reshape(shape)
        )

    def parameters(self, kind: Uniform, stem: str) -> tuple[str, str]:
        """Names of a type's scale (float32) and zero point (stored dtype): scalars, or one per slice."""
        known = self._parameters.get(kind)
        if known is not None:
            return known
        shape = () if kind.is_per_tensor else (len(kind.scales),)
        scale = np.asarray(kind.scales, np.float32).reshape(shape)
        zero = np.asarray(kind.zero_points, held_dtype(kind)).reshape(shape)
        names = self.file.constant(f"{stem}_scale", scale), self.file.fresh(f"{stem}_zero_point")
        self.file.constants[names[1]] = zero, dtype_text(kind)
        self._parameters[kind] = names
        return names

    def triple(self, operand: Operand) -> tuple[str, str, str]:
        """Tensor, scale and zero point of an operand."""
        tensor = self.stored(operand.value, operand.kind)
        return (tensor, *self.parameters(operand.kind, tensor))

    def quantize_f32(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a QuantizeLinear of a float32 tensor."""
        scale, zero = self.parameters(kind, result)
        self.file.emit("QuantizeLinear", [tensor, scale, zero], [result], attributes=axis_of(kind))

    def _quantize_in_range(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a QuantizeLinear whose result keeps to a storage range narrower than its integers."""
        store = kind.storage
        if (store.qmin, store.qmax) == whole_range(kind):
            self.quantize_f32(tensor, kind, result)
        elif self.clamps_integers(kind):
            whole = self.file.fresh(f"{result}_unclamped")
            self.quantize_f32(tensor, kind, whole)
            self._clip(whole, kind, result)
        elif kind.is_per_tensor:
            cut = self.file.fresh(f"{result}_clamped")
            scale, ends = np.float32(kind.scale), (store.qmin - kind.zero_point, store.qmax - kind.zero_point)
            limits = [self.file.number("float32", float(np.float32(end) * scale)) for end in ends]
            self.file.emit("Clip", [tensor, *limits], [cut])
            self.quantize_f32(cut, kind, result)
        else:
            raise UnsupportedExport(
                f"{result!r} is stored in {store} with a scale per slice, and no clamp of words does that",
                hint="use a type per tensor, 8 bits or fewer, or the storage's full range",
            )

    def _clip(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a Clip of stored integers to the range of a type."""
        dtype = held_dtype(kind).name
        limits = [self.file.number(dtype, end) for end in (kind.storage.qmin, kind.storage.qmax)]
        self.file.emit("Clip", [tensor, *limits], [result])

    def refuses_carried(self, kind: Uniform) -> bool:
        """Whether onnxruntime refuses a file in which it carries pairs of a type over views (`opsets`)."""
        return (
            self.plan.target.files.is_for_cpu_provider
            and self._opset > OLDER_OPSET
            and held_dtype(kind) == np.int8
        )

    def clamps_integers(self, kind: Uniform) -> bool:
        """Whether stored tensors of a type are clamped as they are: slices have no one bound in floats."""
        dtype = held_dtype(kind)
        return dtype in self.integer_clamps or (dtype.itemsize == 1 and not kind.is_per_tensor)

    def dequantize_f32(self, tensor: str, kind: Uniform, result: str) -> None:
        """Append a DequantizeLinear to float32."""
        if kind.grid:
            self._dequantize_blocks(tensor, kind, result)
            return
        scale, zero = self.parameters(kind, tensor)
        self.file.emit("DequantizeLinear", [tensor, scale, zero], [result], attributes=axis_of(kind))

    def _dequantize_blocks(self, tensor: str, kind: Uniform, result: str, real: str = "f32") -> None:
        stored, dtype = self.file.constants[tensor]
        scales, zeros = block_parameters(kind, stored.shape)
        operands = [tensor, self.block_scales(f"{tensor}_scale", scales, kind, real)]
        if zeros.any():
            operands.append(self.file.fresh(f"{tensor}_zero_point"))
            self.file.constants[operands[-1]] = zeros, dtype
        attributes = block_attributes(kind, stored.shape)
        self.file.emit("DequantizeLinear", operands, [result], attributes=attributes)

    def block_scales(self, stem: str, scales: Array, kind: Uniform, real: str) -> str:
        """The scales of blocks as an operator on reals of `real`, f32 or f16, takes them.

        The file stores them in a narrower float where a row does; one more operator then gives float32.
        """
        if real == "f16":
            return self.file.constant(stem, scales.astype(np.float16))
        held = self._kept_scales.get(kind, "f32")
        if held == "f32":
            return self.file.constant(stem, scales)
        own, dtype, factor = own_scales(scales, held)
        narrow, result = self.file.fresh(f"{stem}_{held}"), self.file.fresh(stem)
        self.file.constants[narrow] = own, dtype
        if factor is None:
            self.file.emit("Cast", [narrow], [result], attributes={"to": ONNX_FLOATS["f32"]})
        else:
            # As TensorRT's NVFP4: the scales of blocks are quantized themselves.
            factor_of_all = self.file.constant(f"{stem}_factor", np.asarray(factor, np.float32))
            self.file.emit("DequantizeLinear", [narrow, factor_of_all], [result])
        return result

    def finish(self, external: Path | None = None, into: Path | None = None) -> bytes:
        """Bind the model's outputs to their own names and serialise; for the files see `write_model`."""
        for name in dict.fromkeys(self.graph.outputs):
            if not self.graph.values[name].is_float:
                self.file.bind(name, self.operand(name))
            elif name in self._boundary:
                self.file.bind(name, self.stored(name, self._boundary[name]))
            else:
                self.file.bind(name, self.values.real(name))
        return self.file.to_bytes(
            opset=self._opset,
            port=self._port,
            external=external,
            into=into,
            scopes=self.plan.graph.scopes,
            typed=self._border_types.__getitem__,
        )

    def _port(self, name: str) -> Port:
        value, pinned = self.graph.values[name], self.values.pins.get(name)
        return name, value.dtype if pinned is None else dtype_text(pinned), value.shape

    def _dequantize_value(self, value: str, tensor: str, kind: Uniform, result: str) -> None:
        dtype = self.graph.values[value].dtype
        if dtype == "f32":
            self.dequantize_f32(tensor, kind, result)
            return
        if dtype == "f16" and self._kept_scales.get(kind) == "f16":
            self._dequantize_blocks(tensor, kind, result, dtype)
            return
        between = self.file.fresh(f"{value}_f32")
        self.dequantize_f32(tensor, kind, between)
        self.file.emit("Cast", [between], [result], attributes={"to": ONNX_FLOATS[dtype]})

    def _base_f32(self, value: str, base: Uniform) -> str:
        """A stored value in float32, without a detour through a narrower element type."""
        if self.graph.values[value].dtype == "f32":
            return self.values.real(value)
        result = self.file.fresh(f"{value}_f32")
        self.dequantize_f32(self.values.stored[value, base], base, result)
        return result

    def as_f32(self, value: str, tensor: str) -> str:
        """Cast a float tensor that holds a value to float32, where it is none."""
        if self.graph.values[value].dtype == "f32":
            return tensor
        result = self.file.fresh(f"{value}_f32")
        self.file.emit("Cast", [tensor], [result], attributes={"to": ONNX_FLOATS["f32"]})
        return result
