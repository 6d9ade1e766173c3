"""The ops that hls4ml reads rightly, and a Clip, a Concat of many tensors and the other pools in them.

A Clip is Relus and differences on the grid of its result: `b - relu(b - relu(x))` for [0, b]. An end that the
Quant behind it cuts anyway is left out. A Concat joins two and two. A mean is a depthwise Conv, a global
maximum a MaxPool: hls4ml takes the sizes of its own global pools channels first and their data channels last,
and QONNX's channels-last conversion, which it asks for, knows no AveragePool. Source: hls4ml 1.3,
`converters/onnx`; QONNX 1.0, `transformation/channels_last`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.errors import UnsupportedExport
from planner.formats.onnx.nodes import Node
from planner.formats.qonnx.channels_last import COPIES, TO_FIRST, TO_LAST, copies
from planner.formats.qonnx.quant_parameters import BIPOLAR_NAME
from planner.formats.qonnx.windows import window
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.types.qtypes import Uniform
from planner.ir.types.storages import storage
from planner.lowering.blocks import Block
from planner.ops import of_form
from planner.ops.forms import Form
from planner.plans.records import PortTyped

READ: Final = frozenset(
    {
        *(
            "Add",
            "Average",
            "AveragePool",
            "BatchNormalization",
            "BipolarQuant",
            "Concat",
            "Constant",
            "Conv",
        ),
        *("Div", "Dropout", "Elu", "Flatten", "GlobalAveragePool", "GlobalMaxPool", "Identity", "IntQuant"),
        *("LeakyRelu", "MatMul", "Max", "MaxPool", "Min", "Mul", "PRelu", "Pad", "Quant", "Relu", "Reshape"),
        *("Resize", "Selu", "Sigmoid", "Softmax", "Softplus", "Softsign", "Sub", "Sum", "Tanh"),
        *("ThresholdedRelu", "Transpose"),
    }
)
"""Node types, a Gemm being written as MatMul and Add."""
_MISREAD: Final = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool"})
_MEANS: Final = frozenset({"AveragePool", "GlobalAveragePool"})
MEAN_BITS: Final = 22
"""Bits behind the first of the weight 1 / n of a mean, for n that is no power of two."""
Constants: TypeAlias = Mapping[str, np.ndarray | tuple[np.ndarray, str]]
_IMAGE_PADS: Final = 6
_TURNED: Final = frozenset({"BatchNormalization", "Conv", "MaxPool"})
"""Ops that QONNX's conversion to channels last turns."""
_VIEWS: Final = frozenset({"Squeeze", "Unsqueeze"})
_MERGED: Final = of_form(Form.CONCAT, Form.VARIADIC)


@dataclass(slots=True)
class _Draft:
    """Replacements of ops: constants and values of their own beside the graph's."""

    graph: Graph
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    kinds: dict[str, PortTyped] = field(default_factory=dict)

    def number(self, name: str, number: float, shape: tuple[int, ...] = ()) -> str:
        self.values[name] = Value(name, shape, "f32")
        self.constants[name] = Constant(np.full(shape, number, np.float32))
        return name

    def sizes(self, name: str, sizes: Sequence[int]) -> str:
        self.values[name] = Value(name, (len(sizes),), "i64")
        self.constants[name] = Constant(np.asarray(sizes, np.int64))
        return name

    def op(self, kind: str, stem: str, *inputs: str, **attributes: Any) -> Op:
        name = f"{stem}/{kind}{len(self.values)}"
        self.values[name] = Value(name, None, "f32")
        return Op(name, kind, inputs, (name,), attributes)


def readable(graph: Graph, blocks: Sequence[Block]) -> tuple[Graph, list[Block]]:
    """The same blocks in ops that hls4ml reads, and the graph with their constants."""
    draft, made = _Draft(graph), []
    for block in blocks:
        kinds, ops = dict(block.kinds), list[Op]()
        for op in block.region.ops:
            steps = _steps(draft, block, op)
            for step in steps:
                seen = {name: block.kinds.get((op.name, i)) for i, name in enumerate(op.inputs)} | draft.kinds
                kinds |= {(step.name, i): seen[name] for i, name in enumerate(step.inputs) if name in seen}
            ops += steps
        made.append(replace(block, region=replace(block.region, ops=tuple(ops)), kinds=kinds))
    values, constants = {**graph.values, **draft.values}, {**graph.constants, **draft.constants}
    return replace(graph, values=values, constants=constants), made


