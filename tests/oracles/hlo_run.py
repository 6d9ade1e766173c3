"""Run by the MLIR oracle's own Python, with jaxlib: JSON jobs on standard input, answers on standard output.

A job is {"text", "passes", "generic"}: the module printed after the passes, or the error. With "arguments",
[[dtype, shape, hex]..], the module is interpreted and its results are the answer, as hex by their types.
"""

import json
import sys

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

LOADS_QUANT = "builtin.module(vhlo-legalize-to-stablehlo)"


def context():
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    found = ir.Context()
    found.append_dialect_registry(registry)
    found.load_all_available_dialects()
    stablehlo.register_dialect(found)
    found.allow_unregistered_dialects = True
    with found, ir.Location.unknown():
        PassManager.parse(LOADS_QUANT).run(ir.Module.parse("module {}").operation)
    return found


def dense(dtype, shape, data):
    array = np.frombuffer(bytes.fromhex(data), dtype).reshape(shape)
    if array.dtype != bool:
        return ir.DenseElementsAttr.get(array)
    return ir.DenseElementsAttr.get(array.astype(np.uint8), type=ir.IntegerType.get_signless(1))


def answer(job, known):
    with known, ir.Location.unknown():
        module = ir.Module.parse(job["text"])
        if job.get("passes"):
            PassManager.parse(job["passes"]).run(module.operation)
        if "arguments" not in job:
            return {"text": module.operation.get_asm(print_generic_op_form=job.get("generic", True))}
        given = [dense(*argument) for argument in job["arguments"]]
        arrays = [np.array(result) for result in stablehlo.eval_module(module, given)]
        return {"arrays": [[array.dtype.name, array.shape, array.tobytes().hex()] for array in arrays]}


def main():
    stablehlo.register_stablehlo_passes()
    known = context()
    answers = []
    for job in json.load(sys.stdin):
        try:
            answers.append(answer(job, known))
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says it
            answers.append({"error": str(error)})
    json.dump(answers, sys.stdout)


main()
