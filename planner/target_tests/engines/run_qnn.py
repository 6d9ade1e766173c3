"""Script for the Python of an environment with `onnxruntime-qnn`: ONNX files on Qualcomm's HTP library.

On an x86 machine the library prepares every graph as for a device and simulates it. `jobs.json` of the folder
lists {"file", "samples": [[archive, names of its arrays], ...], "options"}, the last for the provider. Job n
leaves `answer_n.json` and `answer_n_k.npz` (outputs in order) for its k-th sample, or `answer_n.txt` with the
refusal. `answer_n.json` holds the names of the outputs, the number of partitions on QNN, the operators on the
CPU, and the library's reasons.

The library refuses a file with nothing but a Transpose of stored integers, and takes the same between a
QuantizeLinear and a DequantizeLinear: such a file runs with float ends.

The library writes its reasons to the process's standard error, which each session redirects into a file.
Jobs run in a child process: where the library ends it, the job is refused and a new child takes the next one.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxruntime_qnn

PROVIDER = "QNNExecutionProvider"
OPTIONS = {"backend_path": onnxruntime_qnn.get_qnn_htp_path()}
VERBOSE = 0
SECONDS = 600
_UNIT = re.compile(
    r"Validation (PASSED|FAILED) for \d+ nodes in OrtNodeUnit \((\w+)\)(.*?)(?=\n\s*\n|\Z)", re.DOTALL
)
_NODE = re.compile(r"Operator type: (\S+) Node name: (\S*) Node index")
_REASON = re.compile(r"REASON : (.*)")
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")


def session_options(job: Mapping[str, Any]) -> Any:
    """Options of a session on the HTP library, which says what it takes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = VERBOSE
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    options.add_provider_for_devices(devices, {**OPTIONS, **job.get("options", {})})
    return options


@contextmanager
def standard_error_in(path: Path) -> Iterator[None]:
    """Redirect the standard error of the process, native code included, into a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def refused_units(log: str) -> list[dict[str, str]]:
    """The operators that the library refused, quantizers at the ends aside, with names and reasons."""
    found: dict[tuple[str, str], str] = {}
    for verdict, operator, body in _UNIT.findall(log):
        if operator in _QUANTIZERS:
            continue
        names = [name for kind, name in _NODE.findall(body) if kind not in _QUANTIZERS] or [""]
        if verdict == "FAILED":
            reason = _REASON.search(body)
            found[operator, names[0]] = reason[1].strip() if reason else ""
        else:
            found.pop((operator, names[0]), None)
    return [{"operator": key[0], "node": key[1], "reason": why} for key, why in found.items()]


def float_ends(model: onnx.ModelProto) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Give a model float inputs and outputs where they are stored; scale and zero point of each by name."""
    graph, found = model.graph, {}
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    readers = {node.input[0]: node for node in graph.node if node.op_type == "DequantizeLinear"}
    makers = {node.output[0]: node for node in graph.node if node.op_type == "QuantizeLinear"}
    ends = ((graph.input, readers, "QuantizeLinear"), (graph.output, makers, "DequantizeLinear"))
    for ports, known, operator in ends:
        for port in ports:
            name, node = port.name, known.get(port.name)
            if node is None:
                continue
            found[name] = arrays[node.input[1]], arrays[node.input[2]]
            real = f"{name}_real"
            names = (real, name) if operator == "QuantizeLinear" else (name, real)
            new = onnx.helper.make_node(operator, [names[0], *node.input[1:3]], [names[1]])
            graph.node.insert(0 if operator == "QuantizeLinear" else len(graph.node), new)
            port.name, port.type.tensor_type.elem_type = real, onnx.TensorProto.FLOAT
    return found


