"""What a floor of dB at readers is worth: quality and work of plans with `costs.wanted_db`, beside none.

Trained models; plans are written as `onnx-qdq` and judged on held-out samples: SQNR (dB) of the worst output,
of the decoder the cross entropy of its tokens. Work is `plan.work`, of all the plan without a floor. Readers are
computed on 4 of the calibration samples; the last column is what that costs beside calibrating.
Usage, from the repository root (the model folder is needed):
`python -m benchmarks.wanted_db [--samples 4] [--target NAME] [MODEL ...]`; docs/results/wanted-db.md holds its
tables.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import planner
from benchmarks.bias_correction import with_logits
from benchmarks.calibration_methods import DECODER, by_outputs, by_tokens, feeds_of, judged
from benchmarks.needed_ranges import texts
from benchmarks.samples import model_folder
from planner.target.load import load_target
from planner.target.records import Target

MODELS: Final = (
    "mlperf-tiny/vww_96_float",
    "vision/squeezenet_real_fp32",
    "sequence/silero_vad_16k_op15",
    "vision/yolox_nano",
    DECODER,
)
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


def rows(names: list[str], count: int, target: Target) -> Iterator[str]:
    """A line for each model: quality, and work over that of the plan without a floor."""
    yield f"| model | {' | '.join(FLOORS)} | calibrating, times |"
    yield f"|---|{'---:|' * (len(FLOORS) + 1)}"
    for name in names:
        model = planner.load_model(model_folder() / f"{name}.onnx")
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
        ratio = (time.perf_counter() - between) / (between - began)
        ready = planner.correct_biases(planner.annotate(model, stats=stats), target, stats)
        cells, work = [], 0.0
        for floor in FLOORS.values():
            plan = planner.plan(ready, target, **floor)
            work = work or plan.work.total
            quality = judge(ready, planner.export(ready, plan, "onnx-qdq"))
            shown = f"{quality:.{3 if name == DECODER else 1}f}"
            cells.append(f"{shown} ({plan.work.total / work:.2f})")
        yield f"| {name.rpartition('/')[2]} | {' | '.join(cells)} | {ratio:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=[*MODELS])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--target", default="litert-int8")
    asked = parser.parse_args()
    for line in rows(list(asked.models), asked.samples, load_target(asked.target)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
