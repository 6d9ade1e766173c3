"""A quantized model as it computes, with its own quantizers in place, so that statistics see what they clip.

A graph keeps a quantizer of its file as the fixed type of a value, and its ops compute in float. A quantizer
clips: at zero point 0 of an unsigned type it is the model's Relu, and values behind it that were observed
without would be those of another network. Here every fixed type is steps in float,
`(clip(round(x / scale) + zero) - zero) * scale`. Types of more than 16 bits and of floats clip nothing that
calibration would see, and are left out.
Source: ONNX QuantizeLinear and DequantizeLinear; our 01-semantics, "facts inside a fused kernel".
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from planner.constants.pieces import params_of
from planner.formats.onnx.naming import unused
from planner.formats.onnx.quantized.formulas import Array
from planner.formats.onnx.quantized.lowering import Draft, draft_of
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Op, Value, has_quantizers
from planner.ir.types.qtypes import Bipolar, Uniform

MOST_BITS: Final = 16
_COMPUTED: Final = frozenset({"f16", "f32", "f64"})


def with_own_quantizers(graph: Graph) -> Graph:
    """Return a model with its quantizers as ops; itself where its file has none.

    Values keep their names: one behind an op is what its quantizer gives. An input keeps its own numbers, and
    is read behind its quantizer.

    Args:
      graph: its ops in no regions.
    """
    pinned = _pinned(graph) if has_quantizers(graph) else {}
    if not pinned:
        return graph
    taken = set(graph.values)
    stored = {name: unused(f"{name}/stored", taken) for name in graph.inputs if name in pinned}
    raw = {
        name: unused(f"{name}/computed", taken) for op in graph.ops for name in op.outputs if name in pinned
    }
    new = {made: replace(graph.values[name], name=made, facts=()) for name, made in (stored | raw).items()}
    draft = draft_of(replace(graph, values={**graph.values, **new}))
    for name, read in stored.items():
        _round(draft, name, read, pinned[name])
    for op in graph.ops:
        inputs = tuple(stored.get(name, name) for name in op.inputs)
        outputs = tuple(raw.get(name, name) for name in op.outputs)
        draft.ops.append(replace(op, inputs=inputs, outputs=outputs))
        for name in op.outputs:
            if name in raw:
                _round(draft, raw[name], name, pinned[name])
    return draft.finish()


def _pinned(graph: Graph) -> Mapping[str, Uniform | Bipolar]:
    """Activations with a type that cuts."""
    found: dict[str, Uniform | Bipolar] = {}
    for name, value in graph.values.items():
        if name in graph.constants or value.dtype not in _COMPUTED:
            continue
        for fact in value.facts:
            if isinstance(fact, Bipolar) or (isinstance(fact, Uniform) and _cuts(fact, value)):
                found[name] = fact
    return found


def _cuts(kind: Uniform, value: Value) -> bool:
    is_tensor = kind.axis is None and not kind.grid
    return kind.storage.bits <= MOST_BITS and not kind.storage.float_name and (is_tensor or bool(value.shape))


def _round(draft: Draft, source: str, result: str, kind: Uniform | Bipolar) -> None:
    """Append the steps of a quantizer from one value to another."""
    value = draft.graph.values[source]
    dtype = NUMPY[value.dtype]
    # What `emit` names and shapes its steps after.
    like = Op(f"{result}/quantizer", "Identity", (source,), (result,))
    if isinstance(kind, Bipolar):
        zero, up, down = (
            draft.constant(f"{result}/{stem}", np.asarray(number, dtype))
            for stem, number in (("zero", 0), ("up", kind.scale), ("down", -kind.scale))
        )
        is_up = draft.emit(like, "GreaterOrEqual", source, zero, dtype="bool")
        draft.emit(like, "Where", is_up, up, down, out=result)
        return
    found = params_of(kind, dtype)
    zeros = found.zero_points

    def constant(stem: str, numbers: Array) -> str:
        return draft.constant(f"{result}/{stem}", _laid_out(numbers, kind, value))

    scale, low, high = (
        constant("scale", found.scales),
        constant("low", found.low),
        constant("high", found.high),
    )
    zero = "" if zeros is None else constant("zero", zeros)
    moved = draft.emit(like, "Round", draft.emit(like, "Div", source, scale))
    moved = draft.emit(like, "Add", moved, zero) if zero else moved
    # Max and Min: Clip has no bounds per slice.
    moved = draft.emit(like, "Min", draft.emit(like, "Max", moved, low), high)
    moved = draft.emit(like, "Sub", moved, zero) if zero else moved
    draft.emit(like, "Mul", moved, scale, out=result)


def _laid_out(array: Array, kind: Uniform, value: Value) -> Array:
    """One number a slice, or one of all, in a shape that broadcasts against the value."""
    if array.size == 1:
        return array.reshape(())
    if kind.axis is not None:
        return array.reshape([-1 if i == kind.axis else 1 for i in range(len(value.shape or ()))])
    array = array.reshape(kind.grid)
    for axis, size in kind.blocks:
        array = array.repeat(size, axis)
    return array
