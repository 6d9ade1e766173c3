"""The queue: every change of a job is a short transaction; SQLite and PostgreSQL alike.

A job is leased by an owner, who says so again before the lease runs out; a lease that ran out is taken over.
Whoever writes an end must still hold the lease (`owner` and `attempt`), so a job ends once. Jobs are taken
from principals in turn, and seen by their tenant alone. Nothing here runs anything.
Source: docs/service.md.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import Connection, Engine, Row, and_, case, func, insert, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from ..intake.turns import ALL, portion, refuse_share, tenant_of
from ..problems import TYPES, Refused, unknown
from ..server.tokens import DEFAULT
from ..storage.database import clock, events, jobs, now, reading, require_rows_kept, writing
from .records import ENDED, Event, Job, State, told_of

LOSSES: Final = 3
"""Workers a job may lose."""
TAKEOVERS: Final = 20
"""Leases a job may use up: whoever runs it may be bringing its owner down."""
MOST_LISTED: Final = 1000
DAMAGED: Final = "corrupted"
"""The failure of a job that met a damaged file."""
MOST_PAUSE: Final = 60.0
"""Seconds for which a job may be put back; what is due later was so before the clock was set back."""

Order: TypeAlias = Literal["newest", "oldest"]

_FIELDS: Final = tuple(field.name for field in fields(Job) if field.name not in ("told", "work"))
_COLUMNS: Final = tuple(jobs.c[name] for name in _FIELDS)
MOST_KNOWN: Final = 4096
_KNOWN: Final[dict[str, Mapping[str, Any]]] = {}
"""`told_of` each job's work, by id: a work never changes, and may hold a model, so it is read once."""
_LOST: Final = {"name": "worker-lost", "detail": f"{LOSSES} workers were lost with this job"}
_DROPPED: Final = {"name": "worker-lost", "detail": f"{TAKEOVERS} servers were lost with this job"}


@dataclass(frozen=True, slots=True)
class Standing:
    """Jobs of an owner that it must not go on with.

    Attributes:
      lost: the lease went to somebody else, or the job has ended.
      cancelling: to be stopped.
    """

    lost: frozenset[str]
    cancelling: frozenset[str]


def submit(
    engine: Engine,
    kind: str,
    request: Mapping[str, Any],
    *,
    key: str | None = None,
    principal: str = "",
    tenant: str = DEFAULT,
    most: int = 10_000,
    share: int = ALL,
    tenant_share: int = ALL,
) -> Job:
    """Put a job into the queue; of a principal of whom none waits one always may.

    Args:
      request: of `records.work`.
      key: a job of this key that exists already is the answer, unless the service failed it.
      most: jobs that may wait.
      share: the percentage of these that one principal may have.
      tenant_share: the percentage of these that the principals of one tenant may have together.

    Raises:
      Refused: `queue-full`; `share-taken`; `not-ready` where the row would be lost.
    """
    try:
        with writing(engine) as connection:
            require_rows_kept(connection)
            found = _by_key(connection, key)
            if found is not None and not service_failed(found):
                return found
            if found is not None:
                connection.execute(update(jobs).where(jobs.c.id == found.id).values(key=None))
            queued = select(func.count()).select_from(jobs).where(jobs.c.state == "queued")
            own = connection.execute(queued.where(jobs.c.principal == principal)).scalar_one()
            waiting = connection.execute(queued).scalar_one()
            if own and waiting >= most:
                raise Refused("queue-full", f"{waiting} jobs wait already")
            if own >= portion(most, share):
                refuse_share(f"{own} jobs of yours wait already")
            of_tenant = connection.execute(queued.where(jobs.c.tenant == tenant)).scalar_one()
            if own and of_tenant >= portion(most, tenant_share):
                refuse_share(f"{of_tenant} jobs of your tenant wait already")
            about = {"kind": kind, "request": dict(request), "key": key}
            return _insert(connection, {**about, "principal": principal, "tenant": tenant})
    except IntegrityError:
        with reading(engine) as connection:
            found = _by_key(connection, key)
        if found is None:
            raise
        return found


