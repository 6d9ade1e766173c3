"""The command itself: its verbs, and how every failure becomes one line and an exit code.

0 ok, 1 a negative answer, 2 bad input, 3 a goal that no plan reaches, 70 a bug of ours. Verbs live in one
module per group; nothing here does work. Source: docs/command.md.
"""

import gc
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import typer

from planner.cli import (
    advice,
    condition,
    dialects,
    models,
    planning,
    plans,
    quantize,
    search,
    service,
)
from planner.cli.console import complain, say_json
from planner.cli.help.choices import lines_of
from planner.cli.help.everywhere import with_everywhere
from planner.cli.help.groups import EXAMPLES, TARGET_EXAMPLES, epilog_of, group_of
from planner.cli.help.schema import failure_json, schema
from planner.cli.target import exchange, proving, reading, writing
from planner.errors import Conflict, InputError, PlannerError
from planner.version import VERSION

BUG: Final = 70
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

app = typer.Typer(
    name="qplan",
    help="Choose a type for every tensor of a model so that a device's kernels can run it, and say why.",
    epilog="A first file: qplan quantize MODEL --data SAMPLES. Of a verb: qplan help VERB.\n\n"
    "Exit codes: 0 ok, 1 negative answer, 2 bad input, 3 goal not reached, 70 a bug. "
    "A file named - is standard input.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
target_app = typer.Typer(help="Target descriptions: write, check, test, document.", no_args_is_help=True)


def _version(value: bool) -> None:  # noqa: FBT001 - the signature typer asks for
    if value:
        typer.echo(f"qplan {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def help_on(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[VERB]", help="A verb: plan, or target lint.")
    ] = None,
) -> None:
    """Explain a verb, with examples; without a verb, list the verbs."""
    app(args=[*(words or ()), "--help"], prog_name="qplan", standalone_mode=False)


VERBS: Final[Mapping[str, Callable[..., int | None]]] = {
    "quantize": quantize.quantize,
    "plan": planning.plan,
    "calibrate": models.calibrate,
    "annotate": models.annotate,
    "condition": condition.condition,
    "export": plans.export,
    "explain": plans.explain,
    "check": plans.check,
    "compare": models.compare,
    "show": plans.show,
    "view": plans.view,
    "diff": advice.diff,
    "losses": advice.losses,
    "search": search.search,
    "suggest": advice.suggest,
    "pareto": advice.pareto,
    "replan": advice.replan,
    "restore": advice.restore,
    "retarget": advice.retarget,
    "training-spec": plans.training_spec,
    "mlir": dialects.mlir,
    "convert": dialects.convert,
    "run": dialects.run,
    "cost": dialects.cost,
    "tensors": dialects.tensors,
    "serve": service.serve,
    "doctor": service.doctor,
    "token": service.token,
    "backup": service.backup,
    "help": help_on,
    "schema": schema,
}
TARGET_VERBS: Final[Mapping[str, Callable[..., int | None]]] = {
    "list": reading.list_targets,
    "show": reading.show_target,
    "lint": writing.lint_target,
    "test": writing.try_target,
    "doc": reading.doc_target,
    "schema": reading.schema_target,
    "diff": reading.diff_target,
    "new": writing.new_target,
    "coverage": writing.cover_target,
    "probe": proving.probe_engine,
    "kit": proving.kit_target,
    "export": exchange.export_target,
    "import": exchange.import_target,
}
# Panels of help stand in the order of their first verb.
for _name, _verb in VERBS.items():
    app.command(_name, rich_help_panel=group_of(_name), epilog=epilog_of(EXAMPLES.get(_name, ())))(
        with_everywhere(_verb)
    )
for _name, _verb in TARGET_VERBS.items():
    target_app.command(_name, epilog=epilog_of(TARGET_EXAMPLES.get(_name, ())))(with_everywhere(_verb))
app.add_typer(target_app, name="target", rich_help_panel=group_of("target"))


def main(arguments: list[str] | None = None) -> None:
    """Run `qplan` and exit."""
    gc.set_threshold(50_000)  # a command ends soon: looking through its objects took a tenth of its time
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; never raises, whatever the input."""
    told = _json_wanted(arguments)
    try:
        code = app(args=arguments, prog_name="qplan", standalone_mode=False)
        sys.stdout.flush()  # what is wrong with it is told here, and not by Python at exit
    except PlannerError as error:
        complain(str(error))
        for fact in error.facts if isinstance(error, Conflict) else ():
            complain(f"because of {fact}")
        return _failed(error, error.exit_code, told=told)
    except typer.TyperException as error:
        return _failed(error, _usage(error), told=told)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not error.code:
            return 0  # completion has told a shell what it wanted
        # Whoever read our output has gone; typer and rich say so with SystemExit.
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:
        if error.filename is not None:
            return _failed(error, _bug(error), told=told)
        _drop_output()
        complain(f"cannot write to standard output: {error.strerror}")
        return InputError.exit_code
    except Exception as error:  # noqa: BLE001 - the edge of the program: a bug gets a line and a code
        return _failed(error, _bug(error), told=told)
    return code if isinstance(code, int) else 0


def _json_wanted(arguments: list[str]) -> bool:
    """Whether a command line asks for JSON; what stands behind `--` is no option."""
    ends = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:ends]


def _failed(error: Exception, code: int, *, told: bool) -> int:
    """The exit code of a failure, which is a document too with `--json`."""
    if told:
        try:
            say_json(failure_json(error, code))
            sys.stdout.flush()
        except OSError:
            _drop_output()
    return code


def _drop_output() -> None:
    """Python's own flush at exit must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: typer.TyperException) -> int:
    message = error.format_message().replace("Value error, ", "")
    if message:
        complain(f"{message} ({_way_out(error)})")
        for line in lines_of(_option_of(error)):
            sys.stderr.write(f"{line}\n")
    return error.exit_code


def _way_out(error: typer.TyperException) -> str:
    """The next step: an example of the verb where something of it is missing, else where to look."""
    # Of typer's errors only those of a verb know its context.
    words = tuple(str(getattr(getattr(error, "ctx", None), "command_path", "")).split()[1:])
    name = words[-1] if words else ""
    examples = TARGET_EXAMPLES.get(name, ()) if words[:1] == ("target",) else EXAMPLES.get(name, ())
    if not examples:
        return "qplan --help lists all of them"
    return f"for example: {examples[0]}; qplan help {' '.join(words)} lists the options"


def _option_of(error: typer.TyperException) -> str:
    """The option that is missing, or given without what it takes; "" where it is something else."""
    param = getattr(error, "param", None)
    name = str(getattr(error, "option_name", None) or next(iter(getattr(param, "opts", ())), ""))
    return {"-f": "--format", "-t": "--target"}.get(name, name)


def _bug(error: Exception) -> int:
    if os.environ.get("QPLAN_TRACEBACK"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    complain(f"this is a bug: {type(error).__name__}: {text} (QPLAN_TRACEBACK=1 shows where)")
    return BUG
