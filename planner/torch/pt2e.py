"""PlanQuantizer: the types and ties of a plan as annotations of PT2E, PyTorch's own quantization.

`prepare_pt2e`, `prepare_qat_pt2e` and `convert_pt2e` of torchao take it, and ExecuTorch lowers the result. A
tied group has one scale, fixed scales stay, biases follow from factors. Source: torchao.quantization.pt2e.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import FakeQuantizeBase
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    Quantizer,
    SharedQuantizationSpec,
)

from planner.errors import InputError, UnsupportedExport
from planner.ir.types.qtypes import Uniform
from planner.ops import LINEAR
from planner.plans.plan import Plan, require_plan
from planner.plans.records import Port
from planner.target.ports.axes import channel_axis
from planner.target_exchange.aten import onnx_of
from planner.torch.nodes import HINT, Kernel, attribute, kernels_of
from planner.torch.quantizers import EdgeQuantizer, GroupScale, derived_scale
from planner.training.groups import training_spec
from planner.training.learned import Learned
from planner.training.spec import Edge

ANNOTATION: Final = "quantization_annotation"
WEIGHT, BIAS = 1, 2
"""Operands of the nodes that multiply."""
DTYPES: Final[Mapping[tuple[bool, int], torch.dtype]] = {
    (True, 8): torch.int8,
    (False, 8): torch.uint8,
    (True, 16): torch.int16,
    (False, 16): torch.uint16,
    (True, 32): torch.int32,
}
"""Integer types of PT2E, by sign and width; narrower types are a part of their range."""


class GroupFakeQuantize(FakeQuantizeBase):
    """Rounding onto the grid of an edge with the scale of its group, which PT2E puts into a program."""

    def __init__(
        self,
        *,
        edge: Edge,
        group_scale: GroupScale,
        dtype: torch.dtype,
        quant_min: int,
        quant_max: int,
        qscheme: torch.qscheme,
        is_dynamic: bool = False,
    ) -> None:
        """Keep what PT2E reads of an observer."""
        super().__init__()
        self.quantizer, self.group_scale = EdgeQuantizer(edge), group_scale
        self.dtype, self.qscheme, self.is_dynamic = dtype, qscheme, is_dynamic
        self.quant_min, self.quant_max = quant_min, quant_max
        self.ch_axis = edge.axis

    def forward(self, x: Tensor) -> Tensor:
        """Reals on the grid."""
        found: Tensor = self.quantizer(x, self.group_scale()) if self.fake_quant_enabled[0] == 1 else x
        return found

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Scales and zero points as they are now."""
        return self.group_scale().detach(), _zero_points(self.quantizer.edge)


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a node: its edge, on the program's axis; for a bias the operands that make its grid."""

    edge: Edge
    of: tuple[tuple[Node, Node], ...] = ()


@dataclass(frozen=True, slots=True)
class _Weight:
    """The place of a model's constant in the program, and whether the program holds its transpose."""

    target: str
    turned: bool