def get(engine: Engine, job: str, tenant: str = DEFAULT) -> Job:
    """Read a job of a tenant.

    Raises:
      Refused: there is none of this id.
    """
    with reading(engine) as connection:
        return _own(connection, job, tenant)


def list_page(
    engine: Engine,
    *,
    limit: int = 50,
    after: tuple[float, str] | None = None,
    order: Order = "newest",
    state: State | None = None,
    kind: str | None = None,
    principal: str | None = None,
    tenant: str = DEFAULT,
) -> list[Job]:
    """List jobs of a tenant, in the order of their creation.

    Args:
      after: when the last one of the page before was created, and its id.
      principal: only of whoever asked; None: of all.
    """
    wanted = select(*_COLUMNS).where(jobs.c.tenant == tenant)
    place = tuple_(jobs.c.created, jobs.c.id)
    is_newest = order == "newest"
    wanted = wanted.order_by(
        *(column.desc() if is_newest else column for column in (jobs.c.created, jobs.c.id))
    )
    for column, value in ((jobs.c.state, state), (jobs.c.kind, kind), (jobs.c.principal, principal)):
        if value is not None:
            wanted = wanted.where(column == value)
    if after is not None:
        wanted = wanted.where(place < after if is_newest else place > after)
    with reading(engine) as connection:
        rows = connection.execute(wanted.limit(min(limit, MOST_LISTED))).all()
        return [_job(connection, row) for row in rows]


def count(engine: Engine) -> dict[str, int]:
    """Number of jobs in each state."""
    with reading(engine) as connection:
        rows = connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))
        return {row.state: row[1] for row in rows}


def cancel(engine: Engine, job: str, tenant: str = DEFAULT) -> Job:
    """Cancel a job of a tenant: at once while it waits, soon where it runs, not at all once it ended.

    Raises:
      Refused: there is none of this id.
    """
    with writing(engine) as connection:
        _own(connection, job, tenant)
        found = _get(connection, job, lock=True)
        if found.state == "queued":
            _change(connection, found, "cancelled", {"state": "cancelled", "finished": now(connection)})
        elif found.state == "running" and not found.cancelling:
            _change(connection, found, "cancelling", {"cancelling": True})
        return _get(connection, job)


def remove(engine: Engine, job: str, tenant: str = DEFAULT) -> str | None:
    """Delete a job of a tenant that has ended, with its events.

    Returns:
      The key that it came with.

    Raises:
      Refused: there is none of this id; `not-ended`.
    """
    with writing(engine) as connection:
        _own(connection, job, tenant)
        found = _get(connection, job, lock=True)
        if not found.has_ended:
            raise Refused("not-ended", f"the job is {found.state}: cancel it first")
        key = connection.execute(select(jobs.c.key).where(jobs.c.id == job)).scalar_one()
        connection.execute(events.delete().where(events.c.job == job))
        connection.execute(jobs.delete().where(jobs.c.id == job))
    return None if key is None else str(key)


def has_key(engine: Engine, key: str) -> bool:
    """Whether a job of this key is there."""
    with reading(engine) as connection:
        return _by_key(connection, key) is not None


def service_failed(job: Job) -> bool:
    """Whether a job failed by no fault of its request, and is no answer to whoever sends that again.

    A full disk has room again some time, and a damaged file is sent again.
    """
    name = "" if job.problem is None else job.problem["name"]
    known = TYPES.get(name)  # a later server knows more
    return name == DAMAGED or (known is not None and known[0] >= 500)


def events_after(engine: Engine, job: str, number: int = 0) -> list[Event]:
    """Events of a job after the one of a number, in order."""
    wanted = select(events).where(events.c.job == job, events.c.number > number)
    with reading(engine) as connection:
        return [Event(**row._mapping) for row in connection.execute(wanted.order_by(events.c.number))]  # noqa: SLF001


