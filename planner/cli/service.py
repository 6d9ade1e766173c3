"""Verbs of the service: `serve`, `doctor`, `token`, `backup`. It is a floor above and known by name alone."""

import importlib
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from planner.cli.console import say, say_json, say_table
from planner.cli.options import JsonOption
from planner.errors import InputError, quantity
from planner.installation import install_command, service_package

NEGATIVE: Final = 1
UNIX: Final = ("fcntl", "grp", "pwd", "resource")
"""Modules of Python that Windows lacks."""
HostOption: TypeAlias = Annotated[
    str, typer.Option("--host", metavar="H", help="Address; others than loopback need QPLAN_TOKENS.")
]
DataOption: TypeAlias = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="Folder of everything kept (QPLAN_DATA).")
]


def serve(
    *,
    host: HostOption = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65535, help="TCP port; 0 takes a free one.")
    ] = 8000,
    data: DataOption = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=64, help="Server processes on the port.")
    ] = 1,
    json: JsonOption = False,
) -> None:
    """Serve the planner over HTTP until interrupted."""

    def tell(url: str, folder: str) -> None:
        if json:
            say_json({"url": url, "data": folder})
        else:
            say(f"serving {url}, data in {folder}")
        sys.stdout.flush()

    _part("server.run").serve(host, port, data, processes, tell)


def doctor(
    *,
    host: HostOption = "127.0.0.1",
    data: DataOption = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compare every file with its digest; check SQLite's file.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Check the settings of the service and everything they name; exit code 1 if something is wrong."""
    found = _part("server.doctor").examine(_environment(data), host, deep=deep)
    if json:
        say_json([asdict(check) for check in found])
    else:
        say_table("", ("what", "state", "detail"), [(c.name, c.state, c.detail) for c in found])
    return NEGATIVE if any(check.state == "bad" for check in found) else 0


def token(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of its holder, for logs and limits.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="S", help="read, plan (the default), write, metrics; repeatable."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="T", help="Whose things it sees; others see none of them."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a token for the service: the secret, and the line for QPLAN_TOKENS."""
    secret, line = _part("server.tokens").make_token(name, scope or ["plan"], tenant)
    if json:
        say_json({"token": secret, "setting": line})
    else:
        say(f"token:   {secret}\nsetting: {line}")


def backup(
    *,
    goal: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder of the copy; made, or brought up to date.")
    ],
    data: DataOption = None,
    json: JsonOption = False,
) -> None:
    """Copy everything the service keeps, whole, while it runs."""
    settings = _part("settings").settings_from(_environment(data))
    url = settings.database_url
    rows = _part("storage.database").database_file(url) if url else None
    done = _part("server.backup").back_up(settings.data, Path(goal), rows)
    if json:
        say_json(asdict(done))
    else:
        say(f"{quantity(done.copied, 'file')} copied, {done.bytes} bytes; {done.there} were there")


def _environment(data: str | None) -> dict[str, str]:
    return {**os.environ, **({"QPLAN_DATA": data} if data else {})}


def _part(name: str) -> Any:
    try:
        return importlib.import_module(f"{service_package()}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in (service_package(), "planner"):
            raise
        if error.name in UNIX:
            raise InputError(
                f"the service does not run on this system: it needs {error.name}, and its sandbox is Linux's",
                hint="run it on Linux, in Docker or WSL say; the library and all other verbs work here",
            ) from error
        raise InputError(
            f"the service needs {error.name}, which is not installed",
            hint=install_command("service"),
        ) from error
