"""Wiring: where the kernels of a plan stand, whatever their types; a plan made again in part keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.ir.graph import Region
from planner.plans.records import KernelPlan


@dataclass(frozen=True, eq=False)
class Wiring:
    """Kernels in plan order, and the regions they are."""

    kernels: tuple[KernelPlan, ...]
    regions: tuple[Region, ...]

    @cached_property
    def kernels_at(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the kernels that write or read each value, each once, ascending."""
        found: dict[str, list[int]] = {}
        for at, kernel in enumerate(self.kernels):
            for name in {port.value for port in (*kernel.inputs, *kernel.outputs)}:
                found.setdefault(name, []).append(at)
        found.pop("", None)
        return {name: tuple(positions) for name, positions in found.items()}

    @cached_property
    def region_at(self) -> tuple[int, ...]:
        """Place in `regions` of each kernel in order."""
        places = {region.name: i for i, region in enumerate(self.regions)}
        return tuple(places[kernel.name] for kernel in self.kernels)

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """Kernels on the longest way from the model's inputs to each kernel, itself counted."""
        deep: dict[str, int] = {}
        found: dict[str, int] = {}
        for kernel in self.kernels:
            found[kernel.name] = 1 + max((deep.get(port.value, 0) for port in kernel.inputs), default=0)
            deep |= dict.fromkeys((port.value for port in kernel.outputs), found[kernel.name])
        return found
