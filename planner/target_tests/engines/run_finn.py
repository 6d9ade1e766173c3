"""Script for the Python of an environment with FINN: its front half on `finn` and QONNX files, step by step.

The steps are those of FINN's builder up to hardware layers (`finn.builder.build_dataflow_steps`), with the
layers that the builder leaves to the user's own steps: pools, additions and copies of streams. Nothing here
needs Xilinx's tools; what would simulate Verilog is replaced by an empty module, since nothing calls it.

`jobs.json` of the folder lists {"file", "samples": [[archive, names of its arrays], ...]}. Job n leaves
`answer_n.json` and `answer_n_k.npz` (outputs in order, of the last step reached) for its k-th sample, or
`answer_n.txt` with what the file as it is raised. `answer_n.json` holds the names of the outputs; the steps,
each with its name, the largest difference from the file as written, and what it raised; the hardware layers;
and the operators left in software, with those of them that FINN has a layer for, or that compute integers.
"""

import copy
import json
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

for _name in ("pyverilator", "pyverilator.util", "pyverilator.util.axi_utils"):
    _empty = types.ModuleType(_name)
    for _item in ("PyVerilator", "_read_signal", "reset_rtlsim", "rtlsim_multi_io"):
        setattr(_empty, _item, None)
    sys.modules.setdefault(_name, _empty)

import finn.transformation.fpgadataflow.convert_to_hw_layers as hardware  # noqa: E402
from finn.core.onnx_exec import execute_onnx  # noqa: E402
from finn.transformation.fpgadataflow.minimize_accumulator_width import MinimizeAccumulatorWidth  # noqa: E402
from finn.transformation.fpgadataflow.minimize_weight_bit_width import MinimizeWeightBitWidth  # noqa: E402
from finn.transformation.qonnx.convert_qonnx_to_finn import ConvertQONNXtoFINN  # noqa: E402
from finn.transformation.streamline import Streamline, absorb, reorder  # noqa: E402
from finn.transformation.streamline.round_thresholds import RoundAndClipThresholds  # noqa: E402
from qonnx.core.modelwrapper import ModelWrapper  # noqa: E402
from qonnx.transformation.bipolar_to_xnor import ConvertBipolarMatMulToXnorPopcount  # noqa: E402
from qonnx.transformation.fold_constants import FoldConstants  # noqa: E402
from qonnx.transformation.general import (  # noqa: E402
    GiveReadableTensorNames,
    GiveUniqueNodeNames,
    RemoveStaticGraphInputs,
    RemoveUnusedTensors,
)
from qonnx.transformation.infer_data_layouts import InferDataLayouts  # noqa: E402
from qonnx.transformation.infer_datatypes import InferDataTypes  # noqa: E402
from qonnx.transformation.infer_shapes import InferShapes  # noqa: E402
from qonnx.transformation.lower_convs_to_matmul import LowerConvsToMatMul  # noqa: E402
from qonnx.util.cleanup import cleanup_model  # noqa: E402

warnings.simplefilter("ignore")

