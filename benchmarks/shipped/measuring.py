"""Figures of a model's files: the task's metric, latency in turn, work in integers, and who else was busy."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnxruntime

from benchmarks.comparison import SETTLING, latencies_ms
from benchmarks.samples import write_samples
from benchmarks.shipped.data import Made, Run, Task
from benchmarks.shipped.metrics import is_near
from benchmarks.shipped.profiled import profile
from benchmarks.shipped.sides import Job, Side, Written, limits, make

Record = dict[str, Any]
THREADS: Final = 2
SECONDS: Final = 6.0
RUNS: Final = 15
"""Latency: so long at least, and so many runs of each file."""


def open_session(file: Path) -> onnxruntime.InferenceSession:
    """Open a file at the engine's defaults, on two threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _run(session: onnxruntime.InferenceSession) -> Run:
    return lambda sample: list(session.run(None, dict(sample)))


@dataclass(slots=True)
class Neighbours:
    """The share of the processors that other processes take, from a beginning on; only Linux says it."""

    began: tuple[float, float, float]

    def share(self) -> float | None:
        """Return the share in 0 to 1, None where the system does not say."""
        busy, every, own = (now - before for now, before in zip(ticks(), self.began, strict=True))
        return max(0.0, (busy - own) / every) if every > 0 else None


def processor() -> str:
    """Return the processor's name; "a processor without a name" where the system does not say."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="ascii", errors="replace") if info.exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else "a processor without a name"


def ticks() -> tuple[float, float, float]:
    """Return seconds so far: of busy processors, of all of them, of this process."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0, 0.0, 0.0
    numbers = [float(word) for word in stat.read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    unit = os.sysconf("SC_CLK_TCK")
    every = sum(numbers) / unit
    return every - (numbers[3] + numbers[4]) / unit, every, time.process_time()


def measure(
    task: Task, made: Made, of_sides: Mapping[str, Side], cache: Path, ours: Collection[str] = ()
) -> Record:
    """Return everything of a model: float, every side, what went wrong.

    Args:
      ours: sides that are ours, whose limits are looked for where they lose more than they should.
    """
    work = cache / "work" / task.name
    job = Job(made.model, work / "samples", work, cache, task.is_transformer)
    for old in job.samples.glob("*.npz"):
        old.unlink()
    write_samples(job.samples, made.calibration)
    plain = open_session(made.model)
    source: Record = {"metric": made.score(_run(plain)), "size": made.model.stat().st_size}
    rows, opened = list[Record](), {"float": plain}
    for name, side in of_sides.items():
        folder = work / "".join(c if c.isalnum() else "-" for c in name)
        written = make(side, Job(job.model, job.samples, folder, cache, job.is_transformer))
        row: Record = {"side": name}
        rows.append(row)
        if isinstance(written, str):
            row["said"] = written
            continue
        session = _figures(row, written, made, folder)
        if name in ours and "metric" in row and not is_near(row["metric"], source["metric"]):
            row["limits"] = limits(Job(job.model, job.samples, folder, cache, job.is_transformer))
        if session is not None:
            opened[name] = session
    source["multiply_adds"] = list(profile(made.model, made.probe, work))
    record: Record = {"model": task.name, "samples": len(made.calibration), "float": source, "sides": rows}
    record["others_busy"] = _latencies(record, opened, made)
    record["settled"] = SETTLING
    return record


def _figures(row: Record, written: Written, made: Made, folder: Path) -> onnxruntime.InferenceSession | None:
    """Fill in a row; return the session, or none where the file does not run at the engine's defaults."""
    row |= {"size": written.file.stat().st_size, "seconds": written.seconds, "rss_mb": written.rss_mb}
    row |= {"verdict": written.verdict, "accuracy": written.accuracy, "said": written.said}
    try:
        session = open_session(written.file)
        row["metric"] = made.score(_run(session))
    except Exception as error:  # noqa: BLE001 - whatever the engine raises is the file's result
        row["said"] = f"the file does not run at the engine's defaults: {_first_line(error)}"
        return None
    try:
        row["multiply_adds"] = list(profile(written.file, made.probe, folder))
    except Exception as error:  # noqa: BLE001 - a kernel that needs its weights packed has no profile
        row["said"] = f"{row['said']} No profile: {_first_line(error)}".strip()
    return session


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _latencies(
    record: Record, opened: Mapping[str, onnxruntime.InferenceSession], made: Made
) -> float | None:
    """Fill in milliseconds of float and ratios to it, all files in turn; return the share of others."""
    watched = Neighbours(ticks())
    taken = latencies_ms(list(opened.values()), made.probe, seconds=SECONDS, runs=RUNS)
    by_name = dict(zip(opened, taken, strict=True))
    record["float"]["ms"] = by_name["float"]
    for row in record["sides"]:
        if row["side"] in by_name:
            row["latency"] = by_name[row["side"]] / by_name["float"]
    return watched.share()


def in_order(records: Sequence[Record], names: Sequence[str]) -> list[Record]:
    """Return records in the order of the tasks."""
    return sorted(records, key=lambda record: names.index(record["model"]))
