"""What a TOSA program of a plan is given and gives: stored integers where the plan has them."""

from dataclasses import replace

import numpy as np

from planner.constants.quantize import quantize_array
from planner.interpreter.memory import Memory
from planner.ir.borders import homes
from planner.ir.types.qtypes import Uniform
from planner.plans.rescales import pins, uses


def fed(graph, plan, sample):
    """The arguments of `main` for a sample of the model, in order."""
    readers, pinned = uses(plan.graph, plan.kernels_in_order), pins(plan.graph)
    found = []
    for name in graph.inputs:
        kinds = {use.type for use in readers.get(name, ())}
        kind = pinned.get(name) if name in pinned else next(iter(kinds), None) if len(kinds) == 1 else None
        array = np.asarray(sample[name])
        if isinstance(kind, Uniform):
            array = quantize_array(array.astype(np.float32), kind)
        found.append(array.astype(np.int32) if array.dtype == np.int64 else array)
    return found


def with_all_results(graph, plan, *, floats=False):
    """The same model and plan with every value that a kernel stores as an output, but those of bodies.

    With `floats`, what kernels leave float is one too.
    """
    results = [port for kernel in plan.kernels_in_order for port in kernel.outputs if port.value]
    stored = [
        port.value
        for port in results
        if port.type is not None or (floats and graph.values[port.value].is_float)
    ]
    inside = homes(plan.graph)
    outputs = tuple(
        dict.fromkeys((*graph.outputs, *(name for name in stored if name and name not in inside)))
    )
    planned = replace(plan, graph=replace(plan.graph, outputs=outputs))
    return replace(graph, outputs=outputs), planned


def agreed(evaluation, plan, got):
    """Pairs of what the interpreter says and what the program gave, by model output.

    Stored integers where the result is stored, in its pin's type; unsigned ones come as the same bits.
    """
    for name, array in zip(plan.graph.outputs, got, strict=True):
        is_stored = name in evaluation.stored and name not in pins(plan.graph) and array.dtype.kind == "i"
        wanted = evaluation.stored[name] if is_stored else evaluation.outputs[name]
        yield name, wanted, array.view(wanted.dtype) if wanted.dtype.kind == "u" else array


class Led(Memory):
    """A memory in which each value, once computed, is replaced by what the program gave for it.

    So every kernel reads what the program read, and is answerable for its own result alone.
    """

    def __init__(self, graph, plan, given):
        super().__init__(graph, plan, pins(plan.graph), {})
        self.given, self.own = given, {}

    def define_stored(self, value, kind, stored, arithmetic):
        """Keep a kernel's integers, and hand on the program's."""
        self.own[value] = stored
        given = self.given.get(value, stored)
        # What is pinned to float comes as reals: nothing to lead integers by.
        super().define_stored(value, kind, given if given.dtype == stored.dtype else stored, arithmetic)

    def define(self, value, array):
        """Keep a kernel's reals, and hand on the program's."""
        self.own[value] = array
        super().define(value, self.given.get(value, array))


def led(interpreter, graph, plan, sample, given):
    """Results of each kernel, fed with what the program gave: (name, own, given) of equal types."""
    memory = Led(graph, plan, given)
    interpreter._feed(memory, sample)
    interpreter._run(memory, interpreter._items)
    return [
        (name, memory.own[name], array)
        for name, array in given.items()
        if name in memory.own and memory.own[name].dtype == array.dtype
    ]
