"""The verb that serves HTTP: `serve`. The service is a floor above and known by name alone."""

import importlib
from typing import Annotated

import typer


def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="Address; others than loopback need QPLAN_TOKENS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="P", min=0, max=65535, help="TCP port.")] = 8000,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Folder of everything kept (QPLAN_DATA).")
    ] = None,
) -> None:
    """Serve the planner over HTTP until interrupted."""
    importlib.import_module("api.server").serve(host, port, data)
