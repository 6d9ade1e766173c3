"""IREE's compiler and runtime, asked by files: run by the Python of `.oracles/iree`; see `in_iree`.

Jobs come as JSON on standard input, each {module, backend, inputs}: files of a module's text and of .npy
arrays in the function's order; answers name the files of the results, or say why there are none.
Flags are the compiler's defaults.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from iree import compiler, runtime


def run(job):
    started = time.perf_counter()
    code = compiler.compile_file(job["module"], target_backends=[job["backend"]])
    compiled = time.perf_counter()
    config = runtime.Config("local-task")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, code))
    function = context.modules.module["main"]
    found = function(*[np.load(path) for path in job["inputs"]])
    found = found if isinstance(found, (list, tuple)) else [found]
    outputs = [f"{job['module']}.{job['backend']}.{i}.npy" for i in range(len(found))]
    for path, array in zip(outputs, found, strict=True):
        np.save(path, np.asarray(array.to_host() if hasattr(array, "to_host") else array))
    return {"compile_s": compiled - started, "outputs": outputs}


def main():
    for job in json.load(sys.stdin):
        try:
            answer = run(job)
        except Exception as error:  # noqa: BLE001 - whatever a compiler says is the answer
            lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)[:400]]
            answer = {"error": lines[0][:400]}
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent)
    main()
