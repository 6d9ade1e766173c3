"""Windows: attributes of convolutions and pools written out where a model leaves them at their defaults.

FINN's `LowerConvsToMatMul` and hls4ml read them as they stand in the file and know no default. hls4ml gives
an Elu without `alpha` the default of a LeakyRelu.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.ir.graph import Graph, Op
from planner.ir.opattributes import default_of
from planner.ops.geometry.windows import conv_geometry

WINDOWED: Final = frozenset({"Conv", "MaxPool"})
_SLOPES: Final = frozenset({"Elu", "LeakyRelu", "ThresholdedRelu"})
"""Functions of a slope that hls4ml reads."""


def window(attributes: Mapping[str, Any], spatial: Sequence[int], kernel: Sequence[int]) -> Mapping[str, Any]:
    """The attributes of a window, written out."""
    geometry = conv_geometry(attributes, spatial, kernel)
    said = {"kernel_shape": tuple(kernel), "dilations": geometry.dilations, "auto_pad": "NOTSET"}
    return said | {"pads": geometry.pads, "strides": geometry.strides}


def window_of(graph: Graph, op: Op) -> Mapping[str, Any]:
    """The attributes of a convolution or pool, written out; none if sizes are unknown."""
    weight = graph.values[op.inputs[1]].shape if op.type == "Conv" else None
    kernel = op.attributes.get("kernel_shape", weight[2:] if weight else ())
    spatial = (graph.values[op.inputs[0]].shape or ())[2:]
    sizes = [size for size in spatial if isinstance(size, int)]
    if not kernel or len(sizes) != len(kernel):
        return {}
    said = window(op.attributes, sizes, kernel)
    return {**said, "group": int(op.attributes.get("group", 1))} if op.type == "Conv" else said


def windows(graph: Graph, ops: Sequence[Op]) -> Mapping[str, Mapping[str, Any]]:
    """Those of all convolutions and pools, by the names of the ops."""
    return {op.name: window_of(graph, op) for op in ops if op.type in WINDOWED}


def slopes(ops: Sequence[Op]) -> Mapping[str, Mapping[str, float]]:
    """`alpha` of all ops that have one, by their names."""
    return {
        op.name: {"alpha": op.attributes.get("alpha", default_of(op.type, "alpha"))}
        for op in ops
        if op.type in _SLOPES
    }
