"""Known shapes: the sizes of a program of fixed sizes, and values that follow from constants alone.

For formats that have no shapes at run time. Source: ONNX Shape, Size.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from planner.errors import ModelError, UnsupportedExport
from planner.factors.form import FIXED_SIZES
from planner.formats.common.values import Array, Values
from planner.interpreter.programs import program_of
from planner.ir.dims import fixed_as_seen, named_dims, open_dims, seen_sizes
from planner.ir.dims import left_open as open_sizes
from planner.ir.graph import Graph, Op
from planner.lowering.blocks import Block

ShapeOf: TypeAlias = Callable[[str], tuple[int, ...]]
"""The sizes of a value that is there."""


def left_open(graph: Graph) -> tuple[str, str]:
    """The dimensions that inputs leave open, here taken for 1, and how to size them; ("", "") without any."""
    found = dict(open_dims(graph))
    if not found:
        return "", ""
    listed = ", ".join(f"{place} {name!r}" if name else place for place, name in found.items())
    return f"{listed} {'are' if len(found) > 1 else 'is'} left open and set to 1", _advice(graph)


def _advice(graph: Graph) -> str:
    """Advice about dimensions that inputs leave open."""
    known = seen_sizes(graph)
    names = dict.fromkeys(name or place for place, name in open_dims(graph) if (name or place) not in known)
    sizes = ", ".join(f"{name!r}: N" for name in names)
    _, options = open_sizes(graph)
    return f"fix open sizes: load_model(..., dims={{{sizes}}}), or {options} where qplan reads the model"


def taken_for_one(graph: Graph, name: str) -> str:
    """Return the warning of a file of fixed sizes whose model leaves some open; "" without any.

    Args:
      graph: as the exporter takes it, with the sizes of samples.
      name: the format.
    """
    opened, options = open_sizes(graph)
    if name not in FIXED_SIZES or not opened:
        return ""
    return f"{name} has fixed sizes; these are open and set to 1: {opened}; give them: {options}"


def with_fixed_sizes(graph: Graph, name: str) -> Graph:
    """Return the graph with the sizes that all samples agree in, for a format that has no open ones.

    Raises:
      UnsupportedExport: samples differ in a size, so that no single one can be taken.
    """
    if name not in FIXED_SIZES:
        return graph
    sizes = seen_sizes(graph)
    varied = [
        f"{input_name}[{axis}]{f' {dim!r}' if dim else ''}"
        for input_name in graph.inputs
        for axis, dim in enumerate(graph.values[input_name].shape or ())
        if not isinstance(dim, int)
        and graph.values[input_name].seen is not None
        and (dim or f"{input_name}[{axis}]") not in sizes
    ]
    if varied:
        raise UnsupportedExport(
            f"{name} has fixed sizes, and samples differ in {', '.join(varied)}",
            hint=f"{_advice(graph)}; with samples of that size",
        )
    return named_dims(fixed_as_seen(graph), sizes)


@contextmanager
def sizes_blamed(graph: Graph, place: str) -> Iterator[None]:
    """Blame open dimensions where ops do not run; without any, the engine's own words remain.

    Raises:
      UnsupportedExport: in place of a ModelError.
    """
    try:
        yield
    except ModelError as error:
        what, hint = left_open(graph)
        if not what:
            raise
        raise UnsupportedExport(f"{place}: cannot be computed where {what}", hint=hint) from error


def fold(values: Values[Any], shape: ShapeOf, block: Block) -> bool:
    """Compute what is known before running; False where some of it is not."""
    if block.is_integer:
        return False
    for op in block.region.ops:
        if not _is_foldable(values, op):
            return False
        values.numbers.update(_folded(values, shape, op))
    return True


def _is_foldable(values: Values[Any], op: Op) -> bool:
    if op.type in ("Shape", "Size"):
        return True
    is_integer = all(not values.graph.values[name].is_float for name in op.outputs if name)
    return is_integer and not op.captures and all(values.is_constant(name) for name in op.inputs if name)


def _folded(values: Values[Any], shape: ShapeOf, op: Op) -> dict[str, Array]:
    if op.type == "Size":
        return {op.outputs[0]: np.asarray(int(np.prod(shape(op.inputs[0]))), np.int64)}
    if op.type == "Shape":
        sizes = shape(op.inputs[0])
        kept = sizes[op.attributes.get("start", 0) : op.attributes.get("end", len(sizes))]
        return {op.outputs[0]: np.asarray(kept, np.int64)}
    outputs = tuple(name for name in op.outputs if name)
    program = program_of(values.graph, [op], outputs, {})
    return dict(program.run(lambda read: values.array(read.value)))
