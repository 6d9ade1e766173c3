"""Plugin for pytest, in an environment of qonnx's: its entry points call ours (`benchmarks.qonnx_suite`).

Running a model, shapes, and the transformations that `convert` has; all else of qonnx stays. What ours
refuses is a failure of the test; nothing falls back.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx
import qonnx.core.onnx_exec
import qonnx.util.cleanup
from qonnx.core.datatype import DataType
from qonnx.core.modelwrapper import ModelWrapper
from qonnx.transformation.batchnorm_to_affine import BatchNormToAffine
from qonnx.transformation.change_batchsize import ChangeBatchSize
from qonnx.transformation.channels_last import ConvertToChannelsLastAndClean
from qonnx.transformation.extract_quant_scale_zeropt import ExtractQuantScaleZeroPt
from qonnx.transformation.gemm_to_matmul import GemmToMatMul
from qonnx.transformation.infer_datatypes import InferDataTypes
from qonnx.transformation.infer_shapes import InferShapes
from qonnx.transformation.lower_convs_to_matmul import LowerConvsToMatMul
from qonnx.transformation.pruning import PruneChannels
from qonnx.transformation.qcdq_to_qonnx import QCDQToQuant
from qonnx.transformation.qonnx_to_qcdq import QuantToQCDQ
from qonnx.transformation.quant_constant_folding import FoldTransposeIntoQuantInit

from planner.analysis.datatypes import datatypes
from planner.conversion.convert import convert
from planner.formats.onnx.read import read_written
from planner.interpreter.models import ModelRunner

CONVERSIONS: Final[Mapping[type, str]] = {
    BatchNormToAffine: "batchnorm-to-affine",
    ConvertToChannelsLastAndClean: "channels-last",
    ExtractQuantScaleZeroPt: "scale-zero-point-extracted",
    FoldTransposeIntoQuantInit: "cleaned",
    GemmToMatMul: "gemm-to-matmul",
    LowerConvsToMatMul: "convs-lowered",
    QCDQToQuant: "qonnx",
    QuantToQCDQ: "onnx-qcdq",
}
MOST: Final = int(os.environ.get("QONNX_MOST", "0"))
_EXECUTE: Final = qonnx.core.onnx_exec.execute_onnx


def execute(
    model: ModelWrapper,
    inputs: Mapping[str, Any],
    return_full_exec_context: bool = False,  # noqa: FBT001, FBT002 - qonnx's signature
    start_node: Any = None,
    end_node: Any = None,
) -> dict[str, np.ndarray]:
    """`execute_onnx` by ours; of a part of a graph by qonnx."""
    if start_node is not None or end_node is not None:
        return dict(_EXECUTE(model, inputs, return_full_exec_context, start_node, end_node))
    graph = read_written(model.model.SerializeToString())
    inner = [out for op in graph.ops for out in op.outputs if out] if return_full_exec_context else []
    given = {name: inputs[name] for name in graph.inputs if name in inputs}
    for name in graph.inputs:
        if name not in given:
            given[name] = np.zeros(model.get_tensor_shape(name), np.float32)
    found = dict(ModelRunner(graph, watched=inner).run(given))
    if return_full_exec_context:
        found |= given
        found |= {name: np.asarray(item.array) for name, item in graph.constants.items()}
    return found


def converting(to: str) -> Callable[[Any, ModelWrapper], tuple[ModelWrapper, bool]]:
    """A transformation's `apply` by `convert`."""

    def apply(_self: Any, model: ModelWrapper) -> tuple[ModelWrapper, bool]:
        done = convert(model.model.SerializeToString(), to)
        return ModelWrapper(onnx.load_from_string(done)), False

    return apply


def infer_shapes(_self: Any, model: ModelWrapper) -> tuple[ModelWrapper, bool]:
    """`InferShapes` by ours."""
    copy = onnx.ModelProto.FromString(model.model.SerializeToString())
    # Tests ask for shapes before they set the weights: what only has a shape so far is an input.
    made = {out for node in copy.graph.node for out in node.output}
    made |= {port.name for port in copy.graph.input} | {tensor.name for tensor in copy.graph.initializer}
    copy.graph.input.extend(info for info in copy.graph.value_info if info.name not in made)
    graph = read_written(copy.SerializeToString(), opened=False)
    for name, value in graph.values.items():
        known = value.shape is not None and all(isinstance(dim, int) for dim in value.shape)
        if known and name not in graph.constants:
            model.set_tensor_shape(name, list(value.shape or ()))
    return model, False


def infer_datatypes(self: Any, model: ModelWrapper) -> tuple[ModelWrapper, bool]:
    """`InferDataTypes` by ours."""
    copy = onnx.ModelProto.FromString(model.model.SerializeToString())
    for name, kind in datatypes(read_written(copy.SerializeToString(), opened=False)).items():
        if name in model.get_all_tensor_names() and model.get_initializer(name) is None:
            scaled = "SCALEDINT" in kind and not self.allow_scaledint_dtypes
            model.set_tensor_datatype(name, DataType["FLOAT32" if scaled else kind])
    return model, False


def change_batch(self: Any, model: ModelWrapper) -> tuple[ModelWrapper, bool]:
    """`ChangeBatchSize` by ours."""
    done = convert(model.model.SerializeToString(), "cleaned", batch=self.bsize)
    return ModelWrapper(onnx.load_from_string(done)), False


def prune(self: Any, model: ModelWrapper) -> tuple[ModelWrapper, bool]:
    """`PruneChannels` by ours."""
    done = convert(model.model.SerializeToString(), "cleaned", prune=self.prune_spec)
    return ModelWrapper(onnx.load_from_string(done)), False


def cleanup(model: ModelWrapper, **_options: Any) -> ModelWrapper:
    """`cleanup_model` by `--to cleaned`."""
    return ModelWrapper(onnx.load_from_string(convert(model.model.SerializeToString(), "cleaned")))


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Of a file of thousands of tests `QONNX_MOST`, evenly spread: test_conv_lowering has 13,893."""
    if not MOST:
        return
    files: dict[str, list[Any]] = {}
    for item in items:
        files.setdefault(str(item.path), []).append(item)
    items[:] = [item for held in files.values() for item in held[:: -(-len(held) // MOST)]]


def pytest_configure() -> None:
    """Put ours in the place of qonnx's, unless `QONNX_ALONE` says otherwise."""
    if os.environ.get("QONNX_ALONE"):
        return
    qonnx.core.onnx_exec.execute_onnx = execute
    qonnx.util.cleanup.cleanup_model = cleanup
    InferShapes.apply = infer_shapes
    ChangeBatchSize.apply = change_batch
    InferDataTypes.apply = infer_datatypes
    PruneChannels.apply = prune
    for kind, to in CONVERSIONS.items():
        kind.apply = converting(to)
