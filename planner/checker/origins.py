"""Verify the origins of a plan: the model and the target at hand are those it was made for.

Digests first, then the structure and the rows that the plan carries, item by item, as the rest of the
check reads those. Source: docs/specification.md, section 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.checker.kernel_ports import refuse
from planner.errors import quantity
from planner.ir.graph import (
    Constant,
    Facts,
    Graph,
    Region,
    Value,
    model_digest,
    op_key,
    port_address,
    region_key,
    with_sizes,
)
from planner.ir.kernel_requests import without_asked
from planner.ir.roles import port_inputs
from planner.ir.types.qtypes import AnyType, Calibrated
from planner.plans.plan import Plan, plan_key
from planner.target.borders import border_rows
from planner.target.records import Costs, Target
from planner.version import MAKERS

NUMBER: Final = 2e-3
"""Largest spread, as a share of the largest, of constants that a pattern takes for one number."""


POLICIES: Final[Mapping[str, tuple[object, ...]]] = {
    "best_effort": (True,),
    "bias_pins": ("derive",),
    "strategy": ("minimal", "rfc"),
}
"""Options of a plan besides costs, and what each may be; all but the strategy are left out at a default."""


FORMATS: Final = "formats"
"""The option that lists what a plan is to be written in."""
OF_A_TARGET: Final = ("rescale_single_consumer", "float_work", "work_unit", "engines", "storages")
"""Fields of its target that a plan carries besides rows and prices."""


def check_options(plan: Plan) -> None:
    """Every option of a plan is one that planning knows, with a value that it takes.

    Raises:
      PlanInvalid: the first that is unknown, or that the plan was not made under.
    """
    if "strategy" not in plan.options:
        refuse("", "was planned by no strategy; accepted: minimal or rfc")
    prices = Costs.__dataclass_fields__
    known = ", ".join(sorted({*POLICIES, FORMATS, *prices}))
    for name, value in plan.options.items():
        if name == FORMATS:
            texts = [*value] if isinstance(value, Sequence) and not isinstance(value, str) else []
            if not texts or not all(isinstance(one, str) for one in texts) or len({*texts}) < len(texts):
                refuse("", f"has the option {name}: {value!r}; accepted: formats by name, each once")
        elif name not in POLICIES and name not in prices:
            refuse("", f"has the option {name!r}, which planning does not know; accepted: {known}")
        if name in POLICIES and not any(value is one or value == one for one in POLICIES[name]):
            listed = " or ".join(map(repr, POLICIES[name]))
            refuse("", f"has the option {name}: {value!r}; accepted: {listed}")
        if name in prices and value != getattr(plan.target.costs, name):
            own = getattr(plan.target.costs, name)
            refuse("", f"has the option {name}: {value!r}; accepted: {own!r}, as its costs have it")


def check_key(plan: Plan, module: str) -> None:
    """The key is that of the model, constraints, target and options, by this planner or an earlier one.

    Args:
      module: that the model was read from; a plan's file does not hold it.

    Raises:
      PlanInvalid: another key.
    """
    graph = replace(plan.graph, module=plan.graph.module or module)
    keys = (plan_key(graph, plan.model, plan.target.digest, plan.options, maker) for maker in MAKERS)
    if plan.key not in keys:
        told = "its model, target or options were changed since, or a later planner made it: plan again"
        refuse("", f"has the key {plan.key}, which is not that of its content; {told}")


def check_target(plan: Plan, target: Target) -> None:
    """The plan's target is this one: identity, digest, the rows in use, the prices it was made with."""
    ours, name = plan.target, target.file or target.id
    if ours.id != target.id:
        refuse("", f"the plan is for target {ours.id!r}; this is {target.id!r}: plan again for it")
    for what, mine, theirs in (
        ("version", ours.version, target.version),
        ("digest", ours.digest, target.digest),
    ):
        if mine != theirs:
            said = f"target {ours.id!r} of {what} {mine}; {name} has {theirs}: the target changed since"
            refuse("", f"the plan is for {said}, plan again")
    groups = (*target.rows.values(), *border_rows(target.requantize).values())
    rows = {row.key: row for group in groups for row in group}
    users = {kernel.row: kernel.name for kernel in plan.kernels_in_order if kernel.row}
    for key, row in ours.rows.items():
        if key not in rows or rows[key] != row:
            kernel = users.get(key, "")
            known = f"{rows[key].source} as the target has it" if key in rows else "a row of the target"
            refuse(
                kernel,
                f"is served by row {key!r}, which {target.id} does not have so; accepted: {known}",
                row,
            )
    # Options of a plan may override prices of its target, so those are laid over before comparing.
    overrides = {key: item for key, item in plan.options.items() if hasattr(target.costs, key)}
    costs = replace(target.costs, **overrides)
    prices = ((name, getattr(ours.costs, name), getattr(costs, name)) for name in Costs.__dataclass_fields__)
    others = ((name, getattr(ours, name), getattr(target, name)) for name in OF_A_TARGET)
    for name, mine, theirs in (*prices, *others):
        if mine != theirs:
            refuse(
                "", f"the plan's {name} is {mine!r}; accepted: {theirs!r}, as {target.id} or options have it"
            )