def _steps(draft: _Draft, block: Block, op: Op) -> list[Op]:
    """The ops that replace an op; itself where hls4ml reads it."""
    if op.type == "Concat" and len(op.inputs) > 2:
        steps = _joined(draft, op)
    elif op.type == "Clip":
        steps = _cut(draft, block, op)
    elif op.type in _MEANS:
        steps = _mean(draft, op)
    elif op.type == "GlobalMaxPool":
        steps = _largest(draft, op)
    elif op.type == "Resize":
        steps = _resized(draft, op)
    elif op.type == "Softmax":
        steps = _over_all(draft, op)
    elif op.type in _VIEWS:
        steps = _reshaped(draft, op)
    else:
        return [op]
    return [*steps[:-1], replace(steps[-1], outputs=op.outputs)] if steps else [op]


def _joined(draft: _Draft, op: Op) -> list[Op]:
    steps = [draft.op("Concat", op.name, *op.inputs[:2], **op.attributes)]
    for name in op.inputs[2:]:
        steps.append(draft.op("Concat", op.name, steps[-1].outputs[0], name, **op.attributes))
    return steps


def _mean(draft: _Draft, op: Op) -> list[Op]:
    """A mean as a depthwise Conv of equal weights; nothing where windows differ or sizes are unknown."""
    sizes = _sizes(draft.graph, op)
    if not sizes:
        return []
    kernel = tuple(op.attributes.get("kernel_shape", sizes[1:]))
    said = window(op.attributes, sizes[1:], kernel)
    counts_pads = not any(said["pads"]) or op.attributes.get("count_include_pad", 0)
    if not counts_pads or op.attributes.get("ceil_mode", 0) or set(said["dilations"]) != {1}:
        return []
    count = math.prod(kernel)
    exponent = (count - 1).bit_length()
    if count != 1 << exponent:
        exponent += MEAN_BITS
    stored = round(2**exponent / count)
    name = draft.number(f"{op.name}/mean", stored * 2.0**-exponent, (sizes[0], 1, *kernel))
    draft.kinds[name] = Uniform(storage(f"i{stored.bit_length() + 1}"), (2.0**-exponent,), (0,))
    return [draft.op("Conv", op.name, op.inputs[0], name, **said, group=sizes[0])]


def _largest(draft: _Draft, op: Op) -> list[Op]:
    """A global maximum as a MaxPool over the whole; nothing where sizes are unknown."""
    sizes = _sizes(draft.graph, op)
    return [draft.op("MaxPool", op.name, op.inputs[0], **window({}, sizes[1:], sizes[1:]))] if sizes else []


def _sizes(graph: Graph, op: Op) -> tuple[int, ...]:
    """Channels and spatial sizes of what an op reads; nothing where one is unknown."""
    shape = (graph.values[op.inputs[0]].shape or ())[1:]
    sizes = tuple(size for size in shape if isinstance(size, int))
    return sizes if len(sizes) == len(shape) else ()


def _resized(draft: _Draft, op: Op) -> list[Op]:
    """A Resize that copies the pixels of a square, with channels last.

    Raises:
      UnsupportedExport: another; hls4ml copies whatever the mode, and takes the height for the width.
    """
    sizes = _sizes(draft.graph, op)
    for first in (2, 1) if len(sizes) == 3 else ():
        factors = copies(draft.graph, op, (first, first + 1))
        if factors is None or factors[0] != factors[1] or sizes[first - 1] != sizes[first]:
            continue
        if first == 1:
            return [op]
        scales = draft.number(f"{op.name}/scales", 1.0, (4,))
        draft.constants[scales] = Constant(np.asarray([1, *factors, 1], np.float32))
        last = draft.op("Transpose", op.name, op.inputs[0], perm=TO_LAST)
        large = draft.op("Resize", op.name, last.outputs[0], "", scales, **COPIES)
        return [last, large, draft.op("Transpose", op.name, large.outputs[0], perm=TO_FIRST)]
    raise UnsupportedExport(
        f"Resize at {op.name!r} ({op.outputs[0]!r}): hls4ml 1.3 copies each pixel of a square as often along "
        "both sides, whatever the op says",
        hint="cut the model there, or export qonnx",
    )


