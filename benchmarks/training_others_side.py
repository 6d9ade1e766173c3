"""Train a network by one road, and plan the result; prints a line of JSON a run.

Run by `benchmarks.training_others` as `python -P benchmarks/training_others_side.py NETWORK ROAD FOLDER
EPOCHS RATES BITS...`, in the environment that has the road: `ours` and `torchao` in ExecuTorch's,
`brevitas` in its own. Every run starts from one float network: `digits` is trained once, into FOLDER,
`resnet` a file. The first seed tries every rate; the one with the most right answers on the images for
choosing, the first of equals, is that of the other seeds too. The test images are looked at last.
"""

import copy
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
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
FLOAT_EPOCHS = 60
DEVICES = ("finn-fpga",)
SEEDS = (0, 1, 2)
ACTIVATIONS = 8
"""Bits of all activations; weights have those of the run."""
CHOOSING: Final = 270
"""Digits that choose a rate; the others of the training data train."""
CUTS: Final = {"training": 512, "choosing": 200, "test": 400}
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
class Road:
    """A module to train, and what becomes of it.

    Attributes:
      parameters: for an optimizer, at a rate.
      finish: the trained module as it is deployed, in PyTorch, and as a model to plan.
    """

    module: Any
    parameters: Callable[[float], Any]
    finish: Callable[[], tuple[Any, Callable[[], Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A float network with its images, and how it is trained.

    Attributes:
      kind: makes the network of a road's layers.
      net: the float network.
      training: images, and labels or probabilities.
      choosing, test: images and labels.
    """

    kind: Callable[[Layers], Any]
    net: Any
    training: tuple[Any, Any]
    choosing: tuple[Any, Any]
    test: tuple[Any, Any]
    calibration: Any
    batch: int

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
        images, labels = training_data(test)
        tested = torch.tensor(test["image"]), torch.tensor(test["label"])
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
        parts = [(images[some], labels[some]) for some in (order[CHOOSING:], order[:CHOOSING])]
        task = Task(Digits, Digits(Layers()), *parts, tested, calibration["image"], 64)
    path = folder / "float.pt"
    if not path.exists():
        torch.manual_seed(0)
        net = Digits(Layers())
        train(task, net, net.parameters(), FLOAT_EPOCHS, 2e-3)
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
    images = {name: torch.tensor(cuts(name, count)) for name, count in CUTS.items()}
    with torch.no_grad():
        scores = {name: torch.softmax(net(part), 1) for name, part in images.items()}
    training = images["training"]
    others = [(images[name], scores[name].argmax(1)) for name in ("choosing", "test")]
    return Task(Resnet, net, (training, scores["training"]), *others, training[:128].numpy(), 32)


def cuts(name: str, count: int) -> Any:
    """Squares of photographs, some mirrored, brought to 32 by 32 pixels.

    Those for training are from left halves, for choosing from the upper right, for the test from the lower.
    """
    with np.load(model_folder() / "vision" / "photos_240x320_u8_nhwc.npz") as archive:
        photos = archive["photos"]
    random = np.random.default_rng([SEED, [*CUTS].index(name)])
    halfway, middle = photos.shape[1] // 2, photos.shape[2] // 2
    rows = {"training": slice(None), "choosing": slice(halfway), "test": slice(halfway, None)}[name]
    parts = photos[:, rows, :middle] if name == "training" else photos[:, rows, middle:]
    found = []
    for i in range(count):
        photo = parts[i % len(parts)]
        height, width, _ = photo.shape
        side = random.integers(LEAST_SIDE, min(height, width) + 1)
        top, left = random.integers(height - side + 1), random.integers(width - side + 1)
        cut = photo[top : top + side, left : left + side]
        found.append(resize(cut[:, ::-1] if random.random() < 0.5 else cut, 32, 32))
    return np.ascontiguousarray(np.stack(found).transpose(0, 3, 1, 2)) / np.float32(255)


TASKS: Final = {"digits": digits, "resnet": resnet}


def train(task: Task, module: Any, parameters: Any, epochs: int, rate: float) -> float:
    """Train with Adam and a rate that falls to 0; seconds of the processor."""
    images, labels = task.training
    optimizer = torch.optim.Adam(parameters, rate)
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


def right_of(data: tuple[Any, Any], module: Any) -> float:
    """Accuracy of a module of PyTorch in percent of images."""
    images, labels = data
    with torch.no_grad():
        parts = [module(part) for part in images.split(50)]
    return 100 * float((torch.cat(parts).argmax(1) == labels).float().mean())


@cache
def after_calibration(task: Task, bits: int, device: str) -> tuple[Any, Any]:
    """The model of so many bits with its ranges, and its plan."""
    narrow = {"format": "qplan.annotations/1", "values": {"*.weight": f"!quant.any<i{bits}>"}}
    ready = calibrated(task, planner.load_model(exported(task, task.net.eval())), narrow)
    return ready, planner.plan(ready, device)


def ours(task: Task, bits: int, device: str) -> Road:
    """Training under the plan of the device."""
    ready, plan = after_calibration(task, bits, device)
    module = planner.torch.fake_quantized(ready, plan)
    module.fit_weights(torch.tensor(task.calibration))
    return Road(
        module,
        lambda rate: planner.torch.parameter_groups(module, rate),
        lambda: (module, lambda: planner.with_learned(ready, module)),
    )


def torchao(task: Task, bits: int, _: str) -> Road:
    """Training by PT2E with XNNPACK's quantizer."""
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

    def finish() -> Any:
        move_exported_model_to_eval(prepared)
        converted = convert_pt2e(prepared)
        return converted, lambda: calibrated(task, planner.load_model(exported(task, converted)))

    return Road(prepared, lambda _: prepared.parameters(), finish)


def brevitas(task: Task, bits: int, _: str) -> Road:
    """Training with Brevitas's layers and their default quantizers; the QONNX file is the model."""
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

    def model() -> Any:
        path = Path("out") / "brevitas.onnx"
        path.parent.mkdir(exist_ok=True)
        axes = {"x": {0: "n"}}
        export_qonnx(module, task.sample[:1], str(path), input_names=["x"], dynamic_axes=axes)
        return calibrated(task, planner.load_model(path))

    return Road(module.train(), lambda _: module.parameters(), lambda: (module.eval(), model))


ROADS: Final = {"brevitas": brevitas, "ours": ours, "torchao": torchao}


def runs(names: tuple[str, str], task: Task, epochs: int, rates: Sequence[float], bits: int) -> None:
    """Run every seed with one width on every device; print a line for each run.

    Args:
      names: of network and road.
    """
    network, road = names
    for device in DEVICES:
        chosen: Sequence[float] = rates
        for seed in SEEDS:
            tried = []
            for rate in chosen:
                torch.manual_seed(seed)
                one = ROADS[road](task, bits, device)
                seconds = train(task, one.module, one.parameters(rate), epochs, rate)
                deployed, model = one.finish()
                tried.append((right_of(task.choosing, deployed), rate, seconds, deployed, model))
            _, rate, seconds, deployed, model = max(tried, key=lambda each: each[0])
            chosen = (rate,)
            found = {"torch": right_of(task.test, deployed), "seconds": seconds, "rate": rate}
            found |= {"choosing": {str(each[1]): each[0] for each in tried}}
            found |= of_plan(task, model(), device)
            if road == "ours":
                found["before"] = of_plan(task, after_calibration(task, bits, device)[0], device)
            line = {"network": network, "road": road, "bits": bits, "seed": seed, "found": {device: found}}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    net, name, place, count, tried_rates, *widths = sys.argv[1:]
    rates_tried = [float(rate) for rate in tried_rates.split(",")]
    job = TASKS[net](Path(place))
    for width in widths:
        runs((net, name), job, int(count), rates_tried, int(width))
