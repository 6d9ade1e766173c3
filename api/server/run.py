"""Serving: `qplan serve` as a function. Binds to loopback, or elsewhere with tokens; one process or several.

`python -m api.server.run SOCKET LIFELINE` is one of several, with what `workers` opened.
"""

import ctypes
import gc
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import FastAPI

from planner.errors import InputError

from ..app import create_app
from ..jobs.executors import open_executor
from ..planning.plugins import load_functions
from ..settings import CannotStart, Settings, settings_from
from ..storage.database import await_database, default_url
from ..storage.objects import open_objects
from ..storage.store import Store
from ..tracing import start
from .heads import HEAD_BYTES
from .logs import configure
from .protocol import protocol
from .workers import supervise, watch_lifeline

BACKLOG: Final = 1024
BETWEEN_COLLECTIONS: Final = 50_000
"""Objects more than before; a small plan stays below while it is made, and leaves few behind."""
M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


class Server(uvicorn.Server):
    """Tells the application when it is to end, so that streams end and load balancers look elsewhere."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self.draining = app.state.draining
        config = uvicorn.Config(
            app,
            http=protocol(
                settings.head_seconds, settings.connections, max(settings.max_blob, settings.max_body)
            ),
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_graceful_shutdown=settings.drain_seconds,
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, let requests under way end, then the application."""
        self.draining.set()
        await super().shutdown(sockets)


def serve(host: str, port: int, data: str | None, processes: int, tell: Callable[[str, str], None]) -> None:
    """Serve until interrupted.

    Args:
      host: an address, or `localhost`.
      port: 0 takes a free one.
      data: folder of everything kept; `QPLAN_DATA` by default.
      processes: servers that share the port.
      tell: called with the server's address and the data folder once the port is taken.

    Raises:
      InputError: an address beyond this machine and no tokens, or one that cannot be had.
      CannotStart: a data folder that cannot be made; what `require_parts` says.
    """
    environment = {**os.environ, **({"QPLAN_DATA": data} if data else {})}
    settings = settings_from(environment)
    _make(settings.data)
    require_parts(settings)
    outlive_hangups(settings)
    with ExitStack() as stack:
        listening = [stack.enter_context(one) for one in _sockets(host, port, processes, settings)]
        tell(_url(listening[0]), str(settings.data))
        if processes == 1:
            run(settings, listening[0])
        else:
            supervise(listening, {**environment, "QPLAN_DATA": str(settings.data)})


def run(settings: Settings, listening: socket.socket) -> None:
    """Serve in this process on a socket that listens."""
    share_one_heap()
    configure()
    server = Server(create_app(settings), settings)
    gc.freeze()  # what is there now stays
    gc.set_threshold(BETWEEN_COLLECTIONS)
    server.run(sockets=[listening])


def share_one_heap() -> None:
    """Give all threads one heap, where the C library is glibc.

    It has one for each thread otherwise, and each keeps what the largest plan of its thread took: memory
    grows by 4 MB with every thread that plans for the first time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def outlive_hangups(settings: Settings) -> None:
    """Ignore SIGHUP where tokens come from a file: the file is looked at once a second anyway.

    Processes inherit that, so a server that is about to start outlives one too.
    """
    if settings.tokens_file:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise CannotStart(f"cannot keep data in {str(folder)!r}: {reason}", hint="give a folder") from error


def require_parts(settings: Settings) -> None:
    """Open what a server needs, and close it again, so that a fault is one line before anybody can ask.

    Raises:
      CannotStart: a database, object store, executor or function that cannot be used, a broken data folder.
    """
    try:
        _open_parts(settings)
    except InputError as error:
        raise CannotStart(error.message, hint=error.hint) from error
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        raise CannotStart(f"cannot keep data in {str(settings.data)!r}: {error.strerror}{where}") from error


def _open_parts(settings: Settings) -> None:
    await_database(settings.database_url or default_url(settings.data), settings.start_seconds).dispose()
    store = Store(settings.data, open_objects(settings.blobs))
    open_executor(settings, store)
    start(settings.traces)
    load_functions(settings.functions)
    store.open()


def _sockets(host: str, port: int, count: int, settings: Settings) -> list[socket.socket]:
    """Sockets of one port; several of them share it, once nobody else has it."""
    first = _bound(host, port, settings)
    if count == 1:
        return [first]
    taken = first.getsockname()[1]
    first.close()
    return [_bound(host, taken, settings, share=True) for _ in range(count)]


def _bound(host: str, port: int, settings: Settings, *, share: bool = False) -> socket.socket:
    if not settings.tokens and not is_loopback(host):
        empty = f" in {settings.tokens_file!r}, which QPLAN_TOKENS_FILE names" if settings.tokens_file else ""
        place = "write a line into it" if settings.tokens_file else "set QPLAN_TOKENS"
        raise InputError(
            f"{host} can be reached from other machines, and there are no tokens{empty}",
            hint=f"{place} (qplan token makes one), or use --host 127.0.0.1",
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it, answers take 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
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


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


if __name__ == "__main__":
    watch_lifeline(int(sys.argv[2]))
    configure()
    found = settings_from(os.environ)
    try:
        require_parts(found)
    except CannotStart as fault:
        logging.getLogger("qplan.api").error("cannot start: %s", fault)  # noqa: TRY400 - its places say nothing
        sys.exit(1)
    outlive_hangups(found)
    run(found, socket.socket(fileno=int(sys.argv[1])))
