"""Run by the oracle's own Python: JSON jobs on standard input, JSON answers on standard output.

A job is {"text", "passes"}: the module in generic form after the passes, or the error. A job
{"types": [..]} tells whether each type is known, and how it prints. A job {"compile": text, "input":
[dtype, shape, hex], "output": [dtype, shape]} compiles a lowered module and calls its `@run`.
"""

import ctypes
import json
import sys

import numpy as np
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager
from torch_mlir.runtime import (
    as_ctype,
    get_ranked_memref_descriptor,
    make_nd_memref_descriptor,
    ranked_memref_to_numpy,
)

TO_LLVM = (
    "builtin.module(strip-func-quant-types,canonicalize,func.func(convert-elementwise-to-linalg),"
    "one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map},"
    "func.func(convert-linalg-to-loops),convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,"
    "reconcile-unrealized-casts)"
)


def context():
    found = ir.Context()
    found.allow_unregistered_dialects = True
    return found


def module(job):
    with context():
        parsed = ir.Module.parse(job["text"])
        if job.get("passes"):
            PassManager.parse(job["passes"]).run(parsed.operation)
        return {"text": parsed.operation.get_asm(print_generic_op_form=True)}


def types(job):
    with context():
        return {"types": [str(ir.Type.parse(text)) for text in job["types"]]}


def equal(job):
    with context():
        return {"equal": [ir.Type.parse(a) == ir.Type.parse(b) for a, b in job["pairs"]]}


def compiled(job):
    with context():
        parsed = ir.Module.parse(job["compile"])
        for op in parsed.body.operations:
            op.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        PassManager.parse(TO_LLVM).run(parsed.operation)
        engine = ExecutionEngine(parsed)
    dtype, shape, data = job["input"]
    array = np.frombuffer(bytes.fromhex(data), dtype).reshape(shape)
    made = make_nd_memref_descriptor(len(job["output"][1]), as_ctype(np.dtype(job["output"][0])))()
    pointers = [ctypes.pointer(ctypes.pointer(item)) for item in (made, get_ranked_memref_descriptor(array))]
    engine.invoke("run", *pointers)
    return {"output": ranked_memref_to_numpy(pointers[0][0]).tobytes().hex()}


def answer(job):
    for key, run in (("text", module), ("types", types), ("pairs", equal), ("compile", compiled)):
        if key in job:
            try:
                return run(job)
            except Exception as error:  # noqa: BLE001 - whatever it is, the test says it
                return {"error": str(error)}
    return {"error": "no such job"}


json.dump([answer(job) for job in json.load(sys.stdin)], sys.stdout)
