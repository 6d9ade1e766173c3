"""Damage of what is kept, and its repair, while servers run: blobs, pages of SQLite, older backups.

Each function does what a bad disk or an operator does, and raises where the product does not notice, does not
say so, serves what is damaged as good, or does not come back. `benchmarks.one_machine` calls them.
"""

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
from sqlalchemy import Engine, select

from api.storage.database import DATABASE, jobs, reading
from api.storage.digests import digest_of
from benchmarks.chaos_tenants import LATER, OCTETS, Tenant, number_of, paused
from benchmarks.clusters import wait_for
from benchmarks.faults import COMMAND, DIGITS, Servers

PAGE: Final = 4096
PAGES: Final = 12
TURNS: Final = 10
AFTER_SECONDS: Final = 5.0
"""Seconds that pass between a backup and the fault after which it is put in place."""
READY_SECONDS: Final = 120.0
SAMPLE: Final = 5
_WRITE: Final = """\
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
for page in sys.argv[2:]:
    os.pwrite(file, os.urandom(4096), int(page) * 4096)
"""


def run_verb(servers: Servers, *words: str, data: Path | None = None) -> tuple[int, str]:
    """Run a verb on the data folder of servers, or another: its exit code and what it said."""
    line = [sys.executable, "-c", COMMAND, *words, "--data", str(data or servers.data)]
    done = subprocess.run(line, env=servers.environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def commanded(servers: Servers, *words: str, data: Path | None = None) -> str:
    """Run a verb that is to succeed; what it said.

    Raises:
      RuntimeError: it says that something is wrong.
    """
    code, said = run_verb(servers, *words, data=data)
    if code:
        raise RuntimeError(f"{words[0]}: {said[-4000:]}")
    return said


def back_up(servers: Servers, goal: Path) -> None:
    """Run `qplan backup`; a file that is damaged by now is not in the copy.

    Raises:
      RuntimeError: it says that something else is wrong.
    """
    code, said = run_verb(servers, "backup", str(goal))
    if code and "damaged and not copied: tenants/" not in " ".join(said.split()):
        raise RuntimeError(f"backup: {said[-4000:]}")


def checks_of(servers: Servers) -> dict[str, str]:
    """The states that `qplan doctor --deep` finds, by check."""
    _, said = run_verb(servers, "doctor", "--deep", "--json")
    return {check["name"]: check["state"] for check in json.loads(said)}


def flip(path: Path, chance: random.Random) -> None:
    """Change some bytes of a file in its place."""
    with path.open("r+b") as file:
        for _ in range(4):
            place = chance.randrange(path.stat().st_size)
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ (1 << chance.randrange(8))]))


def damage_blob(servers: Servers, tenant: Tenant, chance: random.Random) -> None:
    """Damage a blob of its own: doctor finds it, nobody gets it, and it can be sent again.

    Raises:
      RuntimeError: one of these is not so.
    """
    data = chance.randbytes(1 << 18)
    address = f"/v1/blobs/{digest_of(data)}"
    name = digest_of(data).removeprefix("sha256:")
    path = servers.data / "tenants" / tenant.name / "blobs" / name[:2] / name
    for port in tenant.ports:  # each has looked at it, and may take it for whole from then on
        _kept(tenant, port, address, data)
    flip(path, chance)
    if checks_of(servers)["digests"] != "bad":
        raise RuntimeError("doctor does not find a damaged blob")
    answers = [_sent(tenant, port, "GET", address) for port in tenant.ports]
    expected = [("corrupted", 410), ("unknown-name", 404)]  # the first one takes it away
    found = [(answer.json()["type"].rpartition(":")[2], answer.status_code) for answer in answers]
    if found != expected[: len(found)]:
        raise RuntimeError(f"a damaged blob is answered with {found}")
    for port in tenant.ports:
        _kept(tenant, port, address, data)
    _sent(tenant, tenant.ports[0], "DELETE", address)


def damage_model(servers: Servers, tenant: Tenant, chance: random.Random) -> None:
    """Damage the model that a tenant has jobs of; it will be told, and sends it again."""
    name = digest_of((DIGITS / "digits.onnx").read_bytes()).removeprefix("sha256:")
    with suppress(FileNotFoundError):  # it was found damaged before, and is on its way
        flip(servers.data / "tenants" / tenant.name / "blobs" / name[:2] / name, chance)


