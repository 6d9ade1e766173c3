"""The tables that migrations make are those the code speaks of, and what cannot be used is said."""

import os
import subprocess
import sys

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from api.jobs import queue
from api.storage.database import default_url, metadata, open_database, reading, writing
from benchmarks.clusters import free_port
from planner.errors import InputError
from tests.api.conftest import ROOT


def test_migrations_make_the_tables(engine):
    with reading(engine) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_opening_twice_changes_nothing(engine, database_url):
    open_database(database_url).dispose()
    with reading(engine) as connection:
        assert connection.execute(text("select count(*) from alembic_version")).scalar_one() == 1


def test_a_database_of_a_later_version_is_refused(engine, database_url):
    with writing(engine) as connection:
        connection.execute(text("update alembic_version set version_num = '9999'"))
    try:
        with pytest.raises(InputError, match=r"is of another version: Can't locate revision.*'9999'"):
            open_database(database_url)
    finally:
        with writing(engine) as connection:
            connection.execute(text("update alembic_version set version_num = '0002'"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "is no database address"),
        ("oracle://x/y", "needs|is no database address"),
        ("sqlite:////nowhere/at/all", "unable to open"),
    ],
)
def test_what_is_no_database_is_said(url, words):
    with pytest.raises(InputError, match=words):
        open_database(url)


def test_a_database_that_is_not_there_is_said_without_its_password():
    with pytest.raises(InputError, match="cannot use the database") as caught:
        open_database(f"postgresql://user:hidden@127.0.0.1:{free_port()}/name")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql:///x?password=hidden&port=a", "sqlite:///?key=hidden"])
def test_an_address_is_said_without_its_query(url):
    with pytest.raises(InputError) as caught:
        open_database(url)
    assert "hidden" not in str(caught.value)


OPEN = "import sys; from api.storage.database import open_database; open_database(sys.argv[1])"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_database_that_takes_no_writes_is_refused_at_the_start(tmp_path, what):
    """SQLite begins to write to a file that is read-only; the server ended with a traceback then."""
    url, place = default_url(tmp_path), tmp_path if what == "folder" else tmp_path / "qplan.sqlite"
    open_database(url).dispose()
    place.chmod(0o555)
    as_any_user = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    line = [*as_any_user, sys.executable, "-c", OPEN, url]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
    place.chmod(0o755)
    assert ": cannot use the database at" in done.stderr.splitlines()[-1]
    assert "attempt to write a readonly database" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("table", ["jobs", "events"])
def test_a_database_without_its_tables_is_refused_at_the_start(tmp_path, table):
    engine = open_database(default_url(tmp_path))
    with writing(engine) as connection:
        connection.execute(text(f"DROP TABLE {table}"))
    engine.dispose()
    with pytest.raises(InputError, match=f"no such table: {table}"):
        open_database(default_url(tmp_path))


def test_what_was_not_finished_is_not_kept(engine):
    def fail():
        with writing(engine) as connection:
            connection.execute(text("update alembic_version set version_num = 'half'"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with reading(engine) as connection:
        assert connection.execute(text("select version_num from alembic_version")).scalar_one() == "0002"


def test_a_killed_server_loses_nothing_of_sqlite(tmp_path):
    engine = open_database(default_url(tmp_path))
    with reading(engine) as connection:
        assert connection.execute(text("pragma journal_mode")).scalar_one() == "wal"
        assert connection.execute(text("pragma synchronous")).scalar_one() == 2
    engine.dispose()


def test_jobs_of_before_there_were_tenants_are_the_default_ones(engine):
    job = queue.submit(engine, "plan", {})
    with writing(engine) as connection:
        config = Config()
        config.set_main_option("script_location", str(ROOT / "api" / "migrations"))
        config.attributes["connection"] = connection
        command.downgrade(config, "0001")
        assert "tenant" not in {column["name"] for column in inspect(connection).get_columns("jobs")}
        command.upgrade(config, "head")
    assert queue.get(engine, job.id) == job
    assert job.tenant == "default"
