"""Guards: where onnxruntime's default optimisations would compute something else than the file says.

`WeightBiasQuantization` takes a Conv, ConvTranspose or Gemm that reads a DequantizeLinear of one scale and
leads to a QuantizeLinear: its float weight becomes 8 bits per tensor, its float bias int32 on the grid of the
sums. `DoubleQDQPairsRemover` makes one pair, with a scale of its own, of two in a row, that is of a rescale.
QLinearConv and QGemm take any bias for one on the grid of the sums, whatever scale its DequantizeLinear has.
An AveragePool with dilations is fused into a kernel that knows none. QLinearAdd adds in float32, zero points
included, so a mask of steps many times the result's leaves nothing of what it masks. QLinearSoftmax runs over
where the steps of its result are fine (`overflows`): of one number alone it says 0 at steps of 1/256, where
it is 1. `MatMulAddFusion` makes a float Gemm of a product of integers whose result is float and an Add of
floats behind it; a Relu or Clip behind such a product that is read in float keeps it from being one kernel,
so that it is summed up in float; `QDQPropagation` rounds such a result where ops that move data stand between
it and a QuantizeLinear. In opset 21 a pair of i8 that is carried over an op that moves data does not load
(`opsets`). A pair is carried, too, to what an If reads in its bodies, which ends the process, and out of a
branch that is put in the place of its If. A Max of one tensor is that tensor, and no optimisation looks
across it, but for Transposes, which `layouts` keeps from where they do harm.
Ops that only move data hide nothing: others carry pairs over them.
Source: onnxruntime's `weight_bias_quantization.cc`, `matmul_add_fusion.cc`, `double_qdq_pairs_remover.cc`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np

from planner.formats.onnx.nodes import Node
from planner.formats.onnx.write import Data
from planner.formats.onnx.writer.storage_types import Array
from planner.interpreter.kernels.softmax import least_size, overflows
from planner.ir.graph import Graph
from planner.ir.structure import END, JOIN
from planner.ops import of_form
from planner.ops.forms import Form

DQ: Final = "DequantizeLinear"
Q: Final = "QuantizeLinear"
GUARD: Final = "Max"
_BROKEN: Final = 21
_STEPS: Final = 4096
"""An operand's step in steps of the sum: from here on 255 of them are not exact to 1/16 in float32."""
_SAME: Final = 1e-5
_BORDERS, _JOIN = JOIN.split("::")
_END: Final = END.split("::")[1]
_BORDER: Final = "@border"
"""In place of a scope, of the guard behind the tensor itself."""
_BIASED: Final = frozenset({"Conv", "ConvTranspose", "Gemm"})
_VIEWS: Final = of_form(Form.VIEW) | {"Transpose"}
_MOVEMENT: Final = _VIEWS | {"MaxPool", "Slice"}
# What stands between an op and its QuantizeLinear, or is folded into the op before it is looked at.
_FOLLOWERS: Final = _MOVEMENT | {"Add", "BatchNormalization", "Clip", "Div", "Mul", "Relu", "Sub", "Sum"}
CARRIERS: Final = _MOVEMENT - {"Dropout", "Flatten", "Identity"}
"""Ops over which `QDQPropagation` carries pairs."""


def guarded(
    nodes: Sequence[Node],
    constants: Mapping[str, Data],
    outputs: Iterable[str],
    fresh: Callable[[str], str],
    *,
    opset: int,
    softmaxes: Mapping[str, int] = MappingProxyType({}),
) -> list[Node]:
    """The nodes of a file, with a guard in front of each that would be computed from other numbers.

    Args:
      outputs: tensors that the model gives.
      fresh: gives a name that is free.
      opset: that the file is written in.
      softmaxes: by node: of how many numbers its Softmax is, at least.
    """
    file, guards, result = (
        _read(nodes, constants, outputs, opset, softmaxes),
        dict[tuple[str, str], str](),
        list[Node](),
    )
    crossing = {name for node in nodes for name in file.crossing(node)}

    def guard(source: str, scope: str, place: str) -> None:
        guards[source, place] = fresh(f"{source}_guard")
        name = fresh(f"{GUARD}_{len(result)}")
        result.append(Node(GUARD, (source,), (guards[source, place],), name, scope=scope))

    for each in nodes:
        node = _reading(each, {name: guards[name, _BORDER] for name in file.crossing(each)})
        for source in file.guarded(node):
            if (source, node.scope) not in guards:
                guard(source, node.scope, node.scope)
            node = _reading(node, {source: guards[source, node.scope]})
        result.append(node)
        for source in node.outputs:
            if source in crossing:
                guard(source, node.scope, _BORDER)
    return result