def stands(engine: Engine, names: Iterable[str]) -> dict[str, tuple[int, bool]]:
    """The number of the last event of each job, and whether it has ended; of those that are there."""
    wanted = select(jobs.c.id, jobs.c.events, jobs.c.state).where(jobs.c.id.in_(sorted(names)))
    with reading(engine) as connection:
        return {row.id: (row.events, row.state in ENDED) for row in connection.execute(wanted)}


def lease(
    engine: Engine, owner: str, limit: int, *, seconds: float, share: int = ALL, tenant_share: int = ALL
) -> list[Job]:
    """Take jobs to run: waiting ones, and those whose owner was silent for `seconds`.

    From principals in turn, those first of whom fewest run; of each, and where as many run, the oldest first.

    Args:
      limit: jobs to take.
      share: the percentage of these, and of what the owner has, that one principal may have.
      tenant_share: the same of the principals of one tenant together.
    """
    with reading(engine) as connection:
        if not connection.execute(select(jobs.c.id).where(_free(now(connection), seconds)).limit(1)).first():
            return []
    taken = []
    with writing(engine) as connection:
        at = now(connection)
        free, shares = _free(at, seconds), (share, tenant_share)
        for job in _in_turn(connection, free, owner, limit, shares=shares, at=at):
            if job.cancelling:
                _change(connection, job, "cancelled", {"state": "cancelled", "finished": at})
            elif job.attempt >= TAKEOVERS:
                _end(connection, job, at, _DROPPED)
            else:
                mine = {"owner": owner, "attempt": job.attempt + 1, "heartbeat": at, "started": at}
                _change(connection, job, "running", {"state": "running", "progress": None, **mine})
                taken.append(replace(_get(connection, job.id), work=_work(connection, job.id)))
    return taken


def who_waits(engine: Engine) -> dict[str, bool]:
    """The principals of jobs that have not ended, and whether some of these wait."""
    waits = func.max(case((jobs.c.state == "queued", 1), else_=0)).label("waits")
    wanted = select(jobs.c.principal, waits).where(jobs.c.state.in_(("queued", "running")))
    with reading(engine) as connection:
        rows = connection.execute(wanted.group_by(jobs.c.principal))
        return {row.principal: bool(row.waits) for row in rows}


def standing(engine: Engine, held: Iterable[Job]) -> Standing:
    """See how the jobs of an owner stand; reads only."""
    with reading(engine) as connection:
        return _standing(connection, held)


def heartbeat(engine: Engine, held: Iterable[Job]) -> Standing:
    """Prolong the leases of an owner's jobs, and see how they stand."""
    kept = tuple(held)
    with writing(engine) as connection:
        at = now(connection)
        for job in sorted(kept, key=lambda job: job.id):
            connection.execute(update(jobs).where(_held(job)).values(heartbeat=at))
        return _standing(connection, kept)


def note_progress(engine: Engine, job: Job, progress: Mapping[str, Any]) -> bool:
    """Note how far a job is; False where it is not ours any more."""
    with writing(engine) as connection:
        return _change(connection, job, "progress", {"progress": dict(progress)}, data=progress, held=True)


def finish(engine: Engine, job: Job, result: Mapping[str, Any]) -> bool:
    """Write the result of a job; False where it is not ours any more."""
    with writing(engine) as connection:
        ended = {"state": "done", "finished": now(connection), "result": dict(result)}
        return _change(connection, job, "done", ended, held=True)


def fail(engine: Engine, job: Job, problem: Mapping[str, Any]) -> bool:
    """Write the failure of a job, `name` and `detail` and more; False where it is not ours any more."""
    with writing(engine) as connection:
        return _end(connection, job, now(connection), problem)


def give_up(engine: Engine, job: Job) -> bool:
    """Write that a job was stopped: cancelled on request, else put back into the queue."""
    with writing(engine) as connection:
        at = now(connection)
        ended = {"state": "cancelled", "finished": at}
        if _get(connection, job.id, lock=True).cancelling:
            return _change(connection, job, "cancelled", ended, held=True)
        return _put_back(connection, job, at)


