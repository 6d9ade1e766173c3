"""PostgreSQL: the settings of our connections, and the databases that cannot be used, by name.

A database, a role or the server may have other defaults for every setting; what the code depends on is said
here, whatever those are. Source: PostgreSQL, "Character Set Support", "Client Connection Defaults".
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, text

CONNECT_SECONDS: Final = 5
CONNECT: Final[Mapping[str, Any]] = {"connect_timeout": CONNECT_SECONDS, "client_encoding": "utf8"}
"""Without an encoding of ours, a database in SQL_ASCII gives bytes in place of text."""
ISOLATION: Final = "READ COMMITTED"
"""Jobs are leased by `SKIP LOCKED`; a stricter level would have one of two leases fail."""
OLDEST: Final = (10, 0)
"""The oldest server that psycopg 3 speaks to."""
ENCODINGS: Final = ("UTF8", "SQL_ASCII")
"""Encodings that keep every text; SQL_ASCII keeps bytes as they come."""
NO_SPACE: Final = "53100"
OUT_OF_ORDER: Final = frozenset({"25006", "25P03", "3F000", "42501", "42P01", "XX001", "XX002"})
"""States that are the database's, though psycopg gives them the classes of our bugs: read-only, a time-out in
a transaction, no schema, no permission, no table, damaged data, a damaged index."""


def unusable(connection: Connection) -> tuple[str, str]:
    """Why a database of PostgreSQL cannot be used, and what would do; "" twice where it can."""
    if connection.dialect.name != "postgresql":
        return "", ""
    settings = "current_setting('server_encoding'), current_setting('transaction_read_only')"
    name, encoding, read_only = connection.execute(text(f"SELECT current_database(), {settings}")).one()
    version = tuple(
        part for part in connection.dialect.server_version_info or OLDEST if isinstance(part, int)
    )
    return refusal(str(name), version, str(encoding), is_read_only=read_only == "on")


def refusal(name: str, version: tuple[int, ...], encoding: str, *, is_read_only: bool) -> tuple[str, str]:
    """Word why a database cannot be used, and what would do; "" twice where it can."""
    if version < OLDEST:
        shown, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        return f"PostgreSQL {shown} is too old", f"PostgreSQL {oldest} or later"
    if encoding not in ENCODINGS:
        return (
            f"the database {name!r} has the encoding {encoding}, which cannot hold all text",
            "make one in UTF-8: createdb -E UTF8 -T template0 NAME",
        )
    if is_read_only:
        return (
            f"the database {name!r} is read-only",
            "name the primary server, or ALTER DATABASE ... RESET default_transaction_read_only",
        )
    return "", ""


def state_of(error: BaseException | None) -> str:
    """The state (SQLSTATE) of an error of PostgreSQL; "" where it has none."""
    return str(getattr(error, "sqlstate", None) or "")