def _reading(node: Node, names: Mapping[str, str]) -> Node:
    return node._replace(inputs=tuple([names.get(name, name) for name in node.inputs])) if names else node


def softmax_sizes(graph: Graph) -> Mapping[str, int]:
    """Of how many numbers each Softmax is, at least, by name of its op."""
    ops = [op for op in graph.all_ops() if op.type == "Softmax"]
    return {op.name: least_size(op, graph.values[op.outputs[0]].shape) for op in ops}


@dataclass(frozen=True)
class _File:
    """The parts of a file that the optimiser looks at.

    Attributes:
      makers: by tensor: the node that gives it.
      pairs: by tensor behind a DequantizeLinear and ops that move data: that node.
      views: the same for ops that may be moved away or removed.
      stored: by tensor behind a QuantizeLinear and such ops: that node.
      folded: tensors that follow from constants alone.
      leading: tensors that lead to a QuantizeLinear.
      carried: tensors that lead to a QuantizeLinear over ops that it is carried over alone.
      added: what an Add adds to a tensor.
      quantizers: by tensor in front of a QuantizeLinear: that node.
      readers: how often a tensor is read, results of the model once more.
      read: tensors that some node reads.
      softmaxes: by node: of how many numbers its Softmax is, at least.
    """

    constants: Mapping[str, Data]
    readers: Counter[str]
    opset: int
    softmaxes: Mapping[str, int] = field(default_factory=dict)
    makers: dict[str, Node] = field(default_factory=dict)
    pairs: dict[str, Node] = field(default_factory=dict)
    views: dict[str, Node] = field(default_factory=dict)
    stored: dict[str, Node] = field(default_factory=dict)
    quantizers: dict[str, Node] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)
    carried: set[str] = field(default_factory=set)
    leading: set[str] = field(default_factory=set)
    added: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def guarded(self, node: Node) -> Iterator[str]:
        """Operands of a node that optimisations may not look across."""
        dilated = node.op_type == "AveragePool" and set(node.attributes.get("dilations", ())) - {1}
        is_pool = dilated and node.inputs[0] in self.pairs and node.outputs[0] in self.leading
        wrong = (
            self.is_quantized_anew,
            self.has_bias_off_grid,
            self.is_second_pair,
            self.is_carried,
            self.is_run_over,
        )
        if is_pool or any(is_wrong(node) for is_wrong in wrong):
            yield node.inputs[0]
        elif node.op_type in CARRIERS:
            yield from (name for name in node.inputs[:1] if self.is_rounded(name, node))
        elif node.op_type == "Add":
            yield from (name for name in node.inputs if self.is_coarse(name, node.outputs[0]))
            if self.opset >= _BROKEN:
                yield from (name for name in node.inputs if self.is_product(name))
            yield from (name for name in node.inputs if self.is_float_result(name, node))
            yield from (name for name in node.inputs if self.is_biased_off_grid(name))
        elif self.is_float_clamp(node):
            yield node.inputs[0]

    def crossing(self, node: Node) -> Iterator[str]:
        """Operands behind a pair that are handed into a body, or out of a branch."""
        if node.domain == _BORDERS and node.op_type != _END:
            for name in node.inputs[1 if node.op_type == _JOIN else 0 :]:
                if name in self.pairs and name not in self.folded:
                    yield name

    def is_carried(self, node: Node) -> bool:
        """Whether a pair of i8 would be carried over an op that moves data, from in front or from behind."""
        if self.opset < _BROKEN or node.op_type not in (Q, *CARRIERS):
            return False
        source = self.makers.get(node.inputs[0])
        first, second = (source, node) if node.op_type != Q else (node, source)
        is_pair = first is not None and first.op_type in (Q, DQ) and self._is_i8(first)
        return is_pair and second is not None and second.op_type in CARRIERS

    def is_run_over(self, node: Node) -> bool:
        """Whether a Softmax between pairs has a result of steps that are too fine for QLinearSoftmax."""
        stored = self.quantizers.get(node.outputs[0]) if node.name in self.softmaxes else None
        if stored is None or node.inputs[0] not in self.pairs:
            return False
        step = self._array(stored.inputs[1])
        return step is None or overflows(self.softmaxes[node.name], float(np.min(step)))

    def is_coarse(self, name: str, result: str) -> bool:
        """Whether an operand's steps are so large that a fused Add loses the other one."""
        pair, stored = self.pairs.get(name), self.quantizers.get(result)
        if pair is None or stored is None:
            return False
        step, own = self._array(pair.inputs[1]), self._array(stored.inputs[1])
        return step is not None and own is not None and bool(np.max(step) / _STEPS > np.min(own))

    def is_product(self, name: str) -> bool:
        """Whether a tensor is a MatMul that an Add makes a Gemm between Reshapes, in a file with i8."""
        product = self.makers.get(name)
        return product is not None and product.op_type == "MatMul" and self.has_i8

    def is_float_result(self, name: str, add: Node) -> bool:
        """Whether a tensor is a product of integers that an Add of floats would take into a float Gemm."""
        product = self.makers.get(name)
        if product is None or product.op_type != "MatMul" or add.outputs[0] in self.leading:
            return False
        return all(operand in self.pairs for operand in product.inputs) and self.added[name] not in self.pairs

    def is_float_clamp(self, node: Node) -> bool:
        """Whether a Relu or Clip of a product of integers is read in float: the product is not fused then."""
        product = self.makers.get(node.inputs[0]) if node.op_type in ("Clip", "Relu") else None
        if product is None or product.domain or product.op_type not in ("Gemm", "MatMul"):
            return False
        is_read = node.outputs[0] in self.read and node.outputs[0] not in self.quantizers
        return is_read and all(operand in self.pairs for operand in product.inputs[:2])

    def is_rounded(self, name: str, moving: Node) -> bool:
        """Whether a tensor is a product of integers that a QuantizeLinear far behind would be carried to."""
        return moving.outputs[0] in self.carried and self.gives_product(name)

    def gives_product(self, name: str) -> bool:
        """Whether a tensor is a product of integers, a bias on its grid and a clamp behind it included."""
        node = self.makers.get(name)
        if node is None or node.domain:
            return False
        if node.op_type in ("Gemm", "MatMul"):
            return all(operand in self.pairs for operand in node.inputs[:2])
        if node.op_type in ("Clip", "Relu"):
            return self.gives_product(node.inputs[0])
        return node.op_type == "Add" and any(
            self.gives_product(one) and other in self.pairs for one, other in (node.inputs, node.inputs[::-1])
        )

    @cached_property
    def has_i8(self) -> bool:
        """Whether a value is stored in signed bytes."""
        return any(self._is_i8(node) for node in self.stored.values())

    def is_quantized_anew(self, node: Node) -> bool:
        """Whether an op has a float weight or bias that `WeightBiasQuantization` would quantize."""
        is_biased = node.op_type in _BIASED
        if node.domain or not (is_biased or node.op_type == "MatMul"):
            return False
        x = self.pairs.get(node.inputs[0])
        if x is None or self._size(x.inputs[1]) != 1 or node.outputs[0] not in self.leading:
            return False
        # A MatMul and the Add behind it are one Gemm before that.
        if not is_biased and node.outputs[0] not in self.added:
            return False
        bias = "".join(node.inputs[2:3]) if is_biased else self.added[node.outputs[0]]
        array = self._array(bias)
        if is_biased and bias and (array is None or array.ndim != 1):
            return False
        return node.inputs[1] in self.folded or (node.inputs[1] in self.pairs and bias in self.folded)

    def has_bias_off_grid(self, node: Node) -> bool:
        """Whether a product of integers has a bias of another scale than its sums."""
        if node.domain or node.op_type not in ("Conv", "Gemm") or len(node.inputs) < 3:
            return False
        return self._is_off_grid(node.inputs[0], node.inputs[1], node.inputs[2])

    def is_biased_off_grid(self, name: str) -> bool:
        """Whether a tensor is a MatMul that an Add makes such a Gemm."""
        product = self.makers.get(name)
        if product is None or product.domain or product.op_type != "MatMul":
            return False
        return self._is_off_grid(product.inputs[0], product.inputs[1], self.added[name])

    def _is_off_grid(self, *operands: str) -> bool:
        pairs = [self.pairs.get(name) for name in operands]
        steps = [None if pair is None else self._array(pair.inputs[1]) for pair in pairs]
        # Of more than one scale of x, of blocks, or of slices that are not each other's nothing is fused.
        known = [step.astype(np.float64) for step in steps if step is not None and step.ndim < 2]
        if len(known) < len(operands) or known[0].size > 1 or len({s.size for s in known[1:]} - {1}) > 1:
            return False
        x, w, bias = known
        return not np.allclose(bias, x * w, rtol=_SAME, atol=0)

    def is_second_pair(self, node: Node) -> bool:
        """Whether a QuantizeLinear stands behind a pair of other numbers that nothing else reads."""
        first = self.views.get(node.inputs[0]) if node.op_type == Q else None
        source = None if first is None else self.stored.get(first.inputs[0])
        if first is None or source is None or source.inputs[1:] == node.inputs[1:]:
            return False
        is_alone = self.readers[source.outputs[0]] == 1 == self.readers[first.outputs[0]]
        return is_alone and all(self._size(name) == 1 for name in (source.inputs[1], node.inputs[1]))

    def _is_i8(self, node: Node) -> bool:
        array = self._array("".join(node.inputs[2:3]))
        return array is not None and array.dtype == np.int8

    def _size(self, name: str) -> int:
        array = self._array(name)
        return 1 if array is None else array.size

    def _array(self, name: str) -> Array | None:
        data = self.constants.get(name)
        return data[0] if isinstance(data, tuple) else data


