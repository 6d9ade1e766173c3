"""Suites of others: how many of their programs are read, planned and written, and whose numbers are equal.

Usage, from the repository root, after `make oracles` and with the model folder:
`python -m benchmarks.suites [--only SUITE ...] [--source NAME@VERSION=FOLDER ...] [--write]`. Checkouts of
other projects are given by `--source`, several of one project too; a suite without its source is not run,
and keeps the row that docs/results/suites.md has. `--write` puts the table there. qonnx's suite takes 40
minutes: its row is taken from docs/results/qonnx-suite.md, which `make qonnx-suite` writes.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from benchmarks import suite_files, suite_programs
from benchmarks.engine_models import ROOT, put_table, table_of
from benchmarks.suite_rows import STAGES, Tally, table
from planner.target_tests.engines.environment import version_of

PAGE: Final = ROOT / "docs" / "results" / "suites.md"
MAKER: Final = "benchmarks.suites"
QONNX: Final = ROOT / "docs" / "results" / "qonnx-suite.md"
NUMBERS: Final = STAGES[3:]
UPSTREAM: Final[Mapping[str, str]] = {
    "llvm": "mlir/test/Dialect/Quant of LLVM",
    "stablehlo": "stablehlo/testdata/quantized of StableHLO",
    "tflite-micro": "tflite-micro",
    "ai-edge-quantizer": "ai-edge-quantizer",
    "tiny": "mlcommons/tiny",
}
"""Suites whose programs are in another project's repository."""
SUITES: Final = (*UPSTREAM, "rfc", "tosa", "jax", "vela", "qonnx")


def version(oracle: str, package: str) -> str:
    """A package of an oracle with its version."""
    return f"{package} {version_of(str(ROOT / '.oracles' / oracle / 'bin' / 'python'), package)}"


def command(name: str, at: str = "") -> str:
    """The command that makes a row."""
    source = f" --source '{name}@{at or 'VERSION'}=FOLDER'" if name in UPSTREAM else ""
    return f"`python -m benchmarks.suites --only {name}{source}`"


def of_upstream(name: str, source: tuple[str, Path] | None) -> Iterator[Tally]:
    """The rows of a suite of another repository."""
    at, folder = source or ("", Path())
    where, cli = f"{UPSTREAM[name]} {at}".strip(), command(name, at)
    if name == "llvm":
        columns = ("read", "exported", "equal", "further")
        tally = Tally(
            f"tests of `quant` of LLVM {at}".strip(),
            f"{where}; {version('mlir', 'torch-mlir')}",
            cli,
            columns,
        )
        rows, run = (tally,), suite_programs.llvm
    elif name == "stablehlo":
        tally = Tally("StableHLO's quantized programs", where, cli)
        rows, run = (tally,), suite_programs.stablehlo
    else:
        litert = f"{where}; {version('litert', 'ai-edge-litert')}"
        tally = Tally(f"`.tflite` of {name}", litert, cli)
        again = Tally(f"`.tflite` of {name}, our file", litert, cli)
        rows, run = (tally, again), suite_files.foreign
    if source is None:
        for row in rows:
            row.programs = None
        yield from rows
        return
    yield from run(folder, *rows)


def of_ours(name: str) -> Iterator[Tally]:
    """The rows of a suite whose programs are here, or which another page has."""
    cli = command(name)
    if name == "rfc":
        goldens = Tally(
            "the RFC's goldens", "tests/plans/test_rfc_goldens.py", cli, ("read", "planned", *NUMBERS)
        )
        yield from suite_programs.rfc(goldens)
    elif name == "tosa":
        at = f"operators of TOSA 1.0; {version('tosa', 'tosa-tools')}"
        first = Tally("TOSA modules, as they are", at, cli, ("read", *NUMBERS))
        yield from suite_programs.tosa_modules(first, Tally("TOSA modules, planned and written", at, cli))
    elif name == "jax":
        at = f"five networks, {version('jax', 'jax')}"
        iree = Tally("JAX models in IREE", f"{at}; {version('iree', 'iree-base-compiler')}, llvm-cpu", cli)
        yield from suite_programs.jax_models(Tally("JAX models in XLA", at, cli), iree)
    elif name == "vela":
        at = f"MLPerf Tiny, {version('vela', 'ethos-u-vela')}"
        yield from suite_files.vela(
            Tally("files for Vela", at, cli, ("read", "planned", "exported", "equal", "further"))
        )
    else:
        yield of_qonnx(QONNX.read_text(encoding="utf-8"))


def of_qonnx(text: str) -> Tally:
    """The row of qonnx's tests, from the page of their own command."""
    at, found = (
        re.search(r"qonnx at (\w+)", text),
        re.search(r"^\| all \| (\d+) \| (\d+) \| (\d+) \|", text, re.MULTILINE),
    )
    if at is None or found is None:
        raise ValueError(f"{QONNX} has no row of all tests")
    misses: Counter[str] = Counter()
    for row in re.findall(r"^\| `[\w.]+` \| (\d+) \| `.*\| ([^|]*) \|$", text, re.MULTILINE):
        misses[row[1]] += int(row[0])
    counts = Counter({"equal": int(found[3]), "further": int(found[2]) - int(found[3])})
    columns = ("equal", "further")
    return Tally(
        "qonnx's own tests", f"qonnx {at[1]}", "`make qonnx-suite`", columns, int(found[2]), counts, misses
    )


def source(text: str) -> tuple[str, tuple[str, Path]]:
    """NAME@VERSION=FOLDER."""
    found = re.fullmatch(r"([\w-]+)@([^=]+)=(.+)", text)
    if found is None or found[1] not in UPSTREAM or not Path(found[3]).is_dir():
        raise argparse.ArgumentTypeError(
            f"{text!r}: accepted: NAME@VERSION=FOLDER, NAME one of {', '.join(UPSTREAM)}"
        )
    return found[1], (found[2], Path(found[3]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suites")
    parser.add_argument("--only", nargs="*", metavar="SUITE", choices=SUITES, default=list(SUITES))
    parser.add_argument("--source", nargs="*", type=source, default=[], metavar="NAME@VERSION=FOLDER")
    parser.add_argument("--write", action="store_true", help="put the table into docs/results/suites.md")
    options = parser.parse_args(arguments)
    tallies: list[Tally] = []
    for name in options.only:
        given = [source for of, source in options.source if of == name] or [None]
        runs = [of_upstream(name, source) for source in given] if name in UPSTREAM else [of_ours(name)]
        for tally in chain(*runs):
            tallies.append(tally)
            sys.stderr.write(f"{tally.row()}\n")
    known = {line.split("|")[1].strip() for line in table_of(PAGE, MAKER)[2:]}
    lines = [*table([tally for tally in tallies if tally.programs is not None or tally.suite not in known])]
    if options.write:
        put_table(PAGE, MAKER, lines, keys=1)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
