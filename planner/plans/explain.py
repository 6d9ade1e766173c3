"""Explain: the chain of steps behind a value, a port, a kernel or a rescale, as prose.

A pure function of the plan: causes are data (`Step.because`), this only words them. Source:
docs/specification.md, section 6; addresses as in docs/formats.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from planner.errors import quantity, unknown_name
from planner.ir.graph import BOUNDARY, port_address
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan, require_plan
from planner.plans.records import KernelPlan, PortTyped, Refused, Rescale, Step

DEPTH: Final = 6
"""Number of steps behind one another that are shown."""

WORDINGS: Final[Mapping[str, str]] = {
    "": "[{n}] {rule} gives {port} its type ({source})",
    "annotated": "[{n}] {port} is annotated: {type}, by {source}",
    "apart": "[{n}] {port} was part of a {type}, which does not run whole: {source}",
    "any": "[{n}] the model asks for at least {type} at {port}",
    "calibrated": "[{n}] {port} was observed in {type}",
    "constant": "[{n}] {port} holds constants: the type comes from {source}",
    "finer": "[{n}] {type} has a finer scale than its fixed type and the same numbers ({source})",
    "float": "[{n}] {port} is float: {source}",
    "grown": "[{n}] {type} has a coarser scale than its range requires ({source})",
    "left": "[{n}] {port} could not keep {type}: {source}",
    "let go": "[{n}] {port} could not keep {type} with weights of the types they had in training: {source}",
    "moved": "[{n}] {port} keeps {source}",
    "no effect": "[{n}] the facts of {port} have no effect: {source}",
    "needed": "[{n}] the consumers of {port} need {type}: {source}",
    "no row": "[{n}] {port} runs in float: {source}",
    "none": "[{n}] the model keeps {port} in float",
    "pinned": "[{n}] {port} has the fixed type {type}, by the {source}",
    "range": "[{n}] {port} takes the type of {source}",
    "row": "[{n}] {port} is served by {type} ({source})",
    "shared": "[{n}] {port} takes {source}",
    "sign": "[{n}] {type} would come first for {port}: {source}",
    "short": "[{n}] {type} is too narrow for {port}: {source}",
}
"""The text of a step by its rule; "" is for every other rule, a rule of a row."""


def explain(plan: Plan, address: str) -> str:
    """Explain a value, a port (`conv1.out[0]`), a kernel or a rescale (`y#0`).

    Raises:
      UnknownName: no such address; the hint holds the nearest ones.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> "probabilities" in planner.explain(plan, "probabilities")
      True
    """
    require_plan(plan)
    if not isinstance(address, str):
        raise unknown_name("value, port, kernel or rescale", address, plan.values)
    rescale = next((item for item in plan.rescales if item.id == address), None)
    if rescale is not None:
        return _of_rescale(plan, rescale)
    if address in plan.kernels:
        return _of_kernel(plan, address)
    if address in plan.values:
        return _of_value(plan, address)
    ports = [port for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    carriers = dict.fromkeys(port.address for port in ports if port.value == address)
    if carriers:
        return "\n".join(explain(plan, port) for port in carriers)
    if address in plan.step_at:
        return _of_step(plan, plan.steps[plan.step_at[address]])
    if any(port.address == address for port in ports):
        kernel = address.rpartition(".")[0]
        return f"{address} is float: {plan.kernels[kernel].reason}."
    text = _of_boundary(plan, address) or _of_inner(plan, address) or _of_note(plan, address)
    if text:
        return text
    known = [*plan.values, *plan.kernels, *(item.id for item in plan.rescales), *(p.address for p in ports)]
    raise unknown_name("value, port, kernel or rescale", address, known)


def type_text(kind: PortTyped) -> str:
    """A port's type as prose: its text, or `float`; long scale lists are counted."""
    if kind is None:
        return "float"
    if isinstance(kind, Uniform) and not kind.is_per_tensor:
        where = f"along axis {kind.axis}" if kind.axis is not None else "per block"
        return f"{kind.storage} with {quantity(len(kind.scales), 'scale')} {where}"
    return str(kind)


def _of_boundary(plan: Plan, address: str) -> str:
    """A port of the boundary, `@model.in[0]`: the rescale in front of it, or the value it takes or gives."""
    for i, name in enumerate(plan.graph.inputs):
        if address == port_address(BOUNDARY, "out", i):
            return explain(plan, name)
    for i, name in enumerate(plan.graph.outputs):
        if address == port_address(BOUNDARY, "in", i):
            before = next((item for item in plan.rescales if (BOUNDARY, i) in item.consumers), None)
            return _of_rescale(plan, before) if before else f"model output {i} is {explain(plan, name)}"
    return ""


def _of_inner(plan: Plan, name: str) -> str:
    """A value that no port carries."""
    if name not in plan.graph.values:
        return ""
    for region in plan.graph.regions:
        if any(name in (*op.inputs, *op.outputs) for op in region.ops):
            return f"{name} is inside kernel {region.name}; only values at ports have a type."
    return f"{name} is a value that no kernel of the plan reads or writes."


def _of_note(plan: Plan, name: str) -> str:
    """Describe an op that is no kernel by the note of the model's import."""
    return "\n".join(f"{note}." for note in plan.graph.notes if f"{name!r} is no kernel" in note)


