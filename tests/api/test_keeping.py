"""What is kept, for how long, and how it comes back: retention, backup, `qplan doctor`."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from api.jobs import queue
from api.server.backup import back_up, damaged
from api.server.doctor import examine
from api.server.limits import Quotas
from api.settings import Settings
from api.storage.database import default_url, open_database
from api.storage.digests import digest_of
from api.storage.followers import follow
from api.storage.retention import DAY, Clock, keep_sweeping, sweep, sweep_leftovers
from api.storage.store import Store
from planner.cli.app import run
from planner.errors import InputError
from tests.api.conftest import ROOT, serving
from tests.api.documents import RANGE, chain, put, relu


def age(path: Path, days: float) -> None:
    at = time.time() - days * DAY
    os.utime(path, (at, at))


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path)
    made.open()
    return made


def test_what_is_unused_goes_and_models_go_with_their_blobs(store, tmp_path):
    old, new = digest_of(b"old"), digest_of(b"new")
    for digest, data in ((old, b"old"), (new, b"new")):
        store.put("blobs", digest, data)
        store.put("models", digest_of(data * 2), json.dumps({"blob": digest}).encode())
    age(store.path("blobs", old), 8)
    done = sweep(store, None, Settings(data=tmp_path, keep_days=7), time.time())
    assert (store.has("blobs", old), store.has("blobs", new)) == (False, True)
    assert (store.has("models", digest_of(b"oldold")), store.has("models", digest_of(b"newnew"))) == (
        False,
        True,
    )
    assert done.files == 2
    assert sweep(store, None, Settings(data=tmp_path), time.time()).files == 0


def test_the_longest_unused_blobs_go_first(store, tmp_path):
    blobs = {days: digest_of(str(days).encode() * 10) for days in (1, 2, 3)}
    for days, digest in blobs.items():
        store.put("blobs", digest, str(days).encode() * 10)
        age(store.path("blobs", digest), days)
    sweep(store, None, Settings(data=tmp_path, keep_bytes=20), time.time())
    assert [days for days, digest in blobs.items() if store.has("blobs", digest)] == [1, 2]


def test_jobs_that_ended_are_forgotten(store, tmp_path):
    engine = open_database(default_url(tmp_path))
    ended = queue.submit(engine, "plan", {})
    waiting = queue.submit(engine, "plan", {})
    queue.cancel(engine, ended.id)
    settings = Settings(data=tmp_path, keep_days=7)
    assert sweep(store, engine, settings, time.time()).jobs == 0
    assert sweep(store, engine, settings, time.time() + 8 * DAY).jobs == 1
    assert [job.id for job in queue.list_page(engine)] == [waiting.id]
    engine.dispose()


def test_a_clock_that_is_set_forward_is_noticed_once():
    wall, monotonic = [1000.0], [5.0]
    clock = Clock(lambda: wall[0], lambda: monotonic[0])
    for ahead, behind, jump in ((3600, 3600, 0), (3610, 3600, 0), (7200, 3600, 3600), (3600, 3600, 0)):
        wall[0], monotonic[0] = wall[0] + ahead, monotonic[0] + behind
        assert clock.jump() == jump
    wall[0] -= 86_400
    assert clock.jump() == 0


@pytest.mark.parametrize(("jump", "is_kept"), [(0, False), (90 * DAY, True)])
def test_nothing_is_swept_in_an_hour_in_which_the_clock_was_set_forward(store, caplog, jump, is_kept):
    """Else a machine that is in the wrong year for a minute deletes everything."""
    wall = [0.0]
    clock = Clock(lambda: wall[0], lambda: 0.0)
    wall[0] += jump
    store.put("blobs", digest_of(b"old"), b"old")
    age(store.path("blobs", digest_of(b"old")), 40)
    quotas = Quotas(0, 0, len, list)

    async def main():
        sweeping = asyncio.create_task(
            keep_sweeping(store, None, Settings(store.root, keep_days=30), quotas, clock)
        )
        while store.has("blobs", digest_of(b"old")) and not caplog.messages:  # noqa: ASYNC110 - seen, not told
            await asyncio.sleep(0.01)
        sweeping.cancel()

    asyncio.run(main())
    assert store.has("blobs", digest_of(b"old")) is is_kept
    said = "nothing is deleted this hour: the clock was set forward by 7776000 s"
    assert (said in caplog.messages) is is_kept


def test_what_nothing_leads_to_goes_after_a_day(store, tmp_path):
    """Of an earlier version, whose answers say not what they follow from; and of what was swept."""
    plan, model, gone = digest_of(b"plan"), digest_of(b"model"), digest_of(b"gone")
    old, names, young, linked, left = (digest_of(text) for text in (b"1", b"2", b"3", b"4", b"5"))
    store.put("plans", plan, b"{}")
    store.put("models", model, b"{}")
    for digest, text in ((old, b"{}"), (names, b'["x"]'), (young, b"{}"), (linked, b"{}"), (left, b"{}")):
        store.put("answers", digest, text)
        age(store.path("answers", digest), 0.5 if digest == young else 2)
    store.put("states", old, b"{}")
    age(store.path("states", old), 2)
    follow(store, linked, [("plans", plan)])
    follow(store, left, [("plans", gone)])
    sweep_leftovers(store, None, Settings(data=tmp_path), time.time())
    assert set(store.digests("answers")) == {names, young, linked}
    assert list(store.digests("states")) == []
    store.drop("models", model)
    sweep_leftovers(store, None, Settings(data=tmp_path), time.time())
    assert set(store.digests("answers")) == {young, linked}


def test_answers_of_an_earlier_version_follow_once_they_are_asked_for(make_service):
    service = make_service()
    key = service.post("/v1/plans", json={"model": chain(2), "target": "litert-int8"}).json()["key"]
    store = service.app.state.service.store
    first = service.get(f"/v1/plans/{key}/summary").text
    shutil.rmtree(store.root / "followers")
    assert service.get(f"/v1/plans/{key}/summary").text == first
    service.delete(f"/v1/plans/{key}")
    assert list(store.digests("answers")) == []


def test_keys_go_after_a_day_but_not_before_their_jobs(store, tmp_path):
    engine = open_database(default_url(tmp_path))
    job, other, new = digest_of(b"job"), digest_of(b"other"), digest_of(b"new")
    ended = queue.submit(engine, "plan", {}, key=job)
    for key in (job, other, new):
        store.put("keys", key, b"{}")
        age(store.path("keys", key), 0.5 if key == new else 2)
    sweep_leftovers(store, engine, Settings(data=tmp_path, upload_hours=72), time.time())
    assert set(store.digests("keys")) == {job, other, new}
    sweep_leftovers(store, engine, Settings(data=tmp_path), time.time())
    assert set(store.digests("keys")) == {job, new}
    queue.cancel(engine, ended.id)
    assert queue.remove(engine, ended.id) == job
    sweep_leftovers(store, engine, Settings(data=tmp_path), time.time())
    assert set(store.digests("keys")) == {new}
    engine.dispose()


def test_a_copy_of_a_running_server_serves(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    body = {"model": chain(3), "target": "litert-int8"}
    with serving(data) as server, httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        blob = put(client, relu())
        model = client.post("/v1/models", json={"blob": blob}).json()["digest"]
        plan = client.post("/v1/plans", json=body).text
        client.get(f"/v1/plans/{json.loads(plan)['key']}")
        assert run(["backup", str(copy), "--data", str(data)]) == 0
        first = back_up(data, copy)
        later = put(client, b"later")
        second = back_up(data, copy)
    assert (second.copied - first.copied, second.there - first.there) == (1, 0)
    assert not (copy / "drafts").exists()
    assert damaged(copy) == []
    with serving(copy) as server, httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        assert client.post("/v1/plans", json=body).text == plan
        assert client.get(f"/v1/blobs/{later}").content == b"later"
        asked = {"model": model, "target": "onnxruntime-cpu", "annotations": RANGE}
        again = client.post("/v1/plans", json=asked)
        assert again.status_code == 200, again.text


def test_rows_are_copied_whole_while_somebody_writes(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    engine = open_database(default_url(data))
    queue.submit(engine, "plan", {"a": 1})
    with sqlite3.connect(data / "qplan.sqlite") as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE jobs SET kind = 'changed'")
        back_up(data, tmp_path / "copy")
        other.rollback()
    engine.dispose()
    copy = open_database(default_url(tmp_path / "copy"))
    assert [job.kind for job in queue.list_page(copy)] == ["plan"]
    copy.dispose()


def test_files_of_all_tenants_are_copied_looked_at_and_swept(tmp_path):
    whole = Store(tmp_path / "data")
    digest = digest_of(b"one's own")
    for store in (whole, whole.of("one")):
        store.open()
        store.put("blobs", digest, b"one's own")
        store.replace("keys", digest, b"before")
        (store.drafts / "half").write_bytes(b"x")
    assert whole.tenants() == ["default", "one"]
    assert whole.of("one").home == whole.home == tmp_path / "data"
    copy = tmp_path / "copy"
    assert back_up(tmp_path / "data", copy).copied == 4
    whole.of("one").replace("keys", digest, b"after")
    back_up(tmp_path / "data", copy)
    assert Store(copy).of("one").read("keys", digest) == b"after"
    assert list(copy.glob("**/half")) == []
    Store(copy).of("one").path("blobs", digest).write_bytes(b"other")
    assert damaged(copy) == [f"tenants/one/blobs/{digest.removeprefix('sha256:')}"]

    async def sweep_once() -> None:
        quotas = Quotas(0, 0, lambda _: 0, whole.tenants)
        settings = Settings(data=tmp_path / "data", keep_bytes=1)
        sweeping = asyncio.create_task(keep_sweeping(whole, None, settings, quotas, Clock()))
        for _ in range(6000):
            if not (whole.of("one").has("blobs", digest) or whole.has("blobs", digest)):
                break
            await asyncio.sleep(0.01)
        sweeping.cancel()

    asyncio.run(sweep_once())
    assert not whole.of("one").has("blobs", digest)


def test_backups_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="no data folder"):
        back_up(tmp_path / "none", tmp_path / "copy")
    with pytest.raises(InputError, match="inside the data folder"):
        back_up(tmp_path, tmp_path / "copy")


def test_a_goal_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot copy to .*file/copy.*Not a directory"):
        back_up(tmp_path / "data", tmp_path / "file" / "copy")


KILLED = """
import os, sys
from api.jobs import queue
from api.storage.database import open_database

