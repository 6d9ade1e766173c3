"""The Plan: the fields of a plan, its text forms, and what follows from it; a Planned knows its model.

Text is read by `read_json` and `read_mlir`, which stand above. Source: docs/specification.md, section 6;
docs/formats.md.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from planner.errors import expect, quantity
from planner.formats.mlir.text.spelling import Spelling
from planner.ir.graph import Graph, model_digest, structure_digest, with_facts, written_back
from planner.ir.types.qtypes import Uniform
from planner.notebook import html_of, html_table
from planner.plans.fields import PlanFields
from planner.plans.records import KernelPlan, PortTyped, step_rows
from planner.plans.shared_bodies import Body, bodies
from planner.plans.wiring import Wiring
from planner.plans.work import Crossing, Work, crossings_of, work_of
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.target.records import Row, Target
from planner.version import MADE_BY


class Plan(PlanFields):
    """The answer and its proof, in memory or read from a file."""

    def __repr__(self) -> str:
        counts = f"{quantity(len(self.kernels_in_order), 'kernel')}, {len(self.rescales)} rescales and casts"
        return f"<Plan of {self.graph.name!r} for {self.target.id}: {counts}, cost {self.cost:g}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the totals, and each kernel with the types of its results."""
        rows = [
            (
                kernel.name,
                kernel.kernel,
                ", ".join(_storage_text(port.type) for port in kernel.outputs if port.value),
                kernel.reason if kernel.row is None else "",
            )
            for kernel in self.kernels_in_order
        ]
        proof = "the least possible" if self.optimal else f"at least {self.bound:g} is needed"
        title = f"Plan of {self.graph.name} for {self.target.id}: cost {self.cost:g} ({proof})"
        return html_of(title, html_table(("kernel", "kind", "results", "why float"), rows))

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
    def wiring(self) -> Wiring:
        """The places of the kernels, whatever their types."""
        return Wiring(self.kernels_in_order, self.graph.regions)

    @property
    def kernels_at(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the kernels that write or read each value, each once, ascending."""
        return self.wiring.kernels_at

    @property
    def fully_quantized(self) -> bool:
        """Whether every quantizable port of every kernel is Uniform (specification, section 6).

        A result that a row hands on as float is none of these.
        """
        return all(
            isinstance(port.type, Uniform)
            for kernel in self.kernels_in_order
            for port in (*kernel.inputs, *(kernel.outputs if kernel.row is None else ()))
            if port.value
        )

    @cached_property
    def work(self) -> Work:
        """The cost of running on the device, in elements requantized; `cost` is the price of planning."""
        return work_of(self)

    @cached_property
    def crossings(self) -> tuple[Crossing, ...]:
        """Values that one engine writes and another reads; none on a device of one engine."""
        return crossings_of(self)

    def engine_of(self, kernel: str) -> str:
        """The engine that runs a kernel, "" on a device that has one and gives it no name."""
        return self.target.engines.of(self.row_of(kernel))

    def row_of(self, kernel: str) -> Row | None:
        """The row that serves a kernel, None where it runs in float."""
        key = self.kernels[kernel].row
        return None if key is None else self.target.rows[key]

    def to_json(self) -> str:
        """The plan as `qplan.plan/1` (docs/formats.md); `planner.plan_from_json` reads it back."""
        return plan_to_json(self)

    def to_mlir(self, *, spelling: Spelling = "qplan") -> str:
        """The plan as an MLIR module of `qplan.region` ops (docs/formats.md), lossless too.

        Args:
          spelling: of what upstream's `quant` dialect has not: `"qplan"`, which LLVM's tools take with
            `--allow-unregistered-dialect`, or `"rfc"`: `quant.region`, `!quant.none`.
        """
        return plan_to_mlir(self, spelling=spelling)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Planned(Plan):
    """A plan that knows what it was made from, so that it can be planned again; a file gives a bare `Plan`.

    `Plan` names model and target (`model` is a digest, `target` holds the rows in use); here they are whole.

    Attributes:
      annotated: the annotated model, before its ops became regions.
      fused: the regions that were planned, constants with their numbers.
      whole_target: all rows of the target, and its functions.
      warned: the plan's warnings by kernel; "" is the plan as a whole.
      apart: kernels that are parts of one that no row served whole.
      left: kernels that left a row which they could not keep.
      turns: whether kernels may have either sign beside data of both: that is decided for the whole model.
      visits: how often propagation looked at a kernel, its passes and rules together.
    """

    annotated: Graph
    fused: Graph
    whole_target: Target
    warned: Mapping[str, tuple[str, ...]]
    apart: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    turns: bool = False
    visits: int = 0


def _storage_text(kind: PortTyped) -> str:
    """The storage of a port, without the scale: `i8`, `float`."""
    if kind is None:
        return "float"
    return str(kind.storage) if isinstance(kind, Uniform) else str(kind)


def require_plan(plan: object) -> None:
    """Refuse what is no plan, which a caller's mistake may hand over.

    Raises:
      InputError: what it is instead.
    """
    expect(plan, Plan, "a plan is the result of plan, replan or plan_from_json")


def for_model(plan: Planned, model: Graph) -> Planned:
    """A plan just made, with the model it was made from, less the facts that best effort left out."""
    if "best_effort" not in plan.options:
        return replace(plan, annotated=model)
    kept = with_facts(model, plan.graph)
    digest = model_digest(kept)
    key = plan_key(plan.graph, digest, plan.target.digest, plan.options)
    return replace(plan, key=key, model=digest, annotated=kept)


def plan_key(
    graph: Graph, model: str, target: str, options: Mapping[str, Any], made_by: str | None = None
) -> str:
    """The content key of a plan: `sha256:...` of model structure, constraints, target, options, maker.

    And of the module that the model was read from, which the plan is written into, and of its metadata.

    Args:
      made_by: the planner; None: this one.
    """
    parts = [structure_digest(graph), model, target, json.dumps(options, sort_keys=True), made_by or MADE_BY]
    parts += written_back(graph)
    return f"sha256:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"
