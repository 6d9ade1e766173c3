"""Real plans to check and break: the shipped example on a target, and a plan with some of it changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from planner.calibration.annotate import annotate
from planner.calibration.run import calibrate
from planner.formats.onnx.read import read_onnx
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph, model_digest
from planner.ir.types.qtypes import AnyType, QType, Uniform
from planner.ir.types.typetext import brief
from planner.plans.plan import Plan, plan_key
from planner.plans.records import KernelPlan, Port, PortTyped, Step
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from planner.target.records import Target
from tests.conftest import ROOT

TARGETS = ("litert-int8", "onnxruntime-cpu", "teaching-npu")


@dataclass(frozen=True, eq=False)
class Case:
    """A plan with the model and the target it is for."""

    plan: Plan
    model: Graph
    target: Target


@cache
def digits() -> Graph:
    """The shipped example with ranges from its calibration samples."""
    folder = ROOT / "examples" / "digits"
    graph = read_onnx(folder / "digits.onnx")
    return annotate(graph, stats=calibrate(graph, folder / "calibration.npz"))


@cache
def case(target: str) -> Case:
    """The shipped example planned for a shipped target."""
    return planned(digits(), load_target(target))


def planned(model: Graph, target: Target) -> Case:
    """Plan a model without the pipeline."""
    return Case(propagate(fuse(model, target), target, model=model_digest(model)), model, target)


def ports_of(plan: Plan) -> dict[str, Port]:
    """Present ports by address."""
    return {
        port.address: port
        for kernel in plan.kernels_in_order
        for port in (*kernel.inputs, *kernel.outputs)
        if port.value
    }


def kernel_of(plan: Plan, address: str) -> KernelPlan:
    """The kernel that a port belongs to."""
    return plan.kernels[address.rpartition(".")[0]]


def with_kernel(plan: Plan, name: str, **changes: Any) -> Plan:
    """The plan with one kernel changed."""
    kernels = tuple(replace(k, **changes) if k.name == name else k for k in plan.kernels_in_order)
    return replace(plan, kernels_in_order=kernels)


def with_port(plan: Plan, address: str, change: Callable[[Port], Port]) -> Plan:
    """The plan with one port changed."""
    kernel = kernel_of(plan, address)
    sides = {
        side: tuple(change(port) if port.address == address else port for port in getattr(kernel, side))
        for side in ("inputs", "outputs")
    }
    return with_kernel(plan, kernel.name, **sides)


def retyped(plan: Plan, address: str, kind: PortTyped) -> Plan:
    """The plan with another type at one port, and nowhere else."""
    return with_port(plan, address, lambda port: replace(port, type=kind))


def forged(plan: Plan, types: Mapping[str, PortTyped]) -> Plan:
    """The plan with other types at some ports, its values and its log changed to agree."""
    ports = ports_of(plan)
    values = dict(plan.values)
    for address, kind in types.items():
        plan = retyped(plan, address, kind)
        value = ports[address].value
        if ".out[" in address:
            values[value] = replace(values[value], type=kind)
    steps = tuple(
        replace(step, type=brief(types[step.port])) if step.port in types else step for step in plan.steps
    )
    return replace(plan, values=values, steps=steps)


def altered(kind: Uniform, **changes: Any) -> Uniform:
    """A type with some fields changed, its own refusals passed by."""
    made = object.__new__(Uniform)
    for item in fields(Uniform):
        kept = getattr(kind, item.name) if item.init else item.default
        object.__setattr__(made, item.name, changes.get(item.name, kept))
    return made


def keyed(plan: Plan) -> Plan:
    """The plan under the key of what it holds."""
    return replace(plan, key=plan_key(plan.graph, plan.model, plan.target.digest, plan.options))


def with_fact(plan: Plan, name: str, fact: QType) -> Plan:
    """The plan with one fact more, in front of those of a value, and told by the log."""
    values = dict(plan.graph.values)
    values[name] = replace(values[name], facts=(fact, *values[name].facts))
    at = next(step.n for step in plan.steps if step.port == name)
    rule = "any" if isinstance(fact, AnyType) else "none"

    def moved(step: Step) -> Step:
        rests = {n + (n >= at) for n in step.because} | ({at} if at in step.because else set())
        return replace(step, n=step.n + (step.n >= at), because=tuple(sorted(rests)))

    log = [moved(step) for step in plan.steps]
    log.insert(at, Step(at, name, str(fact), rule, "model"))
    listed = {
        key: replace(value, decided_by=value.decided_by + 1) if value.decided_by is not None else value
        for key, value in plan.values.items()
    }
    return keyed(replace(plan, graph=replace(plan.graph, values=values), steps=tuple(log), values=listed))
