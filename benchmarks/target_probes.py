"""Shipped targets against engines: which rows were run against what, and which never were.

Each row's small model from `qplan target kit` is written, run, and compared with the reference interpreter.
Usage, from the repository root: `python -m benchmarks.target_probes [--write]`, after `make oracles`;
`--write` puts the tables into docs/results/target-probes.md.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from planner.target.load import load_target, target_ids
from planner.target_tests.engines.table import ENGINES, HERE, Engine
from planner.target_tests.row_probe import VERDICTS, RowFinding, probe_rows

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "target-probes.md"
MARK: Final = re.compile(r"(?<=<!-- made by benchmarks.target_probes -->\n).*", re.DOTALL)

RUNS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "ethos-u55": [("vela", "vela")],
    "hexagon-a16w8": [("qnn", "qnn")],
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
    "finn-fpga": "FINN's front half runs whole models and rows ([finn](finn.md)), not its kit in this table",
    "hls4ml-fpga": "hls4ml's C simulation of whole models equals the interpreter (tests/exporters)",
    "k210-kpu": "nothing: nncase's simulator is not run here",
    "stablehlo": "jaxlib's interpreter and IREE run whole models (tests/exporters/stablehlo), not row by row",
    "teaching-npu": "nothing: there is no such device",
    "tensorrt-int8": "nothing: TensorRT needs its GPU; onnxruntime runs the same QDQ files",
}
"""What was run against targets that no engine here takes row by row."""


def engine_of(target: str, name: str) -> Engine:
    """An engine with the format of the target's files."""
    found = ENGINES[name]
    return replace(found, form=FORMATS.get(target, found.form))


def measured(target: str, name: str, home: str) -> tuple[RowFinding, ...]:
    """Findings of a target on an engine in an environment under .oracles."""
    python = str(ROOT / ".oracles" / home / "bin" / "python") if home else HERE
    return probe_rows(load_target(target), engine_of(target, name), python=python)


def table(found: Mapping[tuple[str, str], Sequence[RowFinding]]) -> Iterator[str]:
    """A row for each target and engine, with counts of verdicts."""
    heads = [
        verdict for verdict in VERDICTS if any(f.verdict == verdict for fs in found.values() for f in fs)
    ]
    yield f"| target | engine | {' | '.join(heads)} |"
    yield "|---|---|" + "---:|" * len(heads)
    for (target, engine), findings in found.items():
        counts = Counter(finding.verdict for finding in findings)
        yield f"| `{target}` | {engine} | {' | '.join(str(counts[head] or '') for head in heads)} |"
    yield ""
    yield "| target | run against |"
    yield "|---|---|"
    for target in target_ids():
        if target not in RUNS:
            yield f"| `{target}` | {BY_TESTS[target]} |"


def others(found: Mapping[tuple[str, str], Sequence[RowFinding]]) -> Iterator[str]:
    """The rows that do not hold, with what the engine says."""
    yield "| target, engine | row | verdict | what it says |"
    yield "|---|---|---|---|"
    for (target, engine), findings in found.items():
        for finding in (finding for finding in findings if not finding.holds):
            said = finding.detail.replace("|", "\\|").replace("\n", " ")
            said = said if len(said) <= 160 else f"{said[:157]}..."
            yield f"| `{target}`, {engine} | {finding.name} | {finding.verdict} | {said} |"


def page(found: Mapping[tuple[str, str], Sequence[RowFinding]]) -> str:
    """The tables of the page."""
    return "\n".join([*table(found), "", "### Rows that do not hold, or were not tried", *others(found), ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every target on its engines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="put the tables into docs/results/target-probes.md"
    )
    chosen = parser.parse_args(arguments)
    found = {
        (target, name): measured(target, name, home)
        for target, engines in RUNS.items()
        for name, home in engines
    }
    text = page(found)
    if chosen.write:
        PAGE.write_text(MARK.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
