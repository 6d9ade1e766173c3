"""Verify what a plan says of its values, and that its log speaks of the types that its ports have.

Steps are in order and rest on earlier ones, and the last one of each port and kernel says its type or row.
Which rule a step names, and the reasons behind it, are not verified: they decide nothing.
Source: docs/specification.md, section 6; docs/formats.md.
"""

import math
from collections.abc import Mapping, Sequence

from planner.checker.figures.steps import pin_of
from planner.checker.kernel_ports import refuse
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, PortTyped, StepRow


def check_values(plan: Plan, log: Sequence[StepRow]) -> None:
    """Every value has the type of the port that defines it, sane figures, and the step that decided it."""
    graph = plan.graph
    defining = {port.value: port for kernel in plan.kernels_in_order for port in kernel.outputs if port.value}
    needed = {port.value for kernel in plan.kernels_in_order for port in kernel.inputs if port.value}
    needed.update(defining, graph.inputs, graph.outputs)
    for name in needed.difference(plan.values, graph.constants):
        if graph.values[name].is_float:
            address = defining[name].address if name in defining else name
            refuse(address, f"carries {name!r}, which the plan does not list; accepted: every float value")
    for name, value in plan.values.items():
        port = defining.get(name)
        address = port.address if port else name
        if name not in graph.values or name in graph.constants:
            refuse(address, f"{name!r} is no value that a kernel or the model's user gives")
        wanted = port.type if port else pin_of(plan.graph.values[name].facts)
        if value.type is not wanted and _stored(value.type) != _stored(wanted):
            refuse(address, f"is {brief(wanted)}, the plan lists {name!r} as {brief(value.type)}")
        # NaN fails `>=`, so it is refused with the negative numbers.
        if not (value.bits_lost >= 0 and math.isfinite(value.bits_lost) and 0 <= value.clip <= 1):
            refuse(
                address,
                f"{name!r} loses {value.bits_lost!r} bits and {value.clip!r} of its range; "
                "accepted: 0 or more bits, 0 to 1",
            )
        _check_decided(log, name, value.decided_by, port)


def _stored(kind: PortTyped) -> Uniform | None:
    return kind if isinstance(kind, Uniform) else None


def _check_decided(log: Sequence[StepRow], name: str, number: int | None, port: Port | None) -> None:
    if number is None:
        if port is not None and isinstance(port.type, Uniform):
            refuse(port.address, f"{name!r} has a type that no step decided; accepted: the step's number")
        return
    if port is None or not 0 <= number < len(log) or log[number][1] != port.address:
        address = port.address if port else name
        refuse(address, f"{name!r} is decided by step {number}, which is not one of {address}")


def check_steps(log: Sequence[StepRow]) -> Mapping[str, StepRow]:
    """Steps are numbered in order and rest on earlier ones; return the last one of each address."""
    last: dict[str, StepRow] = {}
    for i, row in enumerate(log):
        number, port, _, _, _, because, _ = row
        if number != i:
            refuse(port, f"step {i} is numbered {number}; accepted: {i}")
        # Reasons that are earlier make the log a DAG: every explanation ends at a fact or a default.
        for n in because:
            if not 0 <= n < i:
                refuse(port, f"step {i} rests on step {n}; accepted: earlier steps")
        last[port] = row
    return last


def check_totals(plan: Plan) -> None:
    """Cost, bound and optimality agree with each other."""
    # The bound is proven from below, so optimal means equal; no plan can cost less.
    if not (plan.cost >= plan.bound >= 0) or plan.optimal != (plan.cost == plan.bound):
        refuse(
            "", f"cost {plan.cost!r}, bound {plan.bound!r} and optimal {plan.optimal} contradict each other"
        )


def check_told(kernel: KernelPlan, steps: Mapping[str, StepRow], texts: Mapping[int, str]) -> None:
    """The log and the plan agree on the row of a kernel, or on why it has none, and on its ports' types.

    Args:
      texts: text of each type by its id.
    """
    decided = steps.get(kernel.name)
    if kernel.row is None:
        if decided and decided[3] == "no row" and (decided[2], decided[4]) != ("float", kernel.reason):
            refuse(kernel.name, f"runs in float, its step says {decided[2]}, {decided[4]!r}")
        return
    if decided is None or decided[2] != kernel.row:
        told = decided[2] if decided else "nothing"
        refuse(kernel.name, f"is served by {kernel.row}, its step says {told}")
    for port in (*kernel.inputs, *kernel.outputs):
        if not port.value:
            continue
        step = steps.get(port.address)
        if step is None:
            refuse(
                port.address, f"is {brief(port.type)} and no step says so; accepted: a step for every port"
            )
        number, said, text = step[0], step[2], texts.get(id(port.type))
        if text is not None and said != text and said != str(port.type):
            refuse(port.address, f"is {brief(port.type)}, step {number} decided {said}")
