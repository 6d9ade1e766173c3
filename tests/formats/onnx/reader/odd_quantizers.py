"""Models of one quantizer whose operands and attributes are changed a little, the same every time."""

import random
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

QONNX, MS = "qonnx.custom_op.general", "com.microsoft"
X = (2, 4, 3, 3)
NUMBERS = (0.0, -1.0, 1.0, 2.0, 8.0, 0.5, -4.0, 2000.0, 1e-45, 1e38, np.nan, np.inf, -np.inf, 300.0, 2.0**62)
SHAPES = (
    (),
    (1,),
    (0,),
    (4,),
    (3,),
    (1, 4, 1, 1),
    (2, 4, 3, 3),
    (4, 1),
    (1, 4),
    (5,),
    (1, 1, 1, 1, 1),
    (4, 7),
)
DTYPES = (np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_, np.object_)
ATTRIBUTES = (
    0,
    1,
    7,
    -1,
    1 << 62,
    1.5,
    float("nan"),
    "",
    "NHWC",
    "ROUND",
    [1, 2],
    [],
    np.ones(2, np.float32),
)


@dataclass(frozen=True)
class Quantizer:
    """A node on `x`, its other operands constants."""

    kind: str
    domain: str
    operands: tuple[object, ...]
    attributes: tuple[tuple[str, object], ...] = ()
    x: tuple[int, ...] = X
    dtype: int = TensorProto.FLOAT
    declared: tuple[int, ...] | None = None
    computed: int = -1


def f(*numbers):
    return np.asarray(numbers if len(numbers) != 1 else numbers[0], np.float32)


def u8(number=3):
    return np.asarray(number, np.uint8)


def byte(*shape):
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


SIGNS = (("signed", 1), ("narrow", 0), ("rounding_mode", "ROUND"))
STORED = TensorProto.UINT8
QUARTERS, NONE = np.full(4, 0.25, np.float32), np.zeros(4, np.uint8)
TO_ONE = (f(0.5), u8(), f(1.0), u8())
BASES = (
    Quantizer("Quant", QONNX, (f(0.5), f(0.0), f(4.0)), SIGNS),
    Quantizer("IntQuant", QONNX, (QUARTERS.reshape(1, 4, 1, 1), f(0.0), f(4.0)), SIGNS),
    Quantizer("BipolarQuant", "onnx.brevitas", (f(0.5),)),
    Quantizer("Trunc", QONNX, (f(0.5), f(0.0), f(8.0), f(4.0)), SIGNS),
    Quantizer("Trunc", QONNX, (f(0.5), f(0.0), f(8.0), f(2.0), f(4.0)), SIGNS),
    Quantizer(
        "FloatQuant",
        QONNX,
        (f(1.0), f(4.0), f(3.0), f(7.0), f(448.0)),
        (("has_inf", 0), ("has_nan", 1), ("has_subnormal", 1), ("saturation", 1)),
    ),
    Quantizer(
        "MultiThreshold",
        "finn.custom_op.general",
        (np.arange(12, dtype=np.float32).reshape(4, 3),),
        (("out_scale", 1.0), ("out_bias", 0.0), ("out_dtype", "UINT2"), ("data_layout", "NCHW")),
    ),
    Quantizer("QuantizeLinear", "", (f(0.5), u8())),
    Quantizer("QuantizeLinear", "", (QUARTERS, np.zeros(4, np.int8)), (("axis", 1),)),
    Quantizer("QuantizeLinear", "", (np.ones((2, 2, 3, 3), np.float32),), (("axis", 1), ("block_size", 2))),
    Quantizer("DequantizeLinear", "", (f(0.5), u8()), dtype=STORED),
    Quantizer("DequantizeLinear", "", (QUARTERS, NONE), (("axis", 1),), dtype=STORED),
    Quantizer("DequantizeLinear", MS, (f(0.5), u8()), dtype=STORED),
    Quantizer("QLinearConv", "", (f(0.5), u8(), byte(4, 4, 1, 1), QUARTERS, NONE, *TO_ONE[2:]), dtype=STORED),
    Quantizer("QLinearMatMul", "", (f(0.5), u8(), byte(3, 5), *TO_ONE), dtype=STORED),
    Quantizer("MatMulInteger", "", (byte(3, 5), u8(), u8()), dtype=STORED),
    Quantizer("ConvInteger", "", (byte(4, 4, 1, 1), u8(), u8()), dtype=STORED),
    Quantizer(
        "QGemm",
        MS,
        (f(0.5), u8(), byte(4, 5), f(0.5), u8(), np.zeros(5, np.int32), *TO_ONE[2:]),
        x=(2, 4),
        dtype=STORED,
    ),
    Quantizer("QLinearAdd", MS, (f(0.5), u8(), byte(4, 1, 1), *TO_ONE), dtype=STORED),
    Quantizer("QLinearMul", MS, (f(0.5), u8(), byte(4, 1, 1), *TO_ONE), dtype=STORED),
    Quantizer("QLinearSigmoid", MS, TO_ONE, dtype=STORED),
    Quantizer("QLinearLeakyRelu", MS, TO_ONE, (("alpha", 0.1),), dtype=STORED),
    Quantizer("QLinearGlobalAveragePool", MS, TO_ONE, dtype=STORED),
    Quantizer("QLinearAveragePool", MS, TO_ONE, (("kernel_shape", [2, 2]),), dtype=STORED),
    Quantizer("QLinearSoftmax", MS, TO_ONE, (("axis", 1), ("opset", 13)), dtype=STORED),
    Quantizer("DynamicQuantizeLinear", "", ()),
)


