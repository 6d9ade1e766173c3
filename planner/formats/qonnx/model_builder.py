"""The QONNX model being written: float tensors all, each value seen through its types by a Quant.

A value has a base, as in `builder`: its fixed type, else the type at its definition. The tensor on the base's
grid keeps the value's name; other types of it are Quants of that one. Model inputs are float: one of a fixed
type is on its grid behind a Quant. Source: docs/specification.md, section 3; plans/rescales.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.common.values import numbers_of
from planner.formats.onnx.quantized.formulas import Array, bipolar
from planner.formats.onnx.read import read_written
from planner.formats.onnx.write import OPSET, Port
from planner.formats.onnx.writer.onnx_file import OnnxFile
from planner.formats.qonnx.quant_parameters import (
    BIPOLAR_NAME,
    QONNX,
    QUANT_NAME,
    Quant,
    constant_of,
    quant_of,
)
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Bipolar, Uniform
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import kind_of


class FloatModelBuilder:
    """Nodes and constants written so far, and the float tensors that hold each value.

    Attributes:
      is_for_finn: whether FINN reads the file, for which every Quant of an activation is a layer.
      kinds: types of Quants of activations, by the name of their result.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        """Start with the model's inputs."""
        self.graph, self.file = graph, OnnxFile(graph, plan)
        self._costs, self._pins = plan.target.costs, plan.stored_pins
        self.is_for_finn = plan.target.files.reader == "finn"
        self.kinds: dict[str, Uniform] = {}
        self._bases: dict[str, PortTyped] = {}
        self._reals: dict[tuple[str, PortTyped], str] = {}
        self._parameters: dict[tuple[bytes, tuple[int, ...]], str] = {}
        for name in graph.inputs:
            self._bases[name] = kind = self._pins.get(name)
            self._reals[name, kind] = name if kind is None else self._quantized(name, kind, name)

    def turned(self, value: str, seen: PortTyped) -> str:
        """A constant matrix transposed, seen through a type."""
        array = numbers_of(self.graph, value)
        if not isinstance(seen, Uniform):
            return self.file.constant(f"{value}_turned", np.ascontiguousarray(array.T))
        return self._quantized_constant(value, np.ascontiguousarray(array.T), _turned(seen))

    def number_nodes(self) -> Mapping[str, str]:
        """Name every node by its type and count, as QONNX's cleanup does; new names by old ones.

        It puts nodes in layers first, each as soon as what it reads is there.
        """
        layer: dict[str, int] = {}
        for node in self.file.nodes:
            depth = max((layer.get(name, -1) for name in node.inputs), default=-1) + 1
            layer |= dict.fromkeys(node.outputs, depth)
        self.file.nodes.sort(key=lambda node: layer[node.outputs[0]])
        counts: Counter[str] = Counter()
        renamed: dict[str, str] = {}
        for i, node in enumerate(self.file.nodes):
            renamed[node.name] = f"{node.op_type}_{counts[node.op_type]}"
            counts[node.op_type] += 1
            self.file.nodes[i] = node._replace(name=renamed[node.name])
        return renamed

    def spell_out(self, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        """Set attributes of nodes, by their names."""
        for i, node in enumerate(self.file.nodes):
            said = attributes.get(node.name)
            if said:
                self.file.nodes[i] = node._replace(attributes={**node.attributes, **said})

    def raw_name(self, value: str, defined: PortTyped) -> str:
        """Name for the result of the op that defines a value, before its Quants."""
        is_bare = defined is None and self._pins.get(value) is None and self.signs(value) is None
        return value if is_bare else self.file.fresh(f"{value}_float")

    def define(self, value: str, tensor: str, kind: PortTyped, *, on_grid: bool = False) -> None:
        """Say which tensor an op gave a value; the Quants of its type and of its fixed type follow.

        Args:
          on_grid: whether the op only moved numbers of this type; FINN's files have no Quant behind it.
        """
        signs = self.signs(value)
        if on_grid and self.is_for_finn and value not in self._pins:
            self._bases[value] = kind
            self._reals[value, kind] = tensor
        elif isinstance(kind, Uniform):
            pinned = self._pins.get(value, kind)
            is_base = pinned is None or kind_of(kind, pinned, self._costs) is None
            tensor = self._quantized(value, kind, tensor, value if is_base else "")
            self._bases[value] = pinned
            self._reals[value, pinned] = tensor if is_base else self._quantized(value, pinned, tensor, value)
        elif signs is not None:
            self._bases[value] = None
            self._reals[value, None] = self._bipolar(value, signs, tensor, value)
        else:
            self._bases[value] = pinned = self._pins.get(value)
            is_bare = pinned is None
            self._reals[value, pinned] = tensor if is_bare else self._quantized(value, pinned, tensor, value)

    def real(self, value: str, seen: PortTyped = None) -> str:
        """The tensor of a value seen through the type a port reads it in; "" stays absent."""
        if not value:
            return ""
        if value in self.graph.constants:
            return self._constant(value, seen)
        base = self._bases.get(value)
        wanted = seen if isinstance(seen, Uniform) else base
        if isinstance(base, Uniform) and kind_of(base, wanted, self._costs) is None:
            wanted = base
        if (value, wanted) not in self._reals:
            if not isinstance(wanted, Uniform):
                return value
            self._reals[value, wanted] = self._quantized(value, wanted, self._reals.get((value, base), value))
        return self._reals[value, wanted]

    def bind_outputs(self) -> None:
        """Give the model's outputs their own names; nothing may be written behind this."""
        for name in dict.fromkeys(self.graph.outputs):
            self.file.bind(name, self.real(name, self._pins.get(name)))

    def finish(self, *, shapes: bool = False, names: Mapping[str, str] | None = None) -> bytes:
        """Serialise, outputs bound.

        Args:
          shapes: write the shapes of all tensors inside too, for tools that infer none behind a Quant.
          names: of inputs that are called otherwise in the file, by their own.
        """
        opset = self.graph.opsets.get("", OPSET)

        def port(name: str) -> Port:
            own, dtype, shape = self.file.port(name)
            return (names or {}).get(own, own), dtype, shape

        data = self.file.to_bytes(opset=opset, port=port)
        if not shapes:
            return data
        known = read_written(data, opened=False).values
        made = (name for node in self.file.nodes for name in node.outputs if name not in self.graph.outputs)
        inner = [(name, known[name].dtype, known[name].shape) for name in made if name in known]
        return self.file.to_bytes(opset=opset, port=port, inner=inner)

    def signs(self, value: str) -> Bipolar | None:
        """The number that a value is plus or minus, if a fact says so."""
        facts = self.graph.values[value].facts
        return next((fact for fact in facts if isinstance(fact, Bipolar)), None)

    def _constant(self, value: str, seen: PortTyped) -> str:
        known = self._reals.get((value, seen))
        if known is not None:
            return known
        array = numbers_of(self.graph, value)
        if not isinstance(seen, Uniform):
            self.file.constants[value] = (array, self.graph.values[value].dtype)
            self._reals[value, seen] = value
            return value
        result = self._quantized_constant(value, array, seen)
        self._reals[value, seen] = result
        return result

    def _quantized_constant(self, value: str, array: Array, kind: Uniform) -> str:
        signs = self.signs(value)
        node = quant_of(kind, array.shape, array.ndim)
        data, is_quant = constant_of(array, kind, node)
        if signs is not None and np.array_equal(bipolar(data, np.asarray(signs.scale, np.float32)), data):
            return self._bipolar(value, signs, self.file.constant(f"{value}_float", data))
        if node is None or not is_quant:
            return self.file.constant(f"{value}_quantized", data)
        return self._quant(value, node, self.file.constant(f"{value}_float", data))

    def _quantized(self, value: str, kind: PortTyped, tensor: str, result: str = "") -> str:
        if not isinstance(kind, Uniform):
            return tensor
        shape = self.graph.values[value].shape
        node = quant_of(kind, None, None if shape is None else len(shape))
        if node is None:
            raise UnsupportedExport(
                f"{value!r} is {kind.storage} with scales per slice and an unknown rank",
                hint="use a type per tensor there",
            )
        if self.is_for_finn and not node.signed and not np.any(node.zero_point):
            tensor = self._behind_relu(value, tensor)
        name = self._quant(value, node, tensor, result)
        self.kinds[name] = kind
        return name

    def _behind_relu(self, value: str, tensor: str) -> str:
        """A tensor behind a Relu of its own: FINN takes an unsigned Quant of nothing else.

        The Quant cuts at 0 all the same.
        """
        made = next((node for node in reversed(self.file.nodes) if tensor in node.outputs), None)
        if made is not None and made.op_type == "Relu":
            return tensor
        name = self.file.fresh(f"{value}_positive")
        self.file.emit("Relu", [tensor], [name])
        return name

    def _quant(self, value: str, node: Quant, tensor: str, result: str = "") -> str:
        stem = f"{value}_quant"
        operands = [
            tensor,
            *(self._parameter(stem, part) for part in (node.scale, node.zero_point, node.bits)),
        ]
        return self._append(QUANT_NAME, value, operands, result, node.attributes)

    def _bipolar(self, value: str, kind: Bipolar, tensor: str, result: str = "") -> str:
        scale = self._parameter(f"{value}_sign", np.asarray(kind.scale, np.float32))
        return self._append(BIPOLAR_NAME, value, [tensor, scale], result, {})

    def _append(
        self, kind: str, value: str, operands: list[str], result: str, attributes: Mapping[str, Any]
    ) -> str:
        name = result or self.file.fresh(f"{value}_quantized")
        self.file.emit(kind, operands, [name], domain=QONNX, attributes=attributes)
        return name

    def _parameter(self, stem: str, array: Array) -> str:
        key = (array.tobytes(), array.shape)
        if key not in self._parameters:
            self._parameters[key] = self.file.constant(f"{stem}_parameter", array)
        return self._parameters[key]


def _turned(kind: Uniform) -> Uniform:
    """The type of a matrix, for its transposition: slices are listed row by row."""
    if kind.axis is not None:
        return replace(kind, axis=1 - kind.axis)
    if not kind.grid:
        return kind
    order = np.arange(len(kind.scales)).reshape(kind.grid).T.ravel().tolist()
    return replace(
        kind,
        scales=tuple(kind.scales[i] for i in order),
        zero_points=tuple(kind.zero_points[i] for i in order),
        blocks=tuple(sorted((1 - axis, size) for axis, size in kind.blocks)),
        grid=kind.grid[::-1],
        ranges=tuple(kind.ranges[i] for i in order) if kind.ranges else (),
    )
