"""Cost: the paper's table III, qonnx's own count, and ops that neither counts."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.costs import MODES, cost_of
from planner.errors import UnknownName
from planner.formats.onnx.read import read_written
from tests.conversion.files import GENERAL, file_of, quant_node
from tests.oracles.executor import ask

# QONNX paper, table III: multiply-accumulates, bit operations, weights, weight bits.
TABLE_III = {
    "MobileNet-w4a4": (557_381_408, 74_070_028_288, 4_208_224, 16_839_808),
    "CNV-w1a1": (57_906_176, 107_672_576, 1_542_848, 1_542_848),
    "CNV-w1a2": (57_906_176, 165_578_752, 1_542_848, 1_542_848),
    "CNV-w2a2": (57_906_176, 331_157_504, 1_542_848, 3_085_696),
    "TFC-w1a1": (59_008, 59_008, 59_008, 59_008),
    "TFC-w1a2": (59_008, 118_016, 59_008, 59_008),
    "TFC-w2a2": (59_008, 236_032, 59_008, 118_016),
}
TFC = ("TFC_1W1A", "TFC_1W2A", "TFC_2W2A")
COUNTED_BY_QONNX = (*TFC, "bnn_model_fc_1layer", "espcn_subpixel_quant", "kwsmlp_w3a3",
                    "qkeras_jettagging", "unsw_nb15-mlp-w2a2")  # fmt: skip


class Net:
    """A QONNX file of convolutions and products, written layer by layer; its weights are zeros."""

    def __init__(self, sizes):
        self.nodes, self.arrays, self.inputs = [], {}, {"x": (TensorProto.FLOAT, sizes)}
        self.last = "x"

    def add(self, kind, *more, **attributes):
        """Append an op on the last result."""
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.last, *more], [result], result, **attributes))
        self.last = result

    def quant(self, bits, scale, source=None):
        """Quantize the last result, or a weight."""
        name = f"q{len(self.nodes)}"
        if bits == 1:
            self.arrays[f"{name}_scale"] = np.asarray(scale, np.float32)
            inputs = [source or self.last, f"{name}_scale"]
            node = helper.make_node("BipolarQuant", inputs, [name], name, domain=GENERAL)
        else:
            node, arrays = quant_node(name, source or self.last, scale=scale, zero_point=0.0, bits=bits)
            self.arrays |= arrays
        self.nodes.append(node)
        if source is None:
            self.last = name
        return name

    def linear(self, kind, shape, bits, scale, **attributes):
        """Append a product with a quantized weight."""
        weight = f"w{len(self.nodes)}"
        self.arrays[weight] = np.zeros(shape, np.float32)
        self.add(kind, self.quant(bits, scale, weight), **attributes)

    def file(self):
        """The bytes of the model."""
        return file_of(self.nodes, self.inputs, [self.last], self.arrays)


def cnv(w, a):
    """FINN's VGG-like net for CIFAR-10: activations of scale 1 but for the picture, weights scaled."""
    net = Net([1, 3, 32, 32])
    net.quant(8, 1 / 128)
    for i, (wide, more) in enumerate([(3, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256)]):
        net.linear("Conv", (more, wide, 3, 3), w, 0.5, kernel_shape=[3, 3])
        net.quant(a, 1.0)
        if i in (1, 3):
            net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    net.add("Flatten")
    for wide, more in ((256, 512), (512, 512), (512, 10)):
        net.linear("MatMul", (wide, more), w, 0.5)
        net.quant(a, 1.0)
    return net.file()


def mobilenet():
    """MobileNetV1 in 4 bits: first layer of 8 bits and without padding, all activations scaled."""
    net, wide = Net([1, 3, 224, 224]), 32
    net.linear("Conv", (32, 3, 3, 3), 8, 0.5, kernel_shape=[3, 3], strides=[2, 2])
    net.quant(4, 0.25)
    steps = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for more, stride in steps:
        depthwise = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1] * 4, "group": wide}
        net.linear("Conv", (wide, 1, 3, 3), 4, 0.5, **depthwise)
        net.quant(4, 0.25)
        net.linear("Conv", (more, wide, 1, 1), 4, 0.5, kernel_shape=[1, 1])
        net.quant(4, 0.25)
        wide = more
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.quant(4, 0.25)
    net.linear("MatMul", (1024, 1000), 4, 0.5)
    return net.file()


