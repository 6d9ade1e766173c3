"""Re-verify engines: on a device whose data go one way, nothing reads from an engine behind its own.

Source: docs/targets/reference.md.
"""

from planner.checker.kernel_ports import refuse
from planner.plans.plan import Plan


def check_engines(plan: Plan) -> None:
    """On a device whose data go one way, no kernel reads from an engine behind its own."""
    engines = plan.target.engines
    if not engines.one_way:
        return
    latest: dict[str, int] = {}
    for kernel in plan.kernels_in_order:
        row = None if kernel.row is None else plan.target.rows.get(kernel.row)
        name = engines.of(row)
        if name not in engines.names:
            refuse(kernel.name, f"runs on {name!r}; accepted: {', '.join(engines.names)}", row)
        own = engines.names.index(name)
        before = max((latest.get(port.value, 0) for port in kernel.inputs), default=0)
        if own < before:
            refuse(
                kernel.name,
                f"runs on {name} behind {engines.names[before]}, from where nothing comes back; accepted: "
                f"{', '.join(engines.names[before:])}",
                row,
            )
        latest.update(dict.fromkeys((port.value for port in kernel.outputs), max(own, before)))
