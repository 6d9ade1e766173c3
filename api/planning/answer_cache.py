"""Answers read off plans alone (ports, differences, reports), as bytes: the same for the same plans.

The server's own process makes them of small plans, a child (`child`) of others; reports only there.
Source: design 01, section 6; design 06.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from planner.plans.diff import diff
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port

Arguments = Mapping[str, Any]


def ports(plans: Sequence[Plan], _: Arguments) -> bytes:
    """Every port of a plan, in plan order, one JSON object a line."""
    steps = {step.port: step.rule for step in plans[0].steps}
    lines = [
        json.dumps(_port(kernel, side, port, steps.get(port.address)))
        for kernel in plans[0].kernels_in_order
        for side, found in (("in", kernel.inputs), ("out", kernel.outputs))
        for port in found
        if port.value
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _port(kernel: KernelPlan, side: str, port: Port, rule: str | None) -> dict[str, Any]:
    return {
        "address": port.address,
        "kernel": kernel.name,
        "side": side,
        "value": port.value,
        "type": None if port.type is None else str(port.type),
        "rule": rule,
    }


def difference(plans: Sequence[Plan], _: Arguments) -> bytes:
    """What differs between two plans, kernel by kernel, with the reasons that changed."""
    found = diff(plans[0], plans[1])
    document = json.loads(found.to_json())
    head = {"before": plans[0].key, "after": plans[1].key, "same": found.is_empty}
    return json.dumps(head | document | {"lines": str(found).splitlines()}).encode()


READERS: Final[Mapping[str, Callable[[Sequence[Plan], Arguments], bytes]]] = {
    "diff": difference,
    "ports": ports,
}
