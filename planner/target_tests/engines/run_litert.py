"""Script for the Python of an environment with `ai-edge-litert`: .tflite files in its interpreter.

`jobs.json` of the folder lists {"file", "samples": [[archive, names of its arrays], ...], "kernels"}.
Job n leaves `answer_n.json` (names of outputs) and `answer_n_k.npz` for its k-th sample, or `answer_n.txt`
with the refusal.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

KERNELS = {
    "optimized": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "reference": OpResolverType.BUILTIN_REF,
}


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Run one file on its samples."""
    interpreter = Interpreter(
        str(folder / job["file"]), experimental_op_resolver_type=KERNELS[job["kernels"]], num_threads=1
    )
    runner = runner_of(interpreter, job["samples"][0][1] if job["samples"] else [])
    names: list[str] = []
    for k, (archive_name, keys) in enumerate(job["samples"]):
        if k:
            # Variable tensors keep the states of recurrent operators from call to call; samples begin anew.
            interpreter.reset_all_variables()
        with np.load(folder / archive_name) as archive:
            found = runner(**{key: archive[str(i)] for i, key in enumerate(keys)})
        names = sorted(found)
        arrays = {str(i): found[name] for i, name in enumerate(names)}
        np.savez(folder / f"answer_{number}_{k}.npz", **arrays)  # type: ignore[arg-type]
    (folder / f"answer_{number}.json").write_text(json.dumps(names), encoding="utf-8")


def runner_of(interpreter: Any, keys: Sequence[str]) -> Callable[..., dict[str, np.ndarray]]:
    """The first subgraph's signature of these inputs; without one that is complete, its tensors by name."""
    signatures = interpreter.get_signature_list()
    fitting = [key for key, said in signatures.items() if said["outputs"] and {*said["inputs"]} == {*keys}]
    runners = [interpreter.get_signature_runner(key) for key in fitting]
    # Which subgraph a signature is of the runtime says nowhere else.
    first = [runner for runner in runners if runner._subgraph_index == 0]  # noqa: SLF001
    return first[0] if len(first) == 1 else by_tensor(interpreter)


def by_tensor(interpreter: Any) -> Callable[..., dict[str, np.ndarray]]:
    """A runner of a file without a signature, by the names of its tensors."""
    interpreter.allocate_tensors()
    inputs = {item["name"]: item["index"] for item in interpreter.get_input_details()}
    outputs = {item["name"]: item["index"] for item in interpreter.get_output_details()}

    def run(**arrays: np.ndarray) -> dict[str, np.ndarray]:
        for name, array in arrays.items():
            interpreter.set_tensor(inputs[name], array)
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in outputs.items()}

    return run


def main(folder: Path) -> None:
    """Answer every job of a folder."""
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        try:
            answer(folder, job, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            (folder / f"answer_{number}.txt").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
