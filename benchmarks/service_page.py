"""docs/results/service-load.md: the tables that benchmarks of the service write, one for each of them.

A row has the load of the machine when it was noted, and the day: figures of a busy machine are no promise.
"""

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.engine_models import put_table

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "service-load.md"
HEAD: Final = ("| what | measured | asked | day, load |", "|---|---|---|---|")


def note(maker: str, rows: Sequence[tuple[str, str, str]]) -> None:
    """Write rows into the table of a benchmark; earlier rows of other names stay.

    Args:
      maker: the benchmark's module.
      rows: what was measured, the figure, and what is asked of it or nothing.
    """
    when = f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}, {os.getloadavg()[0]:.1f}"
    lines = [f"| {what} | {measured} | {asked} | {when} |" for what, measured, asked in rows]
    put_table(PAGE, maker, [*HEAD, *lines], keys=1)
