"""The middle of the pipeline: an annotated graph becomes a plan.

Nothing here reads or writes files of models, so the service may plan in a process that imports no format;
`pipeline` has these functions too. Source: docs/library.md.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import planner.formats
from planner.calibration.annotate import annotate as annotate_graph
from planner.calibration.annotate import annotated_values
from planner.calibration.statistics import Statistics
from planner.checker.check import check as check_plan
from planner.errors import StatsError, expect, require_name
from planner.factors.absorb import absorb_factors
from planner.factors.form import form_of_plan, has_fixed_sizes, with_sizes_fixed
from planner.formats.writable import refuse_unwritable, unwritten
from planner.fusion.fuse import fuse
from planner.ir.expand import expand
from planner.ir.graph import Graph, model_digest
from planner.ir.kernel_requests import refuse_unknown
from planner.plans.plan import Plan, Planned, for_model, require_plan
from planner.propagation.propagate import BiasPins, Strategy, propagate
from planner.propagation.result.plan_warnings import unranged
from planner.propagation.result.repeated_warnings import check_warnings
from planner.target.load import TargetSource, as_target
from planner.target.records import QuantFn


def annotate(
    model: Graph,
    *,
    stats: Statistics | str | Path | None = None,
    annotations: str | Path | Mapping[str, Any] | None = None,
    kernels: Mapping[str, Any] | None = None,
    target: TargetSource | None = None,
) -> Graph:
    """Attach constraints to values: calibrated ranges, and the user's own (types, none, any).

    With statistics, scalar factors move into constants where no constraint stands in the way; values that
    hold other numbers then are called `NAME/scaled`.

    Args:
      kernels: requests for kernels, by name or glob of a kernel or an op: `float`, a storage, or
        `{"in": [..], "out": [..]}`; the section `kernels` of an annotations file says the same.
      target: the target of the plan. If its kernels have float results, outputs that a quantized model leaves
        float get no range from statistics, and are float unless a constraint names them.

    Raises:
      StatsError: statistics for values that are not there.
      AnnotationError: an annotation that names nothing or does not fit its tensor.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> asked = planner.annotate(model, stats=stats, kernels={"head/gemm": "float"})
      >>> len(asked.wanted)
      1
    """
    device = None if target is None else as_target(target)
    model = expand(model)
    found = annotate_graph(model, stats=stats, annotations=annotations, kernels=kernels, target=device)
    return found if stats is None else absorb_factors(found, kept=annotated_values(model, annotations))


def plan(
    model: Graph,
    target: TargetSource,
    *,
    strategy: Strategy = "minimal",
    functions: Mapping[str, QuantFn] | None = None,
    best_effort: bool = False,
    bias_pins: BiasPins = "error",
    progress: Callable[[int, int | None], None] | None = None,
    formats: Sequence[str] = (),
    **costs: float | None,
) -> Planned:
    """Choose a type, or float, for every port of every kernel of a model on a target.

    Args:
      model: the annotated model.
      target: a loaded target, a shipped name, or a path.
      strategy: `minimal` (least price) or `rfc` (the RFC's greedy order).
      best_effort: where constraints cannot all hold, give some up, each with a warning.
      bias_pins: `error` or `derive` where a bias has a fixed scale that is not its factors' product.
      progress: called with (kernels typed, kernels in all), and again where a try asks for another.
      formats: that the plan is to be exported in. A kernel that one of them cannot write by its row takes the
        next row, or runs in float. By default the format of the target's own tools, where it has one alone.
      costs: keys of the target's cost tables, over its own (`bit_price=4.0`).

    Raises:
      Conflict: constraints that cannot all hold; `.facts` is a small set of them.
      AnnotationError: a request for a kernel that does not exist.
      UnsupportedExport: a kernel that one of `formats` cannot write in any form; names its operands.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> planner.plan(ready, "litert-int8")
      <Plan of 'digits' for litert-int8: 15 kernels, 3 rescales and casts, cost 458>
    """
    device = as_target(target, functions)
    expect(formats, (list, tuple), "formats are a list of names of formats")
    for name in formats:
        require_name("export format", name, planner.formats.FORMATS)
    model = expand(model)
    if has_fixed_sizes(device, formats):
        model = with_sizes_fixed(model)
    fused = fuse(model, device)
    for key in fused.wanted:
        refuse_unknown(fused, key)
    found = propagate(
        fused,
        device,
        strategy=strategy,
        model=model_digest(model),
        best_effort=best_effort,
        bias_pins=bias_pins,
        depths=None,
        fuses=not model.regions,
        progress=progress,
        formats=formats,
        unwritten=unwritten,
        **costs,
    )
    refuse_unwritable(found)
    return for_model(found, model)


def require_ranges(planned: Plan, hint: str) -> None:
    """Refuse a plan all in float because nothing says a range; a target of weights alone asks for none.

    Args:
      hint: what to give, and how.

    Raises:
      StatsError: no kernel is quantized, and no fact of the model says a range.
    """
    if any(kernel.row for kernel in planned.kernels_in_order):
        return
    if unranged(planned.graph, planned.kernels_in_order):
        raise StatsError(f"no ranges are known for the values of model {planned.graph.name!r}", hint=hint)


def check(
    plan: Plan,
    model: Graph | None = None,
    target: TargetSource | None = None,
    *,
    progress: Callable[[int, int | None], None] | None = None,
) -> None:
    """Refuse a plan that breaks a rule of its target, its model or its own log.

    Args:
      plan: from `plan`, or read from a file.
      model: the model it is for, with or without its constraints; then digests and numbers are checked too.
      target: the target it is for; then the rows that the plan carries must be the target's.
      progress: called with (kernels checked, kernels in all).

    Raises:
      PlanInvalid: the first thing that does not hold; `.port` is its address, `.row` the row's file:line.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> planner.check(plan, ready, "litert-int8")
    """
    require_plan(plan)
    model = None if model is None else form_of_plan(model, plan.graph)
    check_plan(plan, model, None if target is None else as_target(target), progress)
    if model is not None:
        check_warnings(plan, model)


def check_made(planned: Planned) -> None:
    """As `check`, of a plan that this process made a moment ago, with the model and target it is for.

    But for the warnings: the code that made them would make them again, and takes a third of checking.

    Raises:
      PlanInvalid: the first thing that does not hold.
    """
    check_plan(planned, form_of_plan(planned.annotated, planned.graph), planned.whole_target)
