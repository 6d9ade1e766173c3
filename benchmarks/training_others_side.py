"""Train a network by one road, and plan the result; prints a line of JSON a run.

Run by `benchmarks.training_others` as `python -P benchmarks/training_others_side.py NETWORK ROAD FOLDER
EPOCHS BITS:SEED...`, in the environment that has the road: `ours` and `torchao` in ExecuTorch's, `brevitas`
in its own. Every run starts from one float network: `digits` is trained once, into FOLDER, `resnet` a file.
"""

import copy
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import planner
import planner.torch
from benchmarks.samples import SEED, model_folder, resize
from benchmarks.training_side import figures, training_data

DIGITS = "examples/digits"
FLOAT_EPOCHS = 20
DEVICES = ("finn-fpga",)
ACTIVATIONS = 8
"""Bits of all activations; weights have those of the run."""
CUTS: Final = {"training": 1024, "test": 400}
LEAST_SIDE: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Layers:
    """The layers of a road; `sums` makes what both operands of a sum pass."""

    conv: Any = nn.Conv2d
    linear: Any = nn.Linear
    relu: Any = nn.ReLU
    sums: Any = nn.Identity
    image: Any = nn.Identity


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A float network with its images, and how it is trained.

    Attributes:
      kind: makes the network of a road's layers.
      net: the float network.
      training: images, and labels or probabilities.
      test: images and labels.
    """

    kind: Callable[[Layers], Any]
    net: Any
    training: tuple[Any, Any]
    test: tuple[Any, Any]
    calibration: Any
    batch: int
    rate: float

    @property
    def sample(self) -> Any:
        """Images to export with."""
        return self.training[0][:4]


class Digits(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, layers: Layers) -> None:
        """Make its layers."""
        super().__init__()
        self.a, self.b = layers.conv(1, 8, 3, padding=1), layers.conv(8, 16, 3, padding=1)
        self.f, self.relu_a, self.relu_b = layers.linear(64, 10), layers.relu(), layers.relu()
        self.image = layers.image()

    def forward(self, x: Any) -> Any:
        """Compute the scores."""
        x = torch.max_pool2d(self.relu_a(self.a(self.image(x))), 2)
        x = torch.max_pool2d(self.relu_b(self.b(x)), 2)
        return self.f(torch.flatten(x, 1))


class Block(nn.Module):
    """Two convolutions and the sum with their input, which a third brings to the same size."""

    def __init__(self, layers: Layers, channels: int, out: int) -> None:
        """Make its layers."""
        super().__init__()
        self.halves = channels != out
        self.first = layers.conv(channels, out, 3, 1 + self.halves, padding=1 - self.halves)
        self.second = layers.conv(out, out, 3, padding=1)
        self.skip = layers.conv(channels, out, 1, 2) if self.halves else nn.Identity()
        self.relu, self.end, self.sums = layers.relu(), layers.relu(), layers.sums()

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        y = self.relu(self.first(functional.pad(x, (0, 1, 0, 1)) if self.halves else x))
        return self.end(self.sums(self.second(y)) + self.sums(self.skip(x)))


class Resnet(nn.Module):
    """MLPerf Tiny's ResNet-8."""

    def __init__(self, layers: Layers) -> None:
        """Make its layers."""
        super().__init__()
        self.stem, self.relu = layers.conv(3, 16, 3, padding=1), layers.relu()
        self.blocks = nn.Sequential(*(Block(layers, *sizes) for sizes in ((16, 16), (16, 32), (32, 64))))
        self.f, self.image = layers.linear(64, 10), layers.image()

    def forward(self, x: Any) -> Any:
        """Compute the scores."""
        x = self.blocks(self.relu(self.stem(self.image(x))))
        return self.f(torch.flatten(functional.avg_pool2d(x, 8), 1))


def digits(folder: Path) -> Task:
    """The digits and a network that is trained on them once."""
    with np.load(f"{DIGITS}/test.npz") as test, np.load(f"{DIGITS}/calibration.npz") as calibration:
        training = training_data(test)
        tested = torch.tensor(test["image"]), torch.tensor(test["label"])
        task = Task(Digits, Digits(Layers()), training, tested, calibration["image"], 64, 2e-3)
    path = folder / "float.pt"
    if not path.exists():
        torch.manual_seed(0)
        net = Digits(Layers())
        train(task, net, net.parameters(), FLOAT_EPOCHS)
        torch.save(net.state_dict(), path)
    task.net.load_state_dict(torch.load(path, weights_only=True))
    return task


