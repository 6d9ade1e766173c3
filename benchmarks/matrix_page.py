"""The page docs/results/matrix.md from the records of `target_matrix`: tables, nothing is measured here."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

Record = Mapping[str, Any]

MOST_CLAUSES: Final = 3
MOST_MODELS: Final = 4
_HAS: Final = ", the row has "
_TYPE: Final = re.compile(
    r"!quant\.uniform<([iuf]\w+(?:<-?\d+:-?\d+>)?):[^{}>]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}>]*)*>?"
)

HEAD: Final = """# Every model on every target

Made by `python -m benchmarks.target_matrix --write`: each file of the model folder (benchmarks/samples.py
says where it is) and each model of the `onnx` package's `light` folder (benchmarks/light.py gives them
weights) is read, gets ranges from two samples, and is planned and checked for each shipped target. Nothing
crashes, and each kernel that stays in float has a reason; tests see to both.

A cell is **kernels served by a row / kernels left in float / rescales**; casts at float borders are no
rescales. Files of the `qonnx` folder bring types of their own, mostly below 8 bits: a weight that is pinned
to 3 bits is stored in 8 at the same scale; where a row's scales cannot be that one (powers of two, blocks)
its kernel stays in float, and the reason says so. `refused`: the constraints of the file and the target
contradict each other, or the file cannot be read.
"""


def page(records: Sequence[Record]) -> str:
    """The whole page."""
    targets = sorted({record["target"] for record in records})
    models = list(dict.fromkeys(record["model"] for record in records))
    cells = {(record["model"], record["target"]): record for record in records}
    parts = [HEAD, _overview(models, targets, cells)]
    refused = [_refusal(record) for record in records if "refused" in record or "crash" in record]
    if refused:
        lines = "\n".join(dict.fromkeys(refused))
        parts.append(f"## Refused\n\n{lines}\n")
    parts.append("## Why kernels stay in float\n")
    parts += [_reasons(target, [r for r in records if r["target"] == target]) for target in targets]
    return "\n".join(parts)


def totals(records: Iterable[Record]) -> dict[str, Counter[str]]:
    """Per target: models planned and refused, kernels served and in float, rescales."""
    found: dict[str, Counter[str]] = {}
    for record in records:
        count = found.setdefault(record["target"], Counter())
        if "kernels" not in record:
            count["crashed" if "crash" in record else "refused"] += 1
            continue
        count["planned"] += 1
        count["served"] += sum(record["kernels"].values())
        count["float"] += sum(entry["count"] for entry in record["floats"])
        count["rescales"] += record["rescales"]
    return found


def _overview(models: Sequence[str], targets: Sequence[str], cells: Mapping[tuple[str, str], Record]) -> str:
    lines = [f"| model | {' | '.join(targets)} |", f"|---|{'---|' * len(targets)}"]
    for model in models:
        row = (_cell(cells.get((model, target))) for target in targets)
        lines.append(f"| {model} | {' | '.join(row)} |")
    sums = totals(cells.values())
    told = (f"{sums[t]['served']} / {sums[t]['float']} / {sums[t]['rescales']}" for t in targets)
    lines.append(f"| **all** | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    if "kernels" not in record:
        return "crashed" if "crash" in record else "refused"
    floats = sum(entry["count"] for entry in record["floats"])
    return f"{sum(record['kernels'].values())} / {floats} / {record['rescales']}"


def _refusal(record: Record) -> str:
    text = record.get("refused") or record["crash"]
    return f"- {record['model']} on {record['target']}: {escaped(shorten(text))}"


def _reasons(target: str, records: Sequence[Record]) -> str:
    counts: Counter[tuple[str, str]] = Counter()
    models: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        for entry in record.get("floats", ()):
            key = (entry["kernel"], shorten(entry["reason"]))
            counts[key] += entry["count"]
            models.setdefault(key, {})[record["model"]] = None
    title = f"### {target}\n"
    if not counts:
        return f"{title}\nNone do.\n"
    lines = ["| kernel | reason | kernels | models |", "|---|---|---|---|"]
    for (kernel, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        named = _some(list(models[kernel, reason]))
        lines.append(f"| {kernel} | {escaped(reason)} | {count} | {named} |")
    return f"{title}\n" + "\n".join(lines) + "\n"


def _some(names: Sequence[str]) -> str:
    short = [name.rpartition("/")[2] for name in names]
    shown = ", ".join(short[:MOST_MODELS])
    return shown if len(short) <= MOST_MODELS else f"{shown}, {len(short) - MOST_MODELS} more"


def shorten(reason: str) -> str:
    """A reason without what differs from kernel to kernel: names of values, lines, scales."""
    text = _TYPE.sub(r"\1", reason)
    text = re.sub(r"\(([^()]*) \('[^']*'\)\)|\s?\('[^']*'\)", _unnamed, text)
    text = re.sub(r"no fusion of '[^']*' names [\w:.]+ and no row", "no fusion names it, no row", text)
    text = re.sub(r"no fusion of '[^']*' takes", "no fusion takes", text)
    text = re.sub(r"'[^']*' is read by '[^']*' too", "a value inside is read elsewhere too", text)
    text = re.sub(r"\b(must be|requires) ([^;]*)", _without_numbers, text)
    heads: dict[str, dict[str, None]] = {}
    for clause in _clauses(text):
        head, _, tail = clause.partition(_HAS)
        heads.setdefault(head, {})[tail] = None
    shown = [head + _HAS * any(tails) + " or ".join(tails) for head, tails in heads.items()]
    return "; ".join(shown[:MOST_CLAUSES]) + ("; ..." if len(shown) > MOST_CLAUSES else "")


def _without_numbers(match: re.Match[str]) -> str:
    """A condition without what its terms are here: `x.shape[2] (5)`."""
    return f"{match[1]} " + re.sub(r" \((?:-?[\d.]+|\[[-\d., ]*\])\)", "", match[2])


def _unnamed(match: re.Match[str]) -> str:
    return f"({match[1]})" if match[1] else ""


def _clauses(text: str) -> Iterator[str]:
    for clause in text.split("; "):
        yield re.sub(r"^[\w.-]+\.yaml:\d+:? ?", "", clause).strip()


def escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
