"""Train the shipped example, a small CNN on real 8x8 digits, and write it as float ONNX.

Not part of the planner: it needs torch and scikit-learn, which the project does not install.
One table, `LAYERS`, is read twice: as torch modules to train, and as ONNX nodes to ship, so
BatchNormalization stays in the file for the importer to fold.
Source: the digits data set of scikit-learn (UCI "Optical Recognition of Handwritten Digits").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

HERE: Final = Path(__file__).resolve().parent
SEED: Final = 2
EPOCHS: Final = 80
BATCH: Final = 64
N_TEST: Final = 450
N_CALIBRATION: Final = 128
TOLERANCE: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Layer:
    """One op of the network; it reads `image` or the results of earlier layers, by name."""

    name: str
    op: str
    inputs: tuple[str, ...]
    size: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """Images float32 `(n, 1, 8, 8)` in [0, 1] and their labels int64 `(n,)`."""

    image: np.ndarray
    label: np.ndarray


def conv(name: str, source: str, channels: tuple[int, int], kernel: int, **size: int) -> Layer:
    """Describe a convolution that keeps height and width; `bias=1` where no batch norm follows."""
    full = {"in": channels[0], "out": channels[1], "kernel": kernel, "group": 1, "bias": 0, **size}
    return Layer(name, "Conv", (source,), full)


def batch_norm(name: str, source: str, channels: int) -> Layer:
    """Describe a batch normalisation over `channels`."""
    return Layer(name, "BatchNormalization", (source,), {"channels": channels})


LAYERS: Final[tuple[Layer, ...]] = (
    conv("stem/conv", "image", (1, 24), 3),
    batch_norm("stem/bn", "stem/conv", 24),
    Layer("stem/relu", "Relu", ("stem/bn",)),
    conv("res/conv1", "stem/relu", (24, 24), 3),
    batch_norm("res/bn1", "res/conv1", 24),
    Layer("res/relu1", "Relu", ("res/bn1",)),
    conv("res/conv2", "res/relu1", (24, 24), 3),
    batch_norm("res/bn2", "res/conv2", 24),
    Layer("res/add", "Add", ("res/bn2", "stem/relu")),
    Layer("res/relu2", "Relu", ("res/add",)),
    Layer("res/pool", "MaxPool", ("res/relu2",), {"kernel": 2}),
    conv("separable/depthwise", "res/pool", (24, 24), 3, group=24),
    batch_norm("separable/bn", "separable/depthwise", 24),
    Layer("separable/relu6", "Clip", ("separable/bn",), {"lo": 0, "hi": 6}),
    conv("separable/pointwise", "separable/relu6", (24, 32), 1, bias=1),
    conv("plain/conv", "res/pool", (24, 32), 3),
    batch_norm("plain/bn", "plain/conv", 32),
    Layer("plain/relu", "Relu", ("plain/bn",)),
    # The stem is read at full size too, on a finer grid than the concat's: same_scale has to pay here.
    Layer("skip/pool", "MaxPool", ("stem/relu",), {"kernel": 2}),
    Layer("join/concat", "Concat", ("separable/pointwise", "plain/relu", "skip/pool")),
    conv("head/conv", "join/concat", (88, 32), 3),
    batch_norm("head/bn", "head/conv", 32),
    Layer("head/relu", "Relu", ("head/bn",)),
    Layer("head/pool", "GlobalAveragePool", ("head/relu",)),
    Layer("head/flatten", "Flatten", ("head/pool",)),
    Layer("head/gemm", "Gemm", ("head/flatten",), {"in": 32, "out": 10}),
    Layer("head/softmax", "Softmax", ("head/gemm",)),
)


class Add(nn.Module):
    """Elementwise sum of two values."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return `left + right`, both `(n, c, h, w)`."""
        return left + right


class Concat(nn.Module):
    """Concatenation along the channels."""

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        """Return the parts `(n, c_i, h, w)` as one `(n, sum c_i, h, w)`."""
        return torch.cat(parts, dim=1)


def torch_conv(size: Mapping[str, int]) -> nn.Module:
    """Make the convolution that `conv` describes."""
    return nn.Conv2d(
        size["in"],
        size["out"],
        size["kernel"],
        padding=size["kernel"] // 2,
        groups=size["group"],
        bias=bool(size["bias"]),
    )


MODULES: Final[Mapping[str, Callable[[Mapping[str, int]], nn.Module]]] = {
    "Add": lambda _: Add(),
    "BatchNormalization": lambda size: nn.BatchNorm2d(size["channels"]),
    "Clip": lambda size: nn.Hardtanh(size["lo"], size["hi"]),
    "Concat": lambda _: Concat(),
    "Conv": torch_conv,
    "Flatten": lambda _: nn.Flatten(),
    "Gemm": lambda size: nn.Linear(size["in"], size["out"]),
    "GlobalAveragePool": lambda _: nn.AdaptiveAvgPool2d(1),
    "MaxPool": lambda size: nn.MaxPool2d(size["kernel"]),
    "Relu": lambda _: nn.ReLU(),
    "Softmax": lambda _: nn.Softmax(dim=1),
}


