"""Runs inside the qonnx oracle's environment: executes models and formulas by qonnx itself.

argv: a folder with `jobs.json`, a list; an answer is `answer_N.npz`, or `answer_N.txt` with what was raised.
"""

import json
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.core.onnx_exec import execute_onnx
from qonnx.custom_op.general.bipolar_quant import binary_quant
from qonnx.custom_op.general.floatquant import float_quant
from qonnx.custom_op.general.intquant import int_quant
from qonnx.custom_op.general.trunc import trunc_v1, trunc_v2
from qonnx.transformation.batchnorm_to_affine import BatchNormToAffine
from qonnx.transformation.change_batchsize import ChangeBatchSize
from qonnx.transformation.extract_conv_bias import ExtractBiasFromConv
from qonnx.transformation.fold_constants import FoldConstants
from qonnx.transformation.gemm_to_matmul import GemmToMatMul
from qonnx.transformation.infer_datatypes import InferDataTypes
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.transformation.lower_convs_to_matmul import LowerConvsToMatMul
from qonnx.transformation.pruning import PruneChannels
from qonnx.util.cleanup import cleanup_model
from qonnx.util.inference_cost import inference_cost
from qonnx.util.range_analysis import range_analysis

# `tensor_stats` draws, which nobody asks for here.
for drawing in ("matplotlib", "tqdm"):
    sys.modules.setdefault(drawing, ModuleType(drawing))
sys.modules["matplotlib"].pyplot = sys.modules["tqdm"].tqdm = None
from qonnx.analysis.tensor_stats import update_tensor_stats  # noqa: E402 - behind what it imports

warnings.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)
QUANTIZERS = ("BipolarQuant", "FloatQuant", "IntQuant", "MultiThreshold", "Quant", "Trunc")
FORMULAS = {
    "bipolar": lambda a, _: binary_quant(a["x"], a["scale"]),
    "float": lambda a, o: float_quant(
        a["x"], a["scale"], a["exponent"], a["mantissa"], a["bias"], max_val=a["largest"], **o
    ),
    "quant": lambda a, o: int_quant(
        a["x"], a["scale"], a["zero"], a["bits"], o["signed"], o["narrow"], o["rounding"]
    ),
    "trunc": lambda a, o: trunc_v1(a["x"], a["scale"], a["zero"], a["bits"], a["bits_out"], o["rounding"]),
    "trunc_scaled": lambda a, o: trunc_v2(
        a["x"], a["scale"], a["zero"], a["bits"], o["narrow"], o["signed"], a["scale_out"], a["bits_out"],
        o["rounding"],
    ),
}  # fmt: skip

TRANSFORMATIONS = {
    "BatchNormToAffine": BatchNormToAffine,
    "ExtractBiasFromConv": ExtractBiasFromConv,
    "GemmToMatMul": GemmToMatMul,
    "InferDataTypes": InferDataTypes,
    "LowerConvsToMatMul": LowerConvsToMatMul,
}


def model_of(path, treatment):
    model = ModelWrapper(path)
    if treatment != "as it is":
        for node in model.graph.node:
            if node.op_type in QUANTIZERS:
                node.domain = "qonnx.custom_op.general"
    return cleanup_model(model) if treatment == "cleaned" else model


def run_model(folder, job):
    model = model_of(job["model"], job["treatment"])
    for name in job.get("transformations", ()):
        model = model.transform(TRANSFORMATIONS[name]()).transform(InferShapes())
    (port,) = model.graph.input
    with np.load(folder / job["sample"]) as archive:
        sample = archive[archive.files[0]]
    answer = dict(execute_onnx(model, {port.name: sample}))
    if "transformations" in job:
        answer["op types"] = np.asarray(sorted(node.op_type for node in model.graph.node))
    return answer


def run_formula(folder, job):
    with np.load(folder / job["sample"]) as archive:
        arrays = dict(archive)
    return {"y": np.asarray(FORMULAS[job["formula"]](arrays, job["options"]), np.float32)}


def run_cost(job):
    total = inference_cost(job["cost"], discount_sparsity=False)["total_cost"]
    return {name: np.asarray(total[key]) for name, key in COSTS.items()}


def run_datatypes(job):
    model = model_of(job["datatypes"], "as it is").transform(InferShapes())
    model = model.transform(InferDataTypes(allow_scaledint_dtypes=True))
    names = [
        *(port.name for port in model.graph.input),
        *(out for node in model.graph.node for out in node.output),
    ]
    return {
        "names": np.asarray(names),
        "kinds": np.asarray([model.get_tensor_datatype(name).name for name in names]),
    }


def run_ranges(job):
    model = model_of(job["ranges"], "as it is").transform(InferShapes())
    # It reads no Conv with a bias and no Gemm with more than it knows.
    model = model.transform(ExtractBiasFromConv()).transform(GemmToMatMul()).transform(InferShapes())
    found = range_analysis(model, irange=tuple(job["range"]), report_mode="range")
    return {
        name: np.stack([np.atleast_1d(end).astype(np.float64) for end in ends])
        for name, ends in found.items()
    }


def run_stats(folder, job):
    with np.load(folder / job["sample"]) as archive:
        batches = [archive[name] for name in archive.files]
    found = {}
    for batch in batches:
        found = update_tensor_stats(batch, [job["stats"]], found)
    axis = found[f"axis{job['stats']}"]
    return {"lo": axis["min"], "hi": axis["max"]}


def run_changed(folder, job):
    model = model_of(job["changed"], "as it is").transform(InferShapes())
    if "prune" in job:
        model = model.transform(FoldConstants(exclude_op_types=[])).transform(ExtractBiasFromConv())
        spec = {name: {1: set(gone)} for name, gone in job["prune"].items()}
        model = model.transform(PruneChannels(spec))
    else:
        model = model.transform(ChangeBatchSize(job["batch"]))
    model = model.transform(InferShapes())
    (port,) = model.graph.input
    with np.load(folder / job["sample"]) as archive:
        answer = dict(execute_onnx(model, {port.name: archive[archive.files[0]]}))
    sizes = [tensor.dims for tensor in model.graph.initializer if sum(dim > 1 for dim in tensor.dims) > 1]
    return answer | {"weights": np.asarray(sum(int(np.prod(dims)) for dims in sizes))}


COSTS = {"macs": "total_macs", "bops": "total_bops", "weight_bits": "total_mem_w_bits"}


def main():
    folder = Path(sys.argv[1])
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        try:
            if "cost" in job:
                answer = run_cost(job)
            elif "datatypes" in job:
                answer = run_datatypes(job)
            elif "ranges" in job:
                answer = run_ranges(job)
            elif "stats" in job:
                answer = run_stats(folder, job)
            elif "changed" in job:
                answer = run_changed(folder, job)
            else:
                answer = run_model(folder, job) if "model" in job else run_formula(folder, job)
            np.savez(folder / f"answer_{number}.npz", **answer)
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            (folder / f"answer_{number}.txt").write_text(f"{type(error).__name__}: {error}")


main()
