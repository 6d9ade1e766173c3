"""A ResNet or a transformer from PyTorch, quantized: trained on digits, exported, planned, compared.

Usage: `python examples/from_pytorch.py export resnet MODEL.onnx` (or `transformer`) where PyTorch and
onnxscript are installed; `python examples/from_pytorch.py quantize MODEL.onnx [TARGET] [OUT.onnx]` where the
planner is. Neither needs the other. For a network of yours, keep the call of `torch.onnx.export`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = Path(__file__).resolve().parent / "digits"
TRAINED, STEPS, RATE = 350, 100, 0.005
"""Number of labelled images to train on (the others evaluate), steps, and learning rate."""


def images(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 `(n, 1, 8, 8)` of a shipped file, and their labels, -1 where it has none."""
    with np.load(DIGITS / name) as archive:
        return archive["image"], archive.get("label", np.full(len(archive["image"]), -1))


def resnet() -> Any:
    """Build a small ResNet: a stem, four residual blocks in two stages, a linear classifier."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels: int, out: int) -> None:
            super().__init__()
            stride = out // channels
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.skip = nn.Conv2d(channels, out, 1, stride) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            y = self.bn1(self.conv1(x)).relu()
            return (self.bn2(self.conv2(y)) + self.skip(x)).relu()

    stem = (nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
    stages = (nn.Sequential(Block(16, 16), Block(16, 16)), nn.Sequential(Block(16, 32), Block(32, 32)))
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def transformer() -> Any:
    """Build a small vision transformer: a token for each row of pixels, four encoder layers, a classifier."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self, wide: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
            self.query, self.key, self.value, self.out = (nn.Linear(wide, wide) for _ in range(4))
            self.mlp = nn.Sequential(nn.Linear(wide, 2 * wide), nn.GELU(), nn.Linear(2 * wide, wide))

        def forward(self, x: Any) -> Any:
            y = self.norm1(x)
            scores = self.query(y) @ self.key(y).transpose(1, 2) / x.shape[-1] ** 0.5
            x = x + self.out(torch.softmax(scores, -1) @ self.value(y))
            return x + self.mlp(self.norm2(x))

    class Transformer(nn.Module):
        def __init__(self, wide: int = 32) -> None:
            super().__init__()
            self.embed = nn.Linear(8, wide)
            self.place = nn.Parameter(torch.zeros(1, 8, wide))
            self.layers = nn.ModuleList(Layer(wide) for _ in range(4))
            self.head = nn.Linear(wide, 10)

        def forward(self, x: Any) -> Any:
            x = self.embed(x.flatten(1, 2)) + self.place
            for layer in self.layers:
                x = layer(x)
            return self.head(x.mean(1))

    return Transformer()


NETWORKS = {"resnet": resnet, "transformer": transformer}


def export(network: str, path: str) -> None:
    """Train a network and write it as ONNX, with a batch of one, as a device runs it."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)  # so small a network gains nothing from more
    model = NETWORKS[network]()
    found, label = images("test.npz")
    x, y = torch.from_numpy(found), torch.from_numpy(label)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[:TRAINED]), y[:TRAINED]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(x[TRAINED:]).argmax(1) == y[TRAINED:]).double().mean()
    print(f"trained in PyTorch: {100 * right:.1f} % of {len(x) - TRAINED} images right")
    torch.onnx.export(
        model, (x[:1],), path, input_names=["image"], dynamo=True, external_data=False, verbose=False
    )


def quantize(path: str, target: str = "litert-int8", out: str = "") -> None:
    """Quantize a model for a target; evaluate the file on the images that were not trained on."""
    import planner

    calibration, _ = images("calibration.npz")
    found, label = images("test.npz")
    held_out = {"image": found[TRAINED:], "label": label[TRAINED:]}
    done = planner.quantize(path, {"image": calibration}, target=target, eval_samples=held_out)
    print(f"verdict: {done.verdict}")
    kernels = done.plan.kernels_in_order
    print(f"{sum(kernel.row is not None for kernel in kernels)} of {len(kernels)} kernels quantized")
    for reason in sorted({f"{kernel.kernel}: {kernel.reason}" for kernel in kernels if kernel.reason}):
        print(f"  in float, {reason}")
    if out:
        done.save(out)
        report = Path(out).with_suffix(".html")
        report.write_text(planner.write_report(done.plan, {done.format: done.comparison}), encoding="utf-8")
        print(f"{out} and {report} are written")


if __name__ == "__main__":
    {"export": export, "quantize": quantize}[sys.argv[1]](*sys.argv[2:])
