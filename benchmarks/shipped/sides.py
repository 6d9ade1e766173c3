"""Sides of the comparison: our command, other quantizers in environments of their own, called by files."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import onnx

from benchmarks.shipped.wheels import ROOT, NotInstalled, environment, is_made
from planner.accuracy.verdict import GOOD_SQNR

SPENT: Final = ROOT / "benchmarks" / "shipped" / "spent.py"
QPLAN: Final = Path(sys.executable).with_name("qplan")
LIMIT_S: Final = 1200
"""Seconds that a side may take for a model."""
OURS: Final[Mapping[str, tuple[str, ...]]] = {"ours": ()}
"""Arguments of `qplan quantize` by the name of their row."""
NAMED: Final = 3
"""Kernels and remedies that a remark names."""
PER_CHANNEL: Final = 13
"""The opset from which a scale may be per channel; onnxruntime's quantizer does not look."""
ONNXRUNTIME: Final = ROOT / "benchmarks" / "shipped" / "onnxruntime.txt"
NNCF: Final = ROOT / "tests" / "oracles" / "nncf.txt"
MODELOPT: Final = ROOT / "benchmarks" / "shipped" / "modelopt.txt"
AIMET: Final = ROOT / "benchmarks" / "shipped" / "aimet.txt"


class NoFile(Exception):
    """A side wrote no file; the text is why, by its own words."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a side gets.

    Attributes:
      model, samples: the float file, and the folder of its calibration samples as .npz.
      work: an empty folder for the side's files.
      cache: the folder of environments.
      is_transformer: as the task says.
    """

    model: Path
    samples: Path
    work: Path
    cache: Path
    is_transformer: bool


@dataclass(frozen=True, slots=True)
class Written:
    """A side's file.

    Attributes:
      seconds, rss_mb: of its processes: time, and peak memory in MB.
      verdict, accuracy: its own words, "" of a side that has none: of the file, and of its accuracy alone.
      said: a remark.
    """

    file: Path
    seconds: float
    rss_mb: float
    verdict: str = ""
    accuracy: str = ""
    said: str = ""


Side = Callable[[Job], Written]


@dataclass(frozen=True, slots=True)
class _Done:
    seconds: float
    rss_mb: float
    stdout: str


def _spend(job: Job, command: Sequence[object], *, good: tuple[int, ...] = (0,)) -> _Done:
    """Run a command to its end, which one of the good exit codes is.

    Raises:
      NoFile: it failed, or took longer than the limit.
    """
    figures = job.work / "spent.json"
    wrapped = [sys.executable, "-S", "-E", SPENT, figures, *command]
    # onnxruntime's preprocessing leaves a file in the current folder.
    ran = subprocess.Popen(
        [str(item) for item in wrapped],
        cwd=job.work,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = ran.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NoFile(f"stopped after {LIMIT_S} s") from None
    finally:
        # An interrupted benchmark leaves no quantizer behind, either.
        if ran.poll() is None:
            os.killpg(ran.pid, signal.SIGKILL)
            ran.communicate()
    if ran.returncode not in good:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        raise NoFile(lines[-1][:300] if lines else f"exit code {ran.returncode}, no message")
    found = json.loads(figures.read_text(encoding="utf-8"))
    return _Done(found["seconds"], found["rss_mb"], stdout)


def ours(arguments: Sequence[str], job: Job) -> Written:
    """Return our file, by the command that users type."""
    out = job.work / "out"
    command = (QPLAN, "quantize", job.model, "--data", job.samples, "--out", out, "--json", *arguments)
    # 1 is a verdict, too: a file that is not good enough is written all the same.
    done = _spend(job, command, good=(0, 1))
    answer = json.loads(done.stdout)
    verdict = answer.get("verdict") or {}
    file = out / "onnx-qdq.onnx"
    if not file.exists():
        raise NoFile(f"{verdict.get('level', 'no verdict')}: {verdict.get('reason', 'no file')}")
    accuracy = (verdict.get("accuracy") or {}).get("level", "")
    searched = (answer.get("effort") or {}).get("text", "")
    said = "; ".join(text for text in (verdict.get("reason", ""), searched) if text)
    return Written(file, done.seconds, done.rss_mb, verdict.get("level", ""), accuracy, said)


def limits(job: Job) -> str:
    """Return what limits the file that `ours` wrote: the kernels with most noise, and what would help."""
    command = (QPLAN, "losses", job.work / "out", "--data", job.samples, "--json")
    try:
        told = json.loads(_spend(job, command).stdout)
    except NoFile as error:
        return f"not known: {error}"
    noisy = [kernel for kernel in told["kernels"] if kernel["share"]]
    first = ", ".join(f"{kernel['name']} {100 * kernel['share']:.0f} %" for kernel in noisy[:NAMED])
    helps = (
        f"{one['what']} at {_counted(one['names'])} gives {one['sqnr']:.1f} dB"
        for one in told["remedies"][:NAMED]
    )
    return f"of the noise of {len(noisy)} kernels {first}; predicted: {'; '.join(helps) or 'nothing helps'}"


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} kernels" if len(names) > NAMED else ", ".join(names)


