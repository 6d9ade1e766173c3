"""A trained decoder judged by its text: prefill and decode, in 8 and fewer bits, beside onnxruntime.

Cross entropy, KL and top-1 against float of the next tokens of held-out texts; `stories260k` gives whole
texts, `stories260k_decode` one step after the other with its cache as it is stored. onnxruntime's
`matmul_nbits_quantizer` works in an environment of its own (`make .oracles/nbits/.made`) on the same weights
and the same calibration texts. Usage, from the repository root, with the models of QPLAN_MODELS:
`python -m benchmarks.language [--texts 32] [--runs 3] [--write]`; `--write` writes docs/results/language.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.decoder import size_of, write_decoder
from benchmarks.decoder_accuracy import reals
from benchmarks.kv_cache import cache_bytes, likelihoods, run_text
from benchmarks.needed_ranges import texts
from benchmarks.samples import Array, Sample, model_folder
from planner.formats.onnx.sessions import open_session, session_options
from planner.formats.onnx.write import write_graph
from planner.ir.graph import Graph

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "language.md"
THEIRS: Final = ROOT / ".oracles" / "nbits" / "bin" / "python"
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
STEPS: Final = 128
GIGABYTES: Final = 0.5
EACH: Final = 8
"""Calibration texts whose steps condition the decode step."""
NAMES: Final = {"i4": "4 bits", "u4": "4 bits, zero points", "i3": "3 bits", "i2": "2 bits", "i8": "8 bits"}
NAMES_OF: Final = {
    "nearest": "ours, nearest",
    "clip": "ours, `clip`",
    "round": "ours, `round`",
    "default": "onnxruntime, default",
    "rtn": "onnxruntime, RTN",
    "k_quant": "onnxruntime, k-quant",
    "hqq": "onnxruntime, HQQ",
    "gptq": "onnxruntime, GPTQ",
}
BESIDE: Final = (
    *(("i4", one) for one in ("nearest", "clip", "round", "default", "rtn", "gptq")),
    *(("u4", one) for one in ("nearest", "clip", "round", "default", "rtn", "k_quant", "hqq", "gptq")),
    *(("i2", one) for one in ("nearest", "clip", "round", "default")),
    *(("u2", one) for one in ("nearest", "clip", "round", "default", "hqq")),
    *(("i8", one) for one in ("nearest", "default")),
)
OURS: Final = frozenset(("nearest", "clip", "round"))
HEAD: Final = "| {} | cross entropy | over float | top-1 | KL |{}\n|---|---:|---:|---:|---:|{}"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a file's text is worth beside float: nats a token, share of equal words, nats."""

    loss: float
    over: float
    same: float
    apart: float

    @property
    def cells(self) -> str:
        """Of a table."""
        over = round(self.over, 4) + 0.0
        return f"{self.loss:.4f} | {over:+.4f} | {100 * self.same:.1f} % | {self.apart:.4f}"


@dataclass(frozen=True, slots=True)
class Made:
    """A file, the seconds of its making without and with imports, and the peak of memory."""

    file: Path
    seconds: float
    process: float
    peak_mb: float


def judged(found: Sequence[Array], floats: Sequence[Array], ids: Sequence[Array]) -> Judged:
    """Judge log likelihoods of words behind each place of texts."""
    loss, base = (
        float(
            np.mean([-one[np.arange(len(text) - 1), text[1:]] for one, text in zip(side, ids, strict=True)])
        )
        for side in (found, floats)
    )
    pairs = list(zip(found, floats, strict=True))
    same = np.mean([mine.argmax(-1) == its.argmax(-1) for mine, its in pairs])
    apart = np.mean([(np.exp(its) * (its - mine)).sum(-1).mean() for mine, its in pairs])
    return Judged(loss, loss - base, float(same), float(apart))


def made(given: tuple[Path, Path], out: Path, method: str, storage: str, runs: int) -> Made:
    """Quantize a model, given with its samples, in processes of one thread, `runs` times; medians."""
    side = [sys.executable, "-m", "benchmarks.our_nbits"]
    if method not in OURS:
        side = [str(THEIRS), "-P", str(ROOT / "benchmarks" / "ort_nbits.py")]
    told, spent = [], []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(
            [*side, *map(str, given), str(out), method, storage],
            capture_output=True,
            check=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
        )
        spent.append(time.perf_counter() - start)
        told.append(json.loads(done.stdout.splitlines()[-1]))
    middle = statistics.median(one["seconds"] for one in told)
    return Made(out, middle, statistics.median(spent), max(one["peak_mb"] for one in told))