def check_model(plan: Plan, model: Graph) -> None:
    """The plan's model is this one, its numbers included, and the structure it carries is the model's.

    A model without constraints of its own, or with those of its file's quantizers alone, is taken with those
    that the plan carries; one with open sizes with the plan's.
    """
    model = with_sizes(_without_left_out(plan, model), plan.graph)
    _check_structure(plan.graph, model)
    # Statistics and annotations come in files of their own: a bare model is completed from the plan before
    # its digest is compared, so that the digest still covers everything else.
    said = [fact for value in model.values.values() for fact in value.facts]
    is_annotated = model.written is None or any(isinstance(fact, Calibrated) for fact in said)
    given = bool(model.wanted) or (is_annotated and bool(said))
    facts = {name: of_the_model(value.facts) for name, value in plan.graph.values.items() if value.facts}
    if not given and (facts or plan.graph.wanted):
        values = {
            name: replace(value, facts=facts[name]) if name in facts else value
            for name, value in model.values.items()
        }
        model = replace(model, values=values, wanted=plan.graph.wanted)
    digest = model_digest(model)
    if plan.model != digest:
        refuse(
            "",
            f"the plan is for model {plan.model or 'without a digest'}; this is {digest}: plan again for it",
        )


def _without_left_out(plan: Plan, model: Graph) -> Graph:
    """The model without the facts that a best-effort plan says, in its warnings, it left out."""
    if "best_effort" not in plan.options:
        return model
    # The warnings are the only record of dropped facts, so the model has to be reduced by reading them.
    parts = (part for warning in plan.warnings for part in warning.split("; "))
    parted = (part.rpartition("left out: ") for part in parts)
    told = dict.fromkeys(left for _, found, left in parted if found)

    def kept(where: str, facts: Facts) -> Facts:
        return tuple(fact for fact in facts if f"{fact} at {where}" not in told)

    def side(region: Region, name: str, facts: tuple[Facts, ...]) -> tuple[Facts, ...]:
        return tuple(kept(port_address(region.name, name, i), own) for i, own in enumerate(facts))

    values = {name: replace(value, facts=kept(name, value.facts)) for name, value in model.values.items()}
    regions = tuple(
        replace(
            region,
            input_facts=side(region, "in", region.input_facts),
            output_facts=side(region, "out", region.output_facts),
        )
        for region in model.regions
    )
    kernels = [name for text in told for _, at, name in [text.partition(" at kernel ")] if at]
    model = without_asked(model, kernels) if kernels else model
    return replace(model, values=values, regions=regions)


