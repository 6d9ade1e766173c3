"""Fit of a quantized type and a tensor: the rules of the quant dialect; a misfit is one sentence.

Source: MLIR quant dialect, integrity rules; docs/specification.md, sections 2 and 9.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import ModelError
from planner.ir.graph import Graph, Shape, Value
from planner.ir.types.qtypes import Calibrated, QType, Uniform


def misfit(fact: QType, value: Value) -> str:
    """Say why a type cannot be a fact of a value; "" where it can.

    Unknown dimensions fit every number of slices, unknown ranks everything but blocks.
    """
    if not value.is_float:
        return f"value {value.name!r} has element type {value.dtype}; only float values carry types"
    expressed = getattr(fact, "expressed", None)
    # tf32 is no element type of a tensor: its values are stored in f32.
    if expressed not in (None, value.dtype) and (expressed, value.dtype) != ("tf32", "f32"):
        return f"type {_short(fact)} expresses {expressed}, value {value.name!r} is {value.dtype}"
    fact = getattr(fact, "trained", None) or fact
    check = _CHECKS.get(type(fact))
    if check is None:
        return ""
    if value.shape is None:
        return _unranked(fact, value)
    problem = check(fact, value.shape)
    return f"type {_short(fact)} does not fit {value.name!r}: {problem}" if problem else ""


def _unranked(fact: QType, value: Value) -> str:
    if isinstance(fact, Uniform) and fact.is_sub_channel:
        return f"type {_short(fact)} does not fit {value.name!r}: blocks need a tensor whose rank is known"
    return ""


def refuse_misfits(graph: Graph, *, planned: bool = False) -> Graph:
    """Return the graph unchanged if every fact fits its tensor.

    Args:
      planned: whether its ports were typed by a plan, whose scales are float32 whatever float a tensor has.

    Raises:
      ModelError: the first that does not, with the offending axis, sizes and type.
    """
    for value in graph.values.values():
        for fact in value.facts:
            _refuse(graph, fact, value)
    for region in graph.regions:
        for names, facts in ((region.inputs, region.input_facts), (region.outputs, region.output_facts)):
            for name, own in zip(names, facts, strict=False):
                for fact in own if name else ():
                    value = graph.values[name]
                    is_ours = planned and value.is_float and getattr(fact, "expressed", None) == "f32"
                    _refuse(graph, fact, replace(value, dtype="f32") if is_ours else value)
    return graph


def _refuse(graph: Graph, fact: QType, value: Value) -> None:
    problem = misfit(fact, value)
    if problem:
        raise ModelError(f"model {graph.name!r}: {problem}")


def _calibrated(fact: Calibrated, shape: Shape) -> str:
    beyond = next((row.axis for row in fact.row_max if row.axis >= len(shape)), None)
    if beyond is not None:
        return f"row_max names axis {beyond}, its shape is {shape_text(shape)}"
    return _axis(fact, shape)


def _axis(fact: Uniform | Calibrated, shape: Shape) -> str:
    if fact.axis is None:
        return ""
    many, noun = (len(fact.scales), "scales") if isinstance(fact, Uniform) else (len(fact.los), "ranges")
    # MLIR verifies rank and number of scales where sizes are static, and nothing where they are dynamic.
    if fact.axis >= len(shape):
        return f"it has no axis {fact.axis}, its shape is {shape_text(shape)}"
    size = shape[fact.axis]
    if isinstance(size, int) and size != many:
        return f"{many} {noun} for axis {fact.axis} of size {size}, its shape is {shape_text(shape)}"
    return ""


def misfit_of_shape(fact: Uniform, shape: Shape) -> str:
    """Say why a type does not fit a tensor of a shape; "" where it does."""
    if not fact.is_sub_channel:
        return _axis(fact, shape)
    for axis, _ in fact.blocks:
        if axis >= len(shape):
            return f"it has no axis {axis}, its shape is {shape_text(shape)}"
    if len(fact.grid) != len(shape):
        return f"scales nest {len(fact.grid)} deep, its shape is {shape_text(shape)}"
    if 0 in shape:
        return f"a tensor without elements has no blocks, its shape is {shape_text(shape)}"
    blocks = dict(fact.blocks)
    for axis, (size, count) in enumerate(zip(shape, fact.grid, strict=True)):
        problem = _block(axis, size, blocks.get(axis), count)
        if problem:
            return problem
    return ""


def has_short_block(kind: Uniform, shape: Shape | None) -> bool:
    """Whether the last block of a type is shorter than the others, along any axis of a tensor."""
    sizes = ((shape[axis], block) for axis, block in kind.blocks if shape is not None and axis < len(shape))
    return any(isinstance(size, int) and size % block for size, block in sizes)


def _block(axis: int, size: int | str | None, block: int | None, count: int) -> str:
    """Check one axis; one without a block size is a single block, however long it is."""
    if block is None:
        if count != 1:
            return f"axis {axis} has no block size, so it is one block and needs one scale, not {count}"
        return ""
    if not isinstance(size, int):
        return ""
    # Ours and ONNX's, not MLIR's: the last block may be shorter than the others.
    needed = -(-size // block)
    if needed != count:
        return f"axis {axis} of size {size} in blocks of {block} needs {needed} scales, not {count}"
    return ""


def shape_text(shape: Shape) -> str:
    """`[1, 3, N, ?]`."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def _short(fact: QType) -> str:
    text = str(fact)
    return text if len(text) <= 80 else text[:77] + "..."


_CHECKS: Final[Mapping[type[QType], Callable[[Any, Shape], str]]] = {
    Calibrated: _calibrated,
    Uniform: misfit_of_shape,
}