@dataclass(frozen=True, slots=True, eq=False)
class Prefill:
    """Whole texts: the float model, its texts, its likelihoods."""

    path: Path
    model: Graph
    seen: list[Sample]
    held: list[Sample]
    floats: list[Array]

    def judge(self, data: Any) -> Judged:
        """A file's or a model's text."""
        return judged(reals(data, self.held), self.floats, [text["input_ids"][0] for text in self.held])


def prefill(count: int) -> Prefill:
    """The decoder on whole texts."""
    path = model_folder() / "language" / "stories260k.onnx"
    model = planner.load_model(path)
    seen, held = (
        [dict(one) for one in texts(model, *part)] for part in (("calibration", 32), ("held_out", count))
    )
    return Prefill(path, model, seen, held, reals(str(path), held))


def prefill_rows(case: Prefill) -> Iterator[str]:
    """The table of whole texts."""
    yield HEAD.format("whole texts", "", "")
    yield f"| float | {case.judge(str(case.path)).cells} |"
    stats = planner.calibrate(case.model, case.seen)
    for target in ("onnxruntime-cpu", "litert-int8"):
        ready = planner.annotate(case.model, stats=stats)
        data = planner.export(ready, planner.plan(ready, target), "onnx-qdq")
        yield f"| W8A8, `{target}` | {case.judge(data).cells} |"
    for storage in ("i8", "u4", "i4", "i3", "i2"):
        for method in ("nearest", "clip", "round") if storage != "i8" else ("nearest",):
            data = few_bits(case.model, case.seen, storage, method)
            yield f"| weights in {NAMES[storage]}, {method} | {case.judge(data).cells} |"


def few_bits(model: Graph, seen: Sequence[Any], storage: str, method: str) -> bytes:
    """The file of weights in blocks of few bits."""
    return _written(conditioned_to(model, storage, method, seen), "llm-w4", "onnx-matmulnbits")


def beside_rows(case: Prefill, work: Path, runs: int) -> Iterator[str]:
    """The table of both quantizers: the same weights, blocks of 32 and texts."""
    yield HEAD.format("blocks of 32", " KB | s | s with imports |", "---:|---:|---:|")
    folded, samples = work / "folded.onnx", work / "samples.npz"
    folded.write_bytes(write_graph(case.model))
    np.savez(
        samples, **{name: np.concatenate([one[name] for one in case.seen]) for name in case.model.inputs}
    )
    for storage, method in BESIDE:
        often = 1 if method == "gptq" else runs
        one = made((folded, samples), work / f"{storage}-{method}.onnx", method, storage, often)
        named = NAMES.get(storage, "2 bits, zero points")
        size = one.file.stat().st_size / 1000
        yield (
            f"| {named}: {NAMES_OF[method]} | {case.judge(str(one.file)).cells} | {size:.0f} "
            f"| {one.seconds:.2f} | {one.process:.2f} |"
        )


def large_rows(work: Path, runs: int) -> Iterator[str]:
    """The table of a drawn decoder's time and memory."""
    yield "| 4 bits, blocks of 32 | s | s with imports | peak MB |\n|---|---:|---:|---:|"
    size = size_of(GIGABYTES)
    path = write_decoder(work / "decoder.onnx", size)
    for storage in ("i4", "u4"):
        for method in ("nearest", "default", "rtn"):
            one = made((path, work / "none"), work / "large.onnx", method, storage, runs)
            yield (
                f"| {NAMES[storage]}: {NAMES_OF[method]} | {one.seconds:.1f} | {one.process:.1f} "
                f"| {one.peak_mb:.0f} |"
            )