queue.submit(open_database(sys.argv[1]), "copys-own", {})
os.kill(os.getpid(), 9)
"""


def test_what_a_server_left_in_the_copy_does_not_get_into_its_rows(tmp_path):
    """The log of a server that was killed there was put into the rows of the next backup."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    engine = open_database(default_url(data))
    queue.submit(engine, "plan", {})
    back_up(data, copy)
    line = [sys.executable, "-c", KILLED, default_url(copy)]
    subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert (copy / "qplan.sqlite-wal").stat().st_size
    queue.submit(engine, "export", {})
    engine.dispose()
    back_up(data, copy)
    assert sorted(path.name for path in copy.iterdir()) == ["qplan.sqlite"]
    opened = open_database(default_url(copy))
    assert [job.kind for job in queue.list_page(opened)] == ["export", "plan"]
    with pytest.raises(InputError, match=r"is in use: database is locked \(end the server of this copy"):
        back_up(data, copy)
    assert [job.kind for job in queue.list_page(opened)] == ["export", "plan"]
    opened.dispose()


@pytest.mark.parametrize("place", ["data/rows/own.sqlite", "elsewhere.sqlite"])
def test_rows_of_sqlite_are_copied_wherever_they_lie(tmp_path, monkeypatch, place):
    data, copy, rows = tmp_path / "data", tmp_path / "copy", tmp_path / place
    rows.parent.mkdir(parents=True, exist_ok=True)
    data.mkdir(exist_ok=True)
    monkeypatch.setenv("QPLAN_DATABASE_URL", f"sqlite:///{rows}")
    assert run(["backup", str(copy), "--data", str(data)]) == 2  # there is none yet
    engine = open_database(f"sqlite:///{rows}")
    queue.submit(engine, "plan", {})
    assert run(["backup", str(copy), "--data", str(data)]) == 0
    engine.dispose()
    assert [path.name for path in copy.rglob("*") if path.is_file()] == ["qplan.sqlite"]
    opened = open_database(default_url(copy))
    assert [job.kind for job in queue.list_page(opened)] == ["plan"]
    opened.dispose()