Step = Callable[[Any], Any]
ROUNDS = 4
"""As often as FINN's residual examples move things past forks."""
QUANTIZERS = frozenset({"Quant", "IntQuant", "BipolarQuant", "Trunc"})
LAYERS = "finn.custom_op.fpgadataflow"
HAVE_LAYERS = frozenset(
    {"MatMul", "XnorPopcountMatMul", "Conv", "Im2Col", "MultiThreshold", "MaxPool", "MaxPoolNHWC", "TopK"}
    | {"GlobalAveragePool", "QuantAvgPool2d", "Upsample", "Resize", "Concat", "Gather", "Quant"}
)
"""Operators that some layer computes, whatever their types."""
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that compute nothing."""
ON_INTEGERS = frozenset({"Add", "Mul", "Sub", "Div"})
"""Operators that a layer has in integer arithmetic alone: AddStreams, StreamingEltwise, ChannelwiseOp."""


def _each(*transformations: Any) -> Step:
    def step(model: Any) -> Any:
        for transformation in transformations:
            model = model.transform(transformation)
        return model

    return step


def _from_qonnx(model: Any) -> Any:
    return cleanup_model(model).transform(ConvertQONNXtoFINN())


def _lower(model: Any) -> Any:
    if not model.get_nodes_by_op_type("Conv"):
        return model
    pools = model.get_nodes_by_op_type("MaxPool")
    if any(len(model.find_consumers(name)) > 1 for node in pools for name in (node.input[0], node.output[0])):
        # MakeMaxPoolNHWC turns the data of one consumer alone; InferPool serves such a pool as it is.
        return model.transform(LowerConvsToMatMul())
    return _each(
        LowerConvsToMatMul(),
        reorder.MakeMaxPoolNHWC(),
        absorb.AbsorbTransposeIntoMultiThreshold(),
        reorder.MakeMaxPoolNHWC(),
        absorb.AbsorbConsecutiveTransposes(),
    )(model)


def _is_residual(model: Any) -> bool:
    return any(len(model.find_consumers(tensor.name) or ()) > 1 for tensor in model.graph.value_info)


def _streamline(model: Any) -> Any:
    """The builder's, and what FINN's residual examples add: scales move past forks and additions."""
    model = _each(absorb.AbsorbSignBiasIntoMultiThreshold(), Streamline())(model)
    for _ in range(ROUNDS if _is_residual(model) else 0):
        model = _each(
            reorder.MoveLinearPastFork(), Streamline(), reorder.MoveLinearPastEltwiseAdd(), Streamline()
        )(model)
    return model


def _transposes(model: Any) -> Any:
    """Transposes past forks and additions, into each other and into thresholds."""
    if not _is_residual(model):
        return model
    return _each(
        reorder.MoveTransposePastFork(),
        reorder.MoveTransposePastJoinAdd(),
        absorb.AbsorbConsecutiveTransposes(),
        absorb.AbsorbTransposeIntoMultiThreshold(),
        InferDataLayouts(),  # layers go by the layouts, which transformations leave as they were
    )(model)


def _hardware(model: Any) -> Any:
    """The builder's layers, and those of additions, pools and copies, which it leaves to the user.

    The mean of a whole picture comes first: its factor goes into the thresholds behind it.
    """
    layers: list[Any] = []
    if model.get_nodes_by_op_type("GlobalAveragePool"):
        layers += [
            hardware.InferGlobalAccPoolLayer(),
            reorder.MoveTransposePastScalarMul(),
            absorb.AbsorbTransposeIntoMultiThreshold(),
            absorb.AbsorbMulIntoMultiThreshold(),
            RoundAndClipThresholds(),
            InferDataTypes(),
        ]
    layers += [
        hardware.InferAddStreamsLayer(),
        hardware.InferBinaryMatrixVectorActivation(),
        hardware.InferQuantizedMatrixVectorActivation(),
        hardware.InferVectorVectorActivation(),
        hardware.InferLabelSelectLayer(),
        hardware.InferThresholdingLayer(),
    ]
    if model.get_nodes_by_op_type("Im2Col") or model.get_nodes_by_op_type("MaxPool"):
        # RemoveCNVtoFCFlatten is left out: FINN's Python runs no product across the shapes that it joins.
        layers += [hardware.InferConvInpGen(), hardware.InferStreamingMaxPool()]
    layers += [
        absorb.AbsorbConsecutiveTransposes(),
        hardware.InferPool(),
        hardware.InferConvInpGen(),
        hardware.InferUpsample(),
        hardware.InferConcatLayer(),
        hardware.InferChannelwiseLinearLayer(),
        hardware.InferDuplicateStreamsLayer(),
        GiveUniqueNodeNames(),
        InferDataLayouts(),
    ]
    return _each(*layers)(model)


STEPS: tuple[tuple[str, Step], ...] = (
    ("ConvertQONNXtoFINN", _from_qonnx),
    (
        "tidy up",
        _each(
            InferShapes(),
            FoldConstants(),
            GiveUniqueNodeNames(),
            GiveReadableTensorNames(),
            InferDataTypes(),
            RemoveStaticGraphInputs(),
        ),
    ),
    ("streamline", _streamline),
    ("lower convolutions", _lower),
    (
        "streamline again",
        _each(
            ConvertBipolarMatMulToXnorPopcount(),
            Streamline(),
            absorb.AbsorbScalarMulAddIntoTopK(),
            InferDataLayouts(),
            RemoveUnusedTensors(),
        ),
    ),
    ("move transposes", _transposes),
    ("round thresholds", _each(RoundAndClipThresholds())),
    ("hardware layers", _hardware),
    ("least widths", _each(MinimizeWeightBitWidth(), MinimizeAccumulatorWidth(), InferDataTypes())),
)


def outputs_of(model: Any, sample: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run a model in Python, inputs in its order."""
    names = [item.name for item in model.graph.input if model.get_initializer(item.name) is None]
    shaped = [
        np.asarray(array, np.float32).reshape(model.get_tensor_shape(name))
        for name, array in zip(names, sample, strict=True)
    ]
    found = execute_onnx(model, dict(zip(names, shaped, strict=True)))
    return [np.asarray(found[item.name]) for item in model.graph.output]