def _phase(phase: str, source: Path, job: Job) -> _Done:
    python = environment("onnxruntime", ONNXRUNTIME, job.cache)
    return _spend(job, (python, "-m", "benchmarks.ort_quantize", phase, source, job.samples, job.work))


def onnxruntime(phase: str, job: Job) -> Written:
    """Return the file of onnxruntime's own quantizer, after its preprocessing where that succeeds."""
    source, said, before = job.work / "preprocessed.onnx", "", None
    opset = max(
        one.version
        for one in onnx.load(job.model, load_external_data=False).opset_import
        if one.domain in ("", "ai.onnx")
    )
    if opset < PER_CHANNEL:
        said = f"of the model raised from opset {opset} to {PER_CHANNEL}, which weights per channel need"
    try:
        before = _phase("convert" if said else "preprocess", job.model, job)
        done = _phase(phase, source, job)
    except NoFile as error:
        said = f"of the model without its preprocessing; with it, it said: {error}"
        before, source = None, job.model
        done = _phase(phase, source, job)
    seconds = done.seconds + (before.seconds if before else 0.0)
    peak = max(done.rss_mb, before.rss_mb if before else 0.0)
    return Written(job.work / f"{phase}.onnx", seconds, peak, said=said)


def nncf(preset: str, job: Job) -> Written:
    """Return NNCF's file by one of its presets; where it refuses the model, of a preprocessed one."""
    python = environment("nncf", NNCF, job.cache)
    script, out = ROOT / "benchmarks" / "nncf_quantize.py", job.work / "nncf.onnx"
    kind = ("transformer",) if job.is_transformer else ()

    def call(source: Path) -> _Done:
        return _spend(job, (python, "-P", script, source, job.samples, out, preset, *kind))

    try:
        return _written(out, call(job.model), "")
    except NoFile as error:
        _phase("preprocess", job.model, job)
        said = f"of the file that onnxruntime's preprocessing wrote; of the model itself it said: {error}"
        return _written(out, call(job.work / "preprocessed.onnx"), said)


def _written(out: Path, done: _Done, said: str) -> Written:
    return Written(out, done.seconds, done.rss_mb, said=said)


def modelopt(job: Job) -> Written:
    """Return the file of NVIDIA Model Optimizer's quantizer of ONNX files."""
    python = environment("modelopt", MODELOPT, job.cache)
    script, out = ROOT / "benchmarks" / "modelopt_quantize.py", job.work / "modelopt.onnx"
    return _written(out, _spend(job, (python, "-P", script, job.model, job.samples, out)), "")


def aimet(how: str, job: Job) -> Written:
    """Return AIMET's file: 8 bits everywhere, or its automatic mixed precision for what is good to us."""
    python = environment("aimet", AIMET, job.cache)
    script, out = ROOT / "benchmarks" / "aimet_quantize.py", job.work / "aimet.onnx"
    done = _spend(job, (python, "-P", script, job.model, job.samples, out, how, GOOD_SQNR))
    told = json.loads(done.stdout.strip().splitlines()[-1])
    said = f"{told['trials']} plans measured after {told['runs']} runs of groups" if told["trials"] else ""
    return _written(out, done, said)


PEERS: Final[Mapping[str, Side]] = {
    "onnxruntime, static": partial(onnxruntime, "static"),
    "onnxruntime, dynamic": partial(onnxruntime, "dynamic"),
    "NNCF, performance": partial(nncf, "performance"),
    "NNCF, mixed": partial(nncf, "mixed"),
}
LARGE: Final[Mapping[str, tuple[str, Path, Side]]] = {
    "Model Optimizer": ("modelopt", MODELOPT, modelopt),
    "AIMET": ("aimet", AIMET, partial(aimet, "plain")),
    "AIMET, mixed": ("aimet", AIMET, partial(aimet, "mixed")),
}
"""Peers whose environments take gigabytes, with these and their requirements."""


def large_sides(cache: Path, *, is_asked: bool) -> dict[str, Side]:
    """Return the large peers: those whose environments are there, or all where they are asked for."""
    return {
        name: side
        for name, (folder, listed, side) in LARGE.items()
        if is_asked or is_made(folder, listed, cache)
    }


def sides(
    of_ours: Mapping[str, Sequence[str]], large: Mapping[str, Side] = MappingProxyType({})
) -> dict[str, Side]:
    """Return all sides by the names of their rows, ours first."""
    return {**{name: partial(ours, list(given)) for name, given in of_ours.items()}, **PEERS, **large}


def make(side: Side, job: Job) -> Written | str:
    """Return what a side wrote, or why it wrote nothing."""
    shutil.rmtree(job.work, ignore_errors=True)
    job.work.mkdir(parents=True)
    try:
        return side(job)
    except NoFile as error:
        return str(error)
    except NotInstalled as error:
        return f"its environment could not be made here: {error}"
