"""Suites of .tflite files: files of others in LiteRT, and compiled by Vela.

Not part of the product; `benchmarks.suites` runs these. A file's inputs are random numbers of its types.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

import planner
from benchmarks.engine_models import ROOT
from benchmarks.samples import model_folder
from benchmarks.suite_rows import Tally
from planner.constants.quantize import stored_dtype
from planner.errors import InputError, PlannerError
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.target_tests.engines.answers import Job
from planner.target_tests.engines.environment import ask_vela, run_litert
from tests.formats.litert.writer.test_vela import with_stored_interface

TARGET: Final = "litert-int8"
LITERT: Final = ROOT / ".oracles" / "litert" / "bin" / "python"
VELA: Final = ROOT / ".oracles" / "vela" / "bin" / "python"
NEAR: Final = 1e-4
"""Reals that count as equal: of the largest number of an array, as two libraries sum in two orders."""
AT_ONCE: Final = 20
DTYPES: Final = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i1": np.bool_, "bool": np.bool_}

_File = tuple[bytes, Sequence[Mapping[str, np.ndarray]]]


def sample_of(graph: Graph) -> dict[str, np.ndarray]:
    """Random numbers for each input: stored integers of a fixed type, reals in [-1, 1), ids 0 and 1."""
    rng, found = np.random.default_rng(0), {}
    for name in graph.inputs:
        value = graph.values[name]
        shape = [size if isinstance(size, int) else 1 for size in value.shape or ()]
        kind = next((fact for fact in value.facts if isinstance(fact, Uniform)), None)
        if kind is not None:
            store = kind.storage
            found[name] = rng.integers(store.qmin, store.qmax + 1, shape).astype(stored_dtype(store))
        elif value.dtype in DTYPES:
            dtype = DTYPES[value.dtype]
            found[name] = (
                rng.random(shape) < 0.5 if dtype is np.bool_ else rng.uniform(-1, 1, shape)
            ).astype(dtype)
        else:
            dtype = np.dtype(value.dtype.replace("ui", "uint").replace("i", "int", 1))
            found[name] = rng.integers(0, 2, shape).astype(dtype)
    return found


def foreign(folder: Path, tally: Tally, again: Tally) -> Iterator[Tally]:
    """Files of others, planned as they are: our numbers and those of our file beside LiteRT's of theirs."""
    paths = sorted(folder.rglob("*.tflite"))
    tally.programs = again.programs = len(paths)
    for start in range(0, len(paths), AT_ONCE):
        taken: list[tuple[bytes, bytes | None, Graph, Mapping[str, np.ndarray] | None, Any]] = []
        for path in paths[start : start + AT_ONCE]:
            with suppress(PlannerError):
                taken.append(_planned(path, tally, again))
        files: list[_File] = [(data, [sample]) for data, _, _, _, sample in taken]
        ours = [(out, [sample]) for _, out, _, _, sample in taken if out is not None]
        answers = in_litert([*files, *ours])
        source, written = answers[: len(files)], iter(answers[len(files) :])
        for (_, out, graph, numbers, _), theirs in zip(taken, source, strict=True):
            mine = next(written) if out is not None else None
            if isinstance(theirs, str):
                tally.refuse(theirs, "LiteRT, on the file itself")
                continue
            if numbers is not None:
                tally.compare(apart(graph, numbers, theirs[0]))
            if isinstance(mine, str):
                again.refuse(mine, "LiteRT")
            elif mine is not None:
                again.compare(apart(graph, mine[0], theirs[0]))
    yield tally
    yield again


def _planned(path: Path, tally: Tally, again: Tally) -> tuple[bytes, bytes | None, Graph, Any, Any]:
    """A file's bytes, ours, its graph, our numbers and the sample; None for what is refused."""
    try:
        graph = planner.load_model(path)
        tally.reach("read")
        again.reach("read")
        plan = planner.plan(graph, TARGET)
        planner.check(plan, graph, TARGET)
        tally.reach("planned")
        again.reach("planned")
        sample = sample_of(graph)
    except PlannerError as error:
        tally.refuse(error)
        raise
    written: bytes | None = None
    try:
        written = planner.export(graph, plan, "litert")
        tally.reach("exported")
        again.reach("exported")
    except PlannerError as error:
        again.refuse(error)
    numbers = None
    try:
        numbers = planner.evaluate(graph, plan, sample).outputs
    except PlannerError as error:
        tally.refuse(error, "not evaluated")
    return path.read_bytes(), written, graph, numbers, sample


def in_litert(files: Sequence[_File]) -> list[list[dict[str, np.ndarray]] | str]:
    """The answers of LiteRT's reference kernels; one file that ends its process is a refusal of that file."""
    if not files:
        return []
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run_litert(str(LITERT), Path(folder), files, kernels="reference")
        except InputError:
            if len(files) == 1:
                return ["its process ends"]
    half = len(files) // 2
    return [*in_litert(files[:half]), *in_litert(files[half:])]


def apart(graph: Graph, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """The largest difference of outputs: in steps of stored integers; 0 or endless of reals."""
    worst = 0.0
    for name in graph.outputs:
        one, other = np.asarray(ours[name]), np.asarray(theirs[name])
        if one.size != other.size:
            return float("inf")
        one = one.reshape(other.shape)
        if other.dtype.kind == "f":
            largest = float(np.abs(other[np.isfinite(other)]).max(initial=0.0))
            near = np.allclose(one, other, rtol=NEAR, atol=NEAR * (largest or 1.0), equal_nan=True)
            worst = max(worst, 0.0 if near else float("inf"))
        else:
            steps = np.abs(one.astype(np.int64) - other.astype(np.int64))
            worst = max(worst, float(steps.max(initial=0)))
    return worst


def vela(tally: Tally) -> Iterator[Tally]:
    """MLPerf Tiny's quantized files and two float ones, planned for the NPU; equal: nothing on the CPU."""
    paths = [*sorted((model_folder() / "mlperf-tiny").glob("*.tflite"))]
    floats = sorted((model_folder() / "litert").glob("*.tflite"))
    tally.programs = len(paths) + len(floats)
    files = []
    for path in (*paths, *floats):
        graph = planner.load_model(path)
        tally.reach("read")
        if path in floats:
            rng, (key,) = np.random.default_rng(0), graph.inputs
            shape = graph.values[key].shape
            samples = [{key: rng.uniform(0, 1, shape).astype(np.float32)} for _ in range(4)]
            graph = planner.annotate(graph, stats=planner.calibrate(graph, samples))
            graph, plan = with_stored_interface(graph, planner.plan(graph, "ethos-u55"), "ethos-u55")
        else:
            plan = planner.plan(graph, "ethos-u55")
        planner.check(plan, graph, "ethos-u55")
        files.append(planner.export(graph, plan, "litert"))
        tally.reach("planned", "exported")
    for answer in ask_vela(str(VELA), [Job(data, {}, ()) for data in files]):
        if answer.refusal:
            tally.refuse(answer.refusal, "Vela")
        else:
            tally.reach("further" if answer.elsewhere else "equal")
    yield tally