class PlanQuantizer(Quantizer):
    """Annotates a program with the types of a plan.

    After `prepare_pt2e` scales are those of the plan. After `prepare_qat_pt2e` a free group learns its scale,
    which starts at the plan's.

    Args:
      plan: of a model that `load_model` read from the same exported program.
      keep: names or globs of values whose scales stay as they are.
      biases: whether biases are annotated, on the grid of their factors. XNNPACK takes them in float, and
        rounds them to that grid itself.

    Raises:
      InputError: a plan that cannot be trained under.
      UnsupportedExport: a type that PT2E cannot express; names value and port.

    Example:
      >>> quantizer = planner.torch.PlanQuantizer(plan)  # doctest: +SKIP
      >>> prepared = prepare_pt2e(program.module(), quantizer)  # doctest: +SKIP
    """

    def __init__(self, plan: Plan, *, keep: Collection[str] = (), biases: bool = True) -> None:
        """See the class."""
        super().__init__()
        require_plan(plan)
        self.spec = training_spec(plan, keep=keep)
        self._plan, self._annotates_biases = plan, biases
        self._edges = {(edge.value, self.spec.type_of(edge)): edge for edge in self.spec.all_edges}
        self._biases = {bias.edge.value for bias in self.spec.biases}
        self._group_scales = {name: GroupScale(group) for name, group in self.spec.groups.items()}
        self._weights: dict[str, _Weight] = {}
        for edge in self.spec.all_edges:
            self._refuse(edge)
        self._refuse_second_types()

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate every node, as PT2E asks.

        Raises:
          InputError: another program than the plan's model was read from.
          UnsupportedExport: a number in the program that the plan quantizes, or one node that reads a value
            in two types.
        """
        inputs: dict[Node, dict[Node, _Operand]] = {}
        outputs: dict[Node, Edge] = dict(self._stored_inputs(model))
        self._weights = {}
        for kernel in kernels_of(self._plan, model.graph):
            for node in kernel.inside:
                inputs.setdefault(node, {})
            for port in kernel.plan.inputs:
                if port.value and isinstance(port.type, Uniform):
                    for node, source, operand in self._reads(model, kernel, port):
                        _put(inputs[node], node, source, operand)
            for port in kernel.plan.outputs:
                if port.value and isinstance(port.type, Uniform):
                    outputs[kernel.values[port.value]] = self._edges[port.value, port.type]
        first: dict[Any, Any] = {}
        for node in model.graph.nodes:
            if node in inputs or node in outputs:
                reads = {
                    source: self._spec(operand, (source, node), first)
                    for source, operand in inputs.get(node, {}).items()
                }
                result = self._spec(_Operand(outputs[node]), node, first) if node in outputs else None
                # PyTorch would share the scales of all types of one value that have equal bounds.
                node.meta[ANNOTATION] = QuantizationAnnotation(
                    reads, result, allow_implicit_sharing=False, _annotated=True
                )
        return model

    def validate(self, model: GraphModule) -> None:
        """Accept the program, which `annotate` has checked."""

    def learned(self, prepared: GraphModule) -> Learned:
        """Return what a program of `prepare_qat_pt2e` learned, for `planner.with_learned`.

        Raises:
          InputError: a BatchNorm in the program: its weights are not those of the plan's model.
        """
        norms = [node.name for node in prepared.graph.nodes if "batch_norm" in str(node.target)]
        if norms:
            raise InputError(
                f"node {norms[0]!r} normalizes, so the program's weights are not those of the plan's model",
                hint="fold BatchNorm into the network before it is exported",
            )
        groups = {name: group for name, group in self.spec.groups.items() if group.moves != "derived"}
        scales = {name: group.scales for name, group in groups.items()}
        for module in prepared.modules():
            if isinstance(module, GroupFakeQuantize):
                found = module.group_scale().detach().cpu().double()
                scales[module.group_scale.group.name] = tuple(found.tolist())
        constants = {}
        for name, weight in self._weights.items():
            array = attribute(prepared, weight.target).detach().cpu().float().numpy()
            constants[name] = np.array(array.T if weight.turned else array)
        return Learned(self.spec, scales, constants)

    def _refuse(self, edge: Edge) -> None:
        store = edge.storage
        if edge.grid or store.float_name or self.spec.type_of(edge).ranges or _dtype(edge) is None:
            place = edge.consumers[0] if edge.consumers else edge.made_by
            raise UnsupportedExport(
                f"PT2E cannot express {store} of {edge.value!r} ({place}); accepted: signed integers of up "
                "to 32 bits and unsigned ones of up to 16, a scale for the tensor or each channel"
            )

    def _refuse_second_types(self) -> None:
        pins = self._plan.stored_pins
        for kernel in self._plan.kernels_in_order:
            for port in kernel.outputs:
                if port.value in self._plan.graph.outputs and pins.get(port.value, port.type) != port.type:
                    raise UnsupportedExport(
                        f"PT2E cannot express that {port.value!r} is stored in another type than "
                        f"{port.address} writes",
                        hint="leave the type of this output to the planner",
                    )

    def _stored_inputs(self, model: GraphModule) -> Iterator[tuple[Node, Edge]]:
        """Inputs that the model takes as integers."""
        nodes = [node for node in model.graph.nodes if node.op == "placeholder"]
        for name, node in zip(self._plan.graph.inputs, nodes, strict=False):
            pin = self._plan.stored_pins.get(name)
            if isinstance(pin, Uniform):
                yield node, self._edges[name, pin]

    def _reads(self, model: GraphModule, kernel: Kernel, port: Port) -> Iterator[tuple[Node, Node, _Operand]]:
        """The nodes that read a port, the node that they read, and its edge."""
        if not isinstance(port.type, Uniform):
            return
        edge = self._edges[port.value, port.type]
        if port.value in self._plan.graph.constants:
            yield from self._constant(model, kernel, port, edge)
            return
        source = kernel.values[port.value]
        readers = [node for node in kernel.inside if source in node.all_input_nodes]
        if not readers:
            raise InputError(f"no node of the program reads {port.value!r} at {port.address}", hint=HINT)
        yield from ((node, source, _Operand(edge)) for node in readers)

    def _constant(
        self, model: GraphModule, kernel: Kernel, port: Port, edge: Edge
    ) -> Iterator[tuple[Node, Node, _Operand]]:
        is_bias = port.value in self._biases
        head = next((node for node in kernel.inside if onnx_of(str(node.target)) in LINEAR), None)
        shape = self._plan.graph.values[port.value].shape or ()
        source, axis, turned = None, edge.axis or 0, False
        if head is not None and is_bias:
            source, axis = _operand(head, BIAS), 0
            if source is None:
                return  # of a BatchNorm, which PT2E folds in the end and leaves in float
        elif head is not None and len(shape) > 1:
            source, axis = _operand(head, WEIGHT), _channels(head, len(shape))
            region = next(one for one in self._plan.graph.regions if one.name == kernel.plan.name)
            turned = len(shape) == 2 and channel_axis(region, self._plan.graph) != axis
        else:
            pairs = [(node, one) for node in kernel.inside for one in node.all_input_nodes]
            named = [pair for pair in pairs if pair[1].op == "get_attr" and pair[1].target == port.value]
            head, source = named[0] if named else (head, None)
        if head is None or source is None or source.op != "get_attr":
            raise UnsupportedExport(
                f"PT2E cannot quantize {port.value!r} at {port.address}, which is no parameter or buffer of "
                "the program",
                hint="register it as a buffer of the network, or keep the kernel in float",
            )
        size = tuple(attribute(model, str(source.target)).shape)
        count = len(edge.zero_points)
        if edge.axis is not None and (axis >= len(size) or size[axis] != count):
            raise InputError(
                f"{port.value!r} has {count} scales, {source.target!r} of the program is {size}", hint=HINT
            )
        self._weights[port.value] = _Weight(str(source.target), turned)
        edge = replace(edge, axis=None if edge.axis is None else axis)
        if not is_bias:
            yield head, source, _Operand(edge)
        elif self._annotates_biases:
            of = tuple(
                (node, head) for node in (_operand(head, 0), _operand(head, WEIGHT)) if node is not None
            )
            yield head, source, _Operand(edge, of)

    def _spec(self, operand: _Operand, place: Any, first: dict[Any, Any]) -> QuantizationSpecBase:
        """The spec of an operand or a result; all but the first place of a group share its spec."""
        edge, group = operand.edge, self.spec.groups[operand.edge.group]
        dtype, store = _dtype(edge), edge.storage
        if operand.of:
            return DerivedQuantizationSpec(
                [*operand.of], _DeriveScale(edge), dtype, store.qmin, store.qmax, _scheme(edge), edge.axis
            )
        key = edge.group, store, edge.zero_points, edge.axis
        if key in first:
            return SharedQuantizationSpec(first[key])
        first[key] = place
        if group.moves == "fixed" and edge.axis is None:
            numbers = group.scales[0], edge.zero_points[0], store.qmin, store.qmax
            return FixedQParamsQuantizationSpec(dtype, *numbers, _scheme(edge))
        made = GroupFakeQuantize.with_args(edge=edge, group_scale=self._group_scales[edge.group])
        return QuantizationSpec(dtype, made, store.qmin, store.qmax, _scheme(edge), edge.axis)


@dataclass(frozen=True, slots=True)
class _DeriveScale:
    """The grid of products: what PT2E calls with the observers of the factors."""

    edge: Edge

    def __call__(self, factors: list[Any]) -> tuple[Tensor, Tensor]:
        scales = {str(i): factor.calculate_qparams()[0].reshape(-1) for i, factor in enumerate(factors)}
        return derived_scale(tuple(scales), scales), _zero_points(self.edge)


def _put(operands: dict[Node, _Operand], node: Node, source: Node, operand: _Operand) -> None:
    other = operands.setdefault(source, operand)
    if other.edge is not operand.edge and other != operand:
        raise UnsupportedExport(
            f"PT2E cannot express that {node.name!r} reads {operand.edge.value!r} as {other.edge.storage} "
            f"and as {operand.edge.storage} of another scale",
            hint="give both operands one type",
        )


def _channels(node: Node, rank: int) -> int:
    """The axis of output channels of the second operand."""
    kind = onnx_of(str(node.target))
    if kind == "MatMul":
        return rank - 1
    return 1 if kind == "ConvTranspose" else 0


def _operand(node: Node, index: int) -> Node | None:
    found = node.args[index] if index < len(node.args) else None
    return found if isinstance(found, Node) else None


def _dtype(edge: Edge) -> torch.dtype | None:
    widths = [bits for signed, bits in DTYPES if signed == edge.storage.signed and bits >= edge.storage.bits]
    return DTYPES[edge.storage.signed, min(widths)] if widths else None


def _scheme(edge: Edge) -> torch.qscheme:
    if edge.axis is not None:
        return torch.per_channel_affine if any(edge.zero_points) else torch.per_channel_symmetric
    return torch.per_tensor_affine if any(edge.zero_points) else torch.per_tensor_symmetric


def _zero_points(edge: Edge) -> Tensor:
    return torch.tensor(edge.zero_points, dtype=torch.int32)
