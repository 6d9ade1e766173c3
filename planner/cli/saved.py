"""Saved plans: a plan read with the model and the target it was made for, found again.

A plan says where these lay, from its own folder on, and which they are, by digest. A file that has moved is
looked for beside the plan; only one with the digest is taken. Functions of a target are never found: code
runs where somebody names it.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from planner.cli.files import STDIN, keep_from, only_one_stdin
from planner.cli.options import read_model, read_plan, read_target
from planner.errors import InputError, PlannerError, UnknownName

if TYPE_CHECKING:
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan
    from planner.target.records import Target

Found = TypeVar("Found")
MODELS: Final = (".onnx", ".json", ".mlir")
TARGETS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Saved:
    """A plan with its model and its target, and their names on a command line.

    Attributes:
      reference_name: of the float model whose biases were corrected; `STDIN` where the plan names none.
      dims: sizes of open dimensions that the model was read with.
    """

    plan: "Plan"
    model: "Graph"
    target: "Target"
    model_name: str
    target_name: str
    reference_name: str
    dims: Mapping[str, int]


def read_saved(
    plan_file: str,
    model: str | None,
    target: str | None,
    functions: str | None,
    *others: str,
    out: str | None = None,
    dims: Mapping[str, int] | None = None,
) -> Saved:
    """Read a plan with its model and target: those given, or the plan's own.

    Args:
      others: files of the command line, too.
      out: the file that will be written, which is none of these.
      dims: sizes of dimensions that the model leaves open; by default those that the plan was made with.

    Raises:
      InputError: a model or target that is not found; the message names the option for it.
    """
    only_one_stdin(plan_file, model, target, *others)
    plan = read_plan(plan_file)
    model_name, graph = read_saved_model(plan, plan_file, model, dims)
    if target is not None:
        device = read_target(target, functions)
    else:
        target, device = _found(plan, plan_file, "target", TARGETS, lambda it: _target(plan, it, functions))
    keep_from(out, model_name, target, functions, *others)
    reference = _reference_place(plan, plan_file) or STDIN
    return Saved(plan, graph, device, model_name, target, reference, _dims(plan, dims))


def read_saved_model(
    plan: "Plan", plan_file: str, model: str | None, dims: Mapping[str, int] | None = None
) -> "tuple[str, Graph]":
    """The model given, or the one a plan was made for; and its name."""
    if model is not None:
        return model, _sized(model, plan, dims)
    return _found(plan, plan_file, "model", MODELS, lambda name: _model(plan, name, dims))


def _sized(name: str, plan: "Plan", dims: Mapping[str, int] | None) -> "Graph":
    """A model read with the sizes given, or with those that a plan was made with."""
    if dims:
        return read_model(name, dims=dims)
    try:
        return read_model(name, dims=_dims(plan, None))
    except UnknownName:  # a model that was written with these sizes leaves none open
        return read_model(name)


def _dims(plan: "Plan", dims: Mapping[str, int] | None) -> Mapping[str, int]:
    """The sizes given, or those that a plan says."""
    if dims:
        return dims
    try:
        told = json.loads(plan.sources.get("dims", "{}"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _found(
    plan: "Plan", plan_file: str, what: str, suffixes: tuple[str, ...], read: Callable[[str], Found]
) -> tuple[str, Found]:
    """The first of the places that holds what has the digest."""
    missed = []
    for name in dict.fromkeys(_places(plan, plan_file, what, suffixes)):
        try:
            return name, read(name)
        except PlannerError as error:
            missed.append(f"{name}: {error.message.splitlines()[0]}")
    looked = f"looked at {'; '.join(missed[:3])}" if missed else "it says no place and nothing is beside it"
    raise InputError(
        f"the {what} that plan {plan_file!r} was made for is not found: {looked}",
        hint=f"give it with --{what}",
    )


def _places(plan: "Plan", plan_file: str, what: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """Its path when the plan was made, the shipped target of that name, then files beside the plan."""
    from planner.target.load import target_ids

    folder = _folder(plan_file)
    told = plan.sources.get(what)
    if what == "target" and plan.target.id in target_ids():
        yield plan.target.id
    if told is not None and told not in target_ids():
        yield str(Path(os.path.normpath(folder / told)))
    if plan_file != STDIN:
        beside = [path for path in folder.iterdir() if path.suffix in suffixes and path.is_file()]
        # The plan's own texts are none; a file of the model's name is the likeliest.
        own = {"plan.json", "plan.mlir", Path(plan_file).name}
        beside = sorted(beside, key=lambda path: (path.stem != plan.graph.name, path.name))
        yield from (str(path) for path in beside if path.name not in own)


def _model(plan: "Plan", name: str, dims: Mapping[str, int] | None) -> "Graph":
    from planner.checker.origins import check_model
    from planner.factors.form import in_form_of_plan

    # The plan carries the constraints it was made with, which a replan changed: the digest covers them, too.
    graph = in_form_of_plan(_sized(name, plan, dims), plan.graph)
    check_model(plan, graph)
    return graph


def _target(plan: "Plan", name: str, functions: str | None) -> "Target":
    from planner.checker.origins import check_target

    device = read_target(name, functions)
    check_target(plan, device)
    return device


def _folder(plan_file: str) -> Path:
    if plan_file == STDIN:
        return Path()
    return Path(plan_file) if Path(plan_file).is_dir() else Path(plan_file).parent


def read_reference(
    plan: "Plan", plan_file: str, reference: str | None, dims: Mapping[str, int] | None = None
) -> "Graph | None":
    """The float model given, or that whose biases were corrected for the plan; None where none is there."""
    place = _reference_place(plan, plan_file)
    if reference is None and place is not None:
        reference = place if Path(place).is_file() else None
    return None if reference is None else _sized(reference, plan, dims)


def _reference_place(plan: "Plan", plan_file: str) -> str | None:
    """The path that a plan gives for the float model whose biases were corrected."""
    told = plan.sources.get("reference")
    return None if told is None else os.path.normpath(_folder(plan_file) / told)


def with_sources(
    plan: "Plan",
    folder: str | Path,
    *,
    model: str,
    target: str,
    reference: str = STDIN,
    dims: Mapping[str, int] | None = None,
) -> "Plan":
    """The plan that says where its model and target are, from the folder on that it is written into.

    Args:
      reference: the float model, where `model` has corrected biases.
      dims: sizes of open dimensions that the model was read with.
    """
    from planner.target.load import target_ids

    told: Mapping[str, str] = {
        "model": "" if model == STDIN else _from(folder, model),
        "target": "" if target == STDIN else target if target in target_ids() else _from(folder, target),
        "reference": "" if STDIN in (reference, model) else _from(folder, reference),
        "dims": json.dumps(dict(dims)) if dims else "",
    }
    return replace(plan, sources={what: place for what, place in told.items() if place})


def _from(folder: str | Path, name: str) -> str:
    try:
        return Path(os.path.relpath(name, folder)).as_posix()
    except ValueError:  # on another drive
        return Path(name).absolute().as_posix()
