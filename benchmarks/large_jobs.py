"""Peak memory of the service's jobs on a model whose weights lie beside it: planned, written into one file.

The children that the service starts do the work, with its limits (`QPLAN_JOB_MEMORY` by default), on files in
a store of its own; nothing goes over a socket. Used by `large_models`, and alone:
`python -m benchmarks.large_jobs MODEL.onnx`, its weights in MODEL.data.
"""

import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from api.jobs.child_process import Bounds, job_of, run_child
from api.jobs.records import made, stored, work
from api.schemas.requests import PlanOptions
from api.settings import Settings
from api.storage.digests import digest_of_file
from api.storage.store import Kind, Store

TARGET: Final = "llm-w4"
FORM: Final = "onnx-matmulnbits"


@dataclass(frozen=True, slots=True)
class Job:
    """One job: seconds, the peak of its child's memory and its limit in bytes, bytes of what it made."""

    task: str
    seconds: float
    peak: int
    limit: int
    written: int
    made: Path


def jobs(model: Path, folder: Path) -> Iterator[Job]:
    """Plan a model and write the plan, each by a child of the service.

    Args:
      model: its weights beside it, named as it is, `.data`.
      folder: for the store; the weights are copied into it.

    Raises:
      Refused: a child that has not enough memory, or else fails.
    """
    store = Store(folder / "store")
    store.open()
    files = {}
    for path in (model, model.with_suffix(".data")):
        files[path.suffix] = digest_of_file(path)
        with store.draft() as drafts:
            copy = drafts / "copy"
            with path.open("rb") as source, copy.open("wb") as goal:
                while piece := source.read(1 << 24):
                    goal.write(piece)
            store.keep("blobs", files[path.suffix], copy)
    external = [[model.with_suffix(".data").name, stored("blobs", files[".data"])]]
    given: dict[str, Any] = {"model": stored("blobs", files[".onnx"]), "external": external}
    options = PlanOptions().model_dump()
    asked = {"stats": None, "target": {"name": TARGET}, "options": options, "steps": [], "annotations": None}
    plan = yield from _run(store, work("plan", {**given, **asked, "out": made("plans")}), "plans")
    told = {"plan": stored("plans", plan), "format": FORM, "out": made("blobs")}
    yield from _run(store, work("export", {**given, **told}), "blobs")


def _run(store: Store, asked: dict[str, Any], kind: Kind) -> Generator[Job, None, str]:
    settings, peaks, begun = Settings(store.root), list[int](), time.monotonic()
    bounds = Bounds(settings.job_memory, settings.job_seconds)
    with store.draft() as drafts:
        limit = int(job_of(store, asked, bounds, drafts)["limits"]["memory"])
    result = run_child(store, asked, bounds, note_peak=peaks.append)
    digest: str = result["kept"]["out"]
    path = store.find(kind, digest)
    spent = time.monotonic() - begun
    yield Job(asked["task"], spent, peaks[-1], limit, path.stat().st_size, path)
    return digest


def main() -> None:
    """Print the jobs of a model."""
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs(Path(sys.argv[1]), Path(folder)):
            print(
                f"{job.task}: {job.seconds:.1f} s, peak {job.peak / 1e6:.0f} MB of {job.limit / 1e6:.0f} MB, "
                f"{job.written / 1e6:.0f} MB written"
            )


if __name__ == "__main__":
    main()