def _check_structure(carried: Graph, model: Graph) -> None:
    if model.wanted and list(carried.wanted.items()) != list(model.wanted.items()):
        mine, theirs = (
            ", ".join(f"{key!r}: {wanted}" for key, wanted in graph.wanted.items()) or "nothing"
            for graph in (carried, model)
        )
        refuse("", f"the plan requests of kernels {mine}; the model requests {theirs}")
    for what in ("inputs", "outputs"):
        if getattr(carried, what) != getattr(model, what):
            refuse(
                "", f"the plan's model has {what} {getattr(carried, what)}, this one {getattr(model, what)}"
            )
    if carried.constants.keys() != model.constants.keys():
        odd = min(carried.constants.keys() ^ model.constants.keys())
        if _is_corrected(carried, carried, model):
            refuse(
                "",
                "the plan is for the model with corrected biases, this is the one without: give the "
                f"{carried.name}.onnx that was written beside the plan",
            )
        if _is_corrected(model, carried, carried):
            refuse("", "this model has corrected biases, the plan is for the one without: give that one")
        refuse(odd, "is a constant of only one of the plan and the model")
    if carried.values is not model.values:
        _check_values(carried.values, model.values)
    regions = {region.name: region for region in model.regions}
    ops = {op.name: op for op in model.all_ops()}
    count = 0
    for region in carried.regions:
        own = regions.get(region.name)
        if regions and (own is None or region_key(own) != region_key(region)):
            refuse(region.name, "differs between the plan and the model")
        if not regions and not region.ops:
            refuse(region.name, "holds no op of the model; accepted: every op in one region")
        for op in region.ops:
            count, other = count + 1, ops.get(op.name)
            if op is not other and (other is None or op_key(op) != op_key(other)):
                refuse(region.name, f"holds op {op.name!r} otherwise than the model")
        _check_ports(model, region)
    if count != len(ops) or len(carried.regions) < len(regions):
        refuse("", f"the plan's regions hold {quantity(count, 'op')}; the model has {len(ops)}")


def _is_corrected(graph: Graph, planned: Graph, plain: Graph) -> bool:
    """Whether a model has biases `BIAS@KERNEL`, made for one kernel, where a plain one has BIAS."""
    added = graph.constants.keys() - plain.constants.keys()
    marks = [f"@{region.name}" for region in planned.regions]
    return any(
        name.endswith(mark) and name.removesuffix(mark) in plain.constants for name in added for mark in marks
    )


def _check_values(carried: Mapping[str, Value], model: Mapping[str, Value]) -> None:
    if carried.keys() != model.keys():
        odd = min(carried.keys() ^ model.keys())
        refuse(odd, "is a value of only one of the plan and the model")
    for name, value in model.items():
        other = carried[name]
        if other is not value and (other.shape, other.dtype) != (value.shape, value.dtype):
            refuse(name, f"is {other.dtype}{other.shape} in the plan; accepted: {value.dtype}{value.shape}")
        if other is value or not value.facts:
            continue
        # Facts of a plan as a model has them that may be bare: with its quantizers, without statistics.
        is_bare = not any(isinstance(fact, Calibrated) for fact in value.facts)
        own = of_the_model(other.facts)
        own = tuple(fact for fact in own if not (is_bare and isinstance(fact, Calibrated)))
        if own != of_the_model(value.facts):
            mine, theirs = (" and ".join(map(str, one.facts)) or "nothing" for one in (other, value))
            refuse(name, f"carries {mine} in the plan, {theirs} in the model")


def of_the_model(facts: Facts) -> Facts:
    """Facts of a plan without the fixed types that the planner made of those from training."""
    trained = [fact.trained for fact in facts if isinstance(fact, AnyType) and fact.trained is not None]
    return tuple(fact for fact in facts if fact not in trained)


def _check_ports(graph: Graph, region: Region) -> None:
    """A region's ports are its ops' float operands from outside, and nothing it writes is read unseen."""
    made = {name for op in region.ops for name in op.outputs} | {""}
    told = {name for op in region.ops for name in op.inputs} | made
    if not region.ops or not told - {""} <= graph.values.keys():
        return  # an annotated model need not describe what is inside a kernel
    operands = {name for op in region.ops for name in port_inputs(op, graph)} - made
    ports = set(region.inputs) - {""}
    # A number in a pattern is no port; which constants of one number those are only the target knows.
    operands = {name for name in operands if name in ports or not _is_number(graph.constants.get(name))}
    if operands != ports:
        odd = min(operands ^ ports)
        said = "no port of it" if odd in operands else "read by none of its ops"
        refuse(region.name, f"{odd!r} is {said}")
    if not made.issuperset(region.outputs):
        refuse(region.name, f"none of its ops writes {min(set(region.outputs) - made)!r}")


def _is_number(constant: Constant | None) -> bool:
    """Whether a constant repeats one number, as far as a pattern tells numbers apart."""
    if constant is None or constant.array is None or not constant.array.size:
        return False
    array = constant.array.astype(np.float64, copy=False)
    return bool(np.ptp(array) <= NUMBER * np.abs(array).max())
