"""Starting and being ready: what cannot be used is one line, and `ready` tries what requests need."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from sqlalchemy.exc import DatabaseError

from api.jobs import queue
from api.jobs.child_process import PATIENCE, Bounds, run_child, start_child
from api.jobs.forks import FORKS
from api.jobs.records import work
from api.problems import Refused
from api.server import readiness
from api.server.readiness import LASTS
from api.settings import Settings
from api.storage.database import default_url, failure_of, missing, open_database
from api.storage.store import Store
from benchmarks.clusters import free_port, postgres, postgres_folder
from tests.api.conftest import COMMAND, ROOT, served_here, serving
from tests.api.test_problems import check


def broken_file(data: Path) -> dict[str, str]:
    (data / "qplan.sqlite").write_text("no database " * 100)
    return {}


def no_server(_: Path) -> dict[str, str]:
    return {"QPLAN_DATABASE_URL": f"postgresql://user:hidden@127.0.0.1:{free_port()}/name"}


def broken_folder(data: Path) -> dict[str, str]:
    (data / "blobs").write_text("")
    return {}


def no_executor(_: Path) -> dict[str, str]:
    return {"QPLAN_EXECUTOR": "smoke://signals"}


def two_databases(data: Path) -> dict[str, str]:
    (data / "url").write_text("sqlite:///hidden.sqlite")
    return {
        "QPLAN_DATABASE_URL": "sqlite:///hidden.sqlite",
        "QPLAN_DATABASE_URL_FILE": str(data / "url"),
    }


def no_port(_: Path) -> dict[str, str]:
    return {"QPLAN_DATABASE_URL": "postgresql://user:hidden@127.0.0.1:many/name"}


def port_too_high(_: Path) -> dict[str, str]:
    return {"QPLAN_DATABASE_URL": "postgresql://user:hidden@127.0.0.1:99999/name"}


def in_memory(_: Path) -> dict[str, str]:
    return {"QPLAN_DATABASE_URL": "sqlite:///"}


def in_memory_by_uri(_: Path) -> dict[str, str]:
    return {"QPLAN_DATABASE_URL": "sqlite:///file:x?mode=memory&uri=true"}


def no_url(data: Path) -> dict[str, str]:
    (data / "url").write_text(" \n")
    return {"QPLAN_DATABASE_URL_FILE": str(data / "url")}


def two_urls(data: Path) -> dict[str, str]:
    (data / "url").write_text("sqlite:///hidden.sqlite\nsqlite:///hidden.sqlite\n")
    return {"QPLAN_DATABASE_URL_FILE": str(data / "url")}


def no_url_file(data: Path) -> dict[str, str]:
    return {"QPLAN_DATABASE_URL_FILE": str(data / "none")}


def data_in_a_file(data: Path) -> dict[str, str]:
    (data / "file").write_text("")
    return {"QPLAN_DATA": str(data / "file")}


def data_below_a_file(data: Path) -> dict[str, str]:
    (data / "file").write_text("")
    return {"QPLAN_DATA": str(data / "file" / "data")}


@pytest.mark.parametrize(
    ("break_", "words"),
    [
        (broken_file, "file is not a database"),
        (no_server, "cannot use the database at postgresql"),
        (broken_folder, "cannot keep data in"),
        (two_databases, "QPLAN_DATABASE_URL and QPLAN_DATABASE_URL_FILE are both set"),
        (no_executor, "QPLAN_EXECUTOR is 'smoke://signals'"),
        (no_port, "QPLAN_DATABASE_URL is no database address"),
        (port_too_high, "cannot use the database at postgresql"),
        (in_memory, "QPLAN_DATABASE_URL names no file: sqlite:///"),
        (in_memory_by_uri, "QPLAN_DATABASE_URL names no file"),
        (no_url, "which holds 0 words"),
        (two_urls, "which holds 2 words"),
        (no_url_file, "which cannot be read"),
        (data_in_a_file, "it is a file"),
        (data_below_a_file, "cannot keep data in"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, break_, words):
    in_processes(2, tmp_path, break_, words)


@pytest.mark.parametrize(
    ("break_", "words"),
    [(broken_file, "not a database"), (no_executor, "smoke://signals"), (no_url, "0 words")],
)
def test_one_process_says_it_alike(tmp_path, break_, words):
    """The database is opened, the executor is made and the settings are read at three places."""
    in_processes(1, tmp_path, break_, words)


def in_processes(count, tmp_path, break_, words):
    line = [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--processes", str(count)]
    known = {name: text for name, text in os.environ.items() if not name.startswith("QPLAN_")}
    variables = {**known, "PYTHONPATH": str(ROOT), "QPLAN_DATA": str(tmp_path), **break_(tmp_path)}
    ended = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hidden" not in ended.stderr
    assert ended.stderr.startswith("qplan: error: ")
    assert len(ended.stderr.splitlines()) == 1


def test_ready_says_what_is_missing(make_service, tmp_path, monkeypatch):
    monkeypatch.setattr(readiness, "PATIENCE", 60.0)  # a loaded machine may be slower than a user waits
    service = make_service()
    assert service.get("/v1/health/ready").json() == {"status": "ok"}
    state = service.app.state
    FORKS.server[0].kill()
    FORKS.server[0].wait()
    state.readiness.until = 0.0
    found = check(service.get("/v1/health/ready"), "not-ready", "child")
    assert found["missing"] == ["no child process remains to read input"]
    (tmp_path / "drafts").rmdir()
    state.service.engine.dispose()
    for file in tmp_path.glob("qplan.sqlite*"):
        file.unlink()
    (tmp_path / "qplan.sqlite").mkdir()
    state.readiness.until = 0.0
    found = check(service.get("/v1/health/ready"), "not-ready", "database")
    assert [text.split(":")[0] for text in found["missing"]] == [
        "the database does not answer",
        "the data folder takes no files",
    ]
    (tmp_path / "drafts").mkdir()


def _gone(database: Path) -> None:
    for path in database.parent.glob(f"{database.name}*"):
        path.unlink()


def _replaced(database: Path) -> None:
    copy = database.with_name("copy")
    copy.write_bytes(database.read_bytes())
    copy.replace(database)


def _cut(database: Path) -> None:
    os.truncate(database, 8192)


def _without_log(database: Path) -> None:
    database.with_name(f"{database.name}-wal").unlink()


def _without_index(database: Path) -> None:
    database.with_name(f"{database.name}-shm").unlink()


def _with_another_log(database: Path) -> None:
    _without_log(database)
    database.with_name(f"{database.name}-wal").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_gone, "file is gone"),
        (_replaced, "file is another one than was opened"),
        (_cut, "has 8192 bytes of"),
        (_without_log, "write-ahead log is gone"),
        (_without_index, "index of its write-ahead log is gone"),
        (_with_another_log, "write-ahead log is another one than was opened"),
    ],
)
def test_rows_that_would_be_lost_are_not_promised(tmp_path, damage, words):
    engine = open_database(default_url(tmp_path))
    engine.dispose()  # the last connection puts what it wrote into the file itself
    with engine.connect() as connection:
        assert missing(connection) == ""
    damage(tmp_path / "qplan.sqlite")
    with engine.connect() as connection:
        assert words in missing(connection)
    with pytest.raises((Refused, DatabaseError)) as caught:  # SQLite itself sees that pages lack
        queue.submit(engine, "plan", {})
    found = caught.value.problem if isinstance(caught.value, Refused) else failure_of(caught.value)
    assert found.name == "not-ready"
    engine.dispose()


def test_ready_notices_a_database_that_was_taken_away(make_service, tmp_path):
    service = make_service()
    until = time.monotonic() + 90  # a machine under load looks at its disk and children for seconds
    while (answer := service.get("/v1/health/ready")).status_code != 200:
        assert time.monotonic() < until, answer.text
    _gone(next(tmp_path.rglob("qplan.sqlite")))
    service.app.state.readiness.until = 0.0
    check(service.get("/v1/health/ready"), "not-ready", "database's file is gone")


def test_ready_looks_once_a_second(make_service):
    service = make_service()
    looked = []
    readiness = service.app.state.readiness
    readiness.parts = (lambda: looked.append(1),)
    start = time.monotonic()
    for _ in range(20):
        assert service.get("/v1/health/ready").status_code == 200
    assert len(looked) <= 1 + (time.monotonic() - start) / LASTS


def test_what_gets_no_processor_is_not_too_much(tmp_path):
    """A child that the machine keeps waiting was told that its input is too much, 422."""
    store = Store(tmp_path)
    store.open()

    def start(folder: Path):
        child = start_child(folder)
        os.kill(child.pid, signal.SIGSTOP)
        return child

    asked = work("lint", {"text": "", "name": "x"})
    with pytest.raises(Refused) as caught:
        run_child(store, asked, Bounds(1 << 30, 1), start=start)
    assert (caught.value.problem.name, caught.value.problem.status) == ("overloaded", 503)
    assert f"{PATIENCE} s" in caught.value.problem.detail


@pytest.mark.skipif(postgres_folder() is None, reason="Debian's package postgresql is not installed")
def test_a_database_that_goes_away_while_a_server_starts_is_waited_for(tmp_path):
    """It was there a moment ago, when the start looked for it."""
    with postgres() as database:
        database.stop()
        later = threading.Timer(1.0, database.start)
        later.start()
        with served_here(Settings(tmp_path, database_url=database.url, start_seconds=60)) as client:
            assert client.get("/v1/jobs").status_code == 200
        later.join()


def test_a_start_waits_for_its_database(tmp_path):
    """Containers of both start at once, and not every engine waits for the one before the other."""
    if postgres_folder() is None:
        pytest.skip("Debian's package postgresql is not installed")
    with postgres() as database:
        database.stop()
        later = threading.Timer(2.0, database.start)
        later.start()
        with serving(tmp_path, QPLAN_DATABASE_URL=database.url, QPLAN_START_SECONDS="60") as server:
            assert httpx.get(f"{server.url}/v1/health/ready", trust_env=False).status_code == 200
        later.join()