def _over_all(draft: _Draft, op: Op) -> list[Op]:
    """A Softmax as it is, if its axis has all numbers of a sample.

    Raises:
      UnsupportedExport: it has not.
    """
    sizes, rank = _sizes(draft.graph, op), len(draft.graph.values[op.inputs[0]].shape or ())
    axis = op.attributes.get("axis", -1) % max(1, rank)
    if sizes and (axis == 0 or sizes[axis - 1] != math.prod(sizes)):
        raise UnsupportedExport(
            f"Softmax at {op.name!r} ({op.outputs[0]!r}): hls4ml 1.3 takes it over all numbers of a sample",
            hint="cut the model there, or export qonnx",
        )
    return [op]


def _reshaped(draft: _Draft, op: Op) -> list[Op]:
    """A Squeeze or an Unsqueeze behind the first axis as a Reshape; nothing where sizes are unknown."""
    shapes = [draft.graph.values[name].shape or () for name in (op.inputs[0], op.outputs[0])]
    sizes = [size for size in shapes[1] if isinstance(size, int)]
    if not sizes or len(sizes) != len(shapes[1]) or shapes[0][:1] != shapes[1][:1]:
        return []
    return [draft.op("Reshape", op.name, op.inputs[0], draft.sizes(f"{op.name}/sizes", sizes))]


def _cut(draft: _Draft, block: Block, op: Op) -> list[Op]:
    """A Clip in Relus; nothing where its bounds are computed."""
    ends = _ends(draft.graph, op)
    if ends is None:
        return []
    kinds = [port.type for port in block.kernel.outputs if port.value == op.outputs[0]]
    low, high = ends
    if kinds and isinstance(kinds[0], Uniform):
        low, high = (_on_grid(end, kinds[0]) for end in ends)
        # The Quant behind cuts at the ends of the type.
        low = low if low == 0 or low > kinds[0].lo else -np.inf
        high = high if high < kinds[0].hi else np.inf
    steps: list[Op] = []

    def then(kind: str, *inputs: str) -> str:
        steps.append(draft.op(kind, op.name, *inputs))
        return steps[-1].outputs[0]

    x = op.inputs[0]
    if low == 0:
        x = then("Relu", x)
    elif np.isfinite(low):
        above = then("Relu", then("Sub", x, draft.number(f"{op.name}/low", low)))
        x = then("Add", above, draft.number(f"{op.name}/low_again", low))
    if np.isfinite(high):
        below = then("Relu", then("Sub", draft.number(f"{op.name}/high", high), x))
        then("Sub", draft.number(f"{op.name}/high_again", high), below)
    if not steps:
        then("Identity", x)
    return steps


def _ends(graph: Graph, op: Op) -> tuple[float, float] | None:
    """The bounds of a Clip; None where they are computed."""
    found = [-np.inf, np.inf]
    for i, name in enumerate(op.inputs[1:3]):
        array = graph.constants[name].array if name in graph.constants else None
        if name and array is None:
            return None
        if array is not None:
            found[i] = float(np.asarray(array).reshape(-1)[0])
    return found[0], found[1]


def _on_grid(end: float, kind: Uniform) -> float:
    stored = quantize_array(np.asarray([end], np.float32), kind)
    return float(dequantize_array(stored, kind)[0])


def _is_known(name: str, writers: Mapping[str, Node], constants: Constants) -> bool:
    """Whether a value is a constant, quantized or not."""
    writer = writers.get(name)
    return name in constants or (writer is not None and writer.inputs[0] in constants)


def _numbers(constants: Constants, name: str) -> np.ndarray | None:
    found = constants.get(name)
    return found[0] if isinstance(found, tuple) else found


