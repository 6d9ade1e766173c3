"""Basics: float operators that a format has no word for, as several that it has.

Only what a plan leaves in float: kernels keep their names, ports and reasons, their regions get other ops.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from planner.formats.onnx.composites.basics import BASICS
from planner.formats.onnx.composites.body import Body, StaysWhole
from planner.formats.onnx.shapes import infer
from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.plans.plan import Plan


def with_basics(graph: Graph, plan: Plan, has: Callable[[Op], bool]) -> tuple[Graph, Plan]:
    """Return model and plan with such operators taken apart.

    Args:
      has: whether the format has a word for an op.
    """
    floats = {kernel.name for kernel in plan.kernels_in_order if kernel.row is None}
    draft, regions = _Draft(graph, has, set(graph.values)), dict[str, Region]()
    for region in plan.graph.regions:
        if region.name in floats and any(op.type in BASICS for op in region.ops):
            ops = tuple([part for op in region.ops for part in draft.parts(op)])
            regions[region.name] = replace(region, ops=ops)
    if not draft.ops:
        return graph, plan
    values, constants = draft.values_with_shapes(), draft.constants
    planned = replace(
        plan.graph,
        values={**plan.graph.values, **values},
        constants={**plan.graph.constants, **constants},
        regions=tuple([regions.get(region.name, region) for region in plan.graph.regions]),
    )
    whole = replace(graph, values={**graph.values, **values}, constants={**graph.constants, **constants})
    return whole, replace(plan, graph=planned)


@dataclass(slots=True)
class _Draft:
    """Ops, values and constants in the making."""

    graph: Graph
    has: Callable[[Op], bool]
    taken: set[str]
    ops: list[Op] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)

    def parts(self, op: Op) -> Iterator[Op]:
        """The ops that stand for one: itself where the format has it, or its form has no other."""
        if op.type not in BASICS or self.has(op):
            yield op
            return
        body = Body(self.graph, op, op.name, self.taken)
        try:
            found = BASICS[op.type](body)
        except StaysWhole:
            yield op
            return
        results = (found,) if isinstance(found, str) else found
        own = {new: old for new, old in zip(results, op.outputs, strict=False) if new and old}
        self.values |= {name: value for name, value in body.values.items() if name not in own}
        self.constants |= {name: Constant(array) for name, array in body.constants.items()}
        for part in body.ops:
            inputs, outputs = (
                tuple([own.get(name, name) for name in names]) for names in (part.inputs, part.outputs)
            )
            self.ops.append(replace(part, inputs=inputs, outputs=outputs, scope=op.scope))
            yield self.ops[-1]

    def values_with_shapes(self) -> dict[str, Value]:
        """The new values, with the shapes and element types that follow from what they are made of."""
        own = {name for op in self.ops for name in (*op.inputs, *op.outputs) if name}
        made = {name for op in self.ops for name in op.outputs}
        known = {name: self.values.get(name) or self.graph.values[name] for name in own}
        part = Graph(
            self.graph.name,
            known,
            tuple(self.ops),
            tuple(name for name in own if name not in made and name not in self.constants),
            tuple(made - self.values.keys()),
            {name: constant for name, constant in self.constants.items() if name in own},
            opsets=self.graph.opsets,
        )
        inferred = infer(part).values
        return {name: inferred.get(name, value) for name, value in self.values.items()}