def _damaged_rows(data: Path) -> None:
    engine = open_database(default_url(data))
    for _ in range(50):
        queue.submit(engine, "plan", {"text": "x" * 1000})
    engine.dispose()
    with (data / "qplan.sqlite").open("rb+") as file:
        file.seek(40_000)
        file.write(b"\xff" * 30_000)


def test_rows_that_are_damaged_are_not_copied_over_good_ones(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    (data / "qplan.sqlite").write_text("no database " * 100)
    with pytest.raises(InputError, match=r"cannot copy the rows of .*: file is not a database"):
        back_up(data, copy)
    (data / "qplan.sqlite").unlink()
    open_database(default_url(data)).dispose()
    back_up(data, copy)
    before = (copy / "qplan.sqlite").read_bytes()
    _damaged_rows(data)
    with pytest.raises(InputError, match=r"is damaged: .* \(the earlier copy stays"):
        back_up(data, copy)
    assert (copy / "qplan.sqlite").read_bytes() == before
    assert found({"QPLAN_DATA": str(data)}, deep=True)["rows"][0] == "bad"


def found(
    environment: dict[str, str], host: str = "127.0.0.1", *, deep: bool = False
) -> dict[str, tuple[str, str]]:
    return {check.name: (check.state, check.detail) for check in examine(environment, host, deep=deep)}


def test_a_doctor_finds_nothing_on_a_healthy_machine(tmp_path, store):
    open_database(default_url(tmp_path)).dispose()
    store.put("blobs", digest_of(b"a"), b"a")
    checks = found({"QPLAN_DATA": str(tmp_path)}, deep=True)
    checks.pop("confinement")
    assert {name: state for name, (state, _) in checks.items() if state != "good"} == {}
    assert {
        "versions",
        "settings",
        "data",
        "database",
        "blobs",
        "executor",
        "children",
        "tokens",
        "rows",
    } <= set(checks)


@pytest.mark.parametrize(
    ("variables", "check", "state", "words"),
    [
        ({"QPLAN_CHILDREN": "none"}, "settings", "bad", "QPLAN_CHILDREN is 'none'"),
        ({"QPLAN_RATE": "-1"}, "settings", "bad", "QPLAN_RATE is '-1', not a whole number"),
        ({"QPLAN_TOKENS": "word"}, "settings", "bad", "QPLAN_TOKENS holds something that is no sha256"),
        ({"QPLAN_TOKENS_FILE": "/none"}, "settings", "bad", "QPLAN_TOKENS_FILE: cannot read '/none'"),
        ({"QPLAN_FUNCTIONS": "f"}, "settings", "bad", "write name=package.module:function"),
        ({"QPLAN_DATA": f"{__file__}/none"}, "data", "bad", "takes no folders: it is a file"),
        ({"QPLAN_DATA": "/proc/none"}, "data", "bad", "takes no folders: No such file"),
        ({"QPLAN_DATABASE_URL": "nonsense"}, "database", "bad", "is no database address"),
        ({"QPLAN_DATABASE_URL": "mysql://u:secret@h/x"}, "database", "bad", "or postgresql://USER"),
        ({"QPLAN_DATABASE_URL": "sqlite:////none/x"}, "database", "bad", "unable to open database file"),
        ({"QPLAN_DATABASE_URL": "postgresql://u:secret@127.0.0.1:9/x"}, "database", "bad", "does not answer"),
        (
            {"QPLAN_DATABASE_URL": "sqlite:////none/x", "QPLAN_DATABASE_URL_FILE": __file__},
            "settings",
            "bad",
            "QPLAN_DATABASE_URL and QPLAN_DATABASE_URL_FILE are both set",
        ),
        ({"QPLAN_BLOBS": "s4://x"}, "blobs", "bad", "cannot open 's4://x'"),
        (
            {"QPLAN_BLOBS": "file:///proc/none"},
            "blobs",
            "bad",
            "file:///proc/none: the object store does not",
        ),
        ({"QPLAN_EXECUTOR": "ray://x"}, "executor", "bad", "dask://HOST:PORT"),
        ({"QPLAN_EXECUTOR": "dask://none"}, "executor", "bad", "missing port number"),
        ({"QPLAN_FUNCTIONS": "f=nowhere:f"}, "plugins", "bad", "cannot be imported"),
    ],
)
def test_a_doctor_finds(tmp_path, variables, check, state, words):
    checks = found({"QPLAN_DATA": str(tmp_path), **variables})
    assert checks[check][0] == state, checks
    assert words in checks[check][1]
    assert "secret" not in str(checks)


def test_a_doctor_goes_on_behind_a_wrong_setting(tmp_path):
    variables = {"QPLAN_DATA": str(tmp_path / "new"), "QPLAN_RATE": "x", "QPLAN_QUOTA": "1GB"}
    checks = examine(variables, "127.0.0.1")
    bad = [check.detail.partition(",")[0] for check in checks if check.state == "bad"]
    assert bad == ["QPLAN_RATE is 'x'", "QPLAN_QUOTA is '1GB'"]
    assert {"data", "database", "children"} <= {check.name for check in checks}
    assert not (tmp_path / "new").exists()


def test_a_doctor_reads_names_and_tokens(tmp_path):
    checks = found({"QPLAN_DATA": str(tmp_path), "QPLAN_TOKEN": "x"}, "192.0.2.1")
    assert checks["tokens"] == ("bad", "none, and 192.0.2.1 can be reached from other machines")
    odd = [
        check.detail
        for check in examine({"QPLAN_DATA": str(tmp_path), "QPLAN_TOKEN": "x"}, "::1")
        if check.state == "odd"
    ]
    assert "QPLAN_TOKEN is no setting; QPLAN_TOKENS?" in odd


def test_a_doctor_finds_damage(tmp_path, store, capsys):
    digest = digest_of(b"whole")
    store.put("blobs", digest, b"whole")
    path = store.path("blobs", digest)
    path.chmod(0o600)
    path.write_bytes(b"holed")
    assert damaged(tmp_path) == [f"blobs/{path.name}"]
    assert run(["doctor", "--deep", "--json", "--data", str(tmp_path)]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["digests"]["state"] == "bad"


def test_a_damaged_file_is_not_copied_and_is_once_it_was_sent_again(tmp_path):
    """Else a copy has it for ever: what a copy has already is not copied again."""
    store, copy = Store(tmp_path / "data").of("one"), Store(tmp_path / "copy").of("one")
    store.open()
    for kind in ("blobs", "descriptions", "stats"):
        for data in (b"whole", b"other"):
            store.put(kind, digest_of(data), data)
        store.path(kind, digest_of(b"whole")).write_bytes(b"holed")
    name = digest_of(b"whole").removeprefix("sha256:")
    assert damaged(store.home) == [
        f"tenants/one/{kind}/{name}" for kind in ("blobs", "descriptions", "stats")
    ]
    with pytest.raises(InputError, match=rf"3 files damaged and not copied: tenants/one/blobs/{name}, "):
        back_up(store.home, copy.home)
    assert damaged(copy.home) == []
    assert [copy.has(kind, digest_of(b"other")) for kind in ("blobs", "descriptions", "stats")] == [True] * 3
    assert not list(copy.home.rglob("*.part"))
    for kind in ("blobs", "descriptions", "stats"):
        store.replace(kind, digest_of(b"whole"), b"whole")
    assert (back_up(store.home, copy.home).copied, copy.read("blobs", digest_of(b"whole"))) == (3, b"whole")


def test_a_token_is_made_on_the_command_line(capsys):
    assert run(["token", "ci", "--scope", "read", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["setting"].startswith("ci:read:")
    assert made["token"] not in made["setting"]
    assert run(["token", "ci", "--scope", "everything"]) == 2
