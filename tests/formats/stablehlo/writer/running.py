"""What a StableHLO export is given and gives: reals at the boundary, every stored value as a result."""

from dataclasses import replace

import numpy as np

from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.ir.borders import homes
from planner.ir.types.qtypes import Uniform
from tests.oracles import hlo

PASSES = {"stablehlo": (hlo.TO_QDQ,), "stablehlo-int": ()}


def unpinned(graph, plan):
    """The same plan with reals at the model's boundary: jaxlib takes no quantized arguments."""
    ends = {*graph.inputs, *graph.outputs}
    values = {n: replace(v, facts=()) if n in ends else v for n, v in graph.values.items()}
    planned = replace(plan, graph=replace(plan.graph, values=values))
    return replace(graph, values=values), planned


def with_all_results(graph, plan):
    """The same model and plan with every value that a kernel stores as an output, but those of bodies."""
    stored = [p.value for k in plan.kernels_in_order for p in k.outputs if isinstance(p.type, Uniform)]
    inside = homes(plan.graph)
    outputs = tuple(
        dict.fromkeys((*graph.outputs, *(name for name in stored if name and name not in inside)))
    )
    planned = replace(plan, graph=replace(plan.graph, outputs=outputs))
    return replace(graph, outputs=outputs), planned


def static(graph, sample):
    """Arguments in order, with the dimensions the export has."""
    shapes = {n: [d if isinstance(d, int) else 1 for d in graph.values[n].shape] for n in graph.inputs}
    return {n: np.asarray(sample[n]).reshape(shapes[n]) for n in graph.inputs}


def job(graph, plan, form, sample):
    """What `hlo.evaluated` takes: the export, its arguments, the passes before."""
    return EXPORTERS[form](graph, plan).decode(), list(static(graph, sample).values()), *PASSES[form]


def steps_off(graph, plan, arithmetic, sample, results):
    """How many steps each stored output is off the interpreter's, and the float outputs, by name."""
    found = Interpreter(graph, plan, arithmetic=arithmetic).run(static(graph, sample))
    stored, floats = {}, {}
    for name, got in zip(graph.outputs, results, strict=True):
        kind = plan.values[name].type if name in plan.values else None
        wanted = found.outputs[name]
        if isinstance(kind, Uniform) and wanted.dtype.kind == "f":
            stored[name] = np.rint(np.abs(got.astype(np.float64) - wanted) / kind.scale).astype(int)
        elif isinstance(kind, Uniform):
            stored[name] = np.abs(got.astype(int) - wanted.astype(int))
        else:
            floats[name] = (got, wanted)
    return stored, floats
