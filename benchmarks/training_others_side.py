"""Train a small convnet on the digits by one road, and plan the result; prints a line of JSON a run.

Run by `benchmarks.training_others` as `python -P benchmarks/training_others_side.py ROAD FOLDER EPOCHS WIDTHS
SEEDS`, in the environment that has the road: `ours` and `torchao` in ExecuTorch's, `brevitas` in its own. The
float network is trained once, into FOLDER, and every run starts from it.
"""

import copy
import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import planner
import planner.torch
from benchmarks.training_side import figures, training_data

DIGITS = "examples/digits"
BATCH, RATE, FLOAT_EPOCHS = 64, 2e-3, 20
DEVICES = ("finn-fpga",)
ACTIVATIONS = 8
"""Bits of all activations; weights have those of the run."""


class Net(nn.Module):
    """Two convolutions and a linear layer, with layers of a kind given by the road."""

    def __init__(self, conv: Any = nn.Conv2d, linear: Any = nn.Linear, relu: Any = nn.ReLU) -> None:
        """Make its layers."""
        super().__init__()
        self.a, self.b = conv(1, 8, 3, padding=1), conv(8, 16, 3, padding=1)
        self.f, self.relu_a, self.relu_b = linear(64, 10), relu(), relu()

    def forward(self, x: Any) -> Any:
        """Compute the scores."""
        x = torch.max_pool2d(self.relu_a(self.a(x)), 2)
        x = torch.max_pool2d(self.relu_b(self.b(x)), 2)
        return self.f(torch.flatten(x, 1))


def train(module: Any, parameters: Any, epochs: int) -> float:
    """Train with Adam and a rate that falls to 0; seconds of the processor."""
    images, labels = training_data(np.load(f"{DIGITS}/test.npz"))
    optimizer = torch.optim.Adam(parameters, RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    start = time.process_time()
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            if len(batch) < BATCH:
                continue  # an exported program has one size of batch
            loss = functional.cross_entropy(module(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return time.process_time() - start


def float_net(folder: Path) -> Net:
    """The network that every run starts from."""
    path, net = folder / "float.pt", Net()
    if not path.exists():
        torch.manual_seed(0)
        net = Net()
        train(net, net.parameters(), FLOAT_EPOCHS)
        torch.save(net.state_dict(), path)
    net.load_state_dict(torch.load(path, weights_only=True))
    return net


def exported(net: Any) -> Any:
    """The network as ONNX reads it, with an open batch."""
    sizes = ({0: torch.export.Dim("n", min=2, max=1024)},)
    return planner.load_model(
        torch.export.export(net.eval(), (torch.zeros(4, 1, 8, 8),), dynamic_shapes=sizes)
    )


def of_plan(model: Any, device: str) -> dict[str, Any]:
    """Plan a model: accuracy in percent of the 450 test images, rescales, price, kernels in float."""
    test = np.load(f"{DIGITS}/test.npz")
    plan = planner.plan(model, device)
    scores = planner.evaluate(model, plan, {model.inputs[0]: test["image"]}).outputs[model.outputs[0]]
    right = 100 * float(np.mean(scores.argmax(1) == test["label"]))
    floats = sum(kernel.row is None for kernel in plan.kernels_in_order)
    return {"right": right, "floats": floats, **figures(plan)}


def calibrated(model: Any, annotations: Any = None) -> Any:
    """A model with ranges of the calibration images."""
    images = np.load(f"{DIGITS}/calibration.npz")["image"]
    stats = planner.calibrate(model, {model.inputs[0]: images})
    return planner.annotate(model, stats=stats, annotations=annotations)


def right_of(module: Any) -> float:
    """Accuracy of a module of PyTorch in percent of the test images."""
    test = np.load(f"{DIGITS}/test.npz")
    with torch.no_grad():
        parts = [module(part) for part in torch.tensor(test["image"]).split(50)]
    return 100 * float(np.mean(torch.cat(parts).argmax(1).numpy() == test["label"]))


def ours(net: Net, bits: int, epochs: int, device: str) -> dict[str, Any]:
    """Train under the plan of the device."""
    narrow = {"format": "qplan.annotations/1", "values": {"*.weight": f"!quant.any<i{bits}>"}}
    ready = calibrated(exported(net), narrow)
    plan = planner.plan(ready, device)
    module = planner.torch.fake_quantized(ready, plan)
    groups = [{"params": module.weights(), "lr": RATE}, {"params": module.scales(), "lr": 5 * RATE}]
    seconds = train(module, groups, epochs)
    before = of_plan(ready, device)
    return {"before": before, "torch": right_of(module), "seconds": seconds} | of_plan(
        planner.with_learned(ready, module), device
    )


def torchao(net: Net, bits: int, epochs: int) -> Any:
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
    sizes = ({0: torch.export.Dim("n", min=2, max=1024)},)
    program = torch.export.export(net.train(), (torch.zeros(4, 1, 8, 8),), dynamic_shapes=sizes)
    prepared = prepare_qat_pt2e(program.module(), XNNPACKQuantizer().set_global(config))
    seconds = train(prepared, prepared.parameters(), epochs)
    move_exported_model_to_eval(prepared)
    converted = convert_pt2e(prepared)
    found = torch.export.export(converted, (torch.zeros(4, 1, 8, 8),), dynamic_shapes=sizes)
    return planner.load_model(found), right_of(converted), seconds


def brevitas(net: Net, bits: int, epochs: int) -> Any:
    """Train with Brevitas's layers and their default quantizers; the QONNX file as a model."""
    import brevitas.nn as qnn
    from brevitas.export import export_qonnx

    def conv(*sizes: int, **more: Any) -> Any:
        return qnn.QuantConv2d(*sizes, weight_bit_width=bits, **more)

    def linear(*sizes: int) -> Any:
        return qnn.QuantLinear(*sizes, bias=True, weight_bit_width=bits)

    class Whole(Net):
        def __init__(self) -> None:
            super().__init__(conv, linear, lambda: qnn.QuantReLU(bit_width=ACTIVATIONS))
            self.image = qnn.QuantIdentity(bit_width=ACTIVATIONS)

        def forward(self, x: Any) -> Any:
            return super().forward(self.image(x))

    module = Whole()
    module.load_state_dict(net.state_dict(), strict=False)
    seconds = train(module.train(), module.parameters(), epochs)
    module.eval()
    right = right_of(module)
    path = Path("out") / "brevitas.onnx"
    path.parent.mkdir(exist_ok=True)
    export_qonnx(module, torch.zeros(1, 1, 8, 8), str(path), input_names=["x"], dynamic_axes={"x": {0: "n"}})
    return planner.load_model(path), right, seconds


def main(road: str, folder: Path, epochs: int, widths: list[int], seeds: list[int]) -> None:
    """Run every width and seed."""
    start = float_net(folder)
    for bits in widths:
        for seed in seeds:
            torch.manual_seed(seed)
            if road == "ours":
                found = {device: ours(copy.deepcopy(start), bits, epochs, device) for device in DEVICES}
            else:
                by = {"brevitas": brevitas, "torchao": torchao}[road]
                model, right, seconds = by(copy.deepcopy(start), bits, epochs)
                ready = calibrated(model)
                found = {
                    device: of_plan(ready, device) | {"torch": right, "seconds": seconds}
                    for device in DEVICES
                }
            print(json.dumps({"road": road, "bits": bits, "seed": seed, "found": found}), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    name, place, count, *lists = sys.argv[1:]
    main(name, Path(place), int(count), *([int(n) for n in text.split(",")] for text in lists))
