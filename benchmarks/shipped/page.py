"""docs/results/shipped.md from the results' JSON: a summary, then a table and a picture of every model."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.shipped.data import Task
from benchmarks.shipped.front import Point, on_the_front
from benchmarks.shipped.metrics import is_near

Record = Mapping[str, Any]
BUSY: Final = 0.05
"""Share of the processors in others' hands from which latency is not to be trusted."""
OVERLOADED: Final = 0.5
"""Share from which latency is not even shown."""
EQUAL: Final = 0.05
"""Latencies that differ by no more count as equal."""
UNSETTLED: Final = (
    "Each run began beside the spinning threads of the file before: short ones look slower than they are."
)
FLOAT: Final = "float"
HEAD: Final = (
    *("file of", "metric", "latency / float", "multiply-adds in integers"),
    *("size, MB", "seconds", "peak memory, MB", "its own verdict"),
)
BLANK: Final = ""


def is_quiet(record: Record) -> bool:
    """Return whether the machine was this benchmark's own while latency was measured."""
    busy = record.get("others_busy")
    return busy is not None and busy < BUSY


def has_latency(record: Record) -> bool:
    """Return whether the ratios say something, if not much."""
    busy = record.get("others_busy")
    return busy is None or busy < OVERLOADED


def points(record: Record) -> list[Point]:
    """Return float and every file that has a metric and a latency; nothing where latency says nothing."""
    if not has_latency(record):
        return []
    measured = [row for row in record["sides"] if "metric" in row and "latency" in row]
    return [
        Point(FLOAT, 1.0, record["float"]["metric"]),
        *(Point(row["side"], row["latency"], row["metric"]) for row in measured),
    ]


def beaten_by(row: Record, record: Record) -> list[str]:
    """Return the peers as good and faster, or as fast and better; none where the machine was not quiet."""
    found: list[str] = []
    if not is_quiet(record):
        return found
    for other in record["sides"]:
        if _is_ours(other) or not {"metric", "latency"} <= other.keys():
            continue
        faster = other["latency"] < (1 - EQUAL) * row["latency"] and other["metric"] >= row["metric"]
        better = other["latency"] <= (1 + EQUAL) * row["latency"] and other["metric"] > row["metric"]
        if faster or better:
            found.append(other["side"])
    return found


def _is_ours(row: Record) -> bool:
    return str(row["side"]).startswith("ours")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join([_line(head), f"|{'---|' * len(head)}", *map(_line, rows)])


def _share(counts: Sequence[int] | None) -> str:
    if counts is None:
        return BLANK
    return f"{100 * counts[0] / counts[1]:.0f} %" if counts[1] else "none to count"


def _number(value: float | None, form: str) -> str:
    return BLANK if value is None else format(value, form)


def _row(row: Record, *, timed: bool) -> list[str]:
    return [
        row["side"],
        _number(row.get("metric"), ".3f"),
        _number(row.get("latency") if timed else None, ".2f"),
        _share(row.get("multiply_adds")),
        _number(row["size"] / 1e6 if "size" in row else None, ".2f"),
        _number(row.get("seconds"), ".0f"),
        _number(row.get("rss_mb"), ".0f"),
        row.get("verdict", BLANK),
    ]


def _float_row(source: Record) -> list[str]:
    size = f"{source['size'] / 1e6:.2f}"
    return [
        FLOAT,
        f"{source['metric']:.3f}",
        "1",
        _share(source.get("multiply_adds")),
        size,
        BLANK,
        BLANK,
        BLANK,
    ]


def remarks(record: Record) -> list[str]:
    """Return what to say below a model's table."""
    found = [_of_ours(row, record) for row in record["sides"] if _is_ours(row) and "metric" in row]
    found += [f"{row['side']}: {row['said']}" for row in record["sides"] if row.get("said")]
    found += [
        f"{row['side']}, what limits it: {row['limits']}" for row in record["sides"] if row.get("limits")
    ]
    return found


def _of_ours(row: Record, record: Record) -> str:
    near = is_near(row["metric"], record["float"]["metric"])
    said = f"{row['side']}: {'within' if near else 'not within'} 1 % of float's metric"
    if row.get("verdict"):
        agrees = "agrees" if _agrees(row, is_near=near) else "does not agree"
        said += f"; its verdict of accuracy, {_accuracy(row)}, {agrees} with that"
    if "latency" in row and is_quiet(record):
        others = beaten_by(row, record)
        said += f"; beaten by: {'; '.join(others)}" if others else "; beaten by no peer"
    return f"{said}."


def _accuracy(row: Record) -> str:
    """The verdict of accuracy alone: how much runs in float, its other half, is no metric."""
    level: str = row.get("accuracy") or row.get("verdict", "")
    return level


