"""The FINN model being written: float tensors that hold integers, each with its FINN datatype.

A value lives as `stored - zero_point` in float32, so no zero point is left and a padding of 0 is real zero;
its scale follows where a float consumer needs it. Types change in a MultiThreshold, which counts the
thresholds a number reaches. Source: FINN documentation, "Streamlining"; QONNX operator page MultiThreshold.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.formats.common.blocks import Clamp
from planner.formats.common.linear_operands import shifted_weight
from planner.formats.common.thresholds import Integers, least_arguments, least_floats
from planner.formats.common.values import Values
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.write import OPSET
from planner.formats.onnx.writer.onnx_file import OnnxFile
from planner.formats.qonnx.channels_last import values_with_channels_last
from planner.formats.qonnx.windows import windows
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.memory import rescaled
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.ops import LINEAR
from planner.plans.plan import Plan

FINN: Final = "qonnx.custom_op.general"
DATATYPE: Final = "finn_datatype"
MOST_LEVELS: Final = 1 << 16


class FinnModelBuilder:
    """Nodes and constants written so far, and the tensors that hold each value.

    Attributes:
      interpreter: of the plan, for what a kernel makes of each integer.
      bipolar: values that are signs times a scale: the tensor of the signs, and the scale.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        """Start with the model's inputs, all float."""
        self.graph, self.plan = graph, plan
        self.file, self.values = OnnxFile(graph, plan), Values[str](graph, plan, self)
        self._windows = windows(graph, list(plan.graph.all_ops()))
        self._channels_last = values_with_channels_last(graph, plan.graph.all_ops())
        self._weights = {op.inputs[1] for op in plan.graph.all_ops() if op.type in LINEAR}
        self._annotations: dict[str, Mapping[str, str]] = {}
        self.interpreter = Interpreter(graph, plan)
        self.bipolar: dict[str, tuple[str, float]] = {}
        for name in graph.inputs:
            self.values.define_real(name, name)

    def emit(
        self, kind: str, inputs: Sequence[str], stem: str, attributes: Mapping[str, Any] | None = None
    ) -> str:
        """Append a standard node with one result under a fresh name."""
        result = self.file.fresh(stem)
        self.file.emit(kind, inputs, [result], attributes=attributes)
        return result

    def constant(self, stem: str, array: Array, datatype: str = "") -> str:
        """A float32 constant, annotated where it holds integers."""
        name = self.file.constant(stem, array.astype(np.float32))
        if datatype:
            self._annotations[name] = {DATATYPE: datatype}
        return name

    def thresholds(self, tensor: str, thresholds: Array, *, low: int, stem: str, layout: str = "NCHW") -> str:
        """Append a MultiThreshold: `low` plus the number of thresholds reached.

        Args:
          thresholds: (C or 1, steps), ascending.
          low: the integer below all of them.
          layout: of the tensor; C is the channel axis; "" where nothing needs to be said.
        """
        datatype = datatype_of(low, low + thresholds.shape[1])
        # FINN makes hardware of thresholds of an integer datatype alone, and names one only where it rounds.
        is_whole = thresholds.size > 0 and bool(np.all(thresholds == np.floor(thresholds)))
        kind = datatype_of(int(thresholds.min()), int(thresholds.max())) if is_whole else ""
        table = self.constant(f"{stem}_thresholds", thresholds, kind)
        result = self.file.fresh(stem)
        attributes = {"out_bias": float(low), "out_dtype": datatype, "out_scale": 1.0}
        if layout:
            attributes["data_layout"] = layout
        self.file.emit("MultiThreshold", [tensor, table], [result], domain=FINN, attributes=attributes)
        self._annotations[result] = {DATATYPE: datatype}
        return result

    def signs(self, tensor: str, stem: str) -> str:
        """Append a MultiThreshold to 1 from 0 on, and -1 below."""
        table = self.constant(f"{stem}_thresholds", np.asarray([[0.0]]))
        result = self.file.fresh(stem)
        attributes = {"data_layout": "NCHW", "out_bias": -1.0, "out_dtype": "BIPOLAR", "out_scale": 2.0}
        self.file.emit("MultiThreshold", [tensor, table], [result], domain=FINN, attributes=attributes)
        self._annotations[result] = {DATATYPE: "BIPOLAR"}
        return result

    def settle(self, block: Block, tensor: str, least: Array, clamp: Clamp, layout: str = "NCHW") -> None:
        """Append the thresholds of a result and define its value."""
        port = block.kernel.outputs[0]
        if isinstance(port.type, Uniform):
            low = clamp.low - port.type.zero_point
            layout = self._layout(port.value) if layout == "NCHW" and len(least) == 1 else layout
            result = self.thresholds(tensor, least, low=low, stem=f"{port.value}_integers", layout=layout)
            self.define_integers(port.value, port.type, result)

    def define_integers(self, value: str, kind: Uniform, tensor: str) -> None:
        """Say which tensor holds a value's integers; a rescale to its fixed type follows."""
        if self.values.pins.get(value) is None:
            self.values.stored[value, kind] = tensor
        self.values.define_stored(value, kind, tensor)

    def store(self, value: str, kind: Uniform) -> str:
        """A constant as integers, zero point gone."""
        shifted = shifted_weight(self.values.array(value), kind)
        return self.constant(f"{value}_integers", shifted, datatype_of_array(shifted))

    def realize(self, value: str, kind: Uniform | None) -> str:
        """The float tensor of a value, seen through a type; "" stays absent."""
        if kind is not None:
            return self.dequantize(value, self.values.integers(value, kind), kind)
        if value in self.graph.constants:
            array = self.values.array(value)
            self.file.constants[value] = (array, self.graph.values[value].dtype)
            # FINN holds a tensor to its datatype, and streamlining multiplies other constants.
            if value in self._weights and array.dtype == np.float32 and np.all(np.abs(array) == 1):
                self._annotations[value] = {DATATYPE: "BIPOLAR"}
        return value

    def finish(self) -> bytes:
        """Bind the model's outputs to their own names and serialise."""
        for name in dict.fromkeys(self.graph.outputs):
            self.file.bind(name, self.values.real(name))
        self._drop_dead()
        self.file.nodes = [
            node._replace(attributes={**node.attributes, **self._windows.get(node.name, {})})
            for node in self.file.nodes
        ]
        opset = self.graph.opsets.get("", OPSET)
        return self.file.to_bytes(opset=opset, port=self.file.port, annotations=self._annotations)

    def _drop_dead(self) -> None:
        """Leave out nodes and constants that no output rests on."""
        read, kept = set(self.graph.outputs), []
        for node in reversed(self.file.nodes):
            if not read.isdisjoint(node.outputs):
                kept.append(node)
                read.update(node.inputs)
        self.file.nodes = kept[::-1]
        self.file.constants = {name: data for name, data in self.file.constants.items() if name in read}
        self._annotations = {name: texts for name, texts in self._annotations.items() if name in read}

    def quantize(self, value: str, tensor: str, kind: Uniform) -> str:
        """Quantize a float tensor: the least float32 of each level, ties to even as they fall."""
        self._need_per_tensor(value, kind)
        self._need_few_levels(value, kind)
        store = kind.storage
        least = least_floats(
            lambda x: quantize_array(x, kind).astype(np.int64) - store.qmin, store.qmax - store.qmin
        )
        low = store.qmin - kind.zero_point
        stem = f"{value}_integers"
        return self.thresholds(tensor, least[None], low=low, stem=stem, layout=self._layout(value))

    def rescale(self, value: str, tensor: str, source: Uniform, wanted: Uniform) -> str:
        """Rescale integers; nothing where no rescale stands between the types."""
        if self.values.is_same(source, wanted):
            return tensor
        self._need_per_tensor(value, source)
        self._need_per_tensor(value, wanted)
        low, held = wanted.storage.qmin, source.zero_point
        self._need_few_levels(value, wanted)

        def levels_of(v: Integers) -> Integers:
            return rescaled(v + held, source, wanted, self.values.arithmetic).astype(np.int64) - low

        ends = [np.asarray([end - held]) for end in (source.storage.qmin, source.storage.qmax)]
        least = least_arguments(levels_of, ends[0], ends[1], wanted.storage.qmax - low).least
        low, stem = low - wanted.zero_point, f"{value}_integers"
        return self.thresholds(tensor, least, low=low, stem=stem, layout=self._layout(value))

    def dequantize(self, value: str, tensor: str, kind: Uniform) -> str:
        """Append the scale behind integers whose zero point is gone."""
        scales = np.asarray(kind.scales, np.float32)
        if kind.axis is not None:
            rank = len(self.graph.values[value].shape or ())
            scales = scales.reshape([-1 if i == kind.axis else 1 for i in range(rank)])
        else:
            scales = scales.reshape(())
        return self.emit("Mul", [tensor, self.constant(f"{value}_scale", scales)], f"{value}_real")

    def _layout(self, value: str) -> str:
        """What a MultiThreshold of one channel says of the picture that it reads."""
        return "NHWC" if value in self._channels_last else "NCHW"

    def _need_few_levels(self, value: str, kind: Uniform) -> None:
        if kind.storage.steps > MOST_LEVELS:
            raise UnsupportedExport(
                f"{value!r} has the fixed type {kind.storage}, more levels than thresholds are written for",
                hint="give it at most 16 bits, or no fixed type",
            )

    def _need_per_tensor(self, value: str, kind: Uniform) -> None:
        if not kind.is_per_tensor:
            raise UnsupportedExport(
                f"{value!r} is an activation with a scale per slice, and FINN's streams have one",
                hint="use a type per tensor there",
            )


def layout_of(axis: int, rank: int) -> str:
    """A MultiThreshold's layout with its channels at an axis; -1: of one channel.

    "" where every version of QONNX takes this axis by default: the second of a matrix, the last of three.
    FINN's QONNX accepts NCHW and NHWC alone.
    """
    if (axis, rank) in {(1, 2), (2, 3)}:
        return ""
    if axis in (-1, 1):
        return "NCHW"
    return "".join("C" if i == axis else letter for i, letter in enumerate("NHWD"[:rank]))


def datatype_of(low: int, high: int) -> str:
    """FINN's name of the integers from low to high."""
    if low >= 0:
        return "BINARY" if high <= 1 else f"UINT{high.bit_length()}"
    return f"INT{max((-low - 1).bit_length(), max(high, 0).bit_length()) + 1}"


def datatype_of_array(integers: Array) -> str:
    """FINN's name of the integers in an array; one sign bit and nothing else is BIPOLAR."""
    found = set(np.unique(integers).tolist())
    if found <= {-1, 1}:
        return "BIPOLAR"
    return "TERNARY" if found <= {-1, 0, 1} else datatype_of(int(min(found)), int(max(found)))
