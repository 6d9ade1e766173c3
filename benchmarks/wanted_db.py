"""What a floor of dB at readers is worth: quality and work of plans with `costs.wanted_db`, beside none.

Trained models; plans are written as `onnx-qdq` and judged on held-out samples: SQNR (dB) of the worst output,
of the decoder the cross entropy of its tokens. Work is `plan.work`, over that without a floor. Readers are
computed on 4 of the calibration samples; the last column is what that costs beside calibrating.
Usage, from the repository root (the model folder is needed):
`python -m benchmarks.wanted_db [--samples 4] [--targets NAME ...] [--write] [MODEL ...]`; it prints tables,
`--write` puts them and what follows from them into docs/results/wanted-db.md.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import planner
from benchmarks.bias_correction import with_logits
from benchmarks.calibration_methods import DECODER, by_outputs, by_tokens, feeds_of, judged
from benchmarks.needed_ranges import texts
from benchmarks.samples import model_folder
from planner.target.load import load_target

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "wanted-db.md"
MODELS: Final = (
    "mlperf-tiny/vww_96_float",
    "vision/squeezenet_real_fp32",
    "sequence/silero_vad_16k_op15",
    "vision/yolox_nano",
    DECODER,
)
TARGETS: Final = ("litert-int8", "qnn-htp", "onnxruntime-cpu")
CALIBRATING: Final = 16
READERS: Final = 4
FLOORS: Final[Mapping[str, Mapping[str, Any]]] = {
    "none": {},
    "20": {"wanted_db": 20},
    "25": {"wanted_db": 25},
    "30": {"wanted_db": 30},
    "35": {"wanted_db": 35},
    "30, float": {"wanted_db": 30, "wanted_float": True},
}
CHANGED_DB: Final = 0.5
CHANGED_NATS: Final = 0.005
"""From here on a floor counts as having changed a quality."""


@dataclass(frozen=True, slots=True)
class Row:
    """A model on a target: quality and work (over that without a floor) by floor; `times`: see the page."""

    name: str
    target: str
    found: Mapping[str, tuple[float, float]]
    times: float

    @property
    def is_decoder(self) -> bool:
        """Whether quality is a cross entropy, of which less is better."""
        return self.name == DECODER

    @property
    def model(self) -> str:
        """The file's name."""
        return self.name.rpartition("/")[2]

    def gain(self, floor: str) -> float:
        """By how much a floor is better than none, dB or nats."""
        gained = self.found[floor][0] - self.found["none"][0]
        return -gained if self.is_decoder else gained

    def change(self, floor: str) -> int:
        """1 where a floor is better than none, -1 where it is worse, else 0."""
        gained, least = self.gain(floor), CHANGED_NATS if self.is_decoder else CHANGED_DB
        return (gained >= least) - (gained <= -least)

    def told(self, floor: str) -> str:
        """What the floor gained, where."""
        gained = f"{self.gain(floor):.3f} nats" if self.is_decoder else f"{self.gain(floor):.1f} dB"
        return f"{self.model} on {self.target}, {gained} at {self.found[floor][1]:.2f}"


