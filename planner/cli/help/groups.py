"""Groups: verbs in the order of a first day, and lines to try, as help shows them.

The examples are one walk: a float model `model.onnx`, samples `samples.npz` and `held-out.npz`, and what the
lines before have written. A test runs them all.
"""

from collections.abc import Mapping
from typing import Final

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Quantize": ("quantize", "plan"),
    "Step by step": ("calibrate", "annotate", "condition", "export", "check", "compare"),
    "Look at a plan": ("show", "view", "explain", "diff", "losses"),
    "Change a plan": (
        *("search", "suggest", "pareto", "replan", "restore", "retarget"),
        "training-spec",
    ),
    "Models without a plan": ("run", "convert", "cost", "tensors", "mlir"),
    "Devices": ("target",),
    "Service": ("serve", "doctor", "token", "backup"),
    "The command": ("help", "schema"),
}

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "quantize": (
        "qplan quantize model.onnx --data samples.npz",
        "qplan quantize model.onnx --data samples.npz --effort high --min-sqnr 35 -o out/better",
        "qplan quantize model.onnx --data samples.npz --eval-data held-out.npz -t litert-int8 -o out/lite",
    ),
    "plan": ("qplan plan model.onnx -t onnxruntime-cpu --data samples.npz -f onnx-qdq -o out/cpu",),
    "calibrate": ("qplan calibrate model.onnx --data samples.npz --method percentile -o stats.json",),
    "annotate": ("qplan annotate model.onnx --stats stats.json -o annotated.json",),
    "condition": ("qplan condition model.onnx --methods equalize --data samples.npz -o out/equalized",),
    "export": ("qplan export out/cpu -f onnx-qoperator -o cpu.onnx",),
    "check": ("qplan check out/cpu",),
    "compare": ("qplan compare model.onnx cpu.onnx --eval-data held-out.npz --min-sqnr 10",),
    "show": ("qplan show out/cpu",),
    "view": ("qplan view out/cpu -o report.html",),
    "explain": ("qplan explain out/cpu probabilities",),
    "diff": ("qplan diff out/cpu out/cpu",),
    "losses": ("qplan losses out/cpu --data samples.npz",),
    "search": ("qplan search model.onnx -t litert-int8 --data samples.npz --goal sqnr=20 -o out/found",),
    "suggest": ("qplan suggest out/lite skip/pool_out#0",),
    "pareto": ("qplan pareto out/lite skip/pool_out",),
    "replan": ("qplan replan out/cpu --edits edits.yaml -o out/edited.json",),
    "restore": ("qplan restore out/cpu head/gemm -o out/restored.json",),
    "retarget": ("qplan retarget out/cpu litert-int8 -o out/retargeted.json",),
    "training-spec": ("qplan training-spec out/cpu -o spec.json",),
    "run": ("qplan run model.onnx --data samples.npz -o outputs.npz",),
    "convert": ("qplan convert cpu.onnx --to onnx-qdq -o qdq.onnx",),
    "cost": ("qplan cost model.onnx",),
    "tensors": ("qplan tensors model.onnx --range 0:1 --data samples.npz",),
    "mlir": ("qplan mlir out/cpu/plan.mlir --pass normalize-quant-types",),
    "serve": ("qplan serve --port 8000 --data service-data",),
    "doctor": ("qplan doctor --data service-data",),
    "token": ("qplan token alice --scope plan --scope write",),
    "backup": ("qplan backup service-copy --data service-data",),
    "help": ("qplan help plan",),
    "schema": ("qplan schema plan",),
}

TARGET_EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "list": ("qplan target list",),
    "show": ("qplan target show teaching-npu",),
    "new": ("qplan target new my-npu --from litert-int8 -o my-npu.yaml",),
    "lint": ("qplan target lint my-npu.yaml",),
    "test": ("qplan target test my-npu.yaml",),
    "doc": ("qplan target doc my-npu.yaml --html -o my-npu.html",),
    "schema": ("qplan target schema my-npu.yaml -o my-npu.schema.json",),
    "diff": ("qplan target diff my-npu.yaml my-npu.yaml",),
    "coverage": ("qplan target coverage model.onnx -t my-npu.yaml",),
    "kit": ("qplan target kit teaching-npu -o out/kit",),
    "export": ("qplan target export teaching-npu --to aimet -o quantsim.json",),
    "import": ("qplan target import quantsim.json --from aimet --id my-device -o my-device.yaml",),
    "probe": (
        "qplan target probe --kernel Relu -o probed.yaml",
        "qplan target probe --target onnxruntime-cpu --kernel Sigmoid",
    ),
}


def group_of(verb: str) -> str | None:
    """The group that a verb is listed in."""
    return next((group for group, verbs in GROUPS.items() if verb in verbs), None)


def epilog_of(lines: tuple[str, ...]) -> str | None:
    """Examples below a verb's help, each on a line of its own."""
    return "\n\n".join(("Examples:", *(f"  {line}" for line in lines))) if lines else None
