"""docs/results/benchmarks.md from the records of `main_job`: tables of both sides, and the figures judged."""

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import onnxruntime

from benchmarks import growth
from benchmarks.comparison import Record, mac_share
from benchmarks.figures import latency_ratio, net_mb, planning_s, their_quantize_s, verdicts
from benchmarks.parts import PARTS

FIRST: Final = ("plan_first_s", "export_first_s")
REACHED: Final[Mapping[bool | None, str]] = {True: "reached", False: "**not reached**", None: "not judged"}


def speed_row(record: Record, records: Sequence[Record]) -> str:
    """Planning, whole job, memory and latency, as ratios: below 1, ours is faster or smaller."""
    ours, theirs = record["ours"], record.get("theirs", {})
    other = their_quantize_s(record, records)
    mine = planning_s(ours)
    cells = [record["model"], f"{mine:.3f}", f"{planning_s(ours, FIRST):.3f}"]
    cells += [f"{other[0]:.3f}{'' if other[1] else ' *'}", f"{mine / other[0]:.2f}"] if other else ["-", "-"]
    cells.append(f"{ours['total_s']:.2f}")
    has_job = "static_s" in theirs
    cells += (
        [f"{theirs['static_s']:.2f}", f"{ours['total_s'] / theirs['static_s']:.2f}"]
        if has_job
        else ["-", "-"]
    )
    cells.append(f"{ours['rss_mb']:.0f} ({net_mb(ours):.0f})")
    cells.append(f"{theirs['rss_mb']:.0f} ({net_mb(theirs):.0f})" if has_job else "-")
    cells.append(f"{ours['percentile_rss_mb']:.0f}" if "percentile_rss_mb" in ours else "-")
    cells.append(f"{latency_ratio(record):.2f}" if "ours_ms" in record else "-")
    return _line(cells)


def phase_row(record: Record) -> str:
    """Seconds of every phase of one job, first times."""
    ours, theirs = record["ours"], record.get("theirs", {})
    plan_s, export_s = ours["plan_first_s"], ours["export_first_s"]
    mine = [ours[key] for key in ("read_s", "calibrate_s", "target_s", "annotate_s")]
    cells = [record["model"], *(f"{value:.3f}" for value in (*mine, plan_s, export_s, ours["write_s"]))]
    their = [theirs.get(key) for key in ("load_s", "calibrate_s", "quantize_first_s")]
    return _line([*cells, *("-" if value is None else f"{value:.3f}" for value in their)])


def quality_row(record: Record) -> str:
    """SQNR of each output, ops and multiply-adds in integer, Q/DQ nodes, rescales."""
    ours, theirs = record["ours"], record.get("theirs", {})
    compared = "sqnr_db" in theirs
    outputs = []
    for name, mine in ours["sqnr_db"].items():
        other = theirs.get("sqnr_db", {}).get(name)
        outputs.append(
            f"{mine:.1f} / -" if other is None else f"{mine:.1f} / {other:.1f} ({mine - other:+.1f})"
        )
    share = f"{100 * mac_share(ours['macs']):.1f}"
    their_share = f"{100 * mac_share(theirs['macs']):.1f}" if compared else "-"
    their_integer = str(sum(theirs["integer_ops"].values())) if compared else "-"
    least = "yes" if ours["optimal"] else f"within {100 * (ours['cost'] / ours['bound'] - 1):.1f} %"
    return _line(
        [
            record["model"],
            "; ".join(outputs),
            f"{share} / {their_share}",
            f"{sum(ours['integer_ops'].values())} / {their_integer}",
            _counts(ours["float_ops"]),
            _counts(theirs["float_ops"]) if compared else "-",
            f"{ours['quantize_nodes']}/{ours['dequantize_nodes']}",
            f"{theirs['quantize_nodes']}/{theirs['dequantize_nodes']}" if compared else "-",
            str(ours["rescales"]),
            least,
        ]
    )


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {number}" for kind, number in found.items()) or "-"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*titles: str) -> str:
    return f"{_line(titles)}\n|{'---|' * len(titles)}"


