"""The Plan: the fields of a plan, its text forms, and what follows from it.

Text is read by `read_json` and `read_mlir`, which stand above. Source: design 01, section 6; design 09.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from planner.errors import expect
from planner.ir.graph import Graph, model_digest, structure_digest, with_facts
from planner.ir.types.qtypes import Uniform
from planner.plans.fields import PlanFields
from planner.plans.records import KernelPlan, step_rows
from planner.plans.shared_bodies import Body, bodies
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.target.records import Row, Target
from planner.version import MADE_BY


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What a plan was made from, kept while the plan is in memory so that it can be planned again.

    Attributes:
      model: the annotated model; `graph` before its ops became regions.
      graph: the regions that were planned, constants with their numbers.
      target: the whole target, functions too.
      warned: the plan's warnings by kernel; "" is the plan as a whole.
      visits: how often propagation looked at a kernel, its passes and rules together.
    """

    model: Graph
    graph: Graph
    target: Target
    warned: Mapping[str, tuple[str, ...]]
    visits: int = 0


@dataclass(frozen=True, eq=False)
class Plan(PlanFields):
    """The answer and its proof; its fields are those of `PlanFields`.

    Attributes:
      origin: what it was made from; None for a plan read from a file.
    """

    origin: Origin | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        counts = f"{len(self.kernels_in_order)} kernels, {len(self.rescales)} rescales and casts"
        return f"<Plan of {self.graph.name!r} for {self.target.id}: {counts}, cost {self.cost:g}>"

    @property
    def ports(self) -> Mapping[str, KernelPlan]:
        """Planned kernels by name, for `plan.ports["conv1"].inputs[0].type`."""
        return self.kernels

    @cached_property
    def bodies(self) -> Mapping[str, tuple[Body, ...]]:
        """Bodies of each function: places that were planned alike share one, others have clones."""
        return bodies(self.graph, self.kernels_in_order)

    @cached_property
    def step_at(self) -> Mapping[str, int]:
        """Number of the step that speaks of each port, value or kernel; one step speaks of one."""
        return {row[1]: row[0] for row in step_rows(self.steps)}

    @cached_property
    def kernels_at(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the kernels that write or read each value, each once, ascending."""
        found: dict[str, list[int]] = {}
        for at, kernel in enumerate(self.kernels_in_order):
            for name in {port.value for port in (*kernel.inputs, *kernel.outputs)}:
                found.setdefault(name, []).append(at)
        found.pop("", None)
        return {name: tuple(positions) for name, positions in found.items()}

    @cached_property
    def region_at(self) -> tuple[int, ...]:
        """Place in `graph.regions` of each kernel in order."""
        places = {region.name: i for i, region in enumerate(self.graph.regions)}
        return tuple(places[kernel.name] for kernel in self.kernels_in_order)

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """Kernels on the longest way from the model's inputs to each kernel, itself counted."""
        deep: dict[str, int] = {}
        found: dict[str, int] = {}
        for kernel in self.kernels_in_order:
            found[kernel.name] = 1 + max((deep.get(port.value, 0) for port in kernel.inputs), default=0)
            deep |= dict.fromkeys((port.value for port in kernel.outputs), found[kernel.name])
        return found

    @property
    def fully_quantized(self) -> bool:
        """Whether every quantizable port of every kernel is Uniform (01 section 6)."""
        return all(
            isinstance(port.type, Uniform)
            for kernel in self.kernels_in_order
            for port in (*kernel.inputs, *kernel.outputs)
            if port.value
        )

    def row_of(self, kernel: str) -> Row | None:
        """The row that serves a kernel, None where it runs in float."""
        key = self.kernels[kernel].row
        return None if key is None else self.target.rows[key]

    def to_json(self) -> str:
        """The plan as `qplan.plan/1` (design 09); `planner.plan_from_json` reads it back."""
        return plan_to_json(self)

    def to_mlir(self) -> str:
        """The plan as an MLIR module of `quant.region` ops (design 09), lossless too."""
        return plan_to_mlir(self)


def require_plan(plan: object) -> None:
    """Refuse what is no plan, which a caller's mistake may hand over.

    Raises:
      InputError: what it is instead.
    """
    expect(plan, Plan, "a plan is what plan, replan or plan_from_json gives")


def for_model(plan: Plan, model: Graph) -> Plan:
    """A plan just made, with the model it was made from, less the facts that best effort left out."""
    if plan.origin is None:
        return plan
    if "best_effort" in plan.options:
        kept = with_facts(model, plan.graph)
        return replace(plan, model=model_digest(kept), origin=replace(plan.origin, model=kept))
    return replace(plan, origin=replace(plan.origin, model=model))


def plan_key(graph: Graph, model: str, target: str, options: Mapping[str, Any]) -> str:
    """The content key of a plan: `sha256:...` of model structure, constraints, target, options, maker."""
    parts = [structure_digest(graph), model, target, json.dumps(options, sort_keys=True), MADE_BY]
    return f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"