def _read(
    nodes: Sequence[Node],
    constants: Mapping[str, Data],
    outputs: Iterable[str],
    opset: int,
    softmaxes: Mapping[str, int],
) -> _File:
    readers = Counter([*(name for node in nodes for name in node.inputs), *outputs])
    file = _File(constants, readers, opset, softmaxes, folded=set(constants))
    file.read.update(name for node in nodes for name in node.inputs)
    for node in nodes:
        file.makers.update(dict.fromkeys(node.outputs, node))
        if node.op_type == DQ:
            file.pairs[node.outputs[0]] = file.views[node.outputs[0]] = node
        elif node.op_type == Q:
            file.stored[node.outputs[0]] = file.quantizers[node.inputs[0]] = node
        elif node.op_type in _MOVEMENT and not file.folded.issuperset(node.inputs[:1]):
            for known in (file.pairs, file.stored, *([file.views] if node.op_type in _VIEWS else ())):
                if node.inputs[0] in known:
                    known[node.outputs[0]] = known[node.inputs[0]]
        elif not node.domain and all(name in file.folded for name in node.inputs if name):
            file.folded.update(node.outputs)
        if node.op_type == "Add":
            one, two = node.inputs
            file.added.update({one: two, two: one})
    for node in reversed(nodes):
        if node.op_type == Q or (node.op_type in _FOLLOWERS and not file.leading.isdisjoint(node.outputs)):
            file.leading.update(node.inputs)
        if node.op_type == Q or (node.op_type in CARRIERS and not file.carried.isdisjoint(node.outputs)):
            file.carried.update(node.inputs[:1])
    return file