def _agrees(row: Record, *, is_near: bool) -> bool:
    return (_accuracy(row) == "good") == is_near


def section(record: Record, task: Task, wheels: Mapping[str, str]) -> str:
    """Return a model's section."""
    title = f"## {task.name}\n"
    if "missing" in record:
        return f"{title}\nNot measured: {record['missing']}\n"
    head = list(HEAD)
    head[1] = task.metric
    if not is_quiet(record):
        head[2] += " (loaded machine)"
    rows = [_float_row(record["float"]), *(_row(row, timed=has_latency(record)) for row in record["sides"])]
    lines, drawn = remarks(record), ""
    if points(record):
        drawn = f"\n![Metric and latency of {task.name}](images/shipped-{task.name}.svg)\n"
        front = "; ".join(point.name for point in on_the_front(points(record)))
        lines.append(f"The front of metric and latency: {front}.")
    said = "\n".join(f"- {one}" for one in lines)
    return f"""{title}
From the wheel `{task.wheel}` {wheels[task.wheel]}. Data: {task.data}.
{record["samples"]} calibration samples. Float takes {record["float"]["ms"]:.2f} ms.
{_neighbours(record)}

{table(head, rows)}
{drawn}
{said}
"""


def _neighbours(record: Record) -> str:
    if is_quiet(record):
        settled = "" if record.get("settled") else f" {UNSETTLED}"
        return f"The machine had nothing else to do while latency was measured.{settled}"
    busy = record.get("others_busy")
    share = "an unknown share" if busy is None else f"{100 * busy:.0f} %"
    return f"While latency was measured, other work took {share} of the processors: the ratios say little."


def _cell(row: Record | None, *, with_latency: bool) -> str:
    if row is None or "metric" not in row:
        return BLANK
    latency = f" ({row['latency']:.2f})" if with_latency and "latency" in row else ""
    return f"{row['metric']:.3f}{latency}"


def summary(results: Record, tasks: Sequence[Task]) -> str:
    """Return the table of all models: metrics, and latencies of a quiet machine."""
    by_name = {task.name: task for task in tasks}
    records = [record for record in results["models"] if "missing" not in record]
    names = list(dict.fromkeys(row["side"] for record in records for row in record["sides"]))
    rows = []
    for record in records:
        found = {row["side"]: row for row in record["sides"]}
        cells = [_cell(found.get(name), with_latency=is_quiet(record)) for name in names]
        title = f"{record['model']}, {by_name[record['model']].metric}"
        rows.append([title, f"{record['float']['metric']:.3f}", *cells])
    return table(["model, metric", FLOAT, *names], rows)


def short(results: Record, tasks: Sequence[Task]) -> str:
    """Return what an overview says of all models: the table, and in a line each row of ours."""
    return f"{summary(results, tasks)}\n\n{chr(10).join(wanted(results))}"


def wanted(results: Record) -> list[str]:
    """Return a line for each row of ours: models near float, verdicts that agree, where a peer is ahead."""
    pairs = [
        (row, record)
        for record in results["models"]
        for row in record.get("sides", ())
        if _is_ours(row) and "metric" in row
    ]
    lines = []
    for name in dict.fromkeys(row["side"] for row, _ in pairs):
        own = [(row, record) for row, record in pairs if row["side"] == name]
        near = [is_near(row["metric"], record["float"]["metric"]) for row, record in own]
        agree = [_agrees(row, is_near=is_in) for (row, _), is_in in zip(own, near, strict=True)]
        behind = [
            f"`{record['model']}`" for row, record in own if "latency" in row and beaten_by(row, record)
        ]
        wrong = [
            (is_in, f"`{record['model']}`")
            for (_, record), is_in, is_right in zip(own, near, agree, strict=True)
            if not is_right
        ]
        strict, lenient = (
            ", ".join(model for is_in, model in wrong if is_in == is_near) or "none"
            for is_near in (True, False)
        )
        lines.append(
            f"- {name}: within 1 % of float's metric on {sum(near)} of {len(own)} models; its verdict of "
            f"accuracy agrees on {sum(agree)}, is too strict on {strict}, and says good of a worse file on "
            f"{lenient}; a peer is ahead in both figures on {', '.join(behind) or 'none'}."
        )
    return lines


