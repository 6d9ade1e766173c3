"""The FINN model being written: float tensors that hold integers, each with its FINN datatype.

A value lives as `stored - zero_point` in float32, so no zero point is left and a padding of 0 is real zero;
its scale follows where a float reader needs it. Types change in a MultiThreshold, which counts the thresholds
a number reaches. Source: FINN documentation, "Streamlining"; QONNX operator page MultiThreshold.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.constants.quantize import quantize_array
from planner.errors import UnsupportedExport
from planner.exporters.common.names import Names
from planner.exporters.onnx.accepts import numbers_of
from planner.exporters.qonnx.thresholds import Integers, least_arguments, least_floats
from planner.interpreter.memory import rescaled
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Uniform
from planner.onnx.quantized.formulas import Array
from planner.onnx.write import OPSET, Node, write_model
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of, pins

FINN: Final = "qonnx.custom_op.general"
DATATYPE: Final = "finn_datatype"
MOST_LEVELS: Final = 1 << 16
LAYOUTS: Final[Mapping[int, str]] = {2: "NC", 3: "NWC", 4: "NHWC"}


class FinnModelBuilder:
    """Nodes and constants written so far, and the tensors that hold each value."""

    def __init__(self, graph: Graph, plan: Plan) -> None:
        """Start with the model's inputs, all float."""
        self.graph, self.plan = graph, plan
        self.arithmetic = ""
        self._names = Names(graph, plan.graph)
        self._pins = pins(plan.graph)
        self._nodes: list[Node] = []
        self._constants: dict[str, Array | tuple[Array, str]] = {}
        self._annotations: dict[str, Mapping[str, str]] = {}
        self._bases: dict[str, PortTyped] = {}
        self._integers: dict[tuple[str, Uniform], str] = {}
        self._reals: dict[tuple[str, PortTyped], str] = {}
        for name in graph.inputs:
            self.define_real(name, name)

    def emit(
        self, kind: str, inputs: Sequence[str], stem: str, attributes: Mapping[str, Any] | None = None
    ) -> str:
        """Append a standard node with one result under a fresh name."""
        result = self._names.fresh(stem)
        name = self._names.fresh(f"{result}_{kind}")
        self._nodes.append(Node(kind, tuple(inputs), (result,), name, "", attributes or {}))
        return result

    def emit_op(self, op: Op, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Append a source op on other tensors."""
        domain, _, kind = op.type.rpartition("::")
        self._nodes.append(Node(kind, tuple(inputs), tuple(outputs), op.name, domain, op.attributes))

    def fresh(self, stem: str) -> str:
        """A tensor name that is free."""
        return self._names.fresh(stem)

    def constant(self, stem: str, array: Array, datatype: str = "") -> str:
        """A float32 constant, annotated where it holds integers."""
        name = self._names.fresh(stem)
        self._constants[name] = array.astype(np.float32)
        if datatype:
            self._annotations[name] = {DATATYPE: datatype}
        return name

    def array(self, value: str) -> Array:
        """The numbers of a constant."""
        return numbers_of(self.graph, value)

    def thresholds(self, tensor: str, thresholds: Array, *, low: int, stem: str, layout: str = "NCHW") -> str:
        """Append a MultiThreshold: `low` plus the number of thresholds reached.

        Args:
          thresholds: (C or 1, steps), ascending.
          low: the integer below all of them.
          layout: of the tensor; C is the channel axis.
        """
        datatype = datatype_of(low, low + thresholds.shape[1])
        table = self.constant(f"{stem}_thresholds", thresholds)
        result = self._names.fresh(stem)
        attributes = {
            "data_layout": layout,
            "out_bias": float(low),
            "out_dtype": datatype,
            "out_scale": 1.0,
        }
        name = self._names.fresh(f"{result}_MultiThreshold")
        self._nodes.append(Node("MultiThreshold", (tensor, table), (result,), name, FINN, attributes))
        self._annotations[result] = {DATATYPE: datatype}
        return result

    def signs(self, tensor: str, threshold: float, scale: float, stem: str) -> str:
        """Append a MultiThreshold to the scale, from the threshold on, and its negative below."""
        table = self.constant(f"{stem}_thresholds", np.asarray([[threshold]]))
        result = self._names.fresh(stem)
        attributes = {
            "data_layout": "NCHW",
            "out_bias": -scale,
            "out_dtype": "BIPOLAR",
            "out_scale": 2 * scale,
        }
        name = self._names.fresh(f"{result}_MultiThreshold")
        self._nodes.append(Node("MultiThreshold", (tensor, table), (result,), name, FINN, attributes))
        if scale == 1:
            self._annotations[result] = {DATATYPE: "BIPOLAR"}
        return result

    def define_real(self, value: str, tensor: str) -> None:
        """Say that a value is defined in float; a pin follows as a MultiThreshold."""
        pinned = self._pins.get(value)
        self._bases[value] = pinned
        if pinned is None:
            self._reals[value, None] = tensor
        else:
            self._integers[value, pinned] = self._quantized(value, tensor, pinned)

    def define_integers(self, value: str, kind: Uniform, tensor: str) -> None:
        """Say which tensor holds a value's integers; a rescale to its pin follows."""
        pinned = self._pins.get(value, kind)
        self._bases[value] = pinned
        self._integers[value, kind] = tensor
        if isinstance(pinned, Uniform):
            self._integers[value, pinned] = self._moved(value, tensor, kind, pinned)
        else:
            self._reals[value, None] = self._scaled(value, tensor, kind)

    def integers(self, value: str, kind: Uniform) -> str:
        """The tensor of a value's integers in a type, zero point gone."""
        known = self._integers.get((value, kind))
        if known is not None:
            return known
        base = self._bases.get(value)
        if value in self.graph.constants:
            stored = quantize_array(self.array(value), kind).astype(np.int64)
            shape = [1] * stored.ndim
            if kind.axis is not None:
                shape[kind.axis] = -1
            shifted = stored - np.asarray(kind.zero_points).reshape(shape)
            result = self.constant(f"{value}_integers", shifted, datatype_of_array(shifted))
        elif isinstance(base, Uniform):
            result = self._moved(value, self._integers[value, base], base, kind)
        else:
            result = self._quantized(value, self.real(value), kind)
        self._integers[value, kind] = result
        return result

    def real(self, value: str, seen: PortTyped = None) -> str:
        """The float tensor of a value, seen through a type; "" stays absent."""
        base = self._bases.get(value)
        kind = seen if isinstance(seen, Uniform) else base
        if isinstance(kind, Uniform):
            if (value, kind) not in self._reals:
                self._reals[value, kind] = self._scaled(value, self.integers(value, kind), kind)
            return self._reals[value, kind]
        if value in self.graph.constants:
            array = self.array(value)
            self._constants[value] = (array, self.graph.values[value].dtype)
            if array.dtype == np.float32 and np.all(np.abs(array) == 1):
                self._annotations[value] = {DATATYPE: "BIPOLAR"}
            return value
        return self._reals.get((value, None), value)

    def finish(self) -> bytes:
        """Bind the model's outputs to their own names and serialise."""
        for name in dict.fromkeys(self.graph.outputs):
            tensor = self.real(name)
            if tensor != name:
                self._nodes.append(
                    Node("Identity", (tensor,), (name,), self._names.fresh(f"{name}_Identity"))
                )
        self._drop_dead()
        values = self.graph.values
        versions = {domain: number for domain, number in self.graph.opsets.items() if domain}
        used = {node.domain for node in self._nodes}
        return write_model(
            name=self.graph.name,
            nodes=self._nodes,
            inputs=[(name, values[name].dtype, values[name].shape) for name in self.graph.inputs],
            outputs=[(name, values[name].dtype, values[name].shape) for name in self.graph.outputs],
            constants=self._constants,
            opset=self.graph.opsets.get("", OPSET),
            domains={domain: number for domain, number in versions.items() if domain in used},
            annotations=self._annotations,
        )

    def _drop_dead(self) -> None:
        """Leave out nodes and constants that no output rests on."""
        read, kept = set(self.graph.outputs), []
        for node in reversed(self._nodes):
            if not read.isdisjoint(node.outputs):
                kept.append(node)
                read.update(node.inputs)
        self._nodes = kept[::-1]
        self._constants = {name: data for name, data in self._constants.items() if name in read}
        self._annotations = {name: texts for name, texts in self._annotations.items() if name in read}

    def _quantized(self, value: str, tensor: str, kind: Uniform) -> str:
        """Quantize a float tensor: the least float32 of each level, ties to even as they fall."""
        self._need_per_tensor(value, kind)
        self._need_few_levels(value, kind)
        store = kind.storage
        least = least_floats(
            lambda x: quantize_array(x, kind).astype(np.int64) - store.qmin, store.qmax - store.qmin
        )
        low = store.qmin - kind.zero_point
        return self.thresholds(tensor, least[None], low=low, stem=f"{value}_integers")

    def _moved(self, value: str, tensor: str, source: Uniform, wanted: Uniform) -> str:
        """Rescale integers; nothing where no rescale stands between the types."""
        if kind_of(source, wanted, self.plan.target.costs) is None:
            return tensor
        self._need_per_tensor(value, source)
        self._need_per_tensor(value, wanted)
        low, held = wanted.storage.qmin, source.zero_point
        self._need_few_levels(value, wanted)

        def levels_of(v: Integers) -> Integers:
            return rescaled(v + held, source, wanted, self.arithmetic).astype(np.int64) - low

        ends = [np.asarray([end - held]) for end in (source.storage.qmin, source.storage.qmax)]
        least = least_arguments(levels_of, ends[0], ends[1], wanted.storage.qmax - low).least
        return self.thresholds(tensor, least, low=low - wanted.zero_point, stem=f"{value}_integers")

    def _scaled(self, value: str, tensor: str, kind: Uniform) -> str:
        scales = np.asarray(kind.scales, np.float32)
        if kind.axis is not None:
            rank = len(self.graph.values[value].shape or ())
            scales = scales.reshape([-1 if i == kind.axis else 1 for i in range(rank)])
        else:
            scales = scales.reshape(())
        return self.emit("Mul", [tensor, self.constant(f"{value}_scale", scales)], f"{value}_real")

    def _need_few_levels(self, value: str, kind: Uniform) -> None:
        if kind.storage.steps > MOST_LEVELS:
            raise UnsupportedExport(
                f"{value!r} is pinned to {kind.storage}, more levels than thresholds are written for",
                hint="pin it to at most 16 bits, or leave it unpinned",
            )

    def _need_per_tensor(self, value: str, kind: Uniform) -> None:
        if not kind.is_per_tensor:
            raise UnsupportedExport(
                f"{value!r} is an activation with a scale per slice, and FINN's streams have one",
                hint="use a type per tensor there",
            )


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
