"""Operators that move data. Source: ONNX operator schemas; docs/specification.md, section 3."""

from typing import Final

import numpy as np

from planner.ir.graph import Graph, Op
from planner.ir.structure import BEGIN, END, JOIN
from planner.ops import axes, limits, picks, reshapes
from planner.ops.definition import OpDef, always, rising
from planner.ops.forms import Factors, Form
from planner.ops.geometry import resizing


def resizes_nearest(op: Op, _: Graph | None) -> bool:
    """A nearest Resize moves, an interpolating one computes."""
    # tf_crop_and_resize fills with `extrapolation_value` outside of the crop, which no operand holds.
    crops = op.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return op.attributes.get("mode", "nearest") == "nearest" and not crops


def resizes_between(op: Op) -> str:
    """Nearest and linear ones lie between elements, cubic ones beyond."""
    return "+" if op.attributes.get("mode", "nearest") != "cubic" else ""


def pads_zero(op: Op, graph: Graph | None) -> bool:
    """A Pad moves that fills with zero; without a graph an operand that fills counts as unknown."""
    if op.attributes.get("mode", "constant") != "constant":
        return True
    name = op.inputs[2] if len(op.inputs) > 2 else ""
    if not name:
        return not op.attributes.get("value", 0.0)
    # Zero is exact in every type; any other filling would need a step of its own in the operand's type.
    constant = graph.constants.get(name) if graph else None
    return constant is not None and constant.array is not None and not np.any(constant.array)


def replaces(op: Op, _: Graph | None) -> bool:
    """A scatter moves where it picks an element: `add` and `mul` make new ones."""
    return op.attributes.get("reduction", "none") in ("none", "max", "min")


MOVEMENT: Final = (
    OpDef(BEGIN, form=Form.BORDER, moves=always),
    OpDef(END, form=Form.BORDER, moves=always),
    OpDef(JOIN, form=Form.BORDER, moves=always, parameters=frozenset({0})),
    OpDef("CenterCropPad", "axes", moves=always),
    OpDef("Compress", "axis", form=Form.COUNTED, moves=always),
    OpDef(
        "Concat",
        "axis",
        form=Form.CONCAT,
        indices=picks.joined,
        moves=always,
        axes=axes.joined,
        limits=(limits.axis,),
    ),
    OpDef(
        "DepthToSpace",
        "blocksize mode=DCR",
        form=Form.BLOCKS,
        indices=reshapes.depth_to_space,
        moves=always,
        axes=axes.windows,
        limits=(limits.depth,),
        factors=Factors.ANY,
    ),
    OpDef(
        "Dropout",
        "seed",
        form=Form.VIEW,
        indices=reshapes.kept,
        moves=always,
        parameters=frozenset({1, 2}),
        axes=axes.handed,
    ),
    OpDef("Expand", indices=picks.expanded, moves=always, factors=Factors.ANY),
    OpDef(
        "Flatten",
        "axis=1",
        form=Form.VIEW,
        indices=reshapes.reshaped,
        moves=always,
        axes=axes.reshaped,
        limits=(limits.axis_or_behind,),
        factors=Factors.ANY,
    ),
    OpDef(
        "Gather",
        "axis=0",
        indices=picks.gathered,
        moves=always,
        axes=axes.looked_up,
        limits=(limits.axis, limits.indices),
        factors=Factors.ANY,
    ),
    OpDef(
        "GatherElements",
        "axis=0",
        indices=picks.gathered_by_elements,
        moves=always,
        limits=(limits.axis, limits.indices),
    ),
    OpDef(
        "GatherND", "batch_dims=0", indices=picks.gathered_by_tuples, moves=always, limits=(limits.tuples,)
    ),
    OpDef(
        "Identity",
        form=Form.VIEW,
        indices=reshapes.same,
        moves=always,
        is_pointwise=True,
        axes=axes.handed,
        factors=Factors.ANY,
    ),
    OpDef(
        "Pad",
        "mode=constant",
        indices=picks.padded,
        moves=pads_zero,
        parameters=frozenset({1, 2, 3}),
        limits=(limits.pads,),
        factors=Factors.POSITIVE,
        monotone=rising,
    ),
    OpDef(
        "Reshape",
        "allowzero=0",
        form=Form.VIEW,
        indices=reshapes.reshaped,
        moves=always,
        axes=axes.reshaped,
        limits=(limits.reshape,),
        factors=Factors.ANY,
    ),
    OpDef(
        "Resize",
        "antialias=0 axes coordinate_transformation_mode=half_pixel cubic_coeff_a=-0.75 "
        "exclude_outside=0 extrapolation_value=0.0 keep_aspect_ratio_policy=stretch mode=nearest "
        "nearest_mode=round_prefer_floor",
        indices=resizing.nearest,
        moves=resizes_nearest,
        parameters=frozenset({1, 2, 3}),
        axes=axes.windows,
        limits=(limits.factors,),
        monotone=resizes_between,
    ),
    OpDef("ReverseSequence", "batch_axis=1 time_axis=0", indices=picks.reversed_sequences, moves=always),
    OpDef("Scatter", "axis=0", moves=always),
    OpDef("ScatterElements", "axis=0 reduction=none", moves=replaces, limits=(limits.axis, limits.indices)),
    OpDef("ScatterND", "reduction=none", moves=replaces, limits=(limits.tuples,)),
    OpDef("Slice", indices=picks.sliced, moves=always, factors=Factors.ANY),
    OpDef(
        "SpaceToDepth",
        "blocksize mode=DCR",
        form=Form.BLOCKS,
        indices=reshapes.space_to_depth,
        moves=always,
        axes=axes.windows,
        limits=(limits.pixels,),
        factors=Factors.ANY,
    ),
    OpDef("Split", "axis=0 num_outputs", indices=picks.split, moves=always, limits=(limits.axis,)),
    OpDef(
        "Squeeze",
        form=Form.VIEW,
        indices=reshapes.reshaped,
        moves=always,
        axes=axes.reshaped,
        factors=Factors.ANY,
    ),
    OpDef("TensorScatter", "axis=-2 mode=linear"),
    OpDef("Tile", indices=picks.tiled, moves=always, factors=Factors.ANY),
    OpDef("TopK", "axis=-1 largest=1 sorted=1", moves=always),
    OpDef(
        "Transpose", "perm", indices=reshapes.transposed, moves=always, axes=axes.turned, factors=Factors.ANY
    ),
    OpDef("Trilu", "upper=1", moves=always),
    OpDef(
        "Unsqueeze",
        form=Form.VIEW,
        indices=reshapes.reshaped,
        moves=always,
        axes=axes.reshaped,
        factors=Factors.ANY,
    ),
    OpDef(
        "Upsample",
        "mode=nearest",
        moves=resizes_nearest,
        parameters=frozenset({1}),
        axes=axes.windows,
        monotone=rising,
    ),
)