def _pad_problem(node: Node, nodes: Sequence[Node], constants: Constants) -> str:
    """Why hls4ml cannot do a Pad: numbers other than 0, vectors, or images once they are channels last."""
    mode = node.attributes.get("mode", "constant")
    fill = _numbers(constants, node.inputs[2]) if len(node.inputs) > 2 else None
    if mode != "constant" or (fill is not None and np.any(fill)):
        return f"hls4ml 1.3 pads with 0 alone, not {'a number' if mode == 'constant' else f'by {mode}'}"
    pads = _numbers(constants, node.inputs[1])
    if pads is not None and pads.size < _IMAGE_PADS:
        return "hls4ml 1.3 pads images and sequences with channels alone"
    if any(other.op_type in _TURNED for other in nodes):
        return (
            "hls4ml 1.3 asks for images channels last, "
            "and QONNX's conversion leaves the axes of a Pad as they were"
        )
    return ""


def refuse_what_is_not_read(nodes: Sequence[Node], constants: Constants) -> None:
    """Check that hls4ml has a layer for every node.

    Raises:
      UnsupportedExport: the first node without one.
    """
    writers = {out: node for node in nodes for out in node.outputs}
    for node in nodes:
        if node.op_type not in READ:
            raise UnsupportedExport(
                f"{node.op_type} at {node.name!r} ({node.outputs[0]!r}): hls4ml 1.3 has no layer for it; it "
                f"reads {', '.join(sorted(READ - {'Average', 'Constant', 'Dropout', 'IntQuant'}))}, Gemm, "
                "and Clip of known bounds",
                hint="cut the model there, or export qonnx",
            )
        problem = _pad_problem(node, nodes, constants) if node.op_type == "Pad" else ""
        if problem:
            raise UnsupportedExport(
                f"Pad at {node.name!r} ({node.outputs[0]!r}): {problem}",
                hint="pad in the Conv or MaxPool behind it (pads), cut the model there, or export qonnx",
            )
        factor = writers.get(node.inputs[0]) if node.op_type == "MatMul" else None
        if factor is not None and factor.op_type == "Mul" and _is_known(factor.inputs[1], writers, constants):
            raise UnsupportedExport(
                f"MatMul at {node.name!r} ({node.outputs[0]!r}) is in float behind the scale of "
                f"{factor.inputs[0]!r}: hls4ml 1.3 moves such a scale behind the product, and ends there "
                "(Unexpected new precision type)",
                hint="give its result a range (qplan plan --data), so that it is quantized; or export qonnx",
            )
        problem = _misread(node, nodes)
        if problem:
            raise UnsupportedExport(
                f"{node.op_type} at {node.name!r} ({node.outputs[0]!r}): {problem}",
                hint="give it known sizes and whole windows, cut the model there, or export qonnx",
            )
        if node.op_type == BIPOLAR_NAME and node.inputs[0] not in constants:
            raise UnsupportedExport(
                f"{BIPOLAR_NAME} at {node.name!r} ({node.outputs[0]!r}): hls4ml 1.3 hands on bits 0 and 1 "
                "for -1 and 1 of an activation, which only its own binary layers read so",
                hint="export finn or qonnx, or train two bits there",
            )
        if node.op_type in _MERGED and len([name for name in node.inputs if name not in constants]) > 2:
            raise UnsupportedExport(
                f"{node.op_type} at {node.name!r} ({node.outputs[0]!r}) joins {len(node.inputs)} tensors; "
                "hls4ml 1.3 joins two",
                hint="write it two by two",
            )


def _misread(node: Node, nodes: Sequence[Node]) -> str:
    if node.op_type == "Resize" and not any(other.op_type in _TURNED for other in nodes):
        return "hls4ml 1.3 reads it beside a Conv, a MaxPool or a BatchNormalization of images alone"
    if node.op_type == "PRelu":
        return "hls4ml 1.3 has a layer for it, and from ONNX reads no slopes (list index out of range)"
    if node.op_type == "Selu" and any(key in node.attributes for key in ("alpha", "gamma")):
        return "hls4ml 1.3 has one alpha and gamma for all, those of the default"
    if node.op_type == "MaxPool" and len(node.attributes["kernel_shape"]) == 1:
        return "hls4ml 1.3 reads no MaxPool of one axis"
    if node.op_type in _MISREAD:
        return (
            "hls4ml 1.3 mistakes its axes, so a pool is written as a Conv or a MaxPool, and this one has "
            "unknown sizes, pads that do not count, dilations or ceil_mode"
        )
    return ""