def difference(one: Sequence[Sequence[np.ndarray]], two: Sequence[Sequence[np.ndarray]]) -> float:
    """The largest between outputs of samples, in any layout of as many numbers."""
    pairs = [pair for a, b in zip(one, two, strict=True) for pair in zip(a, b, strict=True)]
    return max(float(np.abs(a.ravel().astype(np.float64) - b.ravel()).max()) for a, b in pairs)


def left_over(model: Any) -> tuple[list[str], list[str], list[str]]:
    """The operators in software; those of them that FINN has a layer for; those that compute with integers.

    A thresholding or a product of floats has no layer: it takes integers.
    """
    nodes = [node for node in model.graph.node if not node.domain.startswith(LAYERS)]
    missed, inner = [], []
    for node in nodes:
        data = [name for name in node.input if name and model.get_initializer(name) is None]
        whole = [model.get_tensor_datatype(name).is_integer() for name in data]
        constants = [model.get_initializer(name) for name in node.input if name and name not in data]
        are_whole = all(np.array_equal(array, np.floor(array)) for array in constants)
        if not all(whole):
            continue
        if node.op_type not in VIEWS and are_whole:
            inner.append(node.op_type)
        if node.op_type in HAVE_LAYERS or (node.op_type in ON_INTEGERS and are_whole):
            missed.append(node.op_type)
    return [node.op_type for node in nodes], missed, inner


def answer(folder: Path, job: Mapping[str, Any], number: int) -> None:
    """Take one file through the steps, and run it behind each."""
    model = ModelWrapper(str(folder / job["file"]))
    names = [item.name for item in model.graph.input if model.get_initializer(item.name) is None]
    samples = []
    for archive_name, keys in job["samples"]:
        with np.load(folder / archive_name) as archive:
            arrays = {key: archive[str(i)] for i, key in enumerate(keys)}
        samples.append([arrays[name] for name in names])
    outputs = [item.name for item in model.graph.output]
    model = model.transform(InferShapes())
    written = found = [outputs_of(model, sample) for sample in samples]
    steps: list[dict[str, Any]] = []
    has_quantizers = any(node.op_type in QUANTIZERS for node in model.graph.node)
    for name, step in STEPS:
        if name == "ConvertQONNXtoFINN" and not has_quantizers:
            continue
        try:
            after = step(copy.deepcopy(model))
            now = [outputs_of(after, sample) for sample in samples]
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            steps.append({"name": name, "error": f"{type(error).__name__}: {error}"})
            break
        model, found = after, now
        steps.append({"name": name, "difference": difference(written, found)})
    for k, results in enumerate(found):
        np.savez(
            folder / f"answer_{number}_{k}.npz",
            **{str(i): array for i, array in enumerate(results)},  # type: ignore[arg-type]
        )
    left, missed, inner = left_over(model)
    kinds = [node.op_type for node in model.graph.node if node.domain.startswith(LAYERS)]
    said = {"outputs": outputs, "steps": steps, "layers": kinds, "left": left, "missed": missed}
    said["on_integers"] = inner
    (folder / f"answer_{number}.json").write_text(json.dumps(said), encoding="utf-8")


def main(folder: Path) -> None:
    """Answer every job of a folder."""
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text(encoding="utf-8"))):
        try:
            answer(folder, job, number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the asker says it
            (folder / f"answer_{number}.txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
