"""Shipped targets against engines: which rows were run against what, and which never were.

Each row's small model from `qplan target kit` is written, run, and compared with the reference interpreter.
Usage, from the repository root: `python -m benchmarks.target_probes [--only ENGINE ...] [--write]`, after
`make oracles`; `--write` puts the tables into docs/results/target-probes.md and a line for each target into
docs/targets/trust.md. It prints the rows whose verdict differs from that page: after an upgrade of an engine
that is what changed. `--only` without an engine writes docs/targets/trust.md from the pages as they are.
hls4ml compiles a program for each of its rows: `--found TARGET=FILE ...` takes what `qplan target probe -t
TARGET --kernel ... --json` said of some of them in place of a run.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.engine_models import ROOT, put_table, short, table_of
from planner.target.load import load_target, target_ids
from planner.target_tests.changed_rows import read_before
from planner.target_tests.engines.table import ENGINES, HERE, Engine
from planner.target_tests.row_probe import RowFinding, probe_rows

PAGE: Final = ROOT / "docs" / "results" / "target-probes.md"
TRUST: Final = ROOT / "docs" / "targets" / "trust.md"
MAKER: Final = "benchmarks.target_probes"
ROWS: Final = "benchmarks.target_probes, rows"
COUNTED: Final = (
    "integers",
    "as floats",
    "float",
    "cpu",
    "one step",
    "differs",
    "refused",
    "not written",
    "no model",
)
WHOLE: Final[Mapping[str, tuple[str, str, int]]] = {
    "finn-fpga": ("finn", "`finn`", 1),
    "hexagon-a16w8": ("qnn-models", "`hexagon-a16w8`", 1),
    "hls4ml-fpga": ("hls4ml", "yes", 3),
    "qnn-htp": ("qnn-models", "`qnn-htp`", 1),
}
"""Pages of whole models on a target's engine, and the cell that each of its rows has, by place."""

RUNS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "ethos-u55": [("vela", "vela")],
    "finn-fpga": [("finn", "finn")],
    "hexagon-a16w8": [("qnn", "qnn")],
    "hls4ml-fpga": [("hls4ml", "hls4ml")],
    "litert-int8": [("litert", "litert"), ("litert-optimized", "litert")],
    "llm-w4": [("onnxruntime", "")],
    "onnxruntime-cpu": [("onnxruntime", ""), ("openvino", "openvino")],
    "onnxruntime-dynamic": [("onnxruntime", "")],
    "qnn-htp": [("qnn", "qnn")],
    "tosa-int8": [("tosa", "tosa")],
}
"""Engines of a target, each with its environment under .oracles; none is our own."""

FORMATS: Final[Mapping[str, str]] = {"llm-w4": "onnx-matmulnbits"}
"""Formats of the files where an engine's own is not the target's."""

BY_TESTS: Final[Mapping[str, str]] = {
    "dpuczdx8g": "nothing: the DPU needs its FPGA",
    "edgetpu": "nothing: its compiler is not run here; the types are those of LiteRT's kernels, which are",
    "k210-kpu": "nothing: nncase's simulator is not run here",
    "stablehlo": "jaxlib's interpreter and IREE run whole models (tests/formats/stablehlo), not row by row",
    "teaching-npu": "nothing: there is no such device",
    "tensorrt-int8": "nothing: TensorRT needs its GPU; onnxruntime runs the same QDQ files",
}
"""What was run against targets that no engine here takes row by row."""


def engine_of(target: str, name: str) -> Engine:
    """An engine with the format of the target's files."""
    found = ENGINES[name]
    return replace(found, form=FORMATS.get(target, found.form))


def python_of(home: str) -> str:
    """The Python of an environment under .oracles; ours for ""."""
    return str(ROOT / ".oracles" / home / "bin" / "python") if home else HERE


def measured(target: str, name: str, home: str) -> tuple[RowFinding, ...]:
    """Findings of a target on an engine."""
    return probe_rows(load_target(target), engine_of(target, name), python=python_of(home))


def told(text: str) -> tuple[str, tuple[RowFinding, ...]]:
    """TARGET=FILE, with the findings of `qplan target probe --json`."""
    target, _, path = text.partition("=")
    if target not in RUNS or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text!r}: accepted: TARGET=FILE, TARGET one of {', '.join(RUNS)}")
    return target, read_before(Path(path)).findings