def decode_rows(count: int, work: Path) -> Iterator[str]:
    """The table of single steps, each with the cache that the step before gave."""
    yield HEAD.format("step by step", " bytes of cache a token |", "---:|")
    folder = model_folder() / "language"
    path = folder / "stories260k_decode.onnx"
    model = planner.load_model(path)
    base = open_session(path.read_bytes(), session_options())
    with np.load(folder / "calibration.npz") as arrays:
        known = arrays["input_ids"][:EACH, :STEPS]
    samples = [one for text in known for one in run_text(base, text, range(1, STEPS))[1]]
    with np.load(folder / "held_out.npz") as arrays:
        ids = list(arrays["input_ids"][:count, :STEPS])
    floats = [likelihoods(run_text(base, text)[0]) for text in ids]

    def row(name: str, data: Any) -> str:
        session = open_session(data, session_options())
        found = [likelihoods(run_text(session, text)[0]) for text in ids]
        return f"| {name} | {judged(found, floats, ids).cells} | {cache_bytes(session)} |"

    yield row("float", path.read_bytes())
    folded = work / "decode.onnx"
    folded.write_bytes(write_graph(model))
    for storage, method in (("i4", "default"), ("u4", "default"), ("u4", "hqq")):
        one = made((folded, work / "none"), work / "decode-made.onnx", method, storage, 1)
        yield row(f"weights in {NAMES[storage]}: {NAMES_OF[method]}", one.file.read_bytes())
    few = [one for k, one in enumerate(samples) if k % (STEPS // 4) == 0]
    ready = planner.annotate(model, stats=planner.calibrate(model, few))
    conditioned = {
        (storage, method): conditioned_to(ready, storage, method, samples)
        for storage, method in (("i4", "nearest"), ("u4", "nearest"), ("i4", "round"), ("u4", "round"))
    }
    floating = planner.annotate(ready, kernels={"*": "float"})
    for cache in ("float", "8 bits", "8 bits, a scale a head"):
        told = "" if cache == "float" else f", cache in {cache}"
        if told:
            yield row(f"float{told}", _written(_cached(floating, cache, few), "llm-w4", "onnx-qdq"))
        for (storage, method), one in conditioned.items():
            data = _written(_cached(one, cache, few), "llm-w4", "onnx-matmulnbits")
            yield row(f"weights in {NAMES[storage]}: {NAMES_OF[method]}{told}", data)
        for target in ("onnxruntime-cpu", "litert-int8"):
            data = _written(_cached(ready, cache, few), target, "onnx-qdq")
            yield row(f"W8A8, `{target}`{told}", data)


def conditioned_to(ready: Graph, storage: str, method: str, samples: Sequence[Any]) -> Graph:
    """The model with weights asked for in a storage, conditioned."""
    asked = planner.annotate(ready, kernels={"*": {"in": ["f32", storage]}})
    if method == "nearest":
        return asked
    return planner.condition(asked, method, target="llm-w4", samples=samples).model


def _cached(model: Graph, cache: str, samples: Sequence[Any]) -> Graph:
    if cache == "float":
        return model
    return planner.with_caches(model, "i8", samples=samples if "head" in cache else None)


def _written(ready: Graph, target: str, form: str) -> bytes:
    plan = planner.plan(ready, target)
    planner.check(plan, ready)
    return planner.export(ready, plan, form)


def page(given: argparse.Namespace, parts: Sequence[Sequence[str]]) -> str:
    """The page."""
    whole, beside, large, steps = ("\n".join(lines) for lines in parts)
    command = f"python -m benchmarks.language --texts {given.texts} --runs {given.runs} --write"
    return f"""# A decoder judged by its text

Made by `{command}` (the model folder is needed, and
onnxruntime's quantizer in an environment of its own: `make .oracles/nbits/.made`), onnxruntime
{version("onnxruntime")}. `stories260k` of the model folder, a trained decoder with 260,000 parameters;
{given.texts} held-out texts of {STEPS} tokens, 32 other ones to calibrate with. Cross entropy of the next
tokens in nats (two standard errors are 0.004), top-1: how often the most likely token is the float model's,
KL of the float model's distribution and the file's, in nats. Weights of few bits: `llm-w4`, blocks of 32
along the sum, symmetric unless zero points are named, in all 36 matrices, sums in float32 (`accuracy_level`
1). *nearest* is the plan alone, `clip` and `round` are [conditioning](../accuracy.md#conditioning), `round`
with the calibration texts.

## Prefill
{whole}

## Beside onnxruntime's quantizer
`matmul_nbits_quantizer` on the same 36 matrices (its own reading leaves the head, a transposed embedding, in
float), GPTQ with the same 32 texts. HQQ has zero points in float32: 6 bits a weight, not 5.1.
Each file is made by a process of its own with one thread, in turn; seconds are medians of {given.runs} runs
(GPTQ: one), first of the work from reading to writing, then of the whole process; others work on the machine.

{beside}

What ours takes of a model so small is the work on its 345 kernels, most of which stay float: reading,
planning, and checking with writing take a third each, and in a profile no function takes a tenth. Theirs
looks at the 36 matrices alone. On larger models the matrices decide.

A drawn decoder of {GIGABYTES} GB, the same way:

{large}

## Decode
Each step gets the cache that the step before gave, as it is stored. W8A8 is calibrated on steps of {EACH}
texts, and `round` sees all steps of these. GPTQ has no row: the steps of its samples differ in length.

{steps}
"""


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    parts: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="language.") as folder:
        work, case = Path(folder), prefill(given.texts)
        tables = (
            prefill_rows(case),
            beside_rows(case, work, given.runs),
            large_rows(work, given.runs),
            decode_rows(given.texts, work),
        )
        for table in tables:
            parts.append([])
            for line in table:
                print(line, flush=True)
                parts[-1].append(line)
    if given.write:
        PAGE.write_text(page(given, parts), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
