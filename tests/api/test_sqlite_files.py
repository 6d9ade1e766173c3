"""Nothing but SQLite opens the live database: its locks hold, and no other process takes its log away.

Closing any descriptor of the file drops the locks of the process; see `api.storage.sqlite_files`.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from api.jobs import queue
from api.server.backup import back_up
from api.server.doctor import examine
from api.storage.database import default_url, missing, open_database, reading, writing
from tests.api.conftest import COMMAND, ROOT, serving
from tests.api.documents import chain

HOOK = """
import os, sys

report = os.open(REPORT, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(event, arguments):
    if event not in ("open", "os.truncate", "os.rename", "os.remove", "os.link", "shutil.copyfile"):
        return
    for path in arguments[:2]:
        if isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(LIVE):
            os.write(report, f"{event} {os.fsdecode(path)} by {sys.argv}\\n".encode())

sys.addaudithook(note)
"""
"""Imported by every process of Python, children too: notes what Python itself does to the live files."""

WRITER = """
import sys
from api.jobs import queue
from api.storage.database import open_database

for _ in range(int(sys.argv[2])):
    engine = open_database(sys.argv[1])
    for _ in range(5):
        print(queue.submit(engine, "plan", {}).id, flush=True)
    engine.dispose()
"""


def locks_on(path: Path) -> set[int]:
    """Processes that hold a POSIX lock on a file."""
    stands = path.stat()
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    held = [fields for fields in lines if "->" not in fields and fields[1] == "POSIX"]
    return {int(fields[4]) for fields in held if int(fields[5].rpartition(":")[2]) == stands.st_ino}


def commanded(data: Path, variables: dict[str, str], *words: str) -> str:
    """Run a verb of the command in a process of its own."""
    line = [sys.executable, "-c", COMMAND, *words, "--data", str(data)]
    done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def planned(url: str, bit_price: float) -> str:
    """Have a plan made as a job; its id."""
    body = {"model": chain(80), "target": "litert-int8", "options": {"costs": {"bit_price": bit_price}}}
    headers = {"Prefer": "respond-async"}
    answer = httpx.post(f"{url}/v1/plans", json=body, headers=headers, timeout=60, trust_env=False)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def test_a_job_leaves_the_lock_in_place(make_service, tmp_path):
    service = make_service()
    planned(str(service.base_url), 3.0)
    service.get("/v1/health/ready")  # looks at the file as well
    assert os.getpid() in locks_on(tmp_path / "qplan.sqlite")
    examine({"QPLAN_DATA": str(tmp_path)}, "127.0.0.1")  # in this very process
    back_up(tmp_path, tmp_path.with_name("copy"))
    assert os.getpid() in locks_on(tmp_path / "qplan.sqlite")


@pytest.mark.slow
def test_no_process_but_sqlite_opens_the_live_files(tmp_path):
    """Two servers on one folder, one of two processes, with a doctor, backups, and a server of the copy."""
    data, copy, report = tmp_path / "data", tmp_path / "copy", tmp_path / "report"
    data.mkdir()
    live = data / "qplan.sqlite"
    hook = HOOK.replace("REPORT", repr(str(report))).replace("LIVE", repr(str(live)))
    (tmp_path / "sitecustomize.py").write_text(hook)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    known = {name: value for name, value in os.environ.items() if not name.startswith("QPLAN_")}
    variables = {**known, "PYTHONPATH": path}
    two = (sys.executable, "-c", COMMAND, "serve", "--processes", "2")
    with serving(data, command=two, PYTHONPATH=path) as server:
        jobs = [planned(server.url, 3.0)]
        held, log = locks_on(live), Path(f"{live}-wal").stat().st_ino
        assert held
        with serving(data, PYTHONPATH=path) as other:
            jobs.append(planned(other.url, 4.0))
            assert other.process.pid in locks_on(live)
            assert "database      good" in commanded(data, variables, "doctor", "--deep")
            assert "files copied" in commanded(data, variables, "backup", str(copy))
            os.kill(min(held - {server.process.pid}), signal.SIGKILL)
            assert other.process.pid in locks_on(live)
        jobs.append(planned(server.url, 5.0))
        assert locks_on(live)
        assert Path(f"{live}-wal").stat().st_ino == log
        with serving(copy, PYTHONPATH=path) as restored:
            for job in jobs[:2]:
                assert httpx.get(f"{restored.url}/v1/jobs/{job}", trust_env=False).status_code == 200
    engine = open_database(default_url(data))
    assert [queue.get(engine, job).id for job in jobs] == jobs
    engine.dispose()
    assert report.read_text() == ""
    subprocess.run([sys.executable, "-c", f"open({str(live)!r})"], env=variables, check=True)
    assert report.read_text().startswith(f"open {live} by")  # it would have been noticed


@pytest.mark.parametrize("turns", [6, pytest.param(200, marks=pytest.mark.soak)])
def test_what_was_promised_is_there_whoever_opens_closes_and_dies(tmp_path, turns):
    chance = random.Random(turns)  # noqa: S311 - who is killed is no secret
    url, file = default_url(tmp_path), tmp_path / "qplan.sqlite"
    engine = open_database(url)
    line, promised = [sys.executable, "-c", WRITER, url, str(turns)], [queue.submit(engine, "plan", {}).id]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen(line, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    killed = chance.choice(writers)
    for turn in range(5 * turns):
        for writer in writers:
            promised += [name] if (name := writer.stdout.readline().strip()) else []
        if turn % 3 == 0:
            with closing(sqlite3.connect(file)) as other:  # as a doctor does, and a backup
                other.execute("SELECT count(*) FROM jobs").fetchall()
            back_up(tmp_path, tmp_path.with_name("copy"))
            promised.append(queue.submit(engine, "plan", {}).id)
        if turn == 2 * turns:
            killed.kill()
    for writer in writers:
        promised += writer.communicate()[0].split()
    with reading(engine) as connection:
        there = set(connection.execute(text("SELECT id FROM jobs")).scalars())
    engine.dispose()
    whole = {
        name for name in promised if len(name) == 32
    }  # the one that was killed may have said half a line
    assert whole <= there
    assert len(whole) >= 2 * 5 * turns
    with closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_that_was_vacuumed_by_hand_is_whole(tmp_path):
    engine = open_database(default_url(tmp_path))
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE big (x)"))
        connection.execute(text("INSERT INTO big VALUES (zeroblob(1000000))"))
    with closing(sqlite3.connect(tmp_path / "qplan.sqlite")) as other:
        other.execute("PRAGMA wal_checkpoint").fetchall()
        with reading(engine) as connection:
            assert missing(connection) == ""
        size = (tmp_path / "qplan.sqlite").stat().st_size
        other.execute("DROP TABLE big")
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint").fetchall()
    assert (tmp_path / "qplan.sqlite").stat().st_size < size
    with reading(engine) as connection:
        assert missing(connection) == ""
    engine.dispose()


def test_a_database_behind_a_link_has_its_log_beside_the_file(tmp_path):
    (tmp_path / "far").mkdir()
    open_database(f"sqlite:///{tmp_path}/far/rows.sqlite").dispose()
    (tmp_path / "near.sqlite").symlink_to(tmp_path / "far" / "rows.sqlite")
    engine = open_database(f"sqlite:///{tmp_path}/near.sqlite")
    with reading(engine) as connection:
        assert missing(connection) == ""
        (tmp_path / "far" / "rows.sqlite-wal").unlink()
        assert "write-ahead log is gone" in missing(connection)
    engine.dispose()
