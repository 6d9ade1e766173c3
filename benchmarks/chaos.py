"""Chaos: jobs of three tenants while servers, workers, their fork servers, scheduler and database are killed.

One tenant asks for as much as it may, two ask now and then; every few seconds something is killed and started
again (`faults`), or a clock set, or a blob damaged; on SQLite, doctors, backups and restores run beside the
servers, older backups are put in place, pages of the database are damaged, and the disk is full at times
(`one_machine`, `damage`). What is asked: every job that a server took is done once, one row a key, the same
plan for whoever asks for the same; what an older backup does not have is unknown, and can be sent again; and
the two tenants are not kept waiting by the one.
Usage, from the repository root:
`python -m benchmarks.chaos [--minutes 30] [--every 6] [--seed 0] [--database postgresql|sqlite]
[--only FAULT ...] [--write]`.
"""

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from sqlalchemy import Engine, Row, func, select

from api.storage.database import events, jobs, reading
from benchmarks.chaos_tenants import ASKS, Tenant, number_of, tokens
from benchmarks.damage import damage_blob, damage_model
from benchmarks.engine_models import finish
from benchmarks.faults import FAULTS, Company, company, strike
from benchmarks.one_machine import CLOCK, Stage, on_sqlite, set_clock
from benchmarks.shifted_clock import Clocks

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "soak.md"
PATIENCE: Final = 300.0
"""Seconds after the last fault until all jobs have ended."""
SAMPLE: Final = 50


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it.

    Attributes:
      taken: jobs that servers took, by tenant, without those that went with an older backup.
      lost, doubled, wrong: jobs that are not done; that were done twice; with another plan than it should be.
      waits: seconds from the request to the end, by tenant.
      told: what clients were told and did something about.
    """

    seconds: float
    taken: dict[str, int]
    rolled_back: int
    lost: int
    doubled: int
    wrong: int
    waits: dict[str, list[float]]
    faults: Counter[str]
    states: Counter[str]
    told: Counter[str]


@contextmanager
def on_postgresql(folder: Path, tokens: str) -> Iterator[Stage]:
    """Two servers on PostgreSQL and Dask, each with a clock of its own."""
    data = folder / "data"
    data.mkdir()
    clocks = Clocks.make(folder, 2)
    with company(data, clocks, QPLAN_TOKENS=tokens) as parts:
        _, _, servers, engine = parts
        kinds = (*FAULTS, "damaged blob", "damaged model", *([] if clocks is None else [CLOCK]))
        yield Stage(servers.ports, engine, kinds, lambda *given: strike_company(*given, parts))


def strike_company(kind: str, chance: random.Random, tenants: Sequence[Tenant], parts: Company) -> None:
    """Kill one thing and start it again, set a clock, or damage a blob."""
    servers = parts[2]
    if kind == CLOCK:
        set_clock(servers, chance)
    elif kind == "damaged blob":
        damage_blob(servers, chance.choice(tenants), chance)
    elif kind == "damaged model":
        damage_model(servers, chance.choice(tenants), chance)
    else:
        strike(kind, chance, parts)


STAGES: Final = {"postgresql": on_postgresql, "sqlite": on_sqlite}


def campaign(
    minutes: float, every: float, seed: int, database: str = "postgresql", only: Sequence[str] = ()
) -> Outcome:
    """Send and strike for so long, wait for what was taken, and count.

    Args:
      every: seconds between faults, on average.
      database: one of `STAGES`.
      only: kinds of faults; all that the database has by default.

    Raises:
      RuntimeError: a fault is not noticed, not said, or not repaired; a job failed for no fault.
    """
    chance = random.Random(seed)  # noqa: S311 - which process is killed is no secret
    start = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="chaos.") as folder,
        STAGES[database](Path(folder), tokens()) as stage,
    ):
        tenants = [Tenant(name, stage.ports) for name in ASKS]
        for tenant in tenants:
            tenant.upload()
        over = threading.Event()
        given = (stage.engine, over, start + 60 * minutes + PATIENCE)
        senders = [threading.Thread(target=one.work, args=given, daemon=True) for one in tenants]
        for sender in senders:
            sender.start()
        faults: Counter[str] = Counter()
        kinds: list[str] = []
        while time.monotonic() - start < 60 * minutes:
            time.sleep(chance.uniform(0.5, 1.5) * every)
            kinds = kinds or chance.sample(only or stage.kinds, len(only or stage.kinds))
            stage.strike(kinds[-1], chance, tenants)
            faults[kinds.pop()] += 1
            for error in (tenant.error for tenant in tenants if tenant.error):
                raise error
        over.set()
        for sender in senders:
            sender.join()
        for error in (tenant.error for tenant in tenants if tenant.error):
            raise error
        while under_way(stage.engine) and time.monotonic() < given[-1]:
            time.sleep(1)
        return judged(stage.engine, tenants, faults, time.monotonic() - start)


def under_way(engine: Engine) -> int:
    """Jobs that wait or run: those that an older backup brought back are done again."""
    asked = select(func.count()).where(jobs.c.state.in_(("queued", "running")))
    with reading(engine) as connection:
        return int(connection.execute(asked).scalar_one())


def judged(engine: Engine, tenants: Sequence[Tenant], faults: Counter[str], seconds: float) -> Outcome:
    """Count what the rows say."""
    with reading(engine) as connection:
        rows = connection.execute(select(jobs)).all()
        ends = Counter(connection.execute(select(events.c.job).where(events.c.kind == "done")).scalars())
    done = Counter((row.tenant, number_of(row)) for row in rows if row.state == "done")
    sent = {(tenant.name, number) for tenant in tenants for number in tenant.taken}
    doubled = sum(count - 1 for count in ends.values()) + sum(count - 1 for count in done.values())
    states = Counter(row.state if row.problem is None else row.problem["name"] for row in rows)
    return Outcome(
        seconds,
        {tenant.name: len(tenant.taken) for tenant in tenants},
        sum(tenant.rolled_back for tenant in tenants),
        len(sent - done.keys()),
        doubled,
        wrong(tenants, [row for row in rows if row.state == "done"]),
        {tenant.name: tenant.waits for tenant in tenants},
        faults,
        states,
        sum((tenant.told for tenant in tenants), Counter[str]()),
    )


def wrong(tenants: Sequence[Tenant], done: Sequence[Row[Any]]) -> int:
    """Count jobs whose plan is another one than another tenant got for the same, or than another job got.

    The files of the last ones that several asked for are compared, byte by byte.
    """
    keys: dict[int, set[str]] = defaultdict(set)
    holders: dict[int, set[str]] = defaultdict(set)
    for row in done:
        keys[number_of(row)].add(row.result["key"])
        holders[number_of(row)].add(row.tenant)
    found = sum(len(several) - 1 for several in keys.values())
    found += len(keys) - len({key for several in keys.values() for key in several})
    shared = sorted(number for number, names in holders.items() if len(names) == len(tenants))[-SAMPLE:]
    for number in shared:
        texts = set()
        for tenant in tenants:
            with tenant.client() as client:
                texts.add(client.get(f"/v1/plans/{min(keys[number])}").raise_for_status().content)
        found += len(texts) - 1
    return found


def starved(outcome: Outcome) -> list[str]:
    """Tenants that ask for little and wait as long as the one that asks for all."""
    greedy = median(outcome.waits["greedy"])
    return [name for name in ("one", "two") if median(outcome.waits[name] or [1e9]) > greedy]


def lines(outcome: Outcome, database: str, minutes: float) -> list[str]:
    """Return the table: a row for each database."""
    waits = "; ".join(
        f"{name} {len(found)}, {median(found):.1f}, {max(found):.1f}" for name, found in outcome.waits.items()
    )
    faults = ", ".join(f"{n} {kind}" for kind, n in sorted(outcome.faults.items()))
    told = ", ".join(f"{n} {kind}" for kind, n in sorted(outcome.told.items())) or "nothing"
    ended = f"{outcome.lost}, {outcome.doubled}, {outcome.wrong}, {len(starved(outcome))}"
    cells = {
        "database": database,
        "minutes, load": f"{minutes:g}, {os.getloadavg()[0]:.0f}",
        "faults": f"{outcome.faults.total()}: {faults}",
        "jobs done, median and longest wait in s": waits,
        "told, and sent again": told,
        "gone with an older backup": str(outcome.rolled_back),
        "lost, doubled, wrong, starved": ended,
    }
    return [f"| {' | '.join(row)} |" for row in (cells, ["---"] * len(cells), cells.values())]


def main() -> None:
    """Run a campaign and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", choices=sorted(STAGES), default="postgresql")
    parser.add_argument("--only", nargs="*", default=(), metavar="FAULT")
    parser.add_argument("--write", action="store_true", help="put the row into docs/results/soak.md")
    options = parser.parse_args()
    outcome = campaign(options.minutes, options.every, options.seed, options.database, options.only)
    print(f"{outcome.seconds:.0f} s, states {dict(outcome.states)}, taken {outcome.taken}")
    rows = lines(outcome, options.database, options.minutes)
    finish(PAGE, "benchmarks.chaos", rows, keys=1, write=options.write)
    sys.exit(bool(outcome.lost or outcome.doubled or outcome.wrong or starved(outcome)))


if __name__ == "__main__":
    main()