SPEED_HEAD: Final = _head(
    *("model", "plan+check+export s", "first time", "their quantize s", "ratio", "whole job s", "theirs s"),
    *("ratio", "peak MB (net of imports)", "theirs", "percentile, peak MB", "latency ratio"),
)
PHASE_HEAD: Final = _head(
    *(
        "model",
        "read",
        "calibrate",
        "target",
        "annotate + bias correction",
        "plan",
        "check + export",
        "write",
    ),
    *("their load", "their calibrate", "their quantize + write"),
)
QUALITY_HEAD: Final = _head(
    *("model", "SQNR dB, ours / theirs per output", "integer MACs %", "integer ops", "float ops, ours"),
    *("float ops, theirs", "Q/DQ", "theirs", "rescales", "least price"),
)


PARTS_HEAD: Final = _head("model", "kernels", "ms", "ms a kernel", *(f"{part} %" for part in PARTS))
WANTED: Final = 1 / 3


def parts_table(records: Sequence[Record]) -> str:
    """Where planning's time goes, of the models on which it takes more than is wanted of theirs."""
    rows = []
    for record in records:
        other, ours = their_quantize_s(record, records), record["ours"]
        if other is None or planning_s(ours) <= WANTED * other[0]:
            continue
        took = 1e3 * planning_s(ours)
        cells = [record["model"], str(ours["regions"]), f"{took:.1f}", f"{took / ours['regions']:.2f}"]
        rows.append(_line([*cells, *(f"{100 * ours['parts'][part]:.0f}" for part in PARTS)]))
    return "\n".join([PARTS_HEAD, *rows]) if rows else "There is none."


def notes(records: Sequence[Record]) -> str:
    """Tell where the other side gave nothing, one line a model."""
    lines = [f"- {r['model']}: {r['theirs_error'][:200]}" for r in records if "theirs_error" in r]
    return "\n".join(["", *lines, ""]) if lines else ""


def figures_table(report: Mapping[str, Any]) -> str:
    """Return the wanted figures, what was found, reached or not."""
    judged = verdicts(report["models"], report["growth"], report["starts"])
    rows = [_line([item.what, item.found, REACHED[item.reached]]) for item in judged]
    return "\n".join([_head("wanted", "found", ""), *rows])


def page(report: Mapping[str, Any]) -> str:
    """Return the Markdown page."""
    records = report["models"]

    def rows(row: Callable[[Record], str]) -> str:
        return "\n".join(row(record) for record in records)

    return f"""# Benchmarks

Made by `make bench` (`python -m benchmarks.main_job --write`): our main job (target `onnxruntime-cpu`,
format `onnx-qdq`, default settings) beside `quantize_static` of onnxruntime {onnxruntime.__version__}
(QDQ, u8/s8, per channel, MinMax, after its preprocessing, whose time is not counted). The same samples on
both sides, each job in a process of its own, the two sides in turn. Seconds depend on the machine
({platform.machine()}, Python {platform.python_version()}) and its load; the ratios are what counts
(below 1: ours is faster or smaller).

Real models: 32 calibration and 32 held-out samples. `light_*`: graphs of the onnx package with seeded
random weights, 8 and 8 seeded samples. `chain_N`: N nodes of generated residual blocks. SQNR is measured
in onnxruntime with `ORT_DISABLE_ALL`, latency with `ORT_ENABLE_ALL` on one thread, runs of both files in
turn, medians.

## Speed and memory
{SPEED_HEAD}
{rows(lambda record: speed_row(record, records))}

`*`: not run, extrapolated by the power law of the two longest chains that were. Planning is the median of
several times in one process on both sides, and of several processes; `first time` is a process's first.
Peak memory is of the whole process after one job.
{notes(records)}
## Seconds by phase
{PHASE_HEAD}
{rows(phase_row)}

## Where planning takes more than a third of theirs
{parts_table(records)}

Shares are of Python's profiler, which counts calls as dearer than they are. No part stands out: these are
models of few kernels, whose quantize phase is a few milliseconds on the other side too; models of which the
other side leaves most in float (bodies of `If`); and those of 60 million weights and more in a few kernels,
where both sides spend their time on reading, rounding and writing them.

## Quality
{QUALITY_HEAD}
{rows(quality_row)}

## Growth
{growth.table(report["growth"]) if report["growth"] else "Not measured."}

## Against design figures
{figures_table(report)}
"""
