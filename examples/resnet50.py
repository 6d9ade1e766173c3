"""Write ResNet-50's topology with an eighth of its channels and random weights, and samples for it.

python examples/resnet50.py FOLDER

It has every layer (53 convolutions, 16 additions) and no meaningful weights.
For docs/targets/tutorial.md.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKS = (3, 4, 6, 3)
WIDTH = 8
SIZE = 64
CLASSES = 10


class Net:
    """Nodes and weights so far."""

    def __init__(self) -> None:
        """Begin with nothing; the same weights every time."""
        self.rng = np.random.default_rng(50)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int) -> str:
        """Add weights that keep the size of what goes through them."""
        spread = np.sqrt(2 / np.prod(shape[1:]))
        array = self.rng.normal(0, spread, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, name: str, *inputs: str, **attributes: object) -> str:
        """Add an op; its result is named as it is."""
        self.nodes.append(helper.make_node(kind, [*inputs], [name], name, **attributes))
        return name

    def conv(self, name: str, x: str, channels: tuple[int, int], kernel: int = 1, stride: int = 1) -> str:
        """Add a convolution with bias, of (in, out) channels."""
        w = self.weight(f"{name}_w", channels[1], channels[0], kernel, kernel)
        self.weights.append(numpy_helper.from_array(np.zeros(channels[1], np.float32), f"{name}_b"))
        pads = [kernel // 2] * 4
        return self.op(
            "Conv", name, x, w, f"{name}_b", kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads
        )

    def block(self, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
        """Add a bottleneck: three convolutions beside the skip, which is a convolution where sizes change."""
        before, after = channels
        inner = after // 4
        y = self.op("Relu", f"{name}_relu1", self.conv(f"{name}_conv1", x, (before, inner)))
        y = self.op("Relu", f"{name}_relu2", self.conv(f"{name}_conv2", y, (inner, inner), 3, stride))
        y = self.conv(f"{name}_conv3", y, (inner, after))
        skip = x if before == after and stride == 1 else self.conv(f"{name}_skip", x, channels, 1, stride)
        return self.op("Relu", f"{name}_out", self.op("Add", f"{name}_add", y, skip))


def build() -> onnx.ModelProto:
    """The whole network, ONNX."""
    net = Net()
    x = net.op("Relu", "stem_relu", net.conv("stem", "image", (3, WIDTH), 7, 2))
    x = net.op("MaxPool", "stem_pool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = WIDTH
    for stage, count in enumerate(BLOCKS):
        for i in range(count):
            after = WIDTH * 4 << stage
            x = net.block(f"s{stage + 1}b{i + 1}", x, (channels, after), 2 if stage and not i else 1)
            channels = after
    x = net.op("Flatten", "flat", net.op("GlobalAveragePool", "pool", x))
    net.weight("fc_w", channels, CLASSES)
    net.weights.append(numpy_helper.from_array(np.zeros(CLASSES, np.float32), "fc_b"))
    y = net.op("Gemm", "logits", x, "fc_w", "fc_b")
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])
    logits = helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, CLASSES])
    graph = helper.make_graph(net.nodes, "resnet50", [image], [logits], net.weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def main(folder: Path) -> None:
    """Write resnet50.onnx and samples.npz."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(build(), folder / "resnet50.onnx")
    images = np.random.default_rng(0).uniform(0, 1, (4, 3, SIZE, SIZE)).astype(np.float32)
    np.savez(folder / "samples.npz", image=images)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
