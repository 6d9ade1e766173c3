"""Run by the oracle's own Python: JSON jobs on standard input, JSON answers on standard output.

A job is {"text", "passes"}: the module in generic form after the passes, or the error. A job
{"types": [..]} tells whether each type is known, and how it prints. A job {"compile": text, "inputs":
[[dtype, shape, hex]], "outputs": [[dtype, shape]]} runs `@main` of a module of plain tensors.
"""

import ctypes
import json
import sys

import numpy as np
from torch_mlir import ir
from torch_mlir.execution_engine import ExecutionEngine
from torch_mlir.passmanager import PassManager
from torch_mlir.runtime import get_ranked_memref_descriptor

TO_LLVM = (
    "builtin.module(strip-func-quant-types,canonicalize,one-shot-bufferize{bufferize-function-boundaries "
    "function-boundary-type-conversion=identity-layout-map},buffer-results-to-out-params,"
    "func.func(convert-linalg-to-loops),convert-scf-to-cf,expand-strided-metadata,lower-affine,"
    "convert-arith-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm,convert-cf-to-llvm,reconcile-unrealized-casts)"
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
    arrays = [
        np.frombuffer(bytes.fromhex(data), dtype).reshape(shape) for dtype, shape, data in job["inputs"]
    ]
    results = [np.zeros(shape, dtype) for dtype, shape in job["outputs"]]
    pointers = [
        ctypes.pointer(ctypes.pointer(get_ranked_memref_descriptor(array))) for array in (*arrays, *results)
    ]
    engine.invoke("main", *pointers)
    return {"outputs": [array.tobytes().hex() for array in results]}


def answer(job):
    for key, run in (("text", module), ("types", types), ("pairs", equal), ("compile", compiled)):
        if key in job:
            try:
                return run(job)
            except Exception as error:
                return {"error": str(error)}
    return {"error": "no such job"}


json.dump([answer(job) for job in json.load(sys.stdin)], sys.stdout)
