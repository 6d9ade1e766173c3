"""Fields of a plan: a type (or float) for every port of every kernel, and why. Data, which the writers read.

Rescales are derived from the port types (`rescales`), never stored beside them. A plan carries the rows it
used and the model's structure (no weights), so reading it needs nothing else. Source: docs/specification.md,
section 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from planner.ir.graph import Graph
from planner.ir.types.held_pins import same_numbers
from planner.ir.types.qtypes import Uniform
from planner.plans.records import KernelPlan, Rescale, Step, TargetRef, ValuePlan
from planner.plans.rescales import derive_rescales, held_pins, pins
from planner.version import WORDS


@dataclass(frozen=True, eq=False)
class PlanFields:
    """The answer and its proof.

    Attributes:
      key: sha256 of model structure, constraints, target, options, version and planning revision.
      model: digest of the model (`ir.graph.model_digest`).
      target: the target as the plan saw it: the rows in use, the prices.
      graph: the model's regions, values and facts; its constants hold no numbers.
      cost, bound: the price (specification, section 5) and a proven lower bound of it, in element-rescales.
      excused: the price of the bits that facts and rows force consumers to lose, which `cost` leaves out.
      optimal: whether cost equals the least possible.
      words: revision of the words of `warnings` (`planner.version`).
      sources: where `model` and `target` lay when a command wrote the plan, from its folder on; no part of
        what was decided.
    """

    key: str
    model: str
    target: TargetRef
    options: Mapping[str, Any]
    graph: Graph
    kernels_in_order: tuple[KernelPlan, ...]
    values: Mapping[str, ValuePlan]
    steps: Sequence[Step]
    cost: float
    optimal: bool
    bound: float
    warnings: tuple[str, ...] = ()
    excused: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    words: int = WORDS

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that the plan has to be written in: those requested, else the target's only one."""
        return self.target.files.to_write(self.options.get("formats", ()))

    @property
    def price(self) -> float:
        """Cost plus `excused`: the figure that compares plans under different facts."""
        return self.cost + self.excused

    @cached_property
    def kernels(self) -> Mapping[str, KernelPlan]:
        """Planned kernels by name."""
        return {kernel.name: kernel for kernel in self.kernels_in_order}

    @cached_property
    def held_pins(self) -> Mapping[str, Uniform | None]:
        """The types that uses of fixed values start from: as the device holds them, or None for float."""
        return held_pins(self.graph, self.kernels_in_order, self.target.storages, self.formats)

    @cached_property
    def stored_pins(self) -> Mapping[str, Uniform | None]:
        """The types that facts fix values to, each as its fact says it unless a format lacks its numbers."""
        return {
            name: kind if kind is None or held is None or same_numbers(kind, held) else held
            for (name, kind), held in zip(pins(self.graph).items(), self.held_pins.values(), strict=True)
        }

    @cached_property
    def rescales(self) -> tuple[Rescale, ...]:
        """Every change of type on a use edge, in plan order."""
        return derive_rescales(self.graph, self.kernels_in_order, self.target, self.formats)
