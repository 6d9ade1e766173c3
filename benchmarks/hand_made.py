"""Search at `normal` beside plans made by hand and beside large peers, on models of real size.

By hand: norms and activations in float; the ten kernels with most noise of their own in 16 bits, or in float
where the target has no 16; both. Peers: NVIDIA Model Optimizer and AIMET, where `benchmarks.shipped --large`
made their environments; AIMET's mixed precision is asked for as many dB as a search. The search runs once
through, again after it was interrupted, and with a Dask cluster of two workers: all are to give the same
file. Each is a process of its own, judged on samples that it did not see. Usage, from the repository root:
`python -m benchmarks.hand_made [--models minilm yolox_nano] [--steps NAME ...] [--cut 5]
[--target onnxruntime-cpu] [--cache DIR] [--write]`, with the models of QPLAN_MODELS and the wheels of
`benchmarks.shipped`; `--write` puts the tables into docs/results/search.md, with what earlier calls measured
into the same cache; with `--steps` and no name that alone.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import planner
from benchmarks.calibration_methods import feeds_of
from benchmarks.clusters import dask
from benchmarks.memory import peak_rss_mb
from benchmarks.samples import model_folder, write_samples
from benchmarks.search import LEVELS, PAGE
from benchmarks.shipped.data import CALIBRATION, Array, Made, Run, Sample
from benchmarks.shipped.measuring import open_session, ticks
from benchmarks.shipped.metrics import Box, box_f1
from benchmarks.shipped.profiled import profile
from benchmarks.shipped.reading import yolox_boxes
from benchmarks.shipped.sides import LARGE, SPENT, Job, Side, large_sides, make
from benchmarks.shipped.wheels import ROOT, default_cache, unpacked
from benchmarks.shipped.words import sentence_embedder
from planner.ir.graph import Graph
from planner.plan_search.aims import BUDGETS
from planner.plans.plan import Plan
from planner.quantizing import Quantized

Record = dict[str, Any]
WORKERS: Final = 2
NOISIEST: Final = 10
NOISE_SAMPLES: Final = 8
LEAST_SCORE: Final = 0.25
"""Of a detection, as the README of the model folder has it."""
SECONDS: Final = 300
MEGABYTES: Final = 1500
"""What a search at `normal` may take on two cores."""
SMOOTH: Final = frozenset(
    {
        *("LayerNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization"),
        *("Softmax", "Gelu", "Sigmoid", "HardSigmoid", "Swish", "HardSwish", "Tanh", "Erf"),
    }
)
"""Kernels that who plans by hand leaves in float first: norms, and activations that are no clip."""
SEARCHES: Final = ("search", "interrupted", "resumed", "dask")
HAND_MADE: Final = ("smooth", "noisiest", "both")
STEPS: Final[Mapping[str, str]] = {
    "quick": "without a search",
    "search": "search at `normal`",
    "interrupted": "interrupted",
    "resumed": "taken up again",
    "dask": f"with Dask, {WORKERS} workers",
    "smooth": "norms and activations in float",
    "noisiest": f"the {NOISIEST} noisiest",
    "both": "both",
    **{name: name for name in LARGE},
}
HEAD: Final = (
    *("plan", "{metric}", "SQNR, dB", "work of float's", "multiply-adds in integers", "size, MB"),
    *(
        "kernels asked",
        "trials",
        "seconds",
        "of the processors",
        "peak memory, MB",
        "others on the processors",
    ),
)
COLUMNS: Final = (
    *(("metric", ".3f"), ("sqnr", ".1f"), ("work", ".1%"), ("integers", ".0%"), ("size", ".2f")),
    *(("asked", "d"), ("trials", "d"), ("seconds", ".0f"), ("processor_s", ".0f")),
)
"""Keys of records, with how their figures are written."""
RECORD: Final = "record.json"
FILE: Final = "file.onnx"


def detector() -> Made:
    """Photographs: boxes beside those that float finds."""
    held = feeds_of("vision/yolox_nano", CALIBRATION, held_out=True)
    wanted: list[list[list[Box]]] = []

    def score(run: Run) -> float:
        found = [yolox_boxes(run(feed)[0][0], 416, LEAST_SCORE) for feed in held]
        wanted[:] = wanted or [found]
        return box_f1(found, wanted[0])

    calibration = feeds_of("vision/yolox_nano", CALIBRATION, held_out=False)
    return Made(model_folder() / "vision" / "yolox_nano.onnx", [*calibration], score, held[0])


CASES: Final[Mapping[str, tuple[str, Callable[[Path], Made]]]] = {
    "minilm": (
        "Spearman of similarities with float's",
        lambda cache: sentence_embedder(partial(unpacked, cache=cache)),
    ),
    "yolox_nano": ("box F1 with float's", lambda _: detector()),
}


def smooth(plan: Plan) -> list[str]:
    """Names of the norms and activations of a plan; of `x * Sigmoid(x)` the product as well."""
    gates = {
        kernel.outputs[0].value: kernel.inputs[0].value
        for kernel in plan.kernels_in_order
        if kernel.kernel in ("Sigmoid", "HardSigmoid")
    }

    def is_gated(read: Sequence[str]) -> bool:
        return any(gates.get(one) in read for one in read)

    return [
        kernel.name
        for kernel in plan.kernels_in_order
        if kernel.kernel in SMOOTH
        or (kernel.kernel == "Mul" and is_gated([port.value for port in kernel.inputs]))
    ]


def noisiest(first: Quantized, model: Path, samples: Sequence[Sample]) -> list[str]:
    """Names of the kernels with most noise of their own."""
    found = planner.losses(
        first.model, first.plan, samples[:NOISE_SAMPLES], reference=planner.load_model(model), limit=0
    )
    return [loss.name for loss in found.kernels if loss.kernel != "input"][:NOISIEST]


def by_hand(step: str, first: Quantized, made: Made, level: str) -> dict[str, str]:
    """What a step asks of kernels."""
    asked = dict[str, str]()
    if step in ("noisiest", "both"):
        asked |= dict.fromkeys(noisiest(first, made.model, made.calibration), level)
    if step in ("smooth", "both"):
        asked |= dict.fromkeys(smooth(first.plan), "float")
    return asked


@contextmanager
def workers(step: str, peaks: Record) -> Iterator[Executor | None]:
    """The executor of a step; their peak memory when it is through."""
    if step != "dask":
        yield None
        return
    from distributed import Client

    with dask(WORKERS) as cluster, Client(f"tcp://127.0.0.1:{cluster.port}") as client:
        client.wait_for_workers(WORKERS)
        yield client.get_executor()
        peaks["workers_mb"] = [*client.run(peak_rss_mb).values()]


def carry_out(step: str, made: Made, target: str, cut: int, out: Path) -> None:
    """Do a step in this process; write the file, and figures beside it."""

    def tell(what: str, done: int, _total: int | None) -> None:
        if step == "interrupted" and what == "searching" and done >= cut:
            raise KeyboardInterrupt

    common = partial(planner.quantize, made.model, made.calibration, target=target, progress=tell)
    record: Record = {}
    if step in SEARCHES:
        state = out.parent / "state.json" if step in ("interrupted", "resumed") else None
        if step == "interrupted" and state is not None:
            state.unlink(missing_ok=True)
        with workers(step, record) as executor:
            done = common(effort="normal", state=state, executor=executor)
    else:
        done = common(effort="quick")
        if step in HAND_MADE:
            done = common(effort="quick", kernels=(asked := by_hand(step, done, made, LEVELS[target])))
            record["asked"] = len(asked)
    record.setdefault("asked", len(done.asked))
    covered = done.verdict.covered if done.verdict is not None else None
    if covered is not None:
        record["work"] = covered.work / covered.float_work
    record["trials"] = 1 if done.search is None else len(done.search.trials)
    record |= {"given_up": done.given_up, "digest": hashlib.sha256(done.data).hexdigest()}
    done.save(out / FILE)
    (out / "figures.json").write_text(json.dumps(record), encoding="utf-8")


def spent(name: str, step: str, given: argparse.Namespace) -> Record:
    """Run a step of ours in a process of its own; its record with seconds and peak memory."""
    out = _folder(name, step, given)
    words = ["-m", "benchmarks.hand_made", "--child", out, "--models", name, "--steps", step]
    words += ["--cut", given.cut, "--target", given.target, "--cache", given.cache]
    line = [sys.executable, "-S", "-E", SPENT, out / "spent.json", sys.executable, *words]
    subprocess.run([str(word) for word in line], check=True, cwd=ROOT)
    figures: Record = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    return figures | json.loads((out / "spent.json").read_text(encoding="utf-8"))


def of_peer(side: Side, made: Made, out: Path, given: argparse.Namespace, *, is_transformer: bool) -> Record:
    """Have a peer quantize; its record, or what it said instead."""
    samples = out / "samples"
    write_samples(samples, made.calibration)
    written = make(side, Job(made.model, samples, out / "peer", given.cache, is_transformer))
    if isinstance(written, str):
        return {"failed": written}
    shutil.copyfile(written.file, out / FILE)
    return {"seconds": written.seconds, "rss_mb": written.rss_mb, "said": written.said}


def _busy() -> tuple[float, float, float]:
    """Seconds of processors that were busy, all seconds of theirs, and those of our children that ended."""
    busy, every, _ = ticks()
    times = os.times()
    return busy, every, times.children_user + times.children_system


def measure(name: str, given: argparse.Namespace) -> Iterator[Mapping[str, Record]]:
    """The steps of a model, judged: after each all that were measured by now, in earlier calls too."""
    made = CASES[name][1](given.cache)
    model = planner.load_model(made.model)
    held: list[Sample] = []

    def watched(run: Run) -> Run:
        def watching(sample: Sample) -> list[Array]:
            held.append(sample)
            return run(sample)

        return watching

    made.score(watched(_run(made.model)))
    large = large_sides(given.cache, is_asked=False)
    for step in given.steps:
        if step in LARGE and step not in large:
            continue
        folder = _folder(name, step, given)
        folder.mkdir(parents=True, exist_ok=True)
        before = _busy()
        if step in LARGE:
            figures = of_peer(large[step], made, folder, given, is_transformer=name == "minilm")
        else:
            figures = spent(name, step, given)
        busy, every, own = (now - then for now, then in zip(_busy(), before, strict=True))
        record = {"step": step, **figures, "processor_s": own, "others": max(0.0, (busy - own) / every)}
        if "failed" not in record:
            record |= judged(folder / FILE, made, model, held)
        (folder / RECORD).write_text(json.dumps(record), encoding="utf-8")
        print(json.dumps(record), flush=True)
        yield known(name, given)


def judged(file: Path, made: Made, model: Graph, held: Sequence[Sample]) -> Record:
    """Figures of a file on samples that nobody calibrated with, as the engine runs it."""
    integers, every = profile(file, made.probe, file.parent)
    return {
        "metric": made.score(_run(file)),
        "sqnr": planner.compare(model, file.read_bytes(), held, optimisation="all").worst_sqnr,
        "integers": integers / every,
        "size": file.stat().st_size,
    }


def known(name: str, given: argparse.Namespace) -> dict[str, Record]:
    """What was measured of a model, in the order of the steps."""
    files = {step: _folder(name, step, given) / RECORD for step in STEPS}
    return {
        step: json.loads(file.read_text(encoding="utf-8")) for step, file in files.items() if file.exists()
    }


def _folder(name: str, step: str, given: argparse.Namespace) -> Path:
    folder: Path = given.cache / "work" / "hand_made" / given.target / name / step
    return folder


def _run(file: Path) -> Run:
    session = open_session(file)
    return lambda sample: list(session.run(None, dict(sample)))


def section(name: str, by_step: Mapping[str, Record], given: argparse.Namespace) -> str:
    """A model's part of the page."""
    head = [word.format(metric=CASES[name][0]) for word in HEAD]
    lines = [f"### {name}, {given.target}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for step, record in by_step.items():
        label = f"{STEPS[step]} after {given.cut} trials" if step == "interrupted" else STEPS[step]
        cells = [label, *(_cell(record, key, form) for key, form in COLUMNS), _memory(record)]
        lines.append(f"| {' | '.join([*cells, _cell(record, 'others', '.0%')])} |")
    lines += ["", *_told(by_step)]
    return "\n".join(lines)


def _cell(record: Record, key: str, form: str) -> str:
    """A figure; blank where there is none."""
    return format(record[key] / 1e6 if key == "size" else record[key], form) if key in record else ""


def _memory(record: Record) -> str:
    if "rss_mb" not in record:
        return ""
    more = "".join(f" + {one:.0f}" for one in record.get("workers_mb", ()))
    return f"{record['rss_mb']:.0f}{more}"


def _told(by_step: Mapping[str, Record]) -> Iterator[str]:
    """What the table comes to."""
    whole = by_step.get("search")
    if whole is None:
        return
    most = BUDGETS["normal"].trials
    size = "no more" if whole["rss_mb"] <= MEGABYTES else "more"
    yield f"- The search, of {most} plans at most, takes {size} than {MEGABYTES:,} MB; {_pace(whole)}."
    others = [step for step in ("resumed", "dask") if step in by_step]
    same = [STEPS[step] for step in others if by_step[step]["digest"] == whole["digest"]]
    other = [STEPS[step] for step in others if by_step[step]["digest"] != whole["digest"]]
    if same:
        yield f"- The same file, byte for byte: {'; '.join(same)}."
    if other:
        yield f"- Another file: {'; '.join(other)}."
    if whole["given_up"]:
        yield f"- It says: {whole['given_up']}"
    for step, record in by_step.items():
        said = record.get("failed") or record.get("said")
        if said:
            yield f"- {STEPS[step]}: {said}."


def _pace(record: Record) -> str:
    """How the seconds of a search compare with what it may take."""
    clock, own = record["seconds"], record["processor_s"]
    if clock <= SECONDS:
        return f"it is through within {SECONDS} s"
    if own <= SECONDS:
        return f"of the processors it takes less than {SECONDS} s, by the clock more, beside others' work"
    return f"it takes more than {SECONDS} s"


def placed(text: str, name: str, target: str, made: str) -> str:
    """The page with a model's part in the place of an older one, or behind all others."""
    head, mark, rest = text.partition(f"### {name}, {target}\n")
    if not mark:
        return f"{text.rstrip()}\n\n{made}\n"
    _, following, tail = rest.partition("\n###")
    return f"{head}{made}\n{following}{tail}"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--steps", nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--cut", type=int, default=5, help="trials after which a search is interrupted")
    parser.add_argument("--target", default="onnxruntime-cpu", choices=list(LEVELS))
    parser.add_argument("--cache", type=Path, default=default_cache(), help="as of benchmarks.shipped")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.child is not None:
        (name,), (step,) = given.models, given.steps
        carry_out(step, CASES[name][1](given.cache), given.target, given.cut, given.child)
        return
    for name in given.models:
        for by_step in measure(name, given) if given.steps else [known(name, given)]:
            made = section(name, by_step, given)
            if not given.write:
                print(made, flush=True)
                continue
            text = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(placed(text, name, given.target, made), encoding="utf-8")


if __name__ == "__main__":
    main()
