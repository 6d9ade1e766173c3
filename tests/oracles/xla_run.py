"""Run by the JAX oracle's own Python: StableHLO modules compiled by XLA and run on JAX's first device.

Jobs and answers as of `hlo_run`, without passes.
"""

import json
import sys
from functools import cache

import jax
import numpy as np
from jax.extend.backend import get_backend
from jaxlib import xla_client


@cache
def program(text):
    backend = get_backend()
    devices = xla_client.DeviceList(tuple(backend.devices()[:1]))
    return backend.compile_and_load(text.encode(), devices, xla_client.CompileOptions())


def answer(job):
    given = [
        jax.device_put(np.frombuffer(bytes.fromhex(data), dtype).reshape(shape))
        for dtype, shape, data in job["arguments"]
    ]
    results = program(job["text"]).execute_sharded(given).disassemble_into_single_device_arrays()
    arrays = [np.asarray(result) for (result,) in results]
    return {"arrays": [[array.dtype.name, array.shape, array.tobytes().hex()] for array in arrays]}


def main():
    jax.config.update("jax_enable_x64", True)
    answers = []
    for job in json.load(sys.stdin):
        try:
            answers.append(answer(job))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says it
            answers.append({"error": str(error)})
    json.dump(answers, sys.stdout)


main()
