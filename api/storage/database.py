"""The database: tables, connections and migrations; SQLite by default, PostgreSQL past one machine.

Blobs, models, plans are files (`store`); rows are what changes: jobs and their events. Times are seconds
since 1970, by the database's clock where it has one: leases expire by one clock. Source: docs/service.md.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    false,
    func,
    select,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.types import JSON

from planner.errors import InputError
from planner.installation import install_command

from ..problems import DISK_FULL, Problem, Refused, disk_full
from ..server.tokens import DEFAULT
from .postgres import CONNECT, ISOLATION, NO_SPACE, OUT_OF_ORDER, state_of, unusable
from .sqlite_files import Identity, missing_files, opened_files

DATABASE: Final = "qplan.sqlite"
"""Name of SQLite's file in a data folder."""
POOL: Final = 8
WAIT_SECONDS: Final = 30
BETWEEN_TRIES: Final = 0.5
"""Seconds between two looks for a database that does not answer."""
MIGRATING: Final = 0x71706C616E
_READS: Final = "qplan_reads"
_FILES: Final = "qplan_files"

_DRIVERS: Final = dict.fromkeys(("postgres", "postgresql", "postgresql+psycopg"), "postgresql+psycopg")

metadata: Final = MetaData()

jobs: Final = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("key", String(200), unique=True),
    Column("kind", String(40), nullable=False),
    Column("state", String(12), nullable=False),
    Column("request", JSON, nullable=False),
    Column("result", JSON),
    Column("problem", JSON),
    Column("progress", JSON),
    Column("principal", String(80), nullable=False),
    Column("tenant", String(40), nullable=False, server_default=DEFAULT),
    Column("attempt", Integer, nullable=False),
    Column("lost", Integer, nullable=False),
    Column("events", Integer, nullable=False),
    Column("cancelling", Boolean, nullable=False),
    Column("owner", String(80)),
    Column("created", Float(53), nullable=False),
    Column("due", Float(53), nullable=False),
    Column("started", Float(53)),
    Column("finished", Float(53)),
    Column("heartbeat", Float(53)),
    Index("jobs_by_state", "state", "due"),
    Index("jobs_by_age", "created", "id"),
    Index("jobs_by_tenant", "tenant", "created", "id"),
    Index("jobs_by_principal", "state", "principal"),
)