class Network(nn.Module):
    """`LAYERS` as a torch module."""

    def __init__(self) -> None:
        """Make one module a layer, with fresh weights."""
        super().__init__()
        self.layers = nn.ModuleDict({layer.name: MODULES[layer.op](layer.size) for layer in LAYERS})

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return every value of the network by the name of the layer that computes it."""
        values = {"image": image}
        for layer in LAYERS:
            values[layer.name] = self.layers[layer.name](*(values[name] for name in layer.inputs))
        return values


def load_splits() -> tuple[Split, Split, np.ndarray]:
    """Return the training split, the test split and the calibration images, each stratified."""
    digits = load_digits()
    image = (digits.images / 16).astype(np.float32)[:, None]
    label = digits.target.astype(np.int64)
    train_x, test_x, train_y, test_y = train_test_split(
        image, label, test_size=N_TEST, stratify=label, random_state=SEED
    )
    calibration, _ = train_test_split(train_x, train_size=N_CALIBRATION, stratify=train_y, random_state=SEED)
    return Split(train_x, train_y), Split(test_x, test_y), calibration


def shifted(images: torch.Tensor) -> torch.Tensor:
    """Move each image `(n, 1, 8, 8)` by up to one pixel each way and vary its ink by a tenth."""
    padded = functional.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images), 1))
    row = (rows + torch.arange(8))[:, :, None]
    column = (columns + torch.arange(8))[:, None, :]
    moved = padded[torch.arange(len(images))[:, None, None], 0, row, column][:, None]
    ink = 0.9 + 0.2 * torch.rand(len(images), 1, 1, 1)
    return (moved * ink).clamp(0, 1)


def train(split: Split) -> Network:
    """Fit a network to the split: shifted images, smoothed labels, decayed weights."""
    torch.manual_seed(SEED)
    network = Network()
    image, label = torch.from_numpy(split.image), torch.from_numpy(split.label)
    steps = -(-len(label) // BATCH)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=5e-3, epochs=EPOCHS, steps_per_epoch=steps
    )
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(label)).split(BATCH):
            logits = network(shifted(image[chosen]))["head/gemm"]
            loss = functional.cross_entropy(logits, label[chosen], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network.eval()


def weights_of(layer: Layer, state: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Return the constants a layer's ONNX node reads, by value name and in the node's order."""
    if layer.op == "Clip":
        return {f"{layer.name}_{end}": np.array(layer.size[end], np.float32) for end in ("lo", "hi")}
    parts = ("weight", "bias", "running_mean", "running_var")
    keys = {part: f"layers.{layer.name}.{part}" for part in parts}
    return {f"{layer.name}_{part}": state[key].numpy() for part, key in keys.items() if key in state}


def attributes_of(layer: Layer) -> dict[str, Any]:
    """Return the attributes of a layer's ONNX node."""
    kernel = layer.size.get("kernel", 1)
    table: dict[str, dict[str, Any]] = {
        "BatchNormalization": {"epsilon": 1e-5},
        "Concat": {"axis": 1},
        "Conv": {
            "group": layer.size.get("group", 1),
            "kernel_shape": [kernel, kernel],
            "pads": [kernel // 2] * 4,
        },
        "Flatten": {"axis": 1},
        "Gemm": {"transB": 1},
        "MaxPool": {"kernel_shape": [kernel, kernel], "strides": [kernel, kernel]},
        "Softmax": {"axis": -1},
    }
    return table.get(layer.op, {})


def to_onnx(network: Network) -> onnx.ModelProto:
    """Return the trained network as an ONNX model, opset 17, IR 8, with a free batch size `N`."""
    state = network.state_dict()
    value = {layer.name: f"{layer.name}_out" for layer in LAYERS}
    value |= {"image": "image", LAYERS[-1].name: "probabilities"}
    nodes, constants = [], []
    for layer in LAYERS:
        weights = weights_of(layer, state)
        constants += [numpy_helper.from_array(array, name) for name, array in weights.items()]
        inputs = [*(value[name] for name in layer.inputs), *weights]
        nodes.append(
            helper.make_node(layer.op, inputs, [value[layer.name]], name=layer.name, **attributes_of(layer))
        )
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", 10])],
        constants,
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8, producer_name="digits/train.py")
    onnx.checker.check_model(model, full_check=True)
    return model


def run_onnx(model: onnx.ModelProto, image: np.ndarray) -> np.ndarray:
    """Return the probabilities `(n, 10)` that onnxruntime computes for images `(n, 1, 8, 8)`."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"image": image})
    return np.asarray(probabilities)


def main() -> None:
    """Train, compare the file with torch, and write model, test split and calibration images."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    training, test, calibration = load_splits()
    network = train(training)
    model = to_onnx(network)
    with torch.no_grad():
        expected = network(torch.from_numpy(test.image))["head/softmax"].numpy()
    found = run_onnx(model, test.image)
    error = float(np.abs(found - expected).max())
    if error > TOLERANCE:
        message = (
            f"digits.onnx: onnxruntime differs from torch by {error:.1e}; at most {TOLERANCE:.0e} is allowed"
        )
        raise SystemExit(message)
    onnx.save(model, HERE / "digits.onnx")
    np.savez_compressed(HERE / "test.npz", image=test.image, label=test.label)
    np.savez_compressed(HERE / "calibration.npz", image=calibration)
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    n_right = int((found.argmax(axis=1) == test.label).sum())
    print(f"{n_parameters} parameters, {n_right} of {len(test.label)} test images right")
    print(f"onnxruntime differs from torch by at most {error:.1e}")


if __name__ == "__main__":
    main()