def other_devices(plans: Sequence[Record]) -> str:
    """Return the section of the same models for devices whose engines are others; "" without any."""
    if not plans:
        return ""
    head = ("model", "target", "kernels in integers", "multiply-adds", "size, MB", "dB, interpreter")
    rows = []
    for one in plans:
        if "refused" in one:
            why = one["refused"].partition(" (")[0]
            rows.append([one["model"], one["target"], f"refused: {why}", *[BLANK] * 5])
            continue
        rows.append(
            [
                one["model"],
                one["target"],
                f"{one['kernels'][0]} of {one['kernels'][1]}",
                _share(one["multiply_adds"]),
                f"{one['size'] / 1e6:.2f}",
                _number(one.get("interpreter"), ".1f"),
                _number(one.get("engine"), ".1f"),
                one["verdict"],
            ]
        )
    reasons = [
        f"- {one['model']}, {one['target']}: {'; '.join(one['reasons'])}"
        for one in plans
        if one.get("reasons")
    ]
    said = [
        f"- {one['model']}, {one['target']}: its engine said: {one['engine_said']}"
        for one in plans
        if one.get("engine_said")
    ]
    efforts = ", ".join(dict.fromkeys(one["effort"] for one in plans))
    return f"""
## Other devices

The same models for other devices, by `python -m benchmarks.shipped.devices --write` (effort: {efforts}).
Decibels are the worst output's ratio of signal to noise against float, on the first calibration samples: by
our reference interpreter in the file's own arithmetic, and by the file's engine: LiteRT, onnxruntime
(`qnn-htp`: the file, not the device), the TOSA reference model (of the first sample; blank where the model is
too large for it).

{table((*head, "dB, engine", "verdict"), rows)}

What is not in integers, and why:
{chr(10).join([*reasons, *said])}
"""


def seconds(pairs: Sequence[Record]) -> str:
    """Return the section of whole jobs beside onnxruntime's; "" without any."""
    if not pairs:
        return ""
    rows, within, compared = [], 0, 0
    for one in pairs:
        ours, other, once = one.get("ours"), one.get("onnxruntime"), one["pass"]
        ratio = ours / (other + once) if ours is not None and other is not None else None
        compared += ratio is not None
        within += ratio is not None and ratio <= 1
        figures = (_number(ours, ".1f"), _number(other, ".1f"), f"{once:.1f}", _number(ratio, ".2f"))
        rows.append([one["model"], *figures])
    head = (
        "model",
        "ours, s",
        "onnxruntime, static, s",
        "a pass over the samples, s",
        "ours / the other two",
    )
    return f"""
## Time of the whole job

`python -m benchmarks.shipped.paired --write`: `qplan quantize --effort quick`, its evaluation included, in
turn with onnxruntime's static quantization, which evaluates nothing; beside it a pass of the float model over
the samples. Whole processes, the least of two turns. At most onnxruntime's time and one pass on {within} of
{compared} models.

{table(head, rows)}
"""


def page(results: Record, tasks: Sequence[Task], wheels: Mapping[str, str]) -> str:
    """Return the page.

    Args:
      results: the JSON beside the page.
      tasks: of all models, measured or not.
      wheels: versions by name.
    """
    by_name = {task.name: task for task in tasks}
    sections = [section(record, by_name[record["model"]], wheels) for record in results["models"]]
    done = {record["model"] for record in results["models"]}
    rest = [f"`{task.name}`" for task in tasks if task.name not in done]
    left = f"\nNot measured yet: {', '.join(rest)}.\n" if rest else ""
    return f"""# Models that people ship

Made by `python -m benchmarks.shipped --write` from [shipped.json](shipped.json): models from inside of wheels
(`benchmarks/shipped.txt`), each measured by its task, onnxruntime {results["onnxruntime"]}. All sides get the
same calibration samples; no side sees the evaluation data. Ours is the command `qplan quantize`; the others
run in environments of their own: onnxruntime's quantizer per channel after its preprocessing, dynamic by its
defaults, NNCF by both presets and, for transformers, its type of them.

- Latency: onnxruntime at its defaults, {results["threads"]} threads, all files in turn, medians, as a ratio
  to float in the same run. Where other work took over {100 * BUSY:.0f} % of the processors, the column says
  so, the summary leaves it out and nobody is called faster; over {100 * OVERLOADED:.0f} %, it is blank.
- Multiply-adds in integers: those that the engine ran, by its own profile; recurrent layers and bodies of
  `If` are included.
- Seconds and peak memory: of the side's whole processes, imports included.
- A blank: not to be had; the lines below a table say why.
- Model Optimizer and AIMET need environments of some gigabytes, which `--large` makes; a model without rows
  of theirs was measured without these. Beside a search of ours they stand in
  [search.md](search.md#beside-plans-made-by-hand-and-other-quantizers).
- Not among the peers: neural-compressor, whose releases from 3 on quantize no ONNX.
- The wheels' files are measured and not shipped; see their packages for their licences.

In brackets: latency as a ratio to float's, below 1 is faster.

{short(results, tasks)}
{left}
{chr(10).join(sections)}{other_devices(results.get("devices", []))}{seconds(results.get("paired", []))}"""
