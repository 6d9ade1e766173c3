"""Bias correction: each linear kernel's bias takes up the mean error that its quantized weights make.

With W quantized to W + dW a kernel's output moves by dW . x, on average by dW . E[x]; that is subtracted
from the bias. E[x] are the float model's channel means over the calibration samples. Source: Nagel et al.
2019, "Data-Free Quantization Through Weight Equalization and Bias Correction", section 4.2.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.calibration.means import channel_axis
from planner.calibration.statistics import Mean, Statistics
from planner.calibration.statsjson import load_statistics
from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import StatsError, expect
from planner.fusion.fuse import fuse
from planner.ir.graph import Constant, Graph, Op, Region, has_quantizers
from planner.ir.types.qtypes import Uniform
from planner.plans.records import PortTyped
from planner.propagation.propagate import operand_types
from planner.target.load import TargetSource, as_target
from planner.target.ports.axes import linear_op
from planner.weight_conditioning.operands import without_unread
from planner.weight_conditioning.taps import tap_shares

NO_MEANS: Final = "biases are not corrected: the statistics hold no channel means (calibrate again)"
OWN_QUANTIZERS: Final = "biases are not corrected: the model's file has quantizers of its own"
MARK: Final = "@"


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """A linear kernel whose bias can be corrected.

    Attributes:
      kernel: its name.
      op: multiplies; its second operand is the weight.
      reader, index: the op and operand where the bias comes in.
      weight: the type that the weight is planned to have.
    """

    kernel: str
    op: Op
    reader: Op
    index: int
    weight: Uniform

    @property
    def bias(self) -> str:
        """The constant that is added."""
        return self.reader.inputs[self.index]


def correct_biases(
    model: Graph,
    target: TargetSource,
    stats: Statistics | str | Path,
    *,
    meant: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """Return the model with the biases of its integer linear kernels corrected for one target.

    Conv, ConvTranspose, Gemm and MatMul + Add with a constant weight, planned as integers, and a constant
    bias. Kernels in float, without a bias, or with a bias of fixed type stay. Zero padding counts: a tap of a
    kernel weighs as often as it meets the input. A corrected bias is a constant of its kernel alone, named
    `BIAS@KERNEL`, so no other consumer of BIAS changes, and correcting again changes nothing. A model whose
    file has quantizers of its own stays, with a note where a bias would have changed.

    Args:
      model: annotated (see `annotate`); its labels are solved here for the types of its weights.
      stats: from `calibrate`, or a file of them. Without channel means the model stays, with a note.
      meant: weights that were rounded before, as they were, by name: their error counts, too.

    Constraints that cannot all hold are allowed here: weights have the types of a best-effort plan.

    Raises:
      StatsError: means that do not fit the weights.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> corrected = planner.correct_biases(ready, "litert-int8", stats)
    """
    expect(model, Graph, "a model is the result of load_model or annotate")
    seen = stats if isinstance(stats, Statistics) else load_statistics(stats)
    means = _means(model, seen)
    if not any(channel_axis(op, model) is not None for op in model.all_ops()):
        return model
    if not means:
        return model if NO_MEANS in model.notes else replace(model, notes=(*model.notes, NO_MEANS))
    device = as_target(target)
    fused, kinds = operand_types(fuse(model, device), device, fuses=not model.regions)
    corrected: dict[_Layer, np.ndarray] = {}
    for region in fused.regions:
        layer = _layer(fused, region, kinds.get(region.name))
        mean = None if layer is None else means.get(layer.op.inputs[0])
        if layer is None or mean is None:
            continue
        array = _corrected(fused, layer, mean, meant or {})
        if array is not None:
            corrected[layer] = array
    if not corrected:
        return model
    if has_quantizers(model):
        # The plan would be for a model that no file holds: one with these quantizers and other biases.
        return replace(model, notes=tuple(dict.fromkeys((*model.notes, OWN_QUANTIZERS))))
    return _with_biases(model, corrected)


def _means(model: Graph, seen: Statistics) -> dict[str, Mean]:
    """Means by value; of those that absorbed factors changed, too."""
    means = {name: value.mean for name, value in seen.values.items() if value.mean is not None}
    for old, (name, factor) in model.scaled.items():
        if old in means and name not in means and not math.isnan(factor):
            means[name] = Mean(means[old].axis, tuple(real * factor for real in means[old].values))
    return means


def _layer(graph: Graph, region: Region, kinds: Mapping[str, PortTyped] | None) -> _Layer | None:
    """The layer of a region, None where there is nothing to correct.

    Args:
      kinds: types at its inputs, by value; None where it runs in float.
    """
    op = linear_op(region.ops)
    if op is None or kinds is None or channel_axis(op, graph) is None:
        return None
    place = _bias_place(graph, region, op)
    if place is None:
        return None
    weight, bias = kinds.get(op.inputs[1]), place[0].inputs[place[1]]
    if op.type == "MatMul" and len(graph.values[op.inputs[1]].shape or ()) != 2:
        return None
    if not isinstance(weight, Uniform) or weight.storage.float_name or bias.endswith(MARK + region.name):
        return None
    # A pinned bias is an integer of the file; correcting it would leave its grid.
    facts = graph.values[bias].facts
    if region.input_facts:
        facts += region.input_facts[region.inputs.index(bias)]
    if any(isinstance(fact, Uniform) for fact in facts):
        return None
    return _Layer(region.name, op, *place, weight)


def _bias_place(graph: Graph, region: Region, op: Op) -> tuple[Op, int] | None:
    """The op and operand of a region where a constant is added to the product."""
    if op.type != "MatMul":
        place = (op, 2) if len(op.inputs) > 2 else None
    else:
        adds = (other for other in region.ops if other.type == "Add" and op.outputs[0] in other.inputs)
        place = next(((add, 1 - add.inputs.index(op.outputs[0])) for add in adds), None)
    if place is None:
        return None
    constant = graph.constants.get(place[0].inputs[place[1]])
    return place if constant is not None and constant.array is not None else None


def _corrected(graph: Graph, layer: _Layer, mean: Mean, meant: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The new bias, of the old shape and type; None without an error, or without one number a channel."""
    weight, bias = graph.constants[layer.op.inputs[1]].array, graph.constants[layer.bias].array
    if weight is None or bias is None:
        return None
    shift = mean_error(layer.op, graph, layer.weight, mean, meant.get(layer.op.inputs[1]))
    attributes = layer.op.attributes
    alpha, beta = float(attributes.get("alpha", 1.0)), float(attributes.get("beta", 1.0))
    if not bias.ndim or bias.size != shift.size or bias.shape[-1] != shift.size or not beta:
        return None
    # Gemm is alpha A B + beta C: the error is of the product, the correction goes into C.
    moved: np.ndarray = bias.astype(np.float64) - (shift * (alpha / beta)).reshape(bias.shape)
    # A weight that is stored as the model's file has it makes no error, and its bias stays the file's.
    return moved.astype(bias.dtype) if shift.any() and np.isfinite(moved).all() else None