def counts(found: Mapping[tuple[str, str], Sequence[RowFinding]]) -> Iterator[str]:
    """A row for each target and engine, with counts of verdicts."""
    yield f"| target | engine | version | {' | '.join(COUNTED)} |"
    yield "|---|---|---|" + "---:|" * len(COUNTED)
    for (target, name), findings in found.items():
        number = Counter(finding.verdict for finding in findings)
        home = dict(RUNS[target])[name]
        cells = " | ".join(str(number[head] or "") for head in COUNTED)
        yield f"| `{target}` | {name} | {ENGINES[name].version(python_of(home))} | {cells} |"


def others(found: Mapping[tuple[str, str], Sequence[RowFinding]]) -> Iterator[str]:
    """The rows that do not hold, with what the engine says; those of targets that were not run stay."""
    yield "| target, engine | row | verdict | what it says |"
    yield "|---|---|---|---|"
    new = {f"`{target}`, {name}" for target, name in found}
    yield from (line for line in table_of(PAGE, ROWS)[2:] if cells_of(line)[0] not in new)
    for (target, name), findings in found.items():
        for finding in (finding for finding in findings if not finding.holds):
            yield f"| `{target}`, {name} | {finding.name} | {finding.verdict} | {short(finding.detail)} |"


def changes(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Rows whose verdict differs between two tables of `others`; a row that holds is in none."""
    old, new = ({cells_of(line)[:2]: cells_of(line)[2] for line in lines[2:]} for lines in (before, after))
    for key in sorted({*old, *new}):
        was, now = old.get(key, "holds"), new.get(key, "holds")
        if was != now:
            yield f"{', '.join(key)}: {was} -> {now}"


def trust() -> Iterator[str]:
    """A line for each shipped target: engine, rows taken, numbers equal, whole models."""
    yield (
        "| target | engine | accepted | refused | not tried | equal | one step | more | in float, on the CPU "
        "| whole models |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---|"
    rows = [cells_of(line) for line in table_of(PAGE, MAKER)[2:]]
    for target in target_ids():
        whole = whole_models(target)
        lines = [cells for cells in rows if cells[0] == f"`{target}`"]
        for _, engine, version, *cells in lines:
            number = dict(zip(COUNTED, (int(cell or 0) for cell in cells), strict=True))
            untried = number["not written"] + number["no model"]
            taken = sum(number.values()) - number["refused"] - untried
            equal = number["integers"] + number["as floats"]
            if engine == "vela":
                equal = 0  # It compiles alone.
            figures = (taken, number["refused"], untried, equal, number["one step"], number["differs"])
            figures += (number["float"] + number["cpu"],)
            said = f"{engine} ({version})"
            yield f"| `{target}` | {said} | {' | '.join(str(n or '') for n in figures)} | {whole} |"
        if not lines:
            text = BY_TESTS[target].replace("](", "](../results/")
            yield f"| `{target}` | {text} |  |  |  |  |  |  |  | {whole} |"


def whole_models(target: str) -> str:
    """How many whole models ran, with the page."""
    if target not in WHOLE:
        return ""
    page, cell, place = WHOLE[target]
    path = ROOT / "docs" / "results" / f"{page}.md"
    maker = f"benchmarks.{page.replace('-', '_')}"
    number = sum(cells_of(line)[place] == cell for line in table_of(path, maker)[2:])
    return f"[{number}](../results/{page}.md)"


def cells_of(line: str) -> tuple[str, ...]:
    """The cells of a row of a table."""
    return tuple(cell.strip() for cell in line.strip("|").split("|"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run targets on their engines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = sorted({name for engines in RUNS.values() for name, _ in engines})
    parser.add_argument("--only", nargs="*", metavar="ENGINE", choices=names, default=names)
    parser.add_argument("--found", nargs="*", type=told, default=[], metavar="TARGET=FILE")
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    chosen = parser.parse_args(arguments)
    found = {
        (target, name): measured(target, name, home)
        for target, engines in RUNS.items()
        for name, home in engines
        if name in chosen.only
    }
    for target, findings in chosen.found:
        engine = RUNS[target][0][0]
        found[target, engine] = (*found.get((target, engine), ()), *findings)
    rows, before = [*others(found)], table_of(PAGE, ROWS)
    sys.stdout.write("\n".join([*counts(found), *changes(before, rows), ""]))
    if chosen.write:
        put_table(PAGE, MAKER, [*counts(found)], keys=2)
        put_table(PAGE, ROWS, rows)
        put_table(TRUST, MAKER, [*trust()])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
