"""Options that every verb takes: how much is printed, whether progress shows. Verbs do not know of them."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Final

import typer

from planner.cli.console import Manner, spoken

Verb = Callable[..., int | None]

_QUIET: Final = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print errors and requested documents only.", rich_help_panel="Everywhere"
    ),
]
_PROGRESS: Final = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress on standard error; by default on a terminal.",
        rich_help_panel="Everywhere",
    ),
]
_OPTIONS: Final = {"quiet": (_QUIET, False), "progress": (_PROGRESS, None)}


def with_everywhere(verb: Verb) -> Verb:
    """A verb that takes the options of every verb, too."""

    @wraps(verb)
    def told(*arguments: Any, quiet: bool, progress: bool | None, **options: Any) -> int | None:
        with spoken(Manner(quiet=quiet, progress=progress)):
            return verb(*arguments, **options)

    signature = inspect.signature(verb)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _OPTIONS.items()
    ]
    told.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    told.__annotations__ = {**verb.__annotations__, **{name: kind for name, (kind, _) in _OPTIONS.items()}}
    return told