def _of_step(plan: Plan, step: Step) -> str:
    lines = [_of_inner(plan, step.port) if step.rule == "no effect" else f"{step.port} is {step.type}."]
    seen: set[int] = set()
    _chain(plan.steps, step, 1, lines, seen)
    return "\n".join(lines)


def _chain(steps: Sequence[Step], step: Step, depth: int, lines: list[str], seen: set[int]) -> None:
    seen.add(step.n)
    lines.append(f"{'  ' * depth}{_worded(step)}")
    indent = "  " * depth
    lines += [f"{indent}  not {refusal(other)}" for other in step.refused]
    if depth >= DEPTH:
        return
    for n in step.because:
        if n not in seen:
            _chain(steps, steps[n], depth + 1, lines, seen)


def refusal(other: Refused) -> str:
    """An alternative and why it was not taken."""
    if math.isinf(other.cost):
        return f"{other.label}: {other.why or 'that is not allowed'}"
    why = f" ({other.why})" if other.why else ""
    return f"{other.label}: that would cost {other.cost:g}{why}"


def _worded(step: Step) -> str:
    wording = WORDINGS.get(step.rule, WORDINGS[""])
    return wording.format(n=step.n, port=step.port, type=step.type, rule=step.rule, source=step.source)


def _of_value(plan: Plan, name: str) -> str:
    value = plan.values[name]
    if value.decided_by is None:
        if name in plan.graph.inputs:
            return f"{name} is a model input and is {type_text(value.type)}."
        maker = next(
            (k for k in plan.kernels_in_order if any(port.value == name for port in k.outputs)), None
        )
        reason = f": {_why_float(plan, maker)}" if maker else ""
        return f"{name} is {type_text(value.type)}{reason}."
    text = _of_step(plan, plan.steps[value.decided_by])
    notes = []
    if value.bits_lost >= 0.005:
        notes.append(f"its consumers lose {value.bits_lost:.2f} bits against a type of their own")
    if value.clip:
        notes.append(f"{value.clip:.2%} of its range is cut off")
    return f"{name}: {text}" + (f"\n  {'; '.join(notes)}" if notes else "")


def _why_float(plan: Plan, maker: KernelPlan) -> str:
    row = plan.row_of(maker.name)
    if row is None:
        return f"{maker.name} runs in float, {maker.reason}"
    return f"{maker.name} computes with integers and returns floats, by {row.source}"


def _of_kernel(plan: Plan, name: str) -> str:
    kernel = plan.kernels[name]
    if kernel.row is None:
        text = f"{name} ({kernel.kernel}) runs in float: {kernel.reason}."
        asked = [step for step in plan.steps if (step.port, step.rule) == (name, "annotated")]
        return "\n".join([text, *(f"  {_worded(step)}" for step in asked)])
    row = plan.target.rows[kernel.row]
    engine = plan.engine_of(name)
    lines = [f"{name} ({kernel.kernel}) is served by {row.source}{f' on {engine}' if engine else ''}."]
    ports = [port for port in (*kernel.inputs, *kernel.outputs) if port.value]
    lines += [f"  {port.address} ({port.value}): {type_text(port.type)}" for port in ports]
    head = plan.steps[plan.step_at[name]].because if name in plan.step_at else ()
    lines += [f"  {_worded(plan.steps[n])}" for n in head if plan.steps[n].port == name]
    if row.dynamic is not None:
        whose = {"token": "token", "batch": "entry of the batch"}.get(row.dynamic.per, "call")
        lines.append(
            f"  {kernel.inputs[0].address} is quantized at run time, to {row.dynamic.storage} by the range "
            f"of each {whose}"
        )
    if kernel.accumulator_bits is not None:
        lines.append(f"  its sums need {quantity(kernel.accumulator_bits, 'bit')}")
    return "\n".join(lines)


_WHY: Final = {
    "clamp": "the storage ranges differ",
    "dequantize": "a consumer runs in float",
    "narrow": "the consumer's storage is narrower",
    "quantize": "it is float and its consumer takes integers",
    "requantize": "the scales differ",
    "widen": "the consumer's storage is wider",
    "zero_point": "zero point or signedness differ",
}


def _of_rescale(plan: Plan, rescale: Rescale) -> str:
    readers = ", ".join(
        f"model output {i}" if kernel == BOUNDARY else port_address(kernel, "in", i)
        for kernel, i in rescale.consumers
    )
    head = (
        f"{rescale.id}: {rescale.value!r} is {type_text(rescale.from_type)}, {readers} "
        f"{'take' if len(rescale.consumers) > 1 else 'takes'} {type_text(rescale.to_type)}; "
        f"{_WHY[rescale.kind]}, so a {rescale.kind} of {quantity(rescale.elements, 'element')} "
        f"costs {rescale.cost:g}."
    )
    lines = [head]
    addresses = [port_address(kernel, "in", i) for kernel, i in rescale.consumers[:1]]
    defined = plan.values.get(rescale.value)
    if defined is not None and defined.decided_by is not None:
        addresses.insert(0, plan.steps[defined.decided_by].port)
    for address in addresses:
        if address in plan.step_at:
            step = plan.steps[plan.step_at[address]]
            lines += ["  " + line for line in _of_step(plan, step).split("\n")]
    return "\n".join(lines)