def odd(seed: int) -> Quantizer:
    """One of the bases after one to three changes."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    found = chance.choice(BASES)
    for _ in range(chance.choice((1, 1, 2, 3))):
        found = chance.choice(CHANGES)(chance, found)
    return found


def _operand(chance, found):
    if not found.operands:
        return found
    at = chance.randrange(len(found.operands))
    operands = list(found.operands)
    operands[at] = _array(chance, operands[at])
    return replace(found, operands=tuple(operands))


def _array(chance, old):
    """The operand with another number, of another shape, or of another element type."""
    if isinstance(old, str):
        return old
    kind = chance.randrange(3)
    shape = old.shape if kind == 0 else chance.choice(SHAPES)
    dtype = old.dtype if kind < 2 else np.dtype(chance.choice(DTYPES))
    number = chance.choice(NUMBERS)
    if dtype == np.object_:
        return np.full(shape, "text", np.object_)
    with np.errstate(all="ignore"):
        new = np.full(shape, number).astype(dtype)
        if kind == 0 and old.size > 1:
            new.reshape(-1)[1:] = old.reshape(-1)[1:]
    return new


def _absent(chance, found):
    operands = list(found.operands)
    if operands and chance.random() < 0.5:
        operands.pop()
    elif operands:
        operands[chance.randrange(len(operands))] = ""
    return replace(found, operands=tuple(operands))


def _computed(chance, found):
    return replace(found, computed=chance.randrange(len(found.operands)) if found.operands else -1)


def _attribute(chance, found):
    attributes = dict(found.attributes)
    names = [*attributes, "axis", "block_size", "signed", "channels_last", "rounding_mode"]
    attributes[chance.choice(names)] = chance.choice(ATTRIBUTES)
    return replace(found, attributes=tuple(attributes.items()))


def _source(chance, found):
    shapes = ((), (4,), (0, 4, 3, 3), (2, 4), (2, 4, 3), (2, 3, 3, 4), (1, 8, 3, 3))
    kinds = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.INT32, TensorProto.FLOAT16, STORED)
    if chance.random() < 0.5:
        return replace(found, x=chance.choice(shapes))
    return replace(found, dtype=chance.choice(kinds))


def _declared(chance, found):
    return replace(found, declared=chance.choice(((), (1,), (2, 4, 3, 3), (2, 4), (9, 9))))


CHANGES = (_operand, _operand, _operand, _absent, _computed, _attribute, _attribute, _source, _declared)


def file_of(found: Quantizer) -> bytes:
    """The bytes of its model."""
    names, tensors, inputs = ["x"], [], [_port("x", found.dtype, found.x)]
    for i, array in enumerate(found.operands):
        if isinstance(array, str):
            names.append("")
            continue
        names.append(f"k{i}")
        tensor = numpy_helper.from_array(array, f"k{i}")
        if i == found.computed:
            inputs.append(_port(f"k{i}", tensor.data_type, array.shape))
        else:
            tensors.append(tensor)
    outputs = ["y", "s", "z"] if found.kind == "DynamicQuantizeLinear" else ["y"]
    node = helper.make_node(found.kind, names, outputs, "it", domain=found.domain)
    for key, item in found.attributes:
        node.attribute.append(_attribute_of(key, item))
    graph = helper.make_graph([node], "odd", inputs, [_result(found)], tensors)
    opsets = [helper.make_opsetid("", 21)]
    opsets += [helper.make_opsetid(found.domain, 1)] if found.domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _attribute_of(key, item):
    if isinstance(item, np.ndarray):
        return helper.make_attribute(key, numpy_helper.from_array(item))
    if item == []:
        return helper.make_attribute(key, item, attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(key, item)


def _result(found):
    """The output, declared only where its shape is."""
    if found.declared is None:
        return onnx.ValueInfoProto(name="y")
    stored = found.kind.startswith("QLinear") or found.kind in ("QGemm", "QuantizeLinear")
    stored = stored or found.kind == "DynamicQuantizeLinear"
    return _port("y", STORED if stored else TensorProto.FLOAT, found.declared)


def _port(name, kind, shape):
    info = onnx.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = kind
    if shape is not None:
        info.type.tensor_type.shape.SetInParent()
        for dim in shape:
            info.type.tensor_type.shape.dim.add(dim_value=dim)
    return info


def feeds(found: Quantizer) -> dict[str, np.ndarray]:
    """Numbers for the inputs of its model."""
    chance = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(found.dtype)
    x = chance.normal(size=found.x) * 3 if dtype.kind == "f" else chance.integers(0, 100, found.x)
    given = {"x": np.asarray(x, dtype)}
    if 0 <= found.computed < len(found.operands) and not isinstance(found.operands[found.computed], str):
        given[f"k{found.computed}"] = found.operands[found.computed]
    return given
