"""Dynamic: products whose activation is quantized while they run, in plain operators.

u8 per tensor is DynamicQuantizeLinear; other storages and scales per token are spelled out, each step as the
interpreter takes it. MatMulInteger and ConvInteger add up; the sum in float32 times both scales is the
result. onnxruntime makes DynamicQuantizeMatMul or MatMulIntegerToFloat of products per tensor; per token the
sum is multiplied twice, as that fusion takes the first of many scales for all (1.31). Source: ONNX operator
pages; probed.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.linear_operands import INT32
from planner.formats.onnx.dtypes import ENUMS
from planner.formats.onnx.writer.float_blocks import hand_on
from planner.formats.onnx.writer.model_builder import ModelBuilder
from planner.formats.onnx.writer.storage_types import ONNX_FLOATS
from planner.interpreter.kernels.litert import LITERT
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.target.records import DynamicRange


def write_dynamic(builder: ModelBuilder, block: Block) -> bool:
    """Write one region of a row that quantizes its first input at run time; False: it has no such row.

    Raises:
      UnsupportedExport: activations or weights of more than 8 bits, which no integer operator multiplies.
    """
    by = None if block.row is None else block.row.dynamic
    if by is None:
        return False
    op = block.core[0]
    kind = block.kinds[op.name, 1]
    if not isinstance(kind, Uniform):
        raise TypeError(f"{block.kernel.name!r} quantizes at run time, and its weight is {kind}")
    problem = ""
    if by.per_batch or (block.row is not None and block.row.requantize == LITERT):
        problem = (
            "a scale for each entry of the batch, or LiteRT's rounding, is nothing that ONNX operators say"
        )
    elif by.storage.bits > 8 or kind.storage.bits > 8:
        problem = f"integer ONNX operators multiply bytes, not {by.storage} and {kind.storage}"
    elif _most(builder, op, kind, by) > INT32:
        problem = "its sums may leave the 32 bits of integer ONNX operators"
    elif op.type == "Conv" and len(set(kind.zero_points)) > 1:
        problem = "ConvInteger has one zero point for weights"
    if problem:
        raise UnsupportedExport(
            f"{block.kernel.inputs[1].address} (row {block.kernel.row}): {problem}",
            hint="`planner.evaluate` computes it",
        )
    product = replace(block, core=block.core[:1])
    hand_on(builder, block, product, _Product(builder, op, kind, by).write)
    return True


def _most(builder: ModelBuilder, op: Op, kind: Uniform, by: DynamicRange) -> int:
    """The largest magnitude that a sum may have."""
    stored = quantize_array(builder.values.array(op.inputs[1]), kind).astype(np.int64)
    axis = 0 if op.type == "Conv" or op.attributes.get("transB") else 1
    rows = np.moveaxis(stored, axis, 0).reshape(stored.shape[axis], -1)
    magnitudes = np.abs(rows - np.asarray(kind.zero_points).reshape(-1, 1))
    widest = by.storage.qmax if by.symmetric else by.storage.steps
    return int(magnitudes.sum(axis=1).max(initial=0)) * widest


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """One product, and the file that it is written into."""

    builder: ModelBuilder
    op: Op
    kind: Uniform
    by: DynamicRange

    def write(self, result: str) -> None:
        """Give the product, and the op's own bias, to a tensor."""
        builder, op, kind = self.builder, self.op, self.kind
        x = builder.as_f32(op.inputs[0], builder.operand(op.inputs[0]))
        stored, scale, zero = self._quantized(x, result)
        is_conv = op.type == "Conv"
        weight, shifts = self._weight()
        operands = [stored, weight]
        if zero or shifts.any():
            operands.append(zero or self._no_shift(result))
        if shifts.any():
            operands.append(builder.file.constant(f"{result}_weight_zero_point", shifts))
        name, attributes = ("ConvInteger", dict(op.attributes)) if is_conv else ("MatMulInteger", {})
        acc = self._emit(name, operands, f"{result}_acc", **attributes)
        reals = self._emit("Cast", [acc], f"{result}_sum", to=ONNX_FLOATS["f32"])
        scales = np.asarray(kind.scales, np.float32) * np.float32(op.attributes.get("alpha", 1.0))
        shaped = scales.reshape(()) if kind.is_per_tensor else self._per_channel(scales)
        own = builder.file.constant(f"{result}_weight_scale", shaped)
        if self.by.per_token:
            pair = [self._emit("Mul", [reals, own], f"{result}_by_channel"), scale]
        else:
            pair = [reals, self._emit("Mul", [scale, own], f"{result}_scale")]
        bias = self._bias(result)
        if bias is None:
            builder.file.emit("Mul", pair, [result])
        else:
            builder.file.emit("Add", [self._emit("Mul", pair, f"{result}_product"), bias], [result])

    def _emit(self, kind: str, inputs: list[str], stem: str, **attributes: object) -> str:
        result = self.builder.file.fresh(stem)
        self.builder.file.emit(kind, inputs, [result], attributes=attributes)
        return result

    def _number(self, value: float) -> str:
        return self.builder.file.number("float32", float(value))

    def _quantized(self, x: str, stem: str) -> tuple[str, str, str]:
        """Names of the integers, the scale and the zero point, "" where that is 0."""
        by, store = self.by, self.by.storage
        if (store.name, store.is_full, by.per_token) == ("u8", True, False):
            parts = ("quantized", "x_scale", "x_zero_point")
            stored, scale, zero = (self.builder.file.fresh(f"{stem}_{part}") for part in parts)
            self.builder.file.emit("DynamicQuantizeLinear", [x], [stored, scale, zero])
            return stored, scale, zero
        low, steps, least = "", store.qmax, -store.qmax
        if by.symmetric:
            magnitudes = self._emit("Abs", [x], f"{stem}_magnitudes")
            width = self._reduced("ReduceMax", magnitudes, stem)
        else:
            low = self._emit("Min", [self._reduced("ReduceMin", x, stem), self._number(0)], f"{stem}_low")
            high = self._emit("Max", [self._reduced("ReduceMax", x, stem), self._number(0)], f"{stem}_high")
            width, steps, least = self._emit("Sub", [high, low], f"{stem}_width"), store.steps, store.qmin
        raw = self._emit("Div", [width, self._number(steps)], f"{stem}_step")
        is_zero = self._emit("Equal", [raw, self._number(0)], f"{stem}_is_zero")
        scale = self._emit("Where", [is_zero, self._number(1), raw], f"{stem}_x_scale")
        moved = self._emit("Round", [self._emit("Div", [x, scale], f"{stem}_quotient")], f"{stem}_steps")
        zero, dtype = "", ENUMS[f"{'i' if store.signed else 'u'}8"]
        if low:
            below = self._emit("Div", [low, scale], f"{stem}_below")
            shift = self._emit("Sub", [self._number(store.qmin), below], f"{stem}_shift")
            ends = [self._number(store.qmin), self._number(store.qmax)]
            cut = self._emit("Clip", [shift, *ends], f"{stem}_cut")
            whole = self._emit("Round", [cut], f"{stem}_real_zero")
            moved = self._emit("Add", [moved, whole], f"{stem}_moved")
            zero = self._emit("Cast", [whole], f"{stem}_x_zero_point", to=dtype)
        ends = [self._number(least), self._number(store.qmax)]
        stored = self._emit("Clip", [moved, *ends], f"{stem}_whole")
        return self._emit("Cast", [stored], f"{stem}_quantized", to=dtype), scale, zero

    def _reduced(self, kind: str, x: str, stem: str) -> str:
        if not self.by.per_token:
            return self._emit(kind, [x], f"{stem}_{kind}", keepdims=0)
        axes = self.builder.file.constant(f"{stem}_axes", np.asarray([-1], np.int64))
        return self._emit(kind, [x, axes], f"{stem}_{kind}", keepdims=1)

    def _no_shift(self, stem: str) -> str:
        dtype = np.int8 if self.by.storage.signed else np.uint8
        return self.builder.file.constant(f"{stem}_x_zero_point", np.zeros((), dtype))

    def _per_channel(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers per output channel as they broadcast with the result."""
        if self.op.type != "Conv":
            return numbers
        rank = len(self.builder.graph.values[self.op.inputs[1]].shape or ())
        return numbers.reshape(-1, *(1,) * (rank - 2))

    def _weight(self) -> tuple[str, np.ndarray]:
        """The stored weight, (K, N) of a matrix, and its zero points, one where they are alike.

        In bytes of the activation's sign: onnxruntime saturates u8 times i8 inside where there is no VNNI,
        and its ConvInteger adds up i8 times u8 wrongly (1.31). Moved by 128, the numbers are the same.
        """
        builder, kind, name = self.builder, self.kind, self.op.inputs[1]
        signed, turned = self.by.storage.signed, bool(self.op.attributes.get("transB"))
        shift = 0 if kind.storage.signed == signed else -128 if signed else 128
        zeros = (np.asarray(kind.zero_points) + shift).astype(np.int8 if signed else np.uint8)
        zeros = zeros[0] if len(set(kind.zero_points)) == 1 else zeros
        if not shift and not turned:
            return builder.stored(name, kind), zeros
        stored = quantize_array(builder.values.array(name), kind).astype(np.int16) + shift
        moved = np.ascontiguousarray((stored.T if turned else stored).astype(zeros.dtype))
        return builder.file.shared(f"{name}_quantized", moved, (name, kind, turned, shift)), zeros

    def _bias(self, stem: str) -> str | None:
        """The op's own bias as it broadcasts, times its factor."""
        op, builder = self.op, self.builder
        if len(op.inputs) < 3 or not op.inputs[2]:
            return None
        name, beta = op.inputs[2], np.float32(op.attributes.get("beta", 1.0))
        if name in builder.graph.constants:
            array = builder.values.array(name).astype(np.float32)
            return builder.file.constant(f"{stem}_bias", self._per_channel(array) * beta)
        tensor = builder.as_f32(name, builder.operand(name))
        return tensor if beta == 1 else self._emit("Mul", [tensor, self._number(float(beta))], f"{stem}_bias")
