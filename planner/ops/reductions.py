"""Operators over windows or axes: pools, reductions, norms, softmax. Source: ONNX operator schemas."""

from functools import partial
from typing import Final

from planner.ops import axes, limits, needs, sums
from planner.ops.definition import OpDef, always, rising
from planner.ops.forms import Factors, Form

_reduced: Final = partial(OpDef, attributes="keepdims=1 noop_with_empty_axes=0", form=Form.REDUCTION)
_norm: Final = partial(OpDef, form=Form.NORM)
_pool: Final = partial(OpDef, form=Form.POOL)
_window: Final = partial(_pool, axes=axes.windows, limits=(limits.window,))
_along: Final = partial(OpDef, form=Form.ALONG, limits=(limits.axis_or_behind,))

REDUCTIONS: Final = (
    OpDef("ArgMax", "axis=0 keepdims=1 select_last_index=0", axes=axes.chosen),
    OpDef("ArgMin", "axis=0 keepdims=1 select_last_index=0", axes=axes.chosen),
    _window(
        "AveragePool",
        "auto_pad=NOTSET ceil_mode=0 count_include_pad=0 dilations=1 kernel_shape pads=0 strides=1",
        factors=Factors.ANY,
        monotone=rising,
        terms=sums.averaged,
    ),
    _norm("BatchNormalization", "epsilon=1e-05 momentum=0.9 training_mode=0"),
    OpDef("CumProd", "exclusive=0 reverse=0"),
    OpDef("CumSum", "exclusive=0 reverse=0"),
    _pool("GlobalAveragePool", factors=Factors.ANY, monotone=rising, terms=sums.reduced),
    _pool("GlobalLpPool", "p=2"),
    _pool("GlobalMaxPool", moves=always, factors=Factors.POSITIVE, monotone=rising),
    _norm("GroupNormalization", "epsilon=1e-05 num_groups stash_type=1", limits=(limits.per_channel,)),
    _along("Hardmax", "axis=-1", bounds=(0.0, 1.0)),
    _norm("InstanceNormalization", "epsilon=1e-05", limits=(limits.per_channel,)),
    OpDef("LRN", "alpha=0.0001 beta=0.75 bias=1.0 size"),
    _norm("LayerNormalization", "axis=-1 epsilon=1e-05 stash_type=1", limits=(limits.axis,)),
    _along("LogSoftmax", "axis=-1"),
    OpDef("LpNormalization", "axis=-1 p=2", form=Form.ALONG),
    _window("LpPool", "auto_pad=NOTSET ceil_mode=0 dilations=1 kernel_shape p=2 pads=0 strides=1"),
    _window(
        "MaxPool",
        "auto_pad=NOTSET ceil_mode=0 dilations=1 kernel_shape pads=0 storage_order=0 strides=1",
        moves=always,
        factors=Factors.POSITIVE,
        monotone=rising,
    ),
    OpDef("MaxRoiPool", "pooled_shape spatial_scale=1.0"),
    OpDef("MaxUnpool", "kernel_shape pads strides", axes=axes.windows),
    OpDef("MeanVarianceNormalization", "axes=0,2,3"),
    _norm("RMSNormalization", "axis=-1 epsilon=1e-05 stash_type=1"),
    _reduced("ReduceL1"),
    _reduced("ReduceL2"),
    _reduced("ReduceLogSum"),
    _reduced("ReduceLogSumExp"),
    _reduced("ReduceMax", moves=always, factors=Factors.POSITIVE, monotone=rising),
    _reduced("ReduceMean", factors=Factors.ANY, monotone=rising, terms=sums.reduced),
    _reduced("ReduceMin", moves=always, factors=Factors.POSITIVE, monotone=rising),
    _reduced("ReduceProd"),
    _reduced("ReduceSum", factors=Factors.ANY, monotone=rising, terms=sums.reduced),
    _reduced("ReduceSumSquare"),
    _along("Softmax", "axis=-1", axes=axes.softmax, needed=needs.softmax, bounds=(0.0, 1.0)),
)