def mean_error(
    op: Op, graph: Graph, kind: Uniform, mean: Mean, meant: np.ndarray | None = None
) -> np.ndarray:
    """Mean error of a linear op's output once its weight is quantized, reals, shape `(n_out,)`.

    Args:
      meant: what the weight stands for, where it has been rounded already.

    Raises:
      StatsError: a mean along another axis or of another number of channels than the weight sums over.
    """
    weight = np.asarray(graph.constants[op.inputs[1]].array)
    right = weight if meant is None else meant
    errors = dequantize_array(quantize_array(weight, kind), kind) - right.astype(np.float32)
    matrices = _matrices(op, errors, graph)
    groups, n_in, _ = matrices.shape
    if mean.axis != channel_axis(op, graph) or len(mean.values) != groups * n_in:
        raise StatsError(
            f"the mean of {op.inputs[0]!r} has {len(mean.values)} channels along axis {mean.axis}; "
            f"{op.name!r} sums over {groups * n_in} along axis {channel_axis(op, graph)}",
            hint="calibrate this model again",
        )
    channels = np.asarray(mean.values).reshape(groups, n_in)
    # The error is linear in x, so its mean needs the means of channels only, no second pass over samples.
    shift: np.ndarray = np.einsum("gi,gio->go", channels, matrices).reshape(-1)
    return shift


def _matrices(op: Op, weight: np.ndarray, graph: Graph) -> np.ndarray:
    """A weight as (groups, inputs, outputs), its taps summed by how often they meet the input."""
    if op.type == "MatMul":
        return weight[None]
    if op.type == "Gemm":
        return (weight.T if op.attributes.get("transB", 0) else weight)[None]
    # Taps over padding meet zeros: each tap's error counts by its share of elements, not as one.
    shares = tap_shares(op, graph.values[op.inputs[0]].shape or (), weight.shape[2:])
    summed = weight.reshape(*weight.shape[:2], -1) @ shares.reshape(-1).astype(np.float32)
    groups = int(op.attributes.get("group", 1))
    matrices = summed.reshape(groups, -1, summed.shape[1])
    return matrices.transpose(0, 2, 1) if op.type == "Conv" else matrices


def _with_biases(model: Graph, corrected: Mapping[_Layer, np.ndarray]) -> Graph:
    """Give each layer a bias of its own; a constant that nothing reads any more is dropped."""
    values = dict(model.values)
    constants = {name: _spread(constant) for name, constant in model.constants.items()}
    operands: dict[str, dict[int, str]] = {}
    ports: dict[str, tuple[str, str]] = {}
    for layer, array in corrected.items():
        name = layer.bias + MARK + layer.kernel
        values[name] = replace(values[layer.bias], name=name)
        array.setflags(write=False)
        constants[name] = Constant(array)
        operands.setdefault(layer.reader.name, {})[layer.index] = name
        ports[layer.kernel] = (layer.bias, name)
    graph = replace(
        model,
        values=values,
        constants=constants,
        ops=_rewired(model.ops, operands),
        regions=tuple(
            replace(
                region,
                inputs=_renamed(region.inputs, *ports.get(region.name, ("", ""))),
                ops=_rewired(region.ops, operands),
            )
            for region in model.regions
        ),
    )
    return without_unread(graph, {layer.bias for layer in corrected})


def _spread(constant: Constant) -> Constant:
    """A constant that repeats one number spread out, as the file of this model has it."""
    if constant.array is None or constant.array.size < 2 or any(constant.array.strides):
        return constant
    array = np.ascontiguousarray(constant.array)
    array.setflags(write=False)
    return replace(constant, array=array)


def _rewired(ops: tuple[Op, ...], operands: Mapping[str, Mapping[int, str]]) -> tuple[Op, ...]:
    return tuple(
        replace(op, inputs=tuple(operands[op.name].get(i, name) for i, name in enumerate(op.inputs)))
        if op.name in operands
        else op
        for op in ops
    )


def _renamed(names: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if name == old else name for name in names)
