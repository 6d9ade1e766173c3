"""Tenants of `benchmarks.chaos`: clients that send jobs until a server has them, and repair what it says.

A job that a server does not know any more (an older backup was put in place) is sent again under its key; so
is one that found no room. A damaged model is uploaded again. Waits are by our own clock: that of the servers
is set forward and back.
"""

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from sqlalchemy import Engine, Row, select
from sqlalchemy.exc import DatabaseError

from api.storage.database import jobs, reading
from api.storage.digests import digest_of
from benchmarks.faults import DIGITS

ASKS: Final = {"greedy": 24, "one": 2, "two": 2}
"""Jobs of each tenant that wait or run at once."""
KNOWN: Final = {"format": "qplan.annotations/1", "values": {"image": "!quant.calibrated<f32<0.0:1.0>>"}}
NO_ROOM: Final = "storage-full"
"""The failure of a job whose result found no room: it is told, not lost."""
DAMAGED: Final = ("corrupted", "unknown-name")
"""Failures of a job whose model was damaged, and removed since."""
LATER: Final = (429, 503, 507)
OCTETS: Final = {"Content-Type": "application/octet-stream"}
_NUMBER: Final = re.compile(r'"bit_price": ([0-9.]+)')
_UNIT: Final = 1_000_000


@dataclass(slots=True)
class Sent:
    """A job that a server took: its id, and when it was asked for first."""

    job: str
    since: float


