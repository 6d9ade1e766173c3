"""Serving: `qplan serve` as a function. Binds to loopback, or elsewhere with tokens."""

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvicorn

from api.app import create_app
from api.settings import Settings, settings_from
from planner.errors import InputError

HEADER_BYTES: Final = 16_384
CONNECTIONS: Final = 512
BACKLOG: Final = 1024


def serve(host: str, port: int, data: str | None, tell: Callable[[str, str], None]) -> None:
    """Serve until interrupted.

    Args:
      host: an address, or `localhost`.
      port: 0 takes a free one.
      data: folder of everything kept; `QPLAN_DATA` by default.
      tell: called with the server's address and the data folder once the port is taken.

    Raises:
      InputError: an address beyond this machine and no tokens, or one that cannot be had; a data folder that
        cannot be made.
    """
    settings = settings_from({**os.environ, **({"QPLAN_DATA": data} if data else {})})
    _make(settings.data)
    with _bound(host, port, settings) as listening:
        app = create_app(settings)
        tell(_url(listening), str(settings.data))
        config = uvicorn.Config(
            app,
            h11_max_incomplete_event_size=HEADER_BYTES,
            limit_concurrency=CONNECTIONS,
            access_log=False,
            log_level="warning",
            server_header=False,
        )
        uvicorn.Server(config).run(sockets=[listening])


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise InputError(f"cannot keep data in {str(folder)!r}: {reason}", hint="give a folder") from error


def _bound(host: str, port: int, settings: Settings) -> socket.socket:
    if not settings.tokens and not _is_loopback(host):
        raise InputError(
            f"{host} can be reached from other machines, and there are no tokens",
            hint="set QPLAN_TOKENS to the sha256 of a bearer token, or use --host 127.0.0.1",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it, answers take 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InputError(f"cannot serve on {host} port {port}: {error.strerror}") from error
    listening.listen(BACKLOG)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