def retry(engine: Engine, job: Job, reason: str) -> bool:
    """Put a job whose worker was lost back into the queue, or fail it after `LOSSES`."""
    with writing(engine) as connection:
        at = now(connection)
        if job.lost + 1 >= LOSSES:
            return _end(
                connection, job, at, {**_LOST, "detail": f"{_LOST['detail']}, the last one: {reason}"}
            )
        again = {"state": "queued", "owner": None, "lost": job.lost + 1, "due": at}
        return _change(connection, job, "retried", again, data={"reason": reason}, held=True)


def release(engine: Engine, job: Job, *, seconds: float = 0.0) -> bool:
    """Put a job that could not be run here back into the queue, for after `seconds`; it does not count."""
    with writing(engine) as connection:
        return _put_back(connection, job, now(connection) + min(seconds, MOST_PAUSE))


def forget(engine: Engine, older_than: float) -> int:
    """Delete jobs that ended before a time, with their events; how many."""
    old = and_(jobs.c.state.in_(ENDED), jobs.c.finished < older_than)
    with writing(engine) as connection:
        connection.execute(events.delete().where(events.c.job.in_(select(jobs.c.id).where(old))))
        return connection.execute(jobs.delete().where(old)).rowcount


def _in_turn(
    connection: Connection, free: Any, owner: str, limit: int, *, shares: tuple[int, int], at: float
) -> list[Job]:
    """Jobs that are free, from principals in turn, locked; shares are of a principal and of a tenant.

    A job of a time to come is older than all others: the clock was set back since.
    """
    running = select(jobs.c.principal, func.count()).where(jobs.c.state == "running", ~free)
    running = running.group_by(jobs.c.principal)
    at_work = {row.principal: row[1] for row in connection.execute(running)}
    here = {row.principal: row[1] for row in connection.execute(running.where(jobs.c.owner == owner))}
    most, most_of_tenant = (portion(limit + sum(here.values()), share) for share in shares)
    of_tenants = Counter[str]()
    for principal, count in here.items():
        of_tenants[tenant_of(principal)] += count
    found: list[tuple[int, bool, float, str, Job]] = []
    for principal in connection.execute(select(jobs.c.principal).where(free).distinct()).scalars().all():
        room = min(limit, most - here.get(principal, 0))
        if room <= 0:
            continue
        wanted = select(*_COLUMNS).where(free, jobs.c.principal == principal)
        wanted = wanted.order_by(jobs.c.created <= at, jobs.c.created, jobs.c.id).limit(room)
        rows = connection.execute(wanted.with_for_update(skip_locked=True)).all()
        own = [_job(connection, row) for row in rows]
        before = at_work.get(principal, 0)
        found += [
            (before + place, job.created <= at, job.created, job.id, job) for place, job in enumerate(own)
        ]
    taken: list[Job] = []
    for *_, job in sorted(found, key=lambda entry: entry[:4]):
        if len(taken) < limit and of_tenants[tenant_of(job.principal)] < most_of_tenant:
            of_tenants[tenant_of(job.principal)] += 1
            taken.append(job)
    return taken


def _free(at: float, seconds: float) -> Any:
    """Jobs to take: due ones, silent ones, and those of times to come: the clock was set back."""
    waiting = and_(jobs.c.state == "queued", or_(jobs.c.due <= at, jobs.c.due > at + MOST_PAUSE))
    beat = jobs.c.heartbeat
    return or_(waiting, and_(jobs.c.state == "running", or_(beat < at - seconds, beat > at + seconds)))


def _held(job: Job) -> Any:
    return and_(
        jobs.c.id == job.id,
        jobs.c.state == "running",
        jobs.c.owner == job.owner,
        jobs.c.attempt == job.attempt,
    )