def measured(name: str, count: int, on: str) -> Row:
    """Plan, write and judge a model with each floor."""
    target, model = load_target(on), planner.load_model(model_folder() / f"{name}.onnx")
    feeds: Sequence[Mapping[str, Any]]
    if name == DECODER:
        judge = by_tokens(texts(model, "held_out", count))
        feeds = texts(model, "calibration", CALIBRATING)
    else:
        judge = by_outputs(feeds_of(name, count, held_out=True), judged(model))
        model, feeds = with_logits(model), feeds_of(name, CALIBRATING, held_out=False)
    began = time.perf_counter()
    planner.calibrate(model, feeds)
    between = time.perf_counter()
    stats = planner.calibrate(model, feeds, readers=READERS)
    times = (time.perf_counter() - between) / (between - began)
    ready = planner.correct_biases(planner.annotate(model, stats=stats), target, stats)
    found: dict[str, tuple[float, float]] = {}
    work = 0.0
    for key, floor in FLOORS.items():
        plan = planner.plan(ready, target, **floor)
        work = work or plan.work.total
        found[key] = judge(ready, planner.export(ready, plan, "onnx-qdq")), plan.work.total / work
    return Row(name, on, found, times)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each model of a target."""
    yield f"| model | {' | '.join(FLOORS)} | calibrating, times |"
    yield f"|---|{'---:|' * (len(FLOORS) + 1)}"
    for row in rows:
        digits = 3 if row.is_decoder else 1
        cells = (f"{quality:.{digits}f} ({work:.2f})" for quality, work in row.found.values())
        yield f"| {row.model} | {' | '.join(cells)} | {row.times:.1f} |"


def effects(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each floor: in how many rows it changed the quality, and what it cost."""
    yield "| floor | better | worse | as before | most gained in dB, at this work | work, most |"
    yield "|---|---:|---:|---:|---|---:|"
    for floor in [key for key in FLOORS if key != "none"]:
        changes = [row.change(floor) for row in rows]
        better = [row for row in rows if row.change(floor) > 0 and not row.is_decoder]
        most = max(better, key=lambda row: row.gain(floor)).told(floor) if better else "none"
        work = max(row.found[floor][1] for row in rows)
        counts = " | ".join(str(changes.count(way)) for way in (1, -1, 0))
        yield f"| {floor} | {counts} | {most} | {work:.2f} |"


def closing(rows: Sequence[Row]) -> Iterator[str]:
    """What follows from the figures."""
    asked = [(row, floor) for row in rows for floor in FLOORS if floor != "none"]
    dearer = [(row, floor) for row, floor in asked if round(row.found[floor][1], 2) > 1.0]
    vain = sum(row.change(floor) <= 0 for row, floor in dearer)
    free = [(row, floor) for row, floor in asked if row.change(floor) > 0 and (row, floor) not in dearer]
    yield f"Of {len(dearer)} plans that cost more work than those without a floor, {vain} are no better."
    if free:
        row, floor = max(free, key=lambda one: one[0].gain(one[1]) / (0.01 if one[0].is_decoder else 1.0))
        yield f"{len(free)} plans are better at 1.00 of the work, the most {row.told(floor)} (floor {floor})."
    least, most = min(row.times for row in rows), max(row.times for row in rows)
    yield (
        "No target asks for a floor by default: which one helps differs from model to model, as one reader "
        f"deep is not the whole model, and measuring takes {least:.1f} to {most:.1f} times the calibration "
        "itself here."
    )
    yield "[Search](search.md) finds what a whole model needs."


HEAD: Final = f"""# Floors of dB at readers

Made by `python -m benchmarks.wanted_db --write`. SQNR in dB of the worst output (of a softmax, what it
reads), of the decoder `{DECODER.rpartition("/")[2]}` the cross entropy of its tokens in nats, of which less
is better; and in brackets the work of the plan over that without a floor, where
[`costs.wanted_db`](../accuracy.md#values-that-need-more-than-8-bits) asks for 20 to 35 dB; "float" with
`wanted_float: true`. {CALIBRATING} calibration samples, readers computed on {READERS} of them, COUNT held-out
samples, biases corrected, `onnx-qdq` in onnxruntime as written. The last column is the time of calibrating
with readers over that without (one run on a machine with other work, so roughly).
"""


def page(rows: Sequence[Row], count: int) -> str:
    """The page."""
    lines = [*HEAD.replace("COUNT", str(count)).splitlines(), ""]
    for target in dict.fromkeys(row.target for row in rows):
        lines += [f"`{target}`:", "", *table([row for row in rows if row.target == target]), ""]
    lines += ["## What a floor changes", ""]
    lines += [
        f"Beside none, in the {len(rows)} rows above; {CHANGED_DB} dB or {CHANGED_NATS} nats count.",
        "",
    ]
    return "\n".join([*lines, *effects(rows), "", *closing(rows)]) + "\n"


def main() -> None:
    """Print the tables, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--targets", nargs="*", default=[*TARGETS])
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rows: list[Row] = []
    for target in asked.targets:
        for model in asked.models:
            rows.append(measured(model, asked.samples, target))
            print(f"{target}: {[*table(rows[-1:])][-1]}", flush=True)
    text = page(rows, asked.samples)
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
