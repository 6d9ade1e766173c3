"""Search beside all-or-nothing and greedy: work and SQNR, with how many plans it took and how long.

The goal is what all kernels in 16 bits reach, less 3 dB (`litert-int8`, `qnn-htp`), or 30 dB where the choice
is between 8 bits and float (`onnxruntime-cpu`). The last columns hold the front against the greedy order, at
eight SQNRs between 8 bits and the finest level: the most by which a greedy plan is better at no more work, up
to the SQNR to which a search fills its front, the best plan's or that of all kernels raised.
Usage, from the repository root: `python -m benchmarks.search [--samples 8] [--trials 40] [--only NAME]
[--write]`, with the models of QPLAN_MODELS; `--write` puts the table into docs/results/search.md.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count as count_up
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.losses import decoder, float_pass, yolox
from benchmarks.samples import Sample, model_folder, models, samples
from planner.accuracy.choices import Choice
from planner.accuracy.own_noise import OwnNoise, own_noise
from planner.interpreter.reference import open_reference
from planner.ir.expand import expand
from planner.ir.graph import Graph
from planner.ir.types.wanted import wanted_to_data
from planner.plan_search.forecast import net_of
from planner.plan_search.greedy import greedy
from planner.plan_search.measuring import groups_of
from planner.plan_search.options import levels_of, table_of
from planner.plan_search.program import bounds_of
from planner.plan_search.search import Search
from planner.plan_search.trials import Bench, State, Trial
from planner.target.load import load_target

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "search.md"
NAMES: Final = ("yolox_nano", "silero_vad_16k_op15", "squeezenet_real_fp32", "vww_96_float", "stories260k")
LEVELS: Final[Mapping[str, str]] = {"litert-int8": "i16", "qnn-htp": "u16", "onnxruntime-cpu": "float"}
OTHERS: Final = {"stories260k": ("language", decoder), "yolox_nano": ("vision", yolox)}
BELOW: Final = 3.0
FLOAT_GOAL: Final = 30.0
POINTS: Final = 8
HEAD: Final = (
    "model",
    "target",
    "8 bits, dB",
    "all raised, dB",
    "goal, dB",
    "reached, dB",
    "share of the work that raising all adds",
    "greedy's share",
    "plans",
    "kernels",
    "noise, float passes a 100 kernels",
    "seconds a plan",
    "greedy better by, dB",
)


def read(name: str, count: int) -> tuple[Graph, list[Sample]]:
    """A model and its calibration samples."""
    if name in OTHERS:
        folder, feeds = OTHERS[name]
        model = planner.load_model(model_folder() / folder / f"{name}.onnx")
        return model, feeds(model, count)
    (found,) = [one for one in models() if one.name == name]
    return planner.load_model(found.path), samples(found.name, found.path, count)


def _share(work: float, low: float, high: float) -> float:
    return (work - low) / (high - low) if high > low else math.nan


def measure(name: str, target: str, count: int, trials: int) -> Sequence[str]:
    """A row of the table."""
    model, feeds = read(name, count)
    ready = expand(planner.annotate(model, stats=planner.calibrate(model, feeds)))
    device = load_target(target)
    bench = Bench(ready, device, feeds)
    with tempfile.TemporaryDirectory(prefix="search.") as folder:
        path = Path(folder) / "state.json"
        state, asked = State(bench.key(), path), count_up()
        groups = groups_of(ready, feeds, open_reference(ready))
        one = float_pass(model, feeds)
        begun = time.process_time()
        levels = levels_of(ready, device)

        def noise(choices: Sequence[Choice]) -> OwnNoise:
            return state.noise(
                next(asked),
                choices,
                lambda some: own_noise(ready, levels[""], some, feeds, groups=groups),
            )

        table = table_of(ready, levels, noise)
        kernels = len(table.kernels)
        passes = (time.process_time() - begun) / (one * len(feeds)) * 100 / kernels
        low, high = levels[""].work.total, levels[LEVELS[target]].work.total
        raised = bench.measured("raised", levels_wish(levels, LEVELS[target]), 0.0)
        plain = bench.measured("planned", {}, 0.0)
        goal = raised.sqnr - BELOW if math.isfinite(raised.sqnr) else FLOAT_GOAL
        begun = time.perf_counter()
        found = planner.search(ready, device, feeds, goal=f"sqnr={goal}", trials=trials, state=path)
        seconds = (time.perf_counter() - begun) / len(found.trials)
    rivals = [*_greedy(table, net_of(table), bench, plain.sqnr, min(raised.sqnr, plain.sqnr + 20))]
    enough = [trial.work for trial in rivals if trial.sqnr >= goal]
    return (
        name,
        target,
        f"{plain.sqnr:.1f}",
        f"{raised.sqnr:.1f}",
        f"{goal:.1f}",
        f"{found.best.sqnr:.1f}" if found.met else f"{found.best.sqnr:.1f}, not met",
        f"{_share(found.best.work, low, high):.1%}",
        f"{_share(min(enough), low, high):.1%}" if enough else "-",
        str(len(found.trials)),
        str(kernels),
        f"{passes:.0f}",
        f"{seconds:.2f}",
        f"{_worse(found, rivals, max(found.best.sqnr, raised.sqnr)):.2f}",
    )


def levels_wish(levels: Mapping[str, Any], level: str) -> Mapping[str, Any]:
    """What a level asks of all kernels."""
    return {key: wanted_to_data(wish) for key, wish in levels[level].annotated.wanted.items()}


def _greedy(table: Any, net: Any, bench: Bench, low: float, high: float) -> Iterator[Trial]:
    """Greedy plans for SQNRs between two."""
    for sqnr in np.linspace(low, high, POINTS):
        found = greedy(table, net, bounds_of(table, float(sqnr)), weight_bits=math.inf)
        if found is not None:
            chosen, told = found
            wishes = {name: table.kernels[name][at].wish for name, at in chosen.items()}
            asked = {name: wish for name, wish in wishes.items() if wish is not None}
            trial = bench.measured("greedy", asked, told.sqnr(table))
            if not trial.error:
                yield trial


def _worse(found: Search, rivals: Sequence[Trial], top: float) -> float:
    """The most dB by which a rival is better than all of the front that works no more, up to `top` dB."""
    worst = 0.0
    for rival in rivals:
        mine = max((one.sqnr for one in found.front if one.work <= rival.work), default=-math.inf)
        worst = max(worst, min(rival.sqnr, top) - mine)
    return worst


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--only", nargs="*", default=list(NAMES))
    parser.add_argument("--targets", nargs="*", default=list(LEVELS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    print("\n".join(lines))
    for name in given.only:
        for target in given.targets:
            lines.append(f"| {' | '.join(measure(name, target, given.samples, given.trials))} |")
            print(lines[-1], flush=True)
            if given.write:
                _write(lines)


def _write(lines: Sequence[str]) -> None:
    """Put the rows by now into the page; those of other models and targets stay."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, old = text.partition("\n| model |")
    rows, _, rest = old.partition("\n\n")
    known = {tuple(row.split(" | ")[:2]): row for row in rows.splitlines()[2:]}
    known |= {tuple(row.split(" | ")[:2]): row for row in lines[2:]}
    order = [(f"| {name}", target) for name in NAMES for target in LEVELS]
    table = [*lines[:2], *(known[key] for key in order if key in known)]
    PAGE.write_text(head + "\n" + "\n".join(table) + ("\n\n" + rest if rest else "\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