def _standing(connection: Connection, held: Iterable[Job]) -> Standing:
    attempts = {job.id: (job.owner, job.attempt) for job in held}
    columns = (jobs.c.id, jobs.c.owner, jobs.c.attempt, jobs.c.cancelling)
    wanted = select(*columns).where(jobs.c.id.in_(attempts), jobs.c.state == "running")
    rows = connection.execute(wanted).all()
    mine = {row.id: row.cancelling for row in rows if attempts[row.id] == (row.owner, row.attempt)}
    stopped = frozenset(name for name, cancelling in mine.items() if cancelling)
    return Standing(frozenset(attempts) - frozenset(mine), stopped)


def _change(
    connection: Connection,
    job: Job,
    kind: str,
    values: Mapping[str, Any],
    *,
    data: Mapping[str, Any] | None = None,
    held: bool = False,
) -> bool:
    """Change a row and note the event; `held`: only while the lease is ours."""
    where = _held(job) if held else jobs.c.id == job.id
    changed = update(jobs).where(where).values({**values, "events": jobs.c.events + 1})
    row = connection.execute(changed.returning(jobs.c.events)).first()
    if row is None:
        return False
    _note(connection, job.id, row.events, kind, data or {})
    return True


def _end(connection: Connection, job: Job, at: float, problem: Mapping[str, Any]) -> bool:
    ended = {"state": "failed", "finished": at, "problem": dict(problem)}
    return _change(connection, job, "failed", ended, data=problem, held=True)


def _put_back(connection: Connection, job: Job, due: float) -> bool:
    again = {"state": "queued", "owner": None, "due": due, "attempt": job.attempt - 1}
    return _change(connection, job, "queued", again, held=True)


def _insert(connection: Connection, about: Mapping[str, Any]) -> Job:
    at = now(connection)
    name = f"{int(at * 1e6):014x}{secrets.token_hex(9)}"
    row = {"id": name, **about}
    start = {"state": "queued", "attempt": 0, "lost": 0, "events": 1, "cancelling": False}
    connection.execute(insert(jobs).values(**row, **start, created=at, due=at))
    _know(name, about["request"])
    _note(connection, name, 1, "queued", {})
    return _get(connection, name)


def _note(connection: Connection, job: str, number: int, kind: str, data: Mapping[str, Any]) -> None:
    row = {"job": job, "number": number, "kind": kind, "data": dict(data), "at": clock(connection)}
    connection.execute(insert(events).values(**row))


def _by_key(connection: Connection, key: str | None) -> Job | None:
    if key is None:
        return None
    row = connection.execute(select(*_COLUMNS).where(jobs.c.key == key)).first()
    return None if row is None else _job(connection, row)


def _own(connection: Connection, job: str, tenant: str) -> Job:
    """A job of a tenant; that of another one is not there."""
    row = connection.execute(select(*_COLUMNS).where(jobs.c.id == job, jobs.c.tenant == tenant)).first()
    if row is None:
        raise unknown("job", job, [])
    return _job(connection, row)


def _get(connection: Connection, job: str, *, lock: bool = False) -> Job:
    wanted = select(*_COLUMNS).where(jobs.c.id == job)
    row = connection.execute(wanted.with_for_update() if lock else wanted).first()
    if row is None:
        raise unknown("job", job, [])
    return _job(connection, row)


def _job(connection: Connection, row: Row[Any]) -> Job:
    found = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    told = _KNOWN.get(found["id"]) or _know(found["id"], _work(connection, found["id"]))
    return Job(told=told, **{name: found[name] for name in _FIELDS})


def _work(connection: Connection, job: str) -> Mapping[str, Any]:
    """The work of a job; nothing where the job was deleted meanwhile."""
    work = connection.execute(select(jobs.c.request).where(jobs.c.id == job)).scalar_one_or_none()
    return {} if work is None else work


def _know(job: str, work: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(_KNOWN) >= MOST_KNOWN:
        _KNOWN.clear()
    _KNOWN[job] = told = told_of(work)
    return told