def resnet(_: Path) -> Task:
    """MLPerf Tiny's trained ResNet-8, cuts of photographs, and its own decisions on them as labels."""
    model = planner.load_model(model_folder() / "mlperf-tiny" / "pretrainedResnet.onnx")
    arrays = [
        torch.tensor(np.array(model.constants[name].array))
        for op in model.ops
        if op.type in ("Conv", "Gemm")
        for name in op.inputs[1:]
    ]
    net = Resnet(Layers())
    # Both list stem, blocks, linear layer; in a block first, second, skip.
    with torch.no_grad():
        for parameter, array in zip(net.parameters(), arrays, strict=True):
            parameter.copy_(array)
        net.stem.weight *= (
            255.0  # of pixels from 0 to 1, so that one rate of learning is right for all weights
        )
    images = {name: torch.tensor(cuts(count, held_out=name == "test")) for name, count in CUTS.items()}
    with torch.no_grad():
        scores = {name: torch.softmax(net(part), 1) for name, part in images.items()}
    training, tested = images["training"], (images["test"], scores["test"].argmax(1))
    return Task(Resnet, net, (training, scores["training"]), tested, training[:128].numpy(), 32, 3e-4)


def cuts(count: int, *, held_out: bool) -> Any:
    """Squares of photographs, some mirrored, brought to 32 by 32 pixels; held out: of their right halves."""
    with np.load(model_folder() / "vision" / "photos_240x320_u8_nhwc.npz") as archive:
        photos = archive["photos"]
    random = np.random.default_rng([SEED, held_out])
    middle = photos.shape[2] // 2
    halves = photos[:, :, middle:] if held_out else photos[:, :, :middle]
    found = []
    for i in range(count):
        photo = halves[i % len(halves)]
        height, width, _ = photo.shape
        side = random.integers(LEAST_SIDE, min(height, width) + 1)
        top, left = random.integers(height - side + 1), random.integers(width - side + 1)
        cut = photo[top : top + side, left : left + side]
        found.append(resize(cut[:, ::-1] if random.random() < 0.5 else cut, 32, 32))
    return np.ascontiguousarray(np.stack(found).transpose(0, 3, 1, 2)) / np.float32(255)


TASKS: Final = {"digits": digits, "resnet": resnet}


