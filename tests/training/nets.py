"""Small networks for the digits: a plain one, one with a residual, concat and softmax, a MobileNet."""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Plain(nn.Module):
    """Convolutions, pools and a linear layer."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.f = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        """Compute the scores of images of 8 by 8."""
        x = torch.max_pool2d(torch.relu(self.a(x)), 2)
        x = torch.max_pool2d(torch.relu(self.b(x)), 2)
        return self.f(torch.flatten(x, 1))


class Residual(nn.Module):
    """BatchNorm, a sum, a depthwise convolution, a concat whose parts are tied, a softmax."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.stem, self.norm0 = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.depthwise, self.pointwise = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1)
        self.f = nn.Linear(24, 10)

    def forward(self, x: Any) -> Any:
        """Compute probabilities."""
        x = torch.relu(self.norm0(self.stem(x)))
        x = torch.max_pool2d(torch.relu(self.norm1(self.conv(x)) + x), 2)
        y = self.pointwise(functional.relu6(self.depthwise(x)))
        y = functional.adaptive_avg_pool2d(torch.cat([y, x], 1), 1)
        return torch.softmax(self.f(torch.flatten(y, 1)), 1)


class Inverted(nn.Module):
    """A block of MobileNetV2: wider, depthwise, narrower, and the sum where the size stays."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        """Make its layers."""
        super().__init__()
        wide = 3 * channels
        layers = [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide)]
        layers += [nn.ReLU6(), nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.layers, self.stays = nn.Sequential(*layers), channels == out and stride == 1

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.layers(x) if self.stays else self.layers(x)


class Mobile(nn.Module):
    """A stem, two inverted residuals, a linear layer."""

    def __init__(self) -> None:
        """Make its layers."""
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.blocks = nn.Sequential(Inverted(8, 8, 1), Inverted(8, 16, 2))
        self.f = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        """Compute the scores."""
        x = functional.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1)
        return self.f(torch.flatten(x, 1))


NETS = {"plain": Plain, "residual": Residual, "mobile": Mobile}


def digits(folder: str = "examples/digits") -> tuple[Any, Any]:
    """Images and labels of the shipped file."""
    with np.load(f"{folder}/test.npz") as archive:
        return torch.tensor(archive["image"]), torch.tensor(archive["label"])


def fitted(name: str, steps: int = 40) -> Any:
    """A network after some steps on the digits, ready to export."""
    torch.manual_seed(3)
    net, (images, labels) = NETS[name](), digits()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(steps):
        batch = torch.arange(step * 64, step * 64 + 64) % len(labels)
        loss = loss_of(net(images[batch]), labels[batch], name)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def loss_of(outputs: Any, labels: Any, name: str) -> Any:
    """The loss of scores, or of probabilities."""
    if name == "residual":
        return functional.nll_loss(torch.log(outputs + 1e-6), labels)
    return functional.cross_entropy(outputs, labels)
