"""Engines in an environment of their own, asked through files, by a script that their Python runs.

`ai-edge-litert`, `tosa-tools`, `ethos-u-vela` and `onnxruntime-qnn` want libraries that ours need not agree
with, so nothing of them is imported here. A job that an engine refuses is an answer; an engine that does not
start is an error.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from planner.errors import InputError
from planner.formats.litert.reader.file import read_file
from planner.target_tests.engines.answers import Answer, Job

TOSA_EXTENSIONS: Final = "int16,int4,doubleround,controlflow"
TOSA_PROFILES: Final = "pro_int,pro_fp"
VELA_DEVICE: Final = "ethos-u55-128"
T = TypeVar("T")
Files: TypeAlias = Sequence[tuple[bytes, Sequence[Mapping[str, np.ndarray]]]]
"""Bytes of files, and samples of arrays by the names of inputs."""
_HERE: Final = Path(__file__).parent
_SHOWN: Final = 400
_QUANTIZERS: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})


@dataclass(frozen=True, slots=True, eq=False)
class QnnRun:
    """The outcome of a file on Qualcomm's library.

    Attributes:
      outputs: for each sample arrays by name.
      partitions: graphs that run on the library; one where it takes the whole model.
      elsewhere: operator and name of each node that runs on the CPU.
      refused: by name of a node, its operator and the library's reason.
    """

    outputs: tuple[Mapping[str, np.ndarray], ...]
    partitions: int
    elsewhere: tuple[tuple[str, str], ...]
    refused: Mapping[str, tuple[str, str]]

    def told(self) -> tuple[str, ...]:
        """The operators on the CPU, without the quantizers at the ends of the graphs on the library."""
        kinds = [kind for kind, _ in self.elsewhere]
        own = tuple(kind for kind in kinds if kind not in _QUANTIZERS)
        return own if self.partitions else own or tuple(kinds)


def ask_litert(python: str, jobs: Sequence[Job], *, kernels: str) -> list[Answer]:
    """Run .tflite files in LiteRT's interpreter.

    Args:
      python: of an environment with `ai-edge-litert`.
      jobs: files and inputs by the names of their signatures.
      kernels: `reference`, or `optimized`, those that a runtime takes by default.

    Raises:
      InputError: the engine does not start there.
    """
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        found = run_litert(python, Path(folder), [(job.file, [job.inputs]) for job in jobs], kernels=kernels)
    return [
        Answer(refusal=answer) if isinstance(answer, str) else Answer(outputs=answer[0]) for answer in found
    ]


def ask_tosa(python: str, jobs: Sequence[Job]) -> list[Answer]:
    """Run TOSA modules in the reference model.

    Args:
      python: of an environment with `tosa-tools`.
      jobs: modules of MLIR text.

    Raises:
      InputError: the engine does not start there.
    """
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        found = run_tosa(python, Path(folder), [(job.file, [list(job.inputs.values())]) for job in jobs])
    return [
        Answer(refusal=answer)
        if isinstance(answer, str)
        else Answer(outputs=dict(zip(job.outputs, answer[0], strict=False)))
        for job, answer in zip(jobs, found, strict=True)
    ]


def ask_qnn(python: str, jobs: Sequence[Job]) -> list[Answer]:
    """Run ONNX files on Qualcomm's HTP library, simulated; operators that it refuses run on the CPU.

    Args:
      python: of an environment with `onnxruntime-qnn`.
      jobs: files and inputs by their names.

    Raises:
      InputError: the engine does not start there.
    """
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        found = run_qnn(python, Path(folder), [(job.file, [job.inputs]) for job in jobs])
    return [
        Answer(refusal=answer)
        if isinstance(answer, str)
        else Answer(outputs=answer.outputs[0], elsewhere=answer.told())
        for answer in found
    ]


def ask_vela(python: str, jobs: Sequence[Job]) -> list[Answer]:
    """Compile .tflite files with Vela: it computes nothing, but reports operators that it leaves to the CPU.

    Args:
      python: of an environment with `ethos-u-vela`.
      jobs: files; their inputs are not looked at.

    Raises:
      InputError: there is no Vela beside that Python.
    """
    if not Path(python).absolute().with_name("vela").exists():
        raise InputError(f"there is no vela beside {python}", hint=hint_of("ethos-u-vela"))
    with tempfile.TemporaryDirectory(prefix="qplan-", ignore_cleanup_errors=True) as folder:
        files = jobs_in(Path(folder), [(job.file, []) for job in jobs], "tflite", device=VELA_DEVICE)
        run_script(python, "run_vela.py", Path(folder), files, "ethos-u-vela")
        return [_compiled(Path(folder), number) for number in range(len(jobs))]


def _compiled(folder: Path, number: int) -> Answer:
    refusal = answers_of(folder, number, 0)
    if isinstance(refusal, str):
        return Answer(refusal=_last(refusal))
    written = read_file((folder / f"file_{number}_vela.tflite").read_bytes())
    left = tuple(item.name for item in written.operators if not (item.is_custom and item.name == "ethos-u"))
    return Answer(elsewhere=left)


def run_litert(
    python: str,
    folder: Path,
    files: Files,
    *,
    kernels: str,
) -> list[list[dict[str, np.ndarray]] | str]:
    """For each file its outputs per sample, by the names of its signature, or the refusal.

    Args:
      folder: an empty one to work in.
      files: bytes, and samples of arrays by the names of the signature.

    Raises:
      InputError: the engine does not start there.
    """
    jobs = jobs_in(folder, files, "tflite", kernels=kernels)
    run_script(python, "run_litert.py", folder, jobs, "ai-edge-litert")
    found: list[list[dict[str, np.ndarray]] | str] = []
    for number, (_, samples) in enumerate(files):
        answers = answers_of(folder, number, len(samples))
        if not isinstance(answers, str):
            names = json.loads((folder / f"answer_{number}.json").read_text(encoding="utf-8"))
            answers = [dict(zip(names, arrays, strict=True)) for arrays in answers]
        found.append(answers)
    return found


def run_qnn(
    python: str,
    folder: Path,
    files: Files,
    *,
    options: Mapping[str, str] | None = None,
) -> list[QnnRun | str]:
    """For each ONNX file its run on Qualcomm's library, or the refusal of the whole file.

    Args:
      folder: an empty one to work in.
      files: bytes, and samples of arrays by the names of the model's inputs.
      options: of the provider, beside those that choose the HTP library.

    Raises:
      InputError: the engine does not start there.
    """
    jobs = jobs_in(folder, files, "onnx", options=dict(options or {}))
    run_script(python, "run_qnn.py", folder, jobs, "onnxruntime-qnn")

    def run(outputs: tuple[dict[str, np.ndarray], ...], told: Any) -> QnnRun:
        elsewhere = tuple((node["operator"], node["node"]) for node in told["elsewhere"])
        refused = {node["node"]: (node["operator"], node["reason"]) for node in told["refused"]}
        return QnnRun(outputs, told["partitions"], elsewhere, refused)

    return runs_of(folder, files, run)


def run_tosa(
    python: str,
    folder: Path,
    modules: Sequence[tuple[bytes, Sequence[Sequence[np.ndarray]]]],
    *,
    profiles: str = TOSA_PROFILES,
    extensions: str = TOSA_EXTENSIONS,
) -> list[list[list[np.ndarray]] | str]:
    """For each module its outputs per sample, in order, or the refusal.

    Args:
      folder: an empty one to work in.
      modules: MLIR text, and samples of arrays in the order of the arguments.

    Raises:
      InputError: the engine does not start there.
    """
    jobs = []
    for number, (data, samples) in enumerate(modules):
        (folder / f"module_{number}.mlir").write_bytes(data)
        names = [f"sample_{number}_{k}.npz" for k in range(len(samples))]
        for name, sample in zip(names, samples, strict=True):
            # TOSA has no 64-bit integers: modules take them as 32.
            save_arrays(folder / name, (x.astype(np.int32) if x.dtype == np.int64 else x for x in sample))
        job = {"module": f"module_{number}.mlir", "inputs": names}
        jobs.append({**job, "profiles": profiles, "extensions": extensions})
    run_script(python, "run_tosa.py", folder, jobs, "tosa-tools")
    return [answers_of(folder, number, len(samples)) for number, (_, samples) in enumerate(modules)]


def jobs_in(folder: Path, files: Files, suffix: str, **options: Any) -> list[dict[str, Any]]:
    """Write files and samples into a folder, and describe them with options for each."""
    jobs = []
    for number, (data, samples) in enumerate(files):
        (folder / f"file_{number}.{suffix}").write_bytes(data)
        names = [[f"sample_{number}_{k}.npz", sorted(sample)] for k, sample in enumerate(samples)]
        for (archive, keys), sample in zip(names, samples, strict=True):
            save_arrays(folder / str(archive), (sample[key] for key in keys))
        jobs.append({"file": f"file_{number}.{suffix}", "samples": names, **options})
    return jobs


def runs_of(
    folder: Path, files: Files, run: Callable[[tuple[dict[str, np.ndarray], ...], Any], T]
) -> list[T | str]:
    """The run of each file from its outputs and all that its engine said; or the refusal."""
    answers = (told_answers(folder, number, len(samples)) for number, (_, samples) in enumerate(files))
    return [answer if isinstance(answer, str) else run(*answer) for answer in answers]


def save_arrays(path: Path, arrays: Iterable[np.ndarray]) -> None:
    """Write arrays in order."""
    np.savez(path, **{str(i): array for i, array in enumerate(arrays)})  # type: ignore[arg-type]


def run_script(python: str, script: str, folder: Path, jobs: list[dict[str, Any]], package: str) -> None:
    """Have a script of this folder answer jobs in another environment.

    Raises:
      InputError: the engine does not start there.
    """
    (folder / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    command = [python, str(_HERE / script), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603
    except OSError as error:
        raise InputError(f"{python}: {error.strerror}", hint=hint_of(package)) from error
    if done.returncode:
        raise InputError(f"{package} does not run with {python}: {_last(done.stderr)}", hint=hint_of(package))


def version_of(python: str, package: str) -> str:
    """The version of an engine's package in another environment; "" where it tells none."""
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    try:
        done = subprocess.run(  # noqa: S603
            [python, "-c", code, package], capture_output=True, check=False, text=True
        )
    except OSError:
        return ""
    return done.stdout.strip() if not done.returncode else ""


def hint_of(package: str) -> str:
    """The remedy where a Python lacks an engine."""
    return f"give the Python of an environment with {package}"


def _last(text: str) -> str:
    """The last line that says something, of what an engine printed."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\w", line)]
    return lines[-1][:_SHOWN] if lines else "it said nothing"


def answers_of(folder: Path, number: int, count: int) -> Any:
    """Arrays of each sample in order, or the refusal."""
    refusal = folder / f"answer_{number}.txt"
    if refusal.exists():
        return refusal.read_text(encoding="utf-8")
    found = []
    for k in range(count):
        with np.load(folder / f"answer_{number}_{k}.npz") as archive:
            found.append([archive[key] for key in sorted(archive, key=int)])
    return found


def told_answers(
    folder: Path, number: int, count: int
) -> tuple[tuple[dict[str, np.ndarray], ...], Any] | str:
    """The outputs of one job by name, for each sample, and all that its engine said; or the refusal."""
    answers = answers_of(folder, number, count)
    if isinstance(answers, str):
        return answers
    told = json.loads((folder / f"answer_{number}.json").read_text(encoding="utf-8"))
    return tuple(dict(zip(told["outputs"], arrays, strict=True)) for arrays in answers), told
