"""Serving: `qplan serve` as a function. Binds to loopback, or elsewhere with tokens."""

import ipaddress
import os
from typing import Final

import uvicorn

from api.app import create_app
from api.settings import settings_from
from planner.errors import InputError

HEADER_BYTES: Final = 16_384
CONNECTIONS: Final = 512


def serve(host: str, port: int, data: str | None) -> None:
    """Serve until interrupted.

    Args:
      host: an address, or `localhost`.
      data: folder of everything kept; `QPLAN_DATA` by default.

    Raises:
      InputError: an address beyond this machine, and no tokens.
    """
    settings = settings_from({**os.environ, **({"QPLAN_DATA": data} if data else {})})
    if not settings.tokens and not _is_loopback(host):
        raise InputError(
            f"{host} can be reached from other machines, and there are no tokens",
            hint="set QPLAN_TOKENS to the sha256 of a bearer token, or use --host 127.0.0.1",
        )
    uvicorn.run(
        create_app(settings),
        host=host,
        port=port,
        h11_max_incomplete_event_size=HEADER_BYTES,
        limit_concurrency=CONNECTIONS,
        access_log=False,
        log_level="warning",
        server_header=False,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
