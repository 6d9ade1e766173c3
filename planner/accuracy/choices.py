"""Choices: for each kernel of a plan the types that are its own, so that every stored value counts once.

The rounding of a stored value belongs to its writer, that of a rescale to its consumer, weights to their
kernel, the first rounding of a model input to the input. A kernel that only moves numbers on one grid adds
nothing but its rescales. Source: docs/accuracy.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from planner.ir.borders import bonds, border_op
from planner.ir.graph import Graph, Region
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Storage, Uniform
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, PortTyped
from planner.plans.rescales import definitions, kind_of
from planner.target.records import Row

FINER: Final = 14
"""Bits added to a type where only what it cuts off is to be seen."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The quantized part while all else is float.

    Attributes:
      name: of the kernel, or of the model input.
      types: by port address; every other port is float.
      pins: types that values have behind their writer, by value name.
      read: types in which its kernel reads what others rounded, by port address; integer arithmetic needs
        operands in them, and what it does besides rounding its result is the kernel's.
      is_input: whether it is a model input's.
      row: by which its kernel quantizes the activation at run time, noise of the kernel as well; None: it
        does not.
    """

    name: str
    types: Mapping[str, Uniform]
    pins: Mapping[str, Uniform] = field(default_factory=dict)
    read: Mapping[str, Uniform] = field(default_factory=dict)
    is_input: bool = False
    row: Row | None = None


def choices_of(plan: Plan) -> tuple[Choice, ...]:
    """The own types of every model input and every kernel, in order; those that own none are left out."""
    bases = {**definitions(plan.graph, plan.kernels_in_order), **plan.held_pins}
    regions = {region.name: region for region in plan.graph.regions}
    found = [_of_input(plan, name, bases[name]) for name in plan.graph.inputs]
    found += [_of_kernel(plan, kernel, regions[kernel.name], bases) for kernel in plan.kernels_in_order]
    return tuple(choice for choice in found if choice.types or choice.pins)


def weights_of(choice: Choice, plan: Plan) -> Choice:
    """A choice with the types of its constants alone."""
    constants = _constants(plan)
    kept = {address: kind for address, kind in choice.types.items() if address in constants}
    return replace(choice, types=kept, pins={}, read={}, row=None)


def activations_of(choice: Choice, plan: Plan, factor: float = 1.0) -> Choice:
    """A choice without its constants, the steps of its types `factor` times as wide."""
    constants = _constants(plan)
    types = {
        address: _stepped(kind, factor) for address, kind in choice.types.items() if address not in constants
    }
    pins = {name: _stepped(pin, factor) for name, pin in choice.pins.items()}
    return replace(choice, types=types, pins=pins, row=None)


def clips_of(choice: Choice, plan: Plan, ranges: Mapping[str, tuple[float, float]]) -> Choice:
    """A choice without its constants that cuts off what it did, in steps too fine to matter.

    Args:
      ranges: of the values in float; types that hold theirs are left out.
    """
    values = {
        port.address: port.value
        for kernel in plan.kernels_in_order
        for port in (*kernel.inputs, *kernel.outputs)
    }
    kept = activations_of(choice, plan)

    def cuts(name: str, kind: Uniform) -> bool:
        lo, hi = ranges.get(name, (0.0, 0.0))
        step = max(kind.scales) / 2
        return lo < kind.lo - step or hi > kind.hi + step

    types = {address: _finer(kind) for address, kind in kept.types.items() if cuts(values[address], kind)}
    pins = {name: _finer(kind) for name, kind in kept.pins.items() if cuts(name, kind)}
    return replace(kept, types=types, pins=pins, read={})


def _constants(plan: Plan) -> frozenset[str]:
    """Addresses of the ports that read constants."""
    return frozenset(
        port.address
        for kernel in plan.kernels_in_order
        for port in kernel.inputs
        if port.value in plan.graph.constants
    )


def _finer(kind: Uniform) -> Uniform:
    """A type of the same range in finer steps; a float storage stays."""
    store, factor = kind.storage, 1 << FINER
    if store.float_name or store.bits + FINER > 32 or kind.ranges:
        return kind
    return replace(
        kind,
        storage=Storage(store.bits + FINER, store.signed, store.qmin * factor, store.qmax * factor),
        scales=tuple(scale / factor for scale in kind.scales),
        zero_points=tuple(zero * factor for zero in kind.zero_points),
    )


def _stepped(kind: Uniform, factor: float) -> Uniform:
    return replace(kind, scales=tuple(scale * factor for scale in kind.scales))


def _of_input(plan: Plan, name: str, base: PortTyped) -> Choice:
    if isinstance(base, Uniform):
        return Choice(name, {}, {name: base}, is_input=True)
    readers = plan.kernels_at.get(name, ())
    types = {
        port.address: port.type
        for at in readers
        for port in plan.kernels_in_order[at].inputs
        if port.value == name and isinstance(port.type, Uniform)
    }
    return Choice(name, types, is_input=True)


def _of_kernel(plan: Plan, kernel: KernelPlan, region: Region, bases: Mapping[str, PortTyped]) -> Choice:
    graph, costs = plan.graph, plan.target.costs
    pinned = plan.held_pins
    types: dict[str, Uniform] = {}
    for port in kernel.inputs:
        if not isinstance(port.type, Uniform) or not port.value:
            continue
        base = bases.get(port.value)
        is_weight = port.value in graph.constants
        is_of_input = port.value in graph.inputs and base is None
        if is_weight or (not is_of_input and kind_of(base, port.type, costs) is not None):
            types[port.address] = port.type
    if not is_on_grid(kernel, region, graph):
        types |= _all_types(kernel.outputs)
    if types and border_op(region) is not None:
        # What crosses the border of a body is stored on both sides, and where it comes round again.
        for name in (kernel.name, *bonds(graph).get(kernel.name, ())):
            if name in plan.kernels:
                types |= _all_types((*plan.kernels[name].inputs, *plan.kernels[name].outputs))
    made = {port.value: (port.type, pinned.get(port.value)) for port in kernel.outputs}
    own = {
        name: pin
        for name, (kind, pin) in made.items()
        if pin is not None and kind_of(kind, pin, costs) is not None
    }
    read = {address: kind for address, kind in _all_types(kernel.inputs).items() if address not in types}
    row = plan.row_of(kernel.name)
    at_run_time = row if row is not None and row.dynamic is not None else None
    return Choice(kernel.name, types, own, read, row=at_run_time)


def _all_types(ports: Sequence[Port]) -> dict[str, Uniform]:
    return {port.address: port.type for port in ports if isinstance(port.type, Uniform)}


def is_on_grid(kernel: KernelPlan, region: Region, graph: Graph) -> bool:
    """Whether what a kernel hands on is on the grid of its results before it runs."""
    if not region.ops or not all(is_movement(op, graph) for op in region.ops):
        return False
    return len({port.type for port in (*kernel.inputs, *kernel.outputs) if port.value}) == 1


def in_float(plan: Plan) -> Plan:
    """The plan with every port in float, and nothing quantized at run time."""
    kernels = (_typed(kernel, {}) for kernel in plan.kernels_in_order)
    dynamic = {key for key, row in plan.target.rows.items() if row.dynamic is not None}
    return replace(
        plan,
        kernels_in_order=tuple(replace(one, row=None) if one.row in dynamic else one for one in kernels),
    )


def with_choice(float_plan: Plan, choice: Choice) -> Plan:
    """A plan in float with the types of a choice, and its row where that quantizes at run time."""
    touched = kernels_of(choice)
    kernels = tuple(
        _typed(kernel, choice.types) if kernel.name in touched else kernel
        for kernel in float_plan.kernels_in_order
    )
    target, row = float_plan.target, choice.row
    if row is not None:
        target = replace(target, rows={**target.rows, row.key: row})
        kernels = tuple(replace(one, row=row.key) if one.name == choice.name else one for one in kernels)
    return replace(float_plan, kernels_in_order=kernels, target=target)


def kernel_in_float(kernel: KernelPlan) -> KernelPlan:
    """A kernel with every port in float, served by no row."""
    return replace(_typed(kernel, {}), row=None)


def kernels_of(choice: Choice) -> frozenset[str]:
    """The kernels that have a type of a choice at one of their ports."""
    return frozenset(address.rpartition(".")[0] for address in choice.types)


def _typed(kernel: KernelPlan, types: Mapping[str, Uniform]) -> KernelPlan:
    def ports(many: tuple[Port, ...]) -> tuple[Port, ...]:
        return tuple(replace(port, type=types.get(port.address)) for port in many)

    return replace(kernel, inputs=ports(kernel.inputs), outputs=ports(kernel.outputs))
