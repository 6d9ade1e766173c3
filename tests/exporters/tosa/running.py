"""What a TOSA program of a plan is given and gives: stored integers where the plan has them."""

import numpy as np

from planner.constants.quantize import quantize_array
from planner.ir.qtypes import Uniform
from planner.plans.rescales import pins, uses


def fed(graph, plan, sample):
    """The arguments of `main` for a sample of the model, in order."""
    readers, pinned = uses(plan.graph, plan.kernels_in_order), pins(plan.graph)
    found = []
    for name in graph.inputs:
        kinds = {use.type for use in readers.get(name, ()) if use.kernel != "@model"}
        kind = pinned.get(name) if name in pinned else next(iter(kinds), None)
        array = np.asarray(sample[name])
        found.append(quantize_array(array.astype(np.float32), kind) if isinstance(kind, Uniform) else array)
    return found