def train(task: Task, module: Any, parameters: Any, epochs: int) -> float:
    """Train with Adam and a rate that falls to 0; seconds of the processor."""
    images, labels = task.training
    optimizer = torch.optim.Adam(parameters, task.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    start = time.process_time()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(task.batch):
            if len(batch) < task.batch:
                continue  # an exported program has one size of batch
            loss = functional.cross_entropy(module(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return time.process_time() - start


def exported(task: Task, net: Any) -> Any:
    """The network as a program with an open batch."""
    sizes = ({0: torch.export.Dim("n", min=2, max=1024)},)
    return torch.export.export(net, (task.sample,), dynamic_shapes=sizes)


def of_plan(task: Task, model: Any, device: str) -> dict[str, Any]:
    """Plan a model: accuracy in percent of the test images, rescales, price, kernels in float."""
    images, labels = (part.numpy() for part in task.test)
    plan = planner.plan(model, device)
    scores = planner.evaluate(model, plan, {model.inputs[0]: images}).outputs[model.outputs[0]]
    right = 100 * float(np.mean(scores.argmax(1) == labels))
    floats = sum(kernel.row is None for kernel in plan.kernels_in_order)
    return {"right": right, "floats": floats, **figures(plan)}


def calibrated(task: Task, model: Any, annotations: Any = None) -> Any:
    """A model with ranges of the calibration images."""
    stats = planner.calibrate(model, {model.inputs[0]: task.calibration})
    return planner.annotate(model, stats=stats, annotations=annotations)


def right_of(task: Task, module: Any) -> float:
    """Accuracy of a module of PyTorch in percent of the test images."""
    images, labels = task.test
    with torch.no_grad():
        parts = [module(part) for part in images.split(50)]
    return 100 * float((torch.cat(parts).argmax(1) == labels).float().mean())


@cache
def after_calibration(task: Task, bits: int, device: str) -> tuple[Any, dict[str, Any]]:
    """The model of so many bits with its ranges, and the figures of its plan."""
    narrow = {"format": "qplan.annotations/1", "values": {"*.weight": f"!quant.any<i{bits}>"}}
    ready = calibrated(task, planner.load_model(exported(task, task.net.eval())), narrow)
    return ready, of_plan(task, ready, device)


def ours(task: Task, bits: int, epochs: int, device: str) -> dict[str, Any]:
    """Train under the plan of the device."""
    ready, before = after_calibration(task, bits, device)
    module = planner.torch.fake_quantized(ready, planner.plan(ready, device))
    module.fit_weights(torch.tensor(task.calibration))
    seconds = train(task, module, module.parameters(), epochs)
    found = of_plan(task, planner.with_learned(ready, module), device)
    return {"before": before, "torch": right_of(task, module), "seconds": seconds} | found


def torchao(task: Task, bits: int, epochs: int) -> Any:
    """Train by PT2E with XNNPACK's quantizer; the quantized program as a model, and its accuracy."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    most = (1 << bits - 1) - 1
    config = get_symmetric_quantization_config(
        is_per_channel=True, is_qat=True, weight_qmin=-most, weight_qmax=most
    )
    program = exported(task, copy.deepcopy(task.net).train())
    prepared = prepare_qat_pt2e(program.module(), XNNPACKQuantizer().set_global(config))
    seconds = train(task, prepared, prepared.parameters(), epochs)
    move_exported_model_to_eval(prepared)
    converted = convert_pt2e(prepared)
    return planner.load_model(exported(task, converted)), right_of(task, converted), seconds


def brevitas(task: Task, bits: int, epochs: int) -> Any:
    """Train with Brevitas's layers and their default quantizers; the QONNX file as a model."""
    import brevitas.nn as qnn
    from brevitas.export import export_qonnx

    def conv(*sizes: int, **more: Any) -> Any:
        return qnn.QuantConv2d(*sizes, weight_bit_width=bits, **more)

    def linear(*sizes: int) -> Any:
        return qnn.QuantLinear(*sizes, bias=True, weight_bit_width=bits)

    def identity() -> Any:
        return qnn.QuantIdentity(bit_width=ACTIVATIONS)

    module = task.kind(Layers(conv, linear, lambda: qnn.QuantReLU(bit_width=ACTIVATIONS), identity, identity))
    module.load_state_dict(task.net.state_dict(), strict=False)
    seconds = train(task, module.train(), module.parameters(), epochs)
    module.eval()
    right = right_of(task, module)
    path = Path("out") / "brevitas.onnx"
    path.parent.mkdir(exist_ok=True)
    axes = {"x": {0: "n"}}
    export_qonnx(module, task.sample[:1], str(path), input_names=["x"], dynamic_axes=axes)
    return planner.load_model(path), right, seconds


def main(network: str, road: str, task: Task, epochs: int, jobs: list[tuple[int, int]]) -> None:
    """Run every pair of a width and a seed."""
    for bits, seed in jobs:
        torch.manual_seed(seed)
        if road == "ours":
            found = {device: ours(task, bits, epochs, device) for device in DEVICES}
        else:
            model, right, seconds = {"brevitas": brevitas, "torchao": torchao}[road](task, bits, epochs)
            ready = calibrated(task, model)
            trained = {"torch": right, "seconds": seconds}
            found = {device: of_plan(task, ready, device) | trained for device in DEVICES}
        line = {"network": network, "road": road, "bits": bits, "seed": seed, "found": found}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    net, name, place, count, *pairs = sys.argv[1:]
    bits_and_seeds = [(int(bits), int(seed)) for bits, _, seed in (pair.partition(":") for pair in pairs)]
    main(net, name, TASKS[net](Path(place)), int(count), bits_and_seeds)