def damage_pages(
    servers: Servers, engine: Engine, tenants: Sequence[Tenant], chance: random.Random, spare: Path
) -> None:
    """Overwrite pages of the database: doctor and servers say so, and a backup brings everything of it back.

    Raises:
      RuntimeError: it is not found, or `put_back` does.
    """
    shutil.rmtree(spare, ignore_errors=True)
    back_up(servers, spare)
    for _ in range(TURNS):  # a page whose newer copy lies in the log is written over again
        last = (servers.data / DATABASE).stat().st_size // PAGE
        pages = [str(chance.randrange(1, last)) for _ in range(PAGES)]
        # Another process: one that closes a file drops its locks of it, and we have it open.
        subprocess.run([sys.executable, "-c", _WRITE, str(servers.data / DATABASE), *pages], check=True)
        if checks_of(servers)["rows"] == "bad":
            break
    else:
        raise RuntimeError("doctor does not find damaged pages of the database")
    code, said = run_verb(servers, "backup", str(spare.with_name("of-damaged")))
    shutil.rmtree(spare.with_name("of-damaged"), ignore_errors=True)
    if not code or ("damaged" not in said and "cannot copy the rows" not in said):
        raise RuntimeError(f"a backup of a damaged database: {code} {said[-500:]}")
    for tenant in tenants:
        with tenant.client() as client:
            answer = client.get("/v1/jobs?limit=1000&order=oldest")
        if answer.status_code not in (200, 503):
            raise RuntimeError(f"beside damaged pages: {answer.status_code} {answer.text[:300]}")
    put_back(servers, engine, tenants, spare)


def restore_older(servers: Servers, engine: Engine, tenants: Sequence[Tenant], spare: Path) -> None:
    """Put a backup in place that is older than jobs which ended since.

    Raises:
      RuntimeError: `put_back` does.
    """
    shutil.rmtree(spare, ignore_errors=True)
    back_up(servers, spare)
    time.sleep(AFTER_SECONDS)
    put_back(servers, engine, tenants, spare)


def put_back(servers: Servers, engine: Engine, tenants: Sequence[Tenant], spare: Path) -> None:
    """Stop the servers, put a backup in the place of the data folder as docs/service.md says, and start them.

    Raises:
      RuntimeError: doctor finds something, a job of the backup is not as it was, or one that is not of it
        is not said to be unknown.
    """
    with paused(tenants):
        servers.stop()
        engine.dispose()
        away = servers.data.with_name("away")
        servers.data.rename(away)
        spare.rename(servers.data)
        shutil.rmtree(away)
        commanded(servers, "doctor", "--deep")
        with reading(engine) as connection:
            rows = connection.execute(select(jobs)).all()
        servers.start()
        for port in servers.ports:
            wait_for(port)
            await_ready(port)
        for tenant in tenants:
            own = [row for row in rows if row.tenant == tenant.name]
            gone = tenant.roll_back({number_of(row) for row in own})
            _require_unknown(tenant, gone[:SAMPLE])
            done = [row for row in own if row.state == "done"]
            for row in done[-SAMPLE:]:
                record = _sent(tenant, tenant.ports[0], "GET", f"/v1/jobs/{row.id}").json()
                plan = _sent(tenant, tenant.ports[0], "GET", f"/v1/plans/{row.result['key']}")
                if record["result"]["plan"] != row.result["key"] or plan.status_code != 200:
                    raise RuntimeError(f"a job of the backup is another one: {record} {plan.status_code}")


def _require_unknown(tenant: Tenant, gone: Sequence[str]) -> None:
    for job in gone:
        answer = _sent(tenant, tenant.ports[0], "GET", f"/v1/jobs/{job}")
        if answer.status_code != 404 or not answer.json()["type"].endswith(":unknown-name"):
            raise RuntimeError(f"a job that is gone: {answer.status_code} {answer.text[:300]}")


def await_ready(port: int) -> None:
    """Wait until a server says that it is ready.

    Raises:
      RuntimeError: it does not.
    """
    until = time.monotonic() + READY_SECONDS
    said = ""
    while time.monotonic() < until:
        with suppress(httpx.TransportError):
            answer = httpx.get(f"http://127.0.0.1:{port}/v1/health/ready", timeout=10, trust_env=False)
            if answer.status_code == 200:
                return
            said = answer.text[:300]
        time.sleep(0.2)
    raise RuntimeError(f"a server is not ready: {said}")


def _kept(tenant: Tenant, port: int, address: str, data: bytes) -> None:
    """Send a blob and get it.

    Raises:
      RuntimeError: it is not answered, or with other bytes.
    """
    put = _sent(tenant, port, "PUT", address, data)
    got = _sent(tenant, port, "GET", address)
    if put.status_code != 201 or got.status_code != 200 or got.content != data:
        raise RuntimeError(f"a blob that was sent: {put.status_code}, {got.status_code} {got.text[:200]}")


def _sent(tenant: Tenant, port: int, method: str, address: str, data: bytes | None = None) -> httpx.Response:
    """Ask until there is an answer: servers are killed, and disks full, at any time."""
    until = time.monotonic() + READY_SECONDS
    while True:
        try:
            with tenant.client(port) as client:
                answer = client.request(method, address, content=data, headers=OCTETS if data else None)
        except httpx.TransportError:
            if time.monotonic() > until:
                raise
        else:
            if answer.status_code not in LATER or time.monotonic() > until:
                return answer
        time.sleep(0.3)