events: Final = Table(
    "events",
    metadata,
    Column("job", String(32), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("kind", String(20), nullable=False),
    Column("data", JSON, nullable=False),
    Column("at", Float(53), nullable=False),
)


class Unreachable(InputError):
    """A database that does not answer, or not now."""


def open_database(url: str) -> Engine:
    """Connect, and bring the tables up to date; several servers may start at once.

    Args:
      url: `sqlite:///FILE`, or `postgresql://USER:PASSWORD@HOST/NAME`.

    Raises:
      InputError: a database that is none, cannot be reached or cannot be used, or was made by a later
        version; `Unreachable` where it may answer later.
    """
    engine = make_engine(url)
    try:
        _require_usable(engine)
        _migrate(engine)
    except CommandError as error:
        engine.dispose()
        raise InputError(
            f"the database at {_shown(url)} is of another version: {error}", hint="use that version's qplan"
        ) from error
    except DatabaseError as error:
        engine.dispose()
        fault = Unreachable if isinstance(error, OperationalError) else InputError
        raise fault(
            f"cannot use the database at {_shown(url)}: {' '.join(str(error.orig).split())}"
        ) from error
    except InputError as error:
        engine.dispose()
        raise InputError(
            f"cannot use the database at {_shown(url)}: {error.message}", hint=error.hint
        ) from error
    return engine


def await_database(url: str, seconds: float) -> Engine:
    """Open a database; one that does not answer for some seconds may be starting itself.

    Raises:
      InputError: as `open_database`.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return open_database(url)
        except Unreachable:
            if time.monotonic() > until:
                raise
            time.sleep(BETWEEN_TRIES)


def _require_usable(engine: Engine) -> None:
    with reading(engine) as connection:
        found, hint = unusable(connection)
    if found:
        raise InputError(found, hint=hint)


def default_url(data: Path) -> str:
    """The default database of a server: a file in its data folder."""
    return URL.create("sqlite", database=str(data / DATABASE)).render_as_string()


def database_file(url: str) -> Path | None:
    """SQLite's file that an address names; None: it names another database.

    Raises:
      InputError: an address that is none.
    """
    engine = make_engine(url)
    return Path(str(engine.url.database)) if engine.dialect.name == "sqlite" else None


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """Give a transaction that may write; it is kept unless something is raised."""
    with engine.begin() as connection:
        yield connection


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """Give a connection that only reads: SQLite reads never wait."""
    with engine.connect().execution_options(**{_READS: True}) as connection:
        yield connection


def missing(connection: Connection) -> str:
    """Why rows that are written here would be lost; "" where they would not, and of PostgreSQL.

    A file that was taken away, or that another one took the place of, is written to until the last connection
    closes; one that was cut lacks pages.
    """
    files = connection.info.get(_FILES)
    return "" if files is None else missing_files(files, lambda: _bytes_of_pages(connection))


def require_rows_kept(connection: Connection) -> None:
    """Refuse to promise what would be lost.

    Raises:
      Refused: `not-ready`.
    """
    if found := missing(connection):
        raise Refused("not-ready", found)


def _bytes_of_pages(connection: Connection) -> int:
    """Bytes of the pages that SQLite knows of; 0 where it sees itself that some lack."""
    try:
        count, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size")
        )
    except DatabaseError:
        return 0
    return int(count) * int(size)


def now(connection: Connection) -> float:
    """Seconds since 1970 by the clock that all who share the database share."""
    at = clock(connection)
    return at if isinstance(at, float) else float(connection.execute(select(at)).scalar_one())


def clock(connection: Connection) -> float | ColumnElement[Any]:
    """What `now` is, for a statement: the database looks at its clock itself."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return func.extract("epoch", func.clock_timestamp())


def failure_of(error: Exception) -> Problem | None:
    """The problem to answer after a failure of the disk or the database; None: it is a bug of ours."""
    if isinstance(error, OSError):
        return disk_full() if error.errno in DISK_FULL else None
    if isinstance(error, OperationalError) and _is_full(error):
        return disk_full()
    if isinstance(error, (OperationalError, InterfaceError)) or _is_out_of_order(error):
        return Problem("not-ready", "the database does not answer", {"hint": "try again later"})
    return None


def _is_full(error: OperationalError) -> bool:
    return "disk is full" in str(error.orig) or state_of(error.orig) == NO_SPACE


def _is_out_of_order(error: Exception) -> bool:
    """Whether the database itself is at fault, and not what it was asked."""
    words = ("is malformed", "not a database")  # SQLite's file is none, or has not all of its pages
    return isinstance(error, DatabaseError) and (
        state_of(error.orig) in OUT_OF_ORDER or any(word in str(error.orig) for word in words)
    )


def _migrate(engine: Engine) -> None:
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(MIGRATING)))
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parents[1] / "migrations"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        for table in metadata.sorted_tables:  # the version alone says neither that it is there nor writable
            connection.execute(table.delete().where(false()))


def make_engine(url: str) -> Engine:
    """Make what connects, without connecting.

    Raises:
      InputError: an address that is none, or of another database than SQLite and PostgreSQL.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        parsed = parsed.set(drivername=_DRIVERS[parsed.drivername])
        return create_engine(
            parsed,
            pool_size=POOL,
            pool_pre_ping=True,
            pool_timeout=WAIT_SECONDS,
            isolation_level=ISOLATION,
            connect_args=dict(CONNECT),
        )
    except (ArgumentError, NoSuchModuleError, LookupError, ValueError) as error:  # a port that is no number
        raise InputError(
            f"QPLAN_DATABASE_URL is no database address: {_shown(url)}",
            hint="sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME",
        ) from error
    except ModuleNotFoundError as error:
        raise InputError(
            f"this database needs {error.name}, which is not installed",
            hint=install_command("cluster"),
        ) from error


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:" or url.query or url.host:
        raise InputError(
            f"QPLAN_DATABASE_URL names no file: {_shown(str(url))}",
            hint="sqlite:///FILE; a database in memory does not last",
        )
    engine = create_engine(url, pool_size=POOL, connect_args={"timeout": WAIT_SECONDS})
    largest: dict[Identity, int] = {}

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={WAIT_SECONDS * 1000}"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # so that all files are there
        record.info[_FILES] = opened_files(str(url.database), largest)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later would fail when another wrote in between.
        reads = connection.get_execution_options().get(_READS, False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _shown(url: str) -> str:
    """An address without what may be secret: its password, and its query, which may have one too."""
    try:
        return make_url(url).set(query={}).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return "(unreadable)"
