"""The nine `light` models of the onnx package with seeded random weights, written out as real initializers.

The package ships the graphs of well-known networks with their weights behind `ConstantOfShape`. Weights
are He-normal, normalisations near the identity, and branches that are added up are scaled down, so that
activations keep the range they start with. Nothing of the original training is left: accuracies compare
the two sides, and say nothing about the networks.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, numpy_helper, version_converter

from benchmarks.samples import SEED, BenchModel, Sample

Array = NDArray[Any]

FOLDER: Final = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
OPSET: Final = 13  # below, onnxruntime's quantizer writes per-channel files that do not load
IR_VERSION: Final = 8  # from 4 on, initializers need not be inputs as well
PLACEHOLDER: Final = "ConstantOfShape"
SCALINGS: Final = frozenset({"Add", "BatchNormalization", "Mul"})
MATRICES: Final = frozenset({"Conv", "Gemm"})


def light_names() -> list[str]:
    """Return the names of the models, in order: `light_resnet50`, ..."""
    return sorted(path.stem for path in FOLDER.glob("light_*.onnx"))


def write_light(folder: Path, name: str) -> BenchModel:
    """Write a model with weights of its own seed into `folder`."""
    model = version_converter.convert_version(onnx.load(FOLDER / f"{name}.onnx"), OPSET)
    rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    shapes = _shapes(model)
    roles = _roles(model, shapes.keys())
    kept = [item for item in model.graph.initializer if item.name not in roles]
    drawn = [numpy_helper.from_array(_draw(role, shapes[value], rng), value) for value, role in roles.items()]
    nodes = [node for node in model.graph.node if node.op_type != PLACEHOLDER]
    used = {value for node in nodes for value in node.input}
    given = {item.name for item in (*kept, *drawn)}
    inputs = [info for info in model.graph.input if info.name not in given and info.name in used]
    kept = [item for item in kept if item.name in used]
    graph = onnx.helper.make_graph(nodes, name, inputs, list(model.graph.output), [*kept, *drawn])
    path = folder / f"{name}.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=IR_VERSION), path)
    return BenchModel(name, path)


def light_samples(model: BenchModel, count: int, *, held_out: bool) -> list[Sample]:
    """Return `count` standard normal inputs of the model's own seed."""
    rng = np.random.default_rng([SEED, int(held_out), zlib.crc32(model.name.encode())])
    proto = onnx.load(model.path)
    shapes = {
        info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in proto.graph.input
    }
    return [
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(count)
    ]


def _shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights: what placeholders make, and the small ones that are shipped."""
    shipped = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    made = {
        node.output[0]: tuple(int(size) for size in shipped[node.input[0]])
        for node in model.graph.node
        if node.op_type == PLACEHOLDER
    }
    return made | {name: array.shape for name, array in shipped.items() if array.dtype == np.float32}


def _roles(model: ModelProto, names: Iterable[str]) -> dict[str, str]:
    """What each weight is for, by its reader."""
    readers: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in model.graph.node:
        for index, value in enumerate(node.input):
            readers.setdefault(value, []).append((node, index))
    return {name: _role(*readers[name][0], readers) for name in sorted(set(names)) if name in readers}


def _role(node: NodeProto, index: int, readers: Mapping[str, list[tuple[NodeProto, int]]]) -> str:
    if node.op_type == "Unsqueeze":
        return _role(*readers[node.output[0]][0], readers)
    if node.op_type in MATRICES:
        return ("matrix" if _is_activated(node, readers) else "linear") if index == 1 else "offset"
    if node.op_type == "BatchNormalization" and index == 1:
        return "branch" if any(reader.op_type == "Sum" for reader, _ in readers[node.output[0]]) else "gain"
    return "gain" if node.op_type == "Mul" or index == 4 else "offset"


def _is_activated(node: NodeProto, readers: Mapping[str, list[tuple[NodeProto, int]]]) -> bool:
    """Whether a Relu takes half of the power sooner or later: only normalised sums do without."""
    following = [reader for reader, _ in readers.get(node.output[0], ())]
    if following and following[0].op_type in SCALINGS:
        return _is_activated(following[0], readers)
    return node.op_type in MATRICES or any(reader.op_type == "Relu" for reader in following)


def _draw(role: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    return np.asarray(DRAWS[role](shape, rng), np.float32)


def _normal(power: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    fan_in = int(np.prod(shape[1:]))
    return rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(power / fan_in))


DRAWS: Final[Mapping[str, Callable[[tuple[int, ...], np.random.Generator], Array]]] = {
    "branch": lambda shape, rng: rng.uniform(0.5, 0.9, shape),
    "gain": lambda shape, rng: rng.uniform(0.8, 1.2, shape),
    "linear": partial(_normal, 1.0),
    "matrix": partial(_normal, 2.0),
    "offset": lambda shape, rng: rng.standard_normal(shape) * 0.05,
}
