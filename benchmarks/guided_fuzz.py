"""Fuzz what reads strangers' bytes, guided by coverage (atheris, libFuzzer); one process a scanner.

Usage, from the repository root, after `make .oracles/atheris/.made`:
`python -m benchmarks.guided_fuzz [--seconds 3600] [--scanners NAME ...] [--at-once 2] [--corpus DIR]
[--write]`.
The five scanners of the service, and the readers of ours that come behind them. Each accepts bytes or
refuses them as it says; any other exception, a run of more than ten seconds or an allocation of two
gigabytes is a finding, and its bytes are kept beside the corpus. Starts from the seeds of the tests; a
corpus that is there is taken up again. Memory of the whole process is no finding: atheris keeps some of each
run (our scanners alone stay at 149 MB over a million), so a campaign is processes of ten minutes, one after
the other. `nice -n 19` leaves the machine to others; the processor time says how much of it was had.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "fuzzing.md"
PACKAGES: Final = ROOT / ".oracles" / "atheris" / "lib"
NAMES: Final = ("onnx", "yaml", "target", "json", "mlir", "annotated model", "MLIR module", "LiteRT file")
AT_ONCE: Final = 2
ROUND_S: Final = 600
"""Seconds of one process, whose memory grows with each run."""
LONGEST_S: Final = 10
MOST_MB: Final = 2048
_DONE: Final = re.compile(r"#(\d+)\s+DONE\s+cov: (\d+) ft: \d+ corp: (\d+)")


@dataclass(frozen=True, slots=True)
class Found:
    """What a scanner's campaign did.

    Attributes:
      runs, branches, kept: inputs tried, branches that they reached, inputs that reached new ones.
      cpu: seconds of processor time.
      findings: files of the bytes that no scanner should end on.
      said: the last line of a campaign that ended too early, else "".
    """

    runs: int
    branches: int
    kept: int
    findings: tuple[Path, ...]
    said: str = ""
    cpu: float = 0.0

    def __add__(self, later: "Found") -> "Found":
        """Join with the next process of the campaign, which took up what this one kept."""
        found = (later.branches, later.kept) if later.runs else (self.branches, self.kept)
        findings = (*self.findings, *later.findings)
        return Found(self.runs + later.runs, *found, findings, later.said, self.cpu + later.cpu)


def fuzz(name: str, seconds: int, corpus: Path) -> None:
    """Fuzz a scanner in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["api", "planner"]):
        from planner.errors import PlannerError
        from planner.formats.annotated.document import read_annotated
        from planner.formats.litert.reader.read import read_litert
        from planner.formats.mlir.text.read_module import read_mlir
        from tests.formats.litert.reader.files import of_floats, of_rows
        from tests.soak import test_fuzz as seeds

    litert: list[bytes] = []
    if name == "LiteRT file":
        litert = [item.file for item in of_rows().values()] + [data for _, _, data in of_floats().values()]
    scanners: Mapping[str, tuple[Callable[[bytes], Any], list[bytes], type[Exception]]] = {
        "onnx": (seeds.scan_onnx, seeds.ONNX, seeds.ModelError),
        "yaml": (seeds.read, seeds.YAML, seeds.TargetError),
        "target": (seeds.load, seeds.YAML[:1], seeds.TargetError),
        "json": (lambda data: seeds.scan_json(data, 100), seeds.JSON, seeds.Refused),
        "mlir": (seeds.scan_mlir, seeds.MLIR, seeds.ModelError),
        "annotated model": (read_annotated, seeds.JSON[:1], PlannerError),
        "MLIR module": (lambda data: (seeds.scan_mlir(data), read_mlir(data)), seeds.MLIR, PlannerError),
        "LiteRT file": (read_litert, litert, PlannerError),
    }
    scan, first, refusal = scanners[name]
    for number, data in enumerate(first):
        (corpus / f"seed-{number}").write_bytes(data)

    def once(data: bytes) -> None:
        try:
            scan(data)
        except refusal:
            return

    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={LONGEST_S}",
        f"-malloc_limit_mb={MOST_MB}",
        "-rss_limit_mb=0",
    ]
    atheris.Setup([name, *limits, f"-artifact_prefix={corpus}-", str(corpus)], once)
    atheris.Fuzz()


def campaign(name: str, seconds: int, folder: Path) -> Found:
    """Fuzz a scanner in processes of its own, until one ends too early."""
    found = Found(0, 0, 0, ())
    while seconds > 0 and not found.said:
        found += one_round(name, min(seconds, ROUND_S), folder)
        seconds -= ROUND_S
    return found


def one_round(name: str, seconds: int, folder: Path) -> Found:
    """Fuzz a scanner in one process."""
    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(folder.glob(f"{name}-*"))
    (packages,) = PACKAGES.glob("python*/site-packages")
    line = [sys.executable, "-m", "benchmarks.guided_fuzz", "--one", name]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*line, "--seconds", str(seconds), "--corpus", str(corpus)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(packages)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    findings = tuple(sorted(set(folder.glob(f"{name}-*")) - before))
    return counted(said, process.returncode, findings, used.ru_utime + used.ru_stime)


def counted(said: str, code: int, findings: tuple[Path, ...], cpu: float) -> Found:
    """Read what libFuzzer said of a process that ended."""
    done = _DONE.search(said)
    if done is None:
        told = said.strip().splitlines()
        return Found(0, 0, 0, findings, told[-1][:300] if told else f"exit code {code}", cpu)
    runs, branches, kept = map(int, done.groups())
    return Found(runs, branches, kept, findings, cpu=cpu)


def lines(found: Mapping[str, Found], seconds: int) -> list[str]:
    """Return the table: a row for each scanner."""
    rows = [
        f"| {name} | {seconds // 60} min | {one.cpu / 60:.0f} min | {one.runs:,} | {one.branches:,} | "
        f"{one.kept:,} | {one.said or len(one.findings)} |"
        for name, one in found.items()
    ]
    return [
        "| scanner | time | of a processor | inputs | branches reached | inputs kept | findings |",
        f"|{'---|' * 7}",
        *rows,
    ]


def main() -> None:
    """Fuzz, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=3600, help="of each scanner")
    parser.add_argument("--scanners", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="scanners")
    parser.add_argument("--corpus", type=Path, help="else a temporary folder")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", choices=NAMES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        fuzz(given.one, given.seconds, given.corpus)
        return
    folder = given.corpus or Path(tempfile.mkdtemp(prefix="corpus-"))
    with ThreadPoolExecutor(given.at_once) as pool:
        campaigns = pool.map(lambda name: campaign(name, given.seconds, folder), given.scanners)
        found = dict(zip(given.scanners, campaigns, strict=True))
    # Not before: what is imported is not instrumented any more.
    from benchmarks.engine_models import finish

    for one in found.values():
        for file in one.findings:
            print(file)
    finish(PAGE, "benchmarks.guided_fuzz", lines(found, given.seconds), keys=1, write=given.write)
    sys.exit(any(one.findings or one.said for one in found.values()))


if __name__ == "__main__":
    main()
