"""The verb that serves HTTP: `serve`. The service is a floor above and known by name alone."""

import importlib
import sys
from typing import Annotated, Any

import typer

from planner.cli.console import say, say_json
from planner.cli.options import JsonOption
from planner.errors import InputError


def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="Address; others than loopback need QPLAN_TOKENS.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=0, max=65535, help="TCP port; 0 takes a free one.")
    ] = 8000,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Folder of everything kept (QPLAN_DATA).")
    ] = None,
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

    _server().serve(host, port, data, processes, tell)


def _server() -> Any:
    try:
        return importlib.import_module("api.server")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("api", "planner"):
            raise
        raise InputError(
            f"the service needs {error.name}, which is not installed",
            hint="pip install 'quant-planner[service]'",
        ) from error
