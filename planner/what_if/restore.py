"""Restore: put a kernel of a plan back into float, with casts around it.

Its ports get the fact `!quant.none`, so that the plan names the request and the checker agrees. It overrides
earlier requests: a kernel that annotations quantize is float from then on, and a warning names the earlier
request. Source: MLIR quantization RFC, "restore"; docs/specification.md, section 6.
"""

from dataclasses import replace
from typing import Any

from planner.errors import InputError, require_name
from planner.ir.graph import Graph, port_address
from planner.ir.kernel_requests import asked_of
from planner.plans.plan import Plan, Planned, require_plan
from planner.target.load import TargetSource
from planner.what_if.replan import as_planned, replan

FLOAT = "!quant.none"


def restore(
    plan: Plan, kernel: str, *, model: Graph | None = None, target: TargetSource | None = None
) -> Planned:
    """Plan again with one kernel in float.

    Args:
      model, target: needed for a plan read from a file, as for `replan`.

    Raises:
      UnknownName: no such kernel.
      InputError: it runs in float already, or has no float port.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> planner.restore(plan, "head/gemm").kernels["head/gemm"].reason is not None
      True
    """
    require_plan(plan)
    require_name("kernel", kernel, plan.kernels)
    planned = plan.kernels[kernel]
    if planned.row is None:
        raise InputError(f"kernel {kernel!r} runs in float already: {planned.reason}")
    fused = as_planned(plan, model, target).fused
    ports = [
        port_address(kernel, side, i)
        for side, ports in (("in", planned.inputs), ("out", planned.outputs))
        for i, port in enumerate(ports)
        if port.value and port.value not in fused.constants
    ]
    edits: dict[str, Any] = {"ports": dict.fromkeys(ports, FLOAT)}
    region = next((region for region in fused.regions if region.name == kernel), None)
    asked = asked_of(fused, region) if region is not None else None
    if asked is None:
        again = replan(plan, edits, model=model, target=target)
        if kernel not in again.kernels or again.kernels[kernel].row is None:
            return again
        # Its row takes floats: weights alone are integers, or it quantizes at run time.
        return replan(plan, {**edits, "kernels": {kernel: "float"}}, model=model, target=target)
    again = replan(plan, {**edits, "kernels": {kernel: "float"}}, model=model, target=target)
    said = f"{kernel!r} was restored to float: {asked.wanted}, asked of it by {asked.key!r}, is dropped"
    return replace(again, warnings=(said, *again.warnings))
