"""Own weights: an int8 weight and a zero point for each product, where several products share one.

With `session.x64quantprecision` onnxruntime turns the int8 weight of every fused product into uint8, and
names the result after the weight. Two products that share a weight, or two weights that share a zero point
constant, ask for one name twice, and the file does not load ("Attempt to replace the existing tensor"). A
node between weight and product is no way out: equal ones are merged, and idle ones removed, before that.
Source: onnxruntime's `avx2_weight_s8_to_u8.cc`.
"""

from collections.abc import Callable, MutableMapping, Sequence
from typing import Final

import numpy as np

from planner.formats.onnx.nodes import Node
from planner.formats.onnx.quantized.dialect import INTEGER_PRODUCTS
from planner.formats.onnx.write import Data
from planner.ops import LINEAR

DQ: Final = "DequantizeLinear"
_WEIGHTS: Final = {DQ: (0, 2), **{name.rpartition("::")[2]: at for name, at in INTEGER_PRODUCTS.items()}}
"""Operands of a node that are its integers and their zero point."""


def with_own_weights(
    nodes: Sequence[Node],
    constants: MutableMapping[str, Data],
    outputs: Sequence[str],
    fresh: Callable[[str], str],
) -> list[Node]:
    """Return the nodes of a file in which no two products share an int8 weight or its zero point.

    Args:
      constants: of the file; copies are added.
      outputs: tensors that the model gives.
      fresh: gives a name that is free.
    """
    done = _Pass(nodes, constants, fresh)
    written = done.run(nodes)
    read = {name for node in written for name in node.inputs}.union(outputs)
    # onnxruntime counts what nothing reads any more as one more use of the weight.
    return [node for node in written if node.name not in done.copied or read.intersection(node.outputs)]


class _Pass:
    def __init__(
        self, nodes: Sequence[Node], constants: MutableMapping[str, Data], fresh: Callable[[str], str]
    ) -> None:
        self._makers = {name: node for node in nodes for name in node.outputs if node.op_type in (DQ, "Clip")}
        self._constants, self._fresh = constants, fresh
        self._taken: set[str] = set()
        self.copied: set[str] = set()
        self._written: list[Node] = []

    def run(self, nodes: Sequence[Node]) -> list[Node]:
        for node in nodes:
            self._written.append(self._separated(node))
        return self._written

    def _separated(self, node: Node) -> Node:
        """The node with a weight of its own, behind a DequantizeLinear of its own where it has one."""
        if node.op_type in _WEIGHTS and node.op_type != DQ:
            return self._with_own(node, node.scope)
        source = self._makers.get(node.inputs[1]) if node.op_type in LINEAR else None
        if source is None or source.op_type != DQ:
            return node
        own = self._with_own(source, node.scope)
        if own is source:
            return node
        self.copied.add(source.name)
        result = self._fresh(source.outputs[0])
        self._written.append(own._replace(outputs=(result,), name=self._fresh(source.name), scope=node.scope))
        return node._replace(inputs=(node.inputs[0], result, *node.inputs[2:]))

    def _with_own(self, node: Node, scope: str) -> Node:
        at, zero_at = _WEIGHTS[node.op_type]
        zero = node.inputs[zero_at] if zero_at < len(node.inputs) else ""
        if not self._is_int8(node.inputs[at]) or "block_size" in node.attributes:
            return node
        inputs = list(node.inputs)
        for place, name in ((at, inputs[at]), (zero_at, zero)):
            if name in self._taken:
                inputs[place] = self._copied(name, scope)
            elif name:
                self._taken.add(name)
        return node if tuple(inputs) == node.inputs else node._replace(inputs=tuple(inputs))

    def _is_int8(self, name: str) -> bool:
        """Whether a tensor is an int8 constant, or one that a Clip holds to a narrower range."""
        maker = self._makers.get(name)
        data = self._constants.get(maker.inputs[0] if maker is not None and maker.op_type == "Clip" else name)
        if data is None:
            return False
        array, kind = data if isinstance(data, tuple) else (data, str(data.dtype))
        return array.dtype == np.int8 and kind in ("i8", "int8")

    def _copied(self, name: str, scope: str) -> str:
        """The same integers under another name; behind a Clip of their own, since equal ones become one."""
        copy, maker = self._fresh(name), self._makers.get(name)
        if maker is None:
            self._constants[copy] = self._constants[name]
            return copy
        inputs = (self._copied(maker.inputs[0], scope), *maker.inputs[1:])
        own = maker._replace(inputs=inputs, outputs=(copy,), name=self._fresh(maker.name), scope=scope)
        self._written.append(own)
        return copy
