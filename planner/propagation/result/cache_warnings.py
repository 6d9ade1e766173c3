"""Caches whose kernels hold them in another type: each run requantizes what the runs before stored.

A fixed type of a cache is the user's, so planning keeps it; the numbers of old rows may move all the same.
Source: docs/library.md, caches.
"""

from collections.abc import Iterator, Sequence

from planner.ir.graph import Graph
from planner.ir.roles import moves_alone
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.records import KernelPlan, Port
from planner.plans.rescales import pins


def requantized_caches(graph: Graph, kernels: Sequence[KernelPlan]) -> Iterator[str]:
    """A warning for each cache that is moved from its input to its output in another type than its own."""
    if not graph.caches:
        return
    fixed, regions = pins(graph), {region.name: region for region in graph.regions}
    moving = [kernel for kernel in kernels if moves_alone(graph, regions[kernel.name])]
    for past, present in graph.caches:
        kind = fixed.get(past)
        held = (port.type for port in _way(moving, past, present) if isinstance(port.type, Uniform))
        other = next((one for one in held if one != kind), None)
        if kind is not None and other is not None:
            yield (
                f"cache {past!r} is stored as {brief(kind)}, and its kernels hold it as {brief(other)}: each "
                f"run requantizes what earlier runs stored; give {past!r} and {present!r} the latter as "
                "their fixed type"
            )


def _way(moving: Sequence[KernelPlan], past: str, present: str) -> Iterator[Port]:
    """Ports through which data movement takes a value from one run to the next."""
    behind = {past}
    for kernel in moving:
        if any(port.value in behind for port in kernel.inputs):
            behind.update(port.value for port in kernel.outputs if port.value)
    before = {present}
    for kernel in reversed(moving):
        if any(port.value in before for port in kernel.outputs):
            before.update(port.value for port in kernel.inputs if port.value)
    both = behind & before
    for kernel in moving:
        ports = [port for port in (*kernel.inputs, *kernel.outputs) if port.value in both]
        # A kernel that only reads what comes back is on no way to the next run.
        yield from ports if any(port.value in both for port in kernel.outputs) else ()


__all__ = ["requantized_caches"]
