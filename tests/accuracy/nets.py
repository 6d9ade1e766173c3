"""Models and samples of the tests here: of the project, of the folder of models, and small ones by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import planner
from planner.ir.graph import Graph
from planner.plans.plan import Planned
from tests.conftest import ROOT
from tests.conversion.files import file_of

DIGITS = ROOT / "examples" / "digits"
Feeds = list[dict[str, Any]]


def digits(number: int = 8) -> tuple[Graph, Feeds]:
    """The example and some of its samples."""
    model = planner.load_model(DIGITS / "digits.onnx")
    arrays = np.load(DIGITS / "calibration.npz")[model.inputs[0]]
    return model, [{model.inputs[0]: arrays[k : k + 1]} for k in range(number)]


def of_folder(models: Path, name: str, number: int = 2) -> tuple[Graph, Feeds]:
    """A model of the folder, and photographs, texts or windows that it can read."""
    model = planner.load_model(models / f"{name}.onnx")
    if name.startswith("language"):
        texts = np.load(models / "language" / "calibration.npz")
        return model, [{key: texts[key][k : k + 1] for key in texts.files} for k in range(number)]
    if name.startswith("sequence"):
        arrays = np.load(models / f"{name}.io.npz")
        return model, [{key: arrays[key] for key in model.inputs}]
    if "ad01" in name:
        windows = np.load(models / "mlperf-tiny" / "ad_windows.npy")[: 4 * number].astype(np.float32)
        return model, [{model.inputs[0]: window.reshape(1, 640)} for window in windows]
    shots = np.load(models / "vision" / "photos_240x320_u8_nhwc.npz")["photos"][:number]
    return model, [{model.inputs[0]: _picture(model, name, shot)} for shot in shots]


def _picture(model: Graph, name: str, shot: np.ndarray) -> np.ndarray:
    _, channels, height, width = model.values[model.inputs[0]].shape
    array = shot[:height, :width].astype(np.float32).transpose(2, 0, 1)[None]
    array = array.mean(axis=1, keepdims=True) if channels == 1 else array
    of_bytes = {"mnist": 0, "pretrainedResnet": 0, "squeezenet_real_fp32": 120}
    offset = of_bytes.get(name.rpartition("/")[2])
    return np.float32(array / 255) if offset is None else array - np.float32(offset)


def planned(model: Graph, samples: Feeds, target: str = "litert-int8", **annotations: Any) -> Planned:
    """A plan with ranges of these samples."""
    stats = planner.calibrate(model, samples)
    edits = {"format": "qplan.annotations/1", **annotations} if annotations else None
    return planner.plan(planner.annotate(model, stats=stats, annotations=edits), target)


def net(
    nodes: Sequence[Any],
    outputs: Sequence[str],
    arrays: dict[str, Any],
    *,
    shape: Sequence[int] = (1, 8),
    types: dict[str, int] | None = None,
) -> Graph:
    """A small model that reads `x`."""
    weights = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    data = file_of(nodes, {"x": (TensorProto.FLOAT, shape)}, outputs, weights, domains=(), types=types)
    return planner.load_model(data)


def node(kind: str, *inputs: str, out: str, **attributes: Any) -> Any:
    """A node with one result, which names it."""
    return helper.make_node(kind, [*inputs], [out], out, **attributes)


def normal(shape: Sequence[int], number: int = 4, scale: float = 1.0) -> Feeds:
    """Seeded samples of `x`."""
    rng = np.random.default_rng(7)
    return [{"x": np.float32(scale * rng.normal(size=shape))} for _ in range(number)]