class Run:
    """A loaded file.

    Attributes:
      parts: what runs where.
    """

    def __init__(self, model: str | bytes, job: Mapping[str, Any], log: Path) -> None:
        """Load a file."""
        self._ends: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        with standard_error_in(log):
            self._session = onnxruntime.InferenceSession(model, session_options(job))
        self.parts = self._session.get_provider_graph_assignment_info()
        self.outputs = [port.name for port in self._session.get_outputs()]

    @classmethod
    def with_float_ends(cls, path: Path, job: Mapping[str, Any], log: Path) -> "Run":
        """Load a file with float inputs and outputs; it takes and gives stored integers as before."""
        model = onnx.load(path)
        ends = float_ends(model)
        run = cls(model.SerializeToString(), job, log)
        run._ends = ends
        return run

    @property
    def partitions(self) -> int:
        """Graphs on the library."""
        return sum(part.ep_name == PROVIDER for part in self.parts)

    def elsewhere(self) -> list[dict[str, str]]:
        """Nodes on the CPU."""
        nodes = [node for part in self.parts if part.ep_name != PROVIDER for node in part.get_nodes()]
        return [{"operator": node.op_type, "node": node.name} for node in nodes]

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Run on one sample."""
        given = dict(arrays)
        for name in self._ends.keys() & arrays.keys():
            scale, zero = self._ends[name]
            given[f"{name}_real"] = (given.pop(name).astype(np.float32) - zero.astype(np.float32)) * scale
        found = self._session.run(self.outputs, given)
        return [
            self._stored(name.removesuffix("_real"), x) for name, x in zip(self.outputs, found, strict=True)
        ]

    def _stored(self, name: str, array: np.ndarray) -> np.ndarray:
        if name not in self._ends:
            return array
        scale, zero = self._ends[name]
        return np.asarray((np.rint(array / scale) + zero.astype(np.float32)).astype(zero.dtype))


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Load one file and run it on its samples."""
    log, path = folder / f"log_{number}.txt", folder / job["file"]
    run = Run(str(path), job, log)
    outputs = run.outputs
    if not run.partitions and [node["operator"] for node in run.elsewhere()] == ["Transpose"]:
        run = Run.with_float_ends(path, job, log)
    for k, (archive_name, keys) in enumerate(job["samples"]):
        with np.load(folder / archive_name) as archive, standard_error_in(folder / "run_log.txt"):
            found = run({key: archive[str(i)] for i, key in enumerate(keys)})
        arrays = {str(i): array for i, array in enumerate(found)}
        np.savez(folder / f"answer_{number}_{k}.npz", **arrays)  # type: ignore[arg-type]
    said = {
        "outputs": outputs,
        "partitions": run.partitions,
        "elsewhere": run.elsewhere(),
        "refused": refused_units(log.read_text(encoding="utf-8", errors="replace")),
    }
    (folder / f"answer_{number}.json").write_text(json.dumps(said), encoding="utf-8")


def work(folder: Path, first: int) -> None:
    """Answer the jobs of a folder from one on."""
    onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        if number < first:
            continue
        try:
            answer(folder, job, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            (folder / f"answer_{number}.txt").write_text(str(error), encoding="utf-8")


def main(folder: Path) -> None:
    """Have children answer every job of a folder."""
    count, first = len(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))), 0
    while first < count:
        command = [sys.executable, __file__, str(folder), str(first)]
        try:
            code = subprocess.run(command, check=False, timeout=SECONDS * (count - first)).returncode  # noqa: S603
        except subprocess.TimeoutExpired:
            code = -1
        done = [
            n for n in range(count) if any((folder / f"answer_{n}.{end}").exists() for end in ("json", "txt"))
        ]
        if code == 0 or len(done) == count:
            return
        first = next(n for n in range(count) if n not in done)
        why = f"the library ended its process with {code}"
        (folder / f"answer_{first}.txt").write_text(why, encoding="utf-8")
        if not done and first == 0:
            # Nothing was ever answered: the environment, not the file, may be at fault.
            sys.exit(f"the first job ended the process with {code}")
        first += 1


if __name__ == "__main__":
    if len(sys.argv) > 2:
        work(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main(Path(sys.argv[1]))
