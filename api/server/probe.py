"""Probe: whether a server of this machine is there, for health checks of containers.

`python -m api.server.probe PORT [PATH]` ends with 0 where the port takes connections and the path, if one is
given, is answered with 200; else with 1. It has no spaces or quotes in it, which some engines lose.
"""

import http
import http.client
import sys
from collections.abc import Sequence
from typing import Final

HERE: Final = "127.0.0.1"
SECONDS: Final = 10


def main(port: str, path: Sequence[str]) -> int:
    """Connect and ask; the exit code."""
    connection = http.client.HTTPConnection(HERE, int(port), timeout=SECONDS)
    try:
        connection.connect()
        if not path:
            return 0
        connection.request("GET", path[0])
        return 0 if connection.getresponse().status == http.HTTPStatus.OK else 1
    except (OSError, http.client.HTTPException):
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
