"""Saved plans: a plan read with the model and the target it was made for, found again.

A plan says where these lay, from its own folder on, and which they are, by digest. What is not there any
more is looked for beside the plan; only what has the digest is taken. Functions of a target are never
found: code runs where somebody names it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from planner.cli.files import STDIN, keep_from, only_one_stdin
from planner.cli.options import read_model, read_plan, read_target
from planner.errors import InputError, PlannerError

if TYPE_CHECKING:
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan
    from planner.target.records import Target

Found = TypeVar("Found")
MODELS: Final = (".onnx", ".json", ".mlir")
TARGETS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Saved:
    """A plan with its model and its target, and what these are called on a command line.

    Attributes:
      reference_name: of the float model whose biases were corrected; `STDIN` where the plan names none.
    """

    plan: "Plan"
    model: "Graph"
    target: "Target"
    model_name: str
    target_name: str
    reference_name: str


def read_saved(
    plan_file: str,
    model: str | None,
    target: str | None,
    functions: str | None,
    *others: str,
    out: str | None = None,
) -> Saved:
    """Read a plan with its model and target: those given, or the plan's own.

    Args:
      others: files of the command line, too.
      out: the file that will be written, which is none of these.

    Raises:
      InputError: a model or target that is not found; the option that names it is told.
    """
    only_one_stdin(plan_file, model, target, *others)
    plan = read_plan(plan_file)
    model_name, graph = read_saved_model(plan, plan_file, model)
    if target is not None:
        device = read_target(target, functions)
    else:
        target, device = _found(plan, plan_file, "target", TARGETS, lambda it: _target(plan, it, functions))
    keep_from(out, model_name, target, functions, *others)
    return Saved(plan, graph, device, model_name, target, _reference_place(plan, plan_file) or STDIN)


def read_saved_model(plan: "Plan", plan_file: str, model: str | None) -> "tuple[str, Graph]":
    """The model given, or the one a plan was made for; and its name."""
    if model is not None:
        return model, read_model(model)
    return _found(plan, plan_file, "model", MODELS, lambda name: _model(plan, name))


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
    """Where it lay when the plan was made, the shipped target of that name, then files beside the plan."""
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


def _model(plan: "Plan", name: str) -> "Graph":
    from planner.checker.origins import check_model
    from planner.ir.expand import expand
    from planner.ir.graph import with_facts

    # The plan carries the constraints it was made with, which a replan changed: the digest covers them, too.
    graph = with_facts(expand(read_model(name)), plan.graph)
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


def read_reference(plan: "Plan", plan_file: str, reference: str | None) -> "Graph | None":
    """The float model given, or that whose biases were corrected for the plan; None where none is there."""
    place = _reference_place(plan, plan_file)
    if reference is None and place is not None:
        reference = place if Path(place).is_file() else None
    return None if reference is None else read_model(reference)


def _reference_place(plan: "Plan", plan_file: str) -> str | None:
    """Where a plan says that the float model whose biases were corrected lies."""
    told = plan.sources.get("reference")
    return None if told is None else os.path.normpath(_folder(plan_file) / told)


def with_sources(
    plan: "Plan", folder: str | Path, *, model: str, target: str, reference: str = STDIN
) -> "Plan":
    """The plan that says where its model and target are, from the folder on that it is written into.

    Args:
      reference: the float model, where `model` has corrected biases.
    """
    from planner.target.load import target_ids

    told: Mapping[str, str] = {
        "model": "" if model == STDIN else _from(folder, model),
        "target": "" if target == STDIN else target if target in target_ids() else _from(folder, target),
        "reference": "" if STDIN in (reference, model) else _from(folder, reference),
    }
    return replace(plan, sources={what: place for what, place in told.items() if place})


def _from(folder: str | Path, name: str) -> str:
    try:
        return Path(os.path.relpath(name, folder)).as_posix()
    except ValueError:  # on another drive
        return Path(name).absolute().as_posix()
