"""Seconds and peak memory of a decoder of gigabytes: planned for `llm-w4`, checked, written, calibrated.

The model is drawn into a temporary folder (`decoder`) and removed at the end; each step is a process of its
own. Usage, from the repository root: `python -m benchmarks.large_models [--gigabytes 3.0] [--folder F]
[--write]`; `--write` puts the table into docs/results/large-models.md. About three times the model's size is
needed on the disk.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.decoder import Size, samples, size_of, write_decoder
from benchmarks.large_jobs import jobs
from planner.formats.onnx.writer.block_packing import Steps, packed_blocks

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "large-models.md"
ROUNDS: Final = 5
MATRIX: Final = (4096, 8192)
JOBS: Final = {
    "plan": "job of `POST /v1/plans`",
    "export": "job of `POST /v1/exports`, `onnx-matmulnbits`, one file",
}
QPLAN: Final = "import sys; from planner.cli.app import main; main(sys.argv[1:])"
HEAD: Final = """# Large models

Made by `python -m benchmarks.large_models --gigabytes {gigabytes:g} --write`: a drawn decoder of {layers}
layers, {width} wide, with {weights:.2f} GB of f32 weights in external data ({largest:.0f} MB the largest
tensor). Each command is a process of its own on {cores} cores; peak memory is its resident set, pages of
mapped files included.

| step | seconds | peak MB | files MB |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Record:
    """One step: seconds, peak of resident memory in MB (10^6 bytes), MB of what it wrote."""

    what: str
    seconds: float
    peak: float
    written: float


def measured(what: str, arguments: Sequence[str], *made: Path) -> Record:
    """Run Python with arguments.

    Raises:
      RuntimeError: a step that fails.
    """
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{what} ended with {process.returncode}")
    written = sum(path.stat().st_size for path in made)
    return Record(what, time.monotonic() - begun, used.ru_maxrss * 1024 / 1e6, written / 1e6)


def steps(folder: Path, size: Size) -> Iterator[Record]:
    """Draw the model, then every step on it."""
    source, out = folder / "decoder.onnx", folder / "out"
    write_decoder(source, size)
    np.savez(folder / "samples.npz", **samples(size, 4))
    name, target = str(source), ("--target", "llm-w4")
    form = ("--format", "onnx-matmulnbits")
    yield measured("import planner.pipeline", ("import planner.pipeline",))
    made = [out / file for file in ("plan.json", "plan.mlir", "report.html")]
    yield measured("`qplan plan`", (QPLAN, "plan", name, *target, "--out", str(out)), *made)
    yield measured("`qplan check`", (QPLAN, "check", str(out)))
    goal = folder / "w4.onnx"
    made = [goal, folder / "w4.onnx.data"]
    yield measured(
        "`qplan export`, `onnx-matmulnbits`", (QPLAN, "export", str(out), *form, "--out", str(goal)), *made
    )
    shutil.rmtree(out)
    both = (QPLAN, "plan", name, *target, *form, "--out", str(out))
    yield measured("`qplan plan --format onnx-matmulnbits`", both)
    shutil.rmtree(out)
    stats = folder / "stats.json"
    calibrate = (QPLAN, "calibrate", name, "--data", str(folder / "samples.npz"), "--out", str(stats))
    yield measured("`qplan calibrate`, 4 samples", calibrate, stats)
    whole = ("--stats", str(stats), "--target", "onnxruntime-cpu", "--format", "onnx-qdq", "--out", str(out))
    made = [out / "onnx-qdq.onnx", out / "onnx-qdq.onnx.data"]
    yield measured("`qplan plan --format onnx-qdq`, 8 bits", (QPLAN, "plan", name, *whole), *made)
    shutil.rmtree(out)
    for job in jobs(source, folder):
        what = f"{JOBS[job.task]}, limit {job.limit / 1e6:.0f} MB"
        yield Record(what, job.seconds, job.peak / 1e6, job.written / 1e6)


def packing_speed() -> dict[str, float]:
    """GB/s of f32 weights quantized to 4 bits and packed, by layout; process time, the best of five."""
    array = np.random.default_rng(0).standard_normal(MATRIX, np.float32)
    found = {}
    for axis, layout in ((0, "(K, N)"), (1, "(N, K)")):
        for block in (32, 128):
            grid = [dim // block if i == axis else dim for i, dim in enumerate(MATRIX)]
            scales = np.full(grid, np.abs(array).max() / 7, np.float32)
            known = Steps(scales, np.asarray(8, np.float32), 0, 15, 4, block)
            best = float("inf")
            for _ in range(ROUNDS):
                begun = time.process_time()
                packed_blocks(array, known, axis=axis)
                best = min(best, time.process_time() - begun)
            found[f"{layout}, blocks of {block}"] = array.nbytes / best / 1e9
    return found


def page(gigabytes: float, size: Size, records: Sequence[Record]) -> str:
    """The page."""
    told = {"weights": size.matrices / 1e9, "largest": size.largest / 1e6, "cores": os.cpu_count()}
    text = HEAD.format(gigabytes=gigabytes, layers=size.layers, width=size.width, **told)
    for record in records:
        cells = (
            f"{record.seconds:.1f}",
            f"{record.peak:.0f}",
            f"{record.written:.0f}" if record.written else "",
        )
        text += f"| {record.what} | {' | '.join(cells)} |\n"
    allowed = (1.5e9 + 4 * size.largest) / 1e6
    peak = max(record.peak for record in records if "calibrate" not in record.what)
    text += (
        f"\nWanted: at most 1.5 GB above four times the largest tensor, {allowed:.0f} MB, to plan and write; "
    )
    text += f"found: {peak:.0f} MB.\n\n"
    matrix = f"{MATRIX[0]} x {MATRIX[1]}"
    text += f"Weights quantized to 4 bits and packed for MatMulNBits, one core, a matrix of {matrix}:\n\n"
    text += "| layout | GB/s of f32 |\n|---|---|\n"
    return text + "".join(f"| {what} | {speed:.2f} |\n" for what, speed in packing_speed().items())


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--folder", type=Path, help="where the temporary folder goes")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    size, records = size_of(options.gigabytes), []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        free = shutil.disk_usage(folder).free
        if free < 3 * size.matrices:
            raise SystemExit(f"{free:,} bytes are free in {folder}; {3 * size.matrices:,} are needed")
        for record in steps(Path(folder), size):
            print(record, file=sys.stderr, flush=True)
            records.append(record)
    text = page(options.gigabytes, size, records)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
