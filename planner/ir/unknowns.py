"""Unknowns: values of which nothing says the element type or the shape, and the op where that starts.

All that follows such an op is unknown with it; a reason that names the op is the one to act on.
"""

from collections.abc import Iterable, Iterator, Mapping

from planner.ir.graph import Graph, Op, once_per_graph


@once_per_graph
def untyped(graph: Graph) -> Mapping[str, str]:
    """The op, or the input, at which each value of unknown element type starts to be unknown."""
    unknown = {name for name, value in graph.values.items() if not value.dtype}
    found = {name: f"the model input {name!r}" for name in graph.inputs if name in unknown}
    for op in graph.all_ops() if unknown else ():
        start = next((found[name] for name in op.inputs if name in found), f"{op.type} at {op.name!r}")
        found.update((out, start) for out in op.outputs if out in unknown)
    return found


def reason_of_unknown(graph: Graph, ops: Iterable[Op]) -> str:
    """The reason why these ops have an operand or result of unknown element type; "" where they have none."""
    starts = untyped(graph)
    for name in (name for op in ops for name in (*op.inputs, *op.outputs)):
        if name in starts:
            return (
                f"the element type of {name!r} is unknown from {starts[name]} on: nothing infers it, and the "
                "file has no value_info of it"
            )
    return ""


def shapeless(graph: Graph) -> Iterator[tuple[Op, str]]:
    """Ops that know the shapes of what they read, with their first result of unknown shape."""
    values = graph.values
    for op in graph.all_ops():
        out = next((out for out in op.outputs if out and values[out].shape is None), "")
        if out and all(values[name].shape is not None for name in op.inputs if name):
            yield op, out