@pytest.mark.parametrize("name", TABLE_III)
def test_rows_of_the_papers_table(models, name):
    """The files of TFC, and nets of the shapes and widths of the others, which are too large to keep."""
    kind, _, widths = name.partition("-")
    w, a = int(widths[1]), int(widths[3])
    sources = {"CNV": lambda: cnv(w, a), "MobileNet": mobilenet}
    source = sources.get(kind, lambda: models / "qonnx" / f"TFC_{w}W{a}A.onnx")()
    found = cost_of(read_written(source), "table3")
    assert (found.main_macs, found.bops, found.main_weights, found.weight_bits) == TABLE_III[name]
    first = {"CNV": 1_555_200, "MobileNet": 10_645_344}.get(kind, 0)
    assert found.macs == found.main_macs + first


def test_the_qonnx_mode_counts_as_qonnx_does(models, tmp_path):
    paths = [models / "qonnx" / f"{name}.onnx" for name in COUNTED_BY_QONNX]
    answers = ask(tmp_path, [{"cost": str(path)} for path in paths])
    for path, answer in zip(paths, answers, strict=True):
        found = cost_of(read_written(path))
        ours = {"macs": found.macs, "bops": found.bops, "weight_bits": found.weight_bits}
        assert ours == {key: float(array) for key, array in answer.items()}, path.name


def layer(node, inputs, arrays, mode="qonnx"):
    data = file_of([node], inputs, [node.output[0]], arrays)
    (found,) = [item for item in cost_of(read_written(data), mode).layers if item.macs]
    return found


@pytest.mark.parametrize(
    ("kind", "attributes", "shape", "weight", "macs"),
    [
        ("Conv", {"kernel_shape": [3, 3]}, (1, 4, 8, 8), (6, 4, 3, 3), 6 * 36 * 36),
        ("Conv", {"kernel_shape": [3, 3], "group": 4}, (1, 4, 8, 8), (4, 1, 3, 3), 4 * 36 * 9),
        ("ConvTranspose", {"kernel_shape": [2, 2]}, (1, 4, 8, 8), (4, 6, 2, 2), 4 * 64 * 24),
        ("MatMul", {}, (5, 3, 7), (7, 2), 5 * 3 * 2 * 7),
        ("Gemm", {"transA": 1}, (7, 3), (7, 2), 3 * 2 * 7),
        ("Einsum", {"equation": "bij,jk->bik"}, (5, 3, 7), (7, 2), 5 * 3 * 2 * 7),
    ],
)
def test_ops_that_multiply(kind, attributes, shape, weight, macs):
    node = helper.make_node(kind, ["x", "w"], ["y"], "layer", **attributes)
    found = layer(node, {"x": (TensorProto.FLOAT, shape)}, {"w": np.ones(weight, np.float32)})
    assert (found.macs, found.bops, found.weights) == (macs, macs * 1024, np.prod(weight))


def test_recurrent_layers_multiply_input_and_state():
    arrays = {"w": np.ones((1, 20, 3), np.float32), "r": np.ones((1, 20, 5), np.float32)}
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], "layer", hidden_size=5)
    assert layer(node, {"x": (TensorProto.FLOAT, [7, 2, 3])}, arrays).macs == 7 * 2 * 20 * (3 + 5)


@pytest.mark.parametrize(
    ("mode", "per_mac"), [("qonnx", 4 * 3), ("table3", 32 * 3), ("eq5", 4 * 3 + 4 + 3 + 3)]
)
def test_modes_count_widths_each_in_its_way(mode, per_mac):
    first, arrays = quant_node("a", "x", scale=0.5, zero_point=0.0, bits=4)
    second, more = quant_node("b", "w", scale=1.0, zero_point=0.0, bits=3)
    nodes = [first, second, helper.make_node("MatMul", ["a", "b"], ["y"], "layer")]
    data = file_of(
        nodes, {"x": (TensorProto.FLOAT, [1, 8])}, ["y"], {**arrays, **more, "w": np.ones((8, 2), np.float32)}
    )
    found = cost_of(read_written(data), mode)
    assert (found.macs, found.bops) == (16, 16 * per_mac)


def test_integer_operators_count_their_element_types():
    arrays = {"w": np.ones((4, 2), np.int8)}
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"], "layer")
    data = file_of([node], {"x": (TensorProto.UINT8, [1, 4])}, ["y"], arrays, types={"y": TensorProto.INT32})
    (found,) = cost_of(read_written(data)).layers
    assert (found.macs, found.bits_a, found.bits_w, found.weight_bits) == (8, 8, 8, 64)


def test_an_unknown_mode_is_named():
    data = file_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [1])}, ["y"], {})
    with pytest.raises(UnknownName, match="unknown cost mode 'eq6'"):
        cost_of(read_written(data), "eq6")
    assert [cost_of(read_written(data), mode).macs for mode in MODES] == [0, 0, 0]
