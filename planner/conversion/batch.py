"""Batch: a model of another batch size, where its file has a fixed one.

The first axis of every input, and its consequences: sizes that a Reshape or Expand has as constants.
Source: QONNX `transformation.change_batchsize`.
"""

from dataclasses import replace

import numpy as np

from planner.errors import ModelError, UnsupportedExport
from planner.formats.onnx.operators.soundness import sound
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Constant, Graph

_SIZED = ("Expand", "Reshape")


def with_batch(graph: Graph, batch: int) -> Graph:
    """Give the first axis of every input another size.

    Args:
      graph: as `read_written` gives it.
      batch: how many samples at once.

    Raises:
      ModelError: a size below 1, or inputs of different first axes.
      UnsupportedExport: shapes that contradict each other then, or an output without that many samples.
    """
    if batch < 1:
        raise ModelError(f"a batch has one sample or more, not {batch}")
    firsts = {(graph.values[name].shape or ("",))[0] for name in graph.inputs}
    if len(firsts) != 1:
        raise ModelError(
            f"the inputs' first axes differ: {', '.join(sorted(map(str, firsts)))}",
            hint="give open ones their sizes with --dim",
        )
    (old,) = firsts
    values, constants = dict(graph.values), dict(graph.constants)
    made = {out for op in graph.ops for out in op.outputs}
    for name, value in graph.values.items():
        if name in graph.inputs:
            values[name] = replace(value, shape=(batch, *(value.shape or ())[1:]))
        elif name in made:
            values[name] = replace(value, shape=None)
    ops = []
    for op in graph.ops:
        array = constants[op.inputs[1]].array if op.type in _SIZED and op.inputs[1] in constants else None
        if array is not None and array.size and array[0] == old:
            name = f"{op.outputs[0]}/sizes"
            constants[name] = Constant(np.concatenate([[batch], array[1:]]).astype(array.dtype))
            values[name] = replace(graph.values[op.inputs[1]], name=name)
            op = replace(op, inputs=(op.inputs[0], name))  # noqa: PLW2901 - the op as it is from here on
        ops.append(op)
    try:
        done = infer(sound(replace(graph, ops=tuple(ops), values=values, constants=constants)))
    except ModelError as error:
        raise UnsupportedExport(f"the model has no form for a batch of {batch}: {error}") from error
    for name in graph.outputs:
        shape = done.values[name].shape
        if old in (graph.values[name].shape or ())[:1] and (not shape or shape[0] != batch):
            raise UnsupportedExport(
                f"the output {name!r} does not follow a batch of {batch}: its shape is {shape}"
            )
    return done
