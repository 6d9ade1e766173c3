"""Script for the Python of an engine's environment: one `onnx-qdq` file in OpenVINO, TVM, MNN or ncnn.

argv: the engine, a folder with `model.onnx` and `samples.npz` (`0.NAME`, `1.NAME`). It leaves `answer.json`
({"version", "integers": [products in integers, in all], "error"}) and `answer.npz`, arrays by the
same names. Nothing of our own is imported.
"""

import json
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Sample = Mapping[str, np.ndarray]
Found = tuple[list[dict[str, np.ndarray]], list[int] | None, str]
PRODUCTS = ("Convolution", "FullyConnected", "MatMul", "GroupConvolution")
BYTES = ("i8", "u8")
QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")


def in_openvino(folder: Path, samples: Sequence[Sample]) -> Found:
    """The CPU plugin in float32 elsewhere: a product counts as integer where it runs on bytes."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(str(folder / "model.onnx"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [next(iter(port.get_names())) for port in compiled.outputs]
    found = []
    for sample in samples:
        results = compiled(dict(sample.items()))
        found.append({name: np.asarray(results[i]) for i, name in enumerate(names)})
    infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    kinds = [(info["layerType"].astype(str), info["runtimePrecision"].astype(str)) for info in infos]
    products = [precision for kind, precision in kinds if kind in PRODUCTS]
    return found, [sum(one in BYTES for one in products), len(products)], openvino.__version__


def in_tvm(folder: Path, samples: Sequence[Sample]) -> Found:
    """Relax through LLVM; a product counts as integer where its operator reads bytes or 32-bit integers."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(folder / "model.onnx")
    module = from_onnx(model, keep_params_in_input=False)
    text = str(module)
    products = [line for line in text.splitlines() if "R.nn.conv2d" in line or "R.matmul" in line]
    whole = [line for line in products if 'dtype="int' in line]
    with tvm.transform.PassContext(opt_level=3):
        built = relax.build(relax.get_pipeline("zero")(module), target="llvm")
    machine = relax.VirtualMachine(built, tvm.cpu())
    order = [item.name for item in model.graph.input]
    names = [item.name for item in model.graph.output]
    found = []
    for sample in samples:
        given = [tvm.runtime.tensor(np.ascontiguousarray(sample[name])) for name in order]
        results = machine["main"](*given)
        results = [results] if hasattr(results, "numpy") else list(results)
        found.append({name: one.numpy() for name, one in zip(names, results, strict=True)})
    return found, [len(whole), len(products)], tvm.__version__


def in_mnn(folder: Path, samples: Sequence[Sample]) -> Found:
    """Its converter, then its module on the CPU; which layers run on bytes it does not say."""
    import MNN
    import onnx
    from MNN import expr

    tool = Path(sys.executable).with_name("mnnconvert")
    command = [
        str(tool),
        "-f",
        "ONNX",
        "--modelFile",
        "model.onnx",
        "--MNNModel",
        "model.mnn",
        "--bizCode",
        "x",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not (folder / "model.mnn").exists():
        lines = [line for line in done.stderr.splitlines() if "pip" not in line]
        raise RuntimeError(f"mnnconvert: {' '.join(lines[-2:])}")
    model = onnx.load(folder / "model.onnx")
    order, names = [i.name for i in model.graph.input], [o.name for o in model.graph.output]
    module = MNN.nn.load_module_from_file(str(folder / "model.mnn"), order, names)
    found = []
    for sample in samples:
        given = [expr.const(sample[n], list(sample[n].shape), expr.NCHW) for n in order]
        results = module.forward(given)
        found.append(
            {n: np.array(expr.convert(r, expr.NCHW).read()) for n, r in zip(names, results, strict=True)}
        )
    return found, None, MNN.version()


def in_ncnn(folder: Path, samples: Sequence[Sample]) -> Found:
    """Its converter of ONNX files, pnnx."""
    import ncnn

    tool = Path(sys.executable).with_name("pnnx")
    done = subprocess.run([str(tool), "model.onnx"], cwd=folder, capture_output=True, text=True, check=False)
    if not (folder / "model.ncnn.param").exists():
        raise RuntimeError(f"pnnx: {(done.stdout + done.stderr).strip()[-300:]}")
    kinds = [line.split()[0] for line in (folder / "model.ncnn.param").read_text().splitlines()[2:]]
    unknown = sorted({kind for kind in kinds if kind in QUANTIZERS})
    if unknown:
        counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in unknown)
        raise RuntimeError(f"pnnx leaves {counts}, for which ncnn has no layer")
    net = ncnn.Net()
    net.load_param(str(folder / "model.ncnn.param"))
    net.load_model(str(folder / "model.ncnn.bin"))
    found = []
    for sample in samples:
        with net.create_extractor() as extractor:
            for i, array in enumerate(sample.values()):
                extractor.input(f"in{i}", ncnn.Mat(np.ascontiguousarray(array[0])))
            found.append({"": np.asarray(extractor.extract("out0")[1])})
    return found, None, ncnn.__version__


ENGINES = {"mnn": in_mnn, "ncnn": in_ncnn, "openvino": in_openvino, "tvm": in_tvm}


def main(engine: str, folder: Path) -> None:
    """Run one file in one engine."""
    with np.load(folder / "samples.npz") as archive:
        samples: dict[str, dict[str, np.ndarray]] = {}
        for key in archive:
            number, _, name = key.partition(".")
            samples.setdefault(number, {})[name] = archive[key]
    said: dict[str, Any] = {"error": ""}
    try:
        found, integers, version = ENGINES[engine](folder, list(samples.values()))
        said |= {"integers": integers, "version": version}
        arrays = {f"{k}.{name}": array for k, one in enumerate(found) for name, array in one.items()}
        np.savez(folder / "answer.npz", **arrays)  # type: ignore[arg-type]
    except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
        said["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    (folder / "answer.json").write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
