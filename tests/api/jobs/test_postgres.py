"""PostgreSQL whose defaults are other ones: it is used as it is, or refused by name with what would do."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DatabaseError

from api.jobs import queue
from api.server.doctor import examine
from api.storage.database import failure_of, open_database, reading, writing
from api.storage.postgres import refusal
from planner.errors import InputError

TEXT = "schlüssel → 鍵 🔑"
SETTINGS = [
    "backslash_quote = off",
    "bytea_output = 'escape'",
    "client_encoding = 'LATIN1'",
    "client_encoding = 'SQL_ASCII'",
    "DateStyle = 'German'",
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_isolation = 'serializable'",
    "extra_float_digits = -15",
    "quote_all_identifiers = on",
    "standard_conforming_strings = off",
    "timezone = 'Asia/Kathmandu'",
]
_NUMBERS = count()


@pytest.fixture
def make_database(postgres_server) -> Iterator[Callable[..., str]]:
    """Make a database of an encoding, with statements about it; its address."""
    admin = create_engine(
        postgres_server.url.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    made = []

    def make(*statements: str, encoding: str = "UTF8") -> str:
        made.append(f"own{next(_NUMBERS)}")
        asked = f"CREATE DATABASE {made[-1]} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
        with admin.connect() as connection:
            for statement in (asked, *(one.replace("OWN", made[-1]) for one in statements)):
                connection.execute(text(statement))
        return f"{postgres_server.url.rpartition('/')[0]}/{made[-1]}"

    yield make
    with admin.connect() as connection:
        for name in made:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


def run_one(url: str) -> None:
    """Put a job in, lease it, end it, and find all of it again."""
    engine = open_database(url)
    try:
        job = queue.submit(engine, "plan", {"a": TEXT}, key=TEXT, principal=TEXT)
        (held,) = queue.lease(engine, "owner", 1, seconds=10)
        assert queue.finish(engine, held, {"b": TEXT})
        found = queue.get(engine, job.id)
        before = {name: asdict(job)[name] for name in ("id", "told", "principal", "created")}
        assert {name: asdict(found)[name] for name in before} == before
        assert held.work == {"a": TEXT}
        assert (found.state, found.result) == ("done", {"b": TEXT})
    finally:
        engine.dispose()


@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_encodings_that_hold_all_text_are_used(make_database, encoding):
    """Text of a database in SQL_ASCII came as bytes: the server ended with a TypeError."""
    run_one(make_database(encoding=encoding))


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "EUC_JP", "KOI8R"])
def test_other_encodings_are_refused_by_name(make_database, encoding):
    url = make_database(encoding=encoding)
    with pytest.raises(InputError, match=f"has the encoding {encoding}.*createdb -E UTF8 -T template0"):
        open_database(url)
    found = {check.name: check for check in examine({"QPLAN_DATABASE_URL": url}, "127.0.0.1")}["database"]
    assert (found.state, f"has the encoding {encoding}" in found.detail) == ("bad", True)


def test_no_setting_of_a_database_is_in_the_way(make_database):
    for setting in SETTINGS:
        run_one(make_database(f"ALTER DATABASE OWN SET {setting}"))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER DATABASE OWN SET default_transaction_read_only = on", "is read-only .*the primary server"),
        ("ALTER DATABASE OWN SET search_path = 'nowhere'", "no schema has been selected"),
        ("ALTER DATABASE OWN ALLOW_CONNECTIONS off", "not currently accepting connections"),
    ],
)
def test_what_cannot_be_used_is_said(make_database, statement, words):
    with pytest.raises(InputError, match=rf"cannot use the database at postgresql://.*{words}"):
        open_database(make_database(statement))


@pytest.mark.parametrize(
    ("version", "encoding", "is_read_only", "words"),
    [
        ((9, 6), "UTF8", False, ("PostgreSQL 9.6 is too old", "PostgreSQL 10.0 or later")),
        ((10, 0), "UTF8", False, ("", "")),
        ((15, 14), "SQL_ASCII", False, ("", "")),
    ],
)
def test_versions(version, encoding, is_read_only, words):
    assert refusal("x", version, encoding, is_read_only=is_read_only) == words


def test_a_role_without_rights_is_told(make_database):
    url = make_database("DROP ROLE IF EXISTS poor", "CREATE ROLE poor LOGIN")
    poor = url.replace("postgres@", "poor@")
    with pytest.raises(InputError, match="permission denied for schema public"):
        open_database(poor)
    open_database(url).dispose()
    with pytest.raises(InputError, match="permission denied for table"):
        open_database(poor)


def test_tables_that_are_gone_are_missed_at_once(make_database):
    url = make_database()
    engine = open_database(url)
    with writing(engine) as connection:
        connection.execute(text("DROP TABLE jobs"))
    with pytest.raises(InputError, match='relation "jobs" does not exist'):
        open_database(url)
    with pytest.raises(DatabaseError) as caught:
        queue.submit(engine, "plan", {})
    assert failure_of(caught.value).name == "not-ready"  # as of SQLite, and no bug of ours
    engine.dispose()


def test_a_database_that_becomes_read_only_is_not_ready(make_database):
    engine = open_database(make_database())
    with reading(engine) as connection:
        connection.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(DatabaseError) as caught:
            connection.execute(text("DELETE FROM jobs"))
    assert failure_of(caught.value).name == "not-ready"
    engine.dispose()
