"""Operators over windows or axes: pools, reductions, norms, softmax. Source: ONNX operator schemas."""

from typing import Final

from planner.ops import axes, limits
from planner.ops.definition import OpDef, always

REDUCTIONS: Final = (
    OpDef("ArgMax", "axis=0 keepdims=1 select_last_index=0"),
    OpDef("ArgMin", "axis=0 keepdims=1 select_last_index=0"),
    OpDef(
        "AveragePool",
        "auto_pad=NOTSET ceil_mode=0 count_include_pad=0 dilations=1 kernel_shape pads=0 strides=1",
        axes=axes.windows,
        limits=(limits.window,),
    ),
    OpDef("BatchNormalization", "epsilon=1e-05 momentum=0.9 training_mode=0"),
    OpDef("CumProd", "exclusive=0 reverse=0"),
    OpDef("CumSum", "exclusive=0 reverse=0"),
    OpDef("GlobalLpPool", "p=2"),
    OpDef("GlobalMaxPool", moves=always),
    OpDef("GroupNormalization", "epsilon=1e-05 num_groups stash_type=1", limits=(limits.per_channel,)),
    OpDef("Hardmax", "axis=-1", limits=(limits.axis_or_behind,)),
    OpDef("InstanceNormalization", "epsilon=1e-05", limits=(limits.per_channel,)),
    OpDef("LRN", "alpha=0.0001 beta=0.75 bias=1.0 size"),
    OpDef("LayerNormalization", "axis=-1 epsilon=1e-05 stash_type=1", limits=(limits.axis,)),
    OpDef("LogSoftmax", "axis=-1", limits=(limits.axis_or_behind,)),
    OpDef("LpNormalization", "axis=-1 p=2"),
    OpDef(
        "LpPool",
        "auto_pad=NOTSET ceil_mode=0 dilations=1 kernel_shape p=2 pads=0 strides=1",
        axes=axes.windows,
        limits=(limits.window,),
    ),
    OpDef(
        "MaxPool",
        "auto_pad=NOTSET ceil_mode=0 dilations=1 kernel_shape pads=0 storage_order=0 strides=1",
        moves=always,
        axes=axes.windows,
        limits=(limits.window,),
    ),
    OpDef("MaxRoiPool", "pooled_shape spatial_scale=1.0"),
    OpDef("MaxUnpool", "kernel_shape pads strides", axes=axes.windows),
    OpDef("MeanVarianceNormalization", "axes=0,2,3"),
    OpDef("RMSNormalization", "axis=-1 epsilon=1e-05 stash_type=1"),
    OpDef("ReduceL1", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceL2", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceLogSum", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceLogSumExp", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceMax", "keepdims=1 noop_with_empty_axes=0", moves=always),
    OpDef("ReduceMean", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceMin", "keepdims=1 noop_with_empty_axes=0", moves=always),
    OpDef("ReduceProd", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceSum", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("ReduceSumSquare", "keepdims=1 noop_with_empty_axes=0"),
    OpDef("Softmax", "axis=-1", axes=axes.softmax, limits=(limits.axis_or_behind,)),
)