@dataclass(slots=True)
class Tenant:
    """A tenant, its model, and its jobs by their numbers.

    Attributes:
      gate: held while something is sent or looked at.
      pending: to be sent, with when each was asked for first.
      rolled_back: jobs that ended, and were gone with the database that was replaced by an older backup.
      told: failures and refusals that it was told, and did something about.
    """

    name: str
    ports: Sequence[int]
    model: str = ""
    gate: threading.Lock = field(default_factory=threading.Lock)
    pending: dict[int, float] = field(default_factory=dict)
    waiting: dict[int, Sent] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    tries: Counter[int] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    began: int = 0
    rolled_back: int = 0
    error: BaseException | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers with its token."""
        return {"Authorization": f"Bearer secret-{self.name}"}

    @property
    def taken(self) -> set[int]:
        """Numbers of the jobs that servers took."""
        return {*self.waiting, *self.ended}

    def client(self, port: int | None = None) -> httpx.Client:
        """A client of a server, the first one by default."""
        place = f"http://127.0.0.1:{self.ports[0] if port is None else port}"
        return httpx.Client(base_url=place, trust_env=False, timeout=20, headers=self.headers)

    def upload(self, port: int | None = None) -> None:
        """Upload the digits and have them read."""
        data = (DIGITS / "digits.onnx").read_bytes()
        with self.client(port) as client:
            client.timeout = httpx.Timeout(120)
            client.put(f"/v1/blobs/{digest_of(data)}", content=data, headers=OCTETS).raise_for_status()
            read = client.post("/v1/models", json={"blob": digest_of(data)}).raise_for_status()
        self.model = str(read.json()["digest"])

    def work(self, engine: Engine, over: threading.Event, until: float) -> None:
        """Send jobs and see how they end, until it is over and all have ended, or it is too late.

        Args:
          until: seconds by the monotonic clock.
        """
        try:
            while time.monotonic() < until and (not over.is_set() or self.pending or self.waiting):
                with self.gate:
                    self.look(engine)
                    if len(self.waiting) + len(self.pending) < ASKS[self.name] and not over.is_set():
                        self.pending[self.began] = time.monotonic()
                        self.began += 1
                    is_taken = self.send() if self.pending else None
                time.sleep({True: 0.0, None: 0.2, False: 0.3}[is_taken])
        except BaseException as error:
            self.error = error
            raise

    def send(self) -> bool:
        """Send the first job that no server has yet; whether one says that it has it."""
        number = next(iter(self.pending))
        port = self.ports[number % len(self.ports)]
        try:
            answer = self._post(number, port)
        except httpx.TransportError:
            return False
        if answer.status_code in (404, 410):
            with suppress(httpx.HTTPError):
                self.told[answer.json()["type"].rpartition(":")[2]] += 1
                self.upload(port)
            return False
        if answer.status_code not in (200, 202, *LATER):
            raise RuntimeError(f"{self.name}, {number}: {answer.status_code} {answer.text[:300]}")
        if answer.status_code in LATER:
            return False
        since = self.pending.pop(number)
        if answer.status_code == 202:
            self.waiting[number] = Sent(answer.json()["id"], since)
        else:  # it ended meanwhile: the answer is the plan
            self.ended[number] = ""
            self.waits.append(time.monotonic() - since)
        return True

    def _post(self, number: int, port: int) -> httpx.Response:
        key = f"{self.name}-{number}-{self.tries[number]}"
        body = {
            "model": self.model,
            "target": "onnxruntime-cpu",
            "options": {"costs": {"bit_price": 1 + number / _UNIT}},
            "annotations": KNOWN,  # without any range a plan is refused
        }
        headers = {**self.headers, "Idempotency-Key": key, "Prefer": "respond-async"}
        place = f"http://127.0.0.1:{port}/v1/plans"
        return httpx.post(place, json=body, headers=headers, timeout=20, trust_env=False)

    def look(self, engine: Engine) -> None:
        """See which jobs ended, and which are gone.

        Raises:
          RuntimeError: a job failed for another reason than a fault, or is gone and a server does not say so.
        """
        numbers = {sent.job: number for number, sent in self.waiting.items()}
        wanted = select(jobs.c.id, jobs.c.state, jobs.c.problem).where(jobs.c.id.in_(numbers))
        try:
            with reading(engine) as connection:
                rows = {row.id: row for row in connection.execute(wanted)}
        except (DatabaseError, ValueError):  # a row of a damaged page may have words that are no JSON
            return
        for job, number in numbers.items():
            if job not in rows:
                self._resend_gone(number)
            elif rows[job].state == "done":
                self.waits.append(time.monotonic() - self.waiting.pop(number).since)
                self.ended[number] = job
            elif rows[job].state == "failed":
                self._resend_failed(number, rows[job].problem["name"])

    def _resend_gone(self, number: int) -> None:
        sent = self.waiting[number]
        try:
            with self.client() as client:
                answer = client.get(f"/v1/jobs/{sent.job}")
        except httpx.TransportError:
            return
        if answer.status_code in LATER:
            return
        if answer.status_code != 404 or not answer.json()["type"].endswith(":unknown-name"):
            raise RuntimeError(f"a job that is gone: {answer.status_code} {answer.text[:300]}")
        self.told["job gone"] += 1
        self.pending[number] = self.waiting.pop(number).since

    def _resend_failed(self, number: int, problem: str) -> None:
        if problem not in (NO_ROOM, *DAMAGED):
            raise RuntimeError(f"{self.name}, {number}: the job failed: {problem}")
        self.told[problem] += 1
        if problem == "unknown-name":  # its answer stays that of its key
            self.tries[number] += 1
        self.pending[number] = self.waiting.pop(number).since

    def roll_back(self, there: set[int]) -> list[str]:
        """Forget jobs that ended and are not there any more; their ids."""
        gone = [number for number in self.ended if number not in there]
        self.rolled_back += len(gone)
        return [job for job in (self.ended.pop(number) for number in gone) if job]


def tokens() -> str:
    """The setting with a token of each tenant."""
    digests = {name: hashlib.sha256(f"secret-{name}".encode()).hexdigest() for name in ASKS}
    return ",".join(f"{name}/ci:write:{digest}" for name, digest in digests.items())


def number_of(row: Row[Any]) -> int:
    """The number of a job, by its row."""
    found = _NUMBER.search(json.dumps(row.request))
    if found is None:
        raise RuntimeError(f"a job that nobody sent: {row.request}")
    return round((float(found[1]) - 1) * _UNIT)


@contextmanager
def paused(tenants: Sequence[Tenant]) -> Iterator[None]:
    """Let nobody send or look meanwhile."""
    with ExitStack() as stack:
        for tenant in tenants:
            stack.enter_context(tenant.gate)
        yield
