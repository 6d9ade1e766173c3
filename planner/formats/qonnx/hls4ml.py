"""hls4ml: a zip of the model in QONNX (`model.onnx`) and its precisions (`hls_config.json`).

Gemm is MatMul and Add, and nodes have the names QONNX's cleanup gives them, so that the configuration finds
its layers. A scale of a power of two becomes a fixed-point type exactly, ties to even as in a Quant; a plan
on other scales is brought onto such ones first (`fixed_point_scales`). `IOType` is what a conversion's
`io_type` should be. Source: hls4ml documentation, "Configuration", "ONNX and QONNX", "I/O Types"; the
`maximum_size` in its `build_prj.tcl`; docs/formats.md.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from planner.formats.common.blocks import blocks
from planner.formats.onnx.nodes import Node
from planner.formats.onnx.writer.onnx_file import MAX_STEM
from planner.formats.qonnx.fixed_point_parts import Extent
from planner.formats.qonnx.fixed_point_scales import in_powers_of_two
from planner.formats.qonnx.hls4ml_ops import readable, refuse_what_is_not_read
from planner.formats.qonnx.model_builder import FloatModelBuilder
from planner.formats.qonnx.qonnx import refuse_what_no_quant_has, write_block, write_blocks
from planner.formats.qonnx.quant_parameters import QUANT_NAME
from planner.formats.qonnx.windows import slopes, windows
from planner.ir.graph import Graph, Op
from planner.ir.types.qtypes import Bipolar, Uniform
from planner.lowering.blocks import Block
from planner.ops import LINEAR
from planner.plans.plan import Plan
from planner.plans.records import Port, PortTyped

MODEL_FILE: Final = "model.onnx"
CONFIG_FILE: Final = "hls_config.json"
GUARD_BITS: Final = 8
MOST_BITS: Final = 64
TABLE_BITS: Final = 18
TABLE_REST: Final = 1 / 256
"""The largest sum of the exponentials beyond the end of a softmax's table, the largest of all being 1."""
_LARGEST_REGISTERS: Final = 4096
"""Elements of an array that hls4ml has synthesis split into registers, as all are in parallel."""
# Zip files have no time before this one, and every export of a plan is the same bytes.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)

Precisions = dict[str, dict[str, str]]


def write_hls4ml(graph: Graph, plan: Plan) -> bytes:
    """Serialise a planned model for hls4ml, a zip of two files.

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.

    Raises:
      UnsupportedExport: a type no Quant has, with port and row; an op that hls4ml does not read.
    """
    refuse_what_no_quant_has(graph, plan, "hls4ml")
    # hls4ml reads a BipolarQuant of weights between binary tensors alone; as numbers all of them.
    signs = {name: replace(graph.values[name], facts=()) for name in graph.constants if _is_sign(graph, name)}
    graph = replace(graph, values={**graph.values, **signs})
    fixed = in_powers_of_two(graph, list(blocks(plan)), plan.stored_pins)
    graph, parts = readable(fixed.graph, fixed.blocks)
    builder = FloatModelBuilder(graph, replace(plan, graph=replace(plan.graph, values=graph.values)))
    found: Precisions = {}
    write_blocks(builder, parts, _write)
    for block in parts:
        found |= _precisions(graph, block, fixed.extents)
    for name, kind in fixed.factors.items():
        # One factor for all of a channel, and its offset is 0.
        found.setdefault(name, {}).update(scale=fixed_point(kind), bias="ap_uint<1>")
    refuse_what_is_not_read(builder.file.nodes, builder.file.constants)
    _give_own_weights(builder)
    _give_own_parameters(builder)
    _give_regions(builder)
    builder.bind_outputs()
    undotted, ops = _name_without_dots(builder), list(plan.graph.all_ops())
    builder.spell_out({**windows(graph, ops), **slopes(ops)})
    names = builder.number_nodes()
    layers: dict[str, Any] = {new: {"Precision": found[old]} for old, new in names.items() if old in found}
    quantizers = _quantizers(builder, parts, fixed.inputs, undotted)
    layers |= {undotted.get(name, name): told for name, told in quantizers.items()}
    layers |= {
        names[op.name]: _tables(graph, op, block.kinds.get((op.name, 0)))
        for block in parts
        for op in block.region.ops
        if op.type == "Softmax"
    }
    config = {
        "IOType": _io_type(graph, parts),
        "LayerName": dict(sorted(layers.items())),
        "Model": {"Precision": {"default": _default(graph, parts)}, "ReuseFactor": 1, "Strategy": "Latency"},
    }
    return _zipped(
        {
            CONFIG_FILE: json.dumps(config, indent=2).encode() + b"\n",
            MODEL_FILE: builder.finish(shapes=True, names=undotted),
        }
    )


def _io_type(graph: Graph, parts: Sequence[Block]) -> str:
    """`io_stream`, a pixel at a time, for a convolutional net with an activation too large for registers.

    In parallel each place of a convolution's result is code of its own besides, too much for compilers.
    """
    values = {port.value for port in _ports(parts)} - {*graph.constants, ""}
    shapes = [(graph.values[name].shape or ())[1:] for name in values]
    sizes = [math.prod(size if isinstance(size, int) else 1 for size in shape) for shape in shapes]
    has_windows = any(op.type == "Conv" for block in parts for op in block.region.ops)
    is_large = max(sizes, default=0) > _LARGEST_REGISTERS
    return "io_stream" if has_windows and is_large else "io_parallel"


def _give_own_weights(builder: FloatModelBuilder) -> None:
    """Have no two layers read the Quant of one constant: QONNX turns its channels for the first alone."""
    file, read, made = builder.file, set[str](), list[Node]()
    quants = {
        node.outputs[0]: node
        for node in file.nodes
        if node.op_type == QUANT_NAME and node.inputs[0] in file.constants
    }
    for node in file.nodes:
        own = list(node.inputs)
        for i, name in enumerate(own):
            if name in read:
                quant, copy = quants[name], file.fresh(name)
                made.append(quant._replace(name=file.fresh(quant.name), outputs=(copy,)))
                own[i] = copy
            read |= {name} & quants.keys()
        made.append(node._replace(inputs=tuple(own)))
    file.nodes = made


def _give_own_parameters(builder: FloatModelBuilder) -> None:
    """Have no two Quants read one constant: hls4ml removes it with the first, and refuses the others."""
    file, taken = builder.file, set[str]()
    for place, node in enumerate(file.nodes):
        if node.op_type != QUANT_NAME:
            continue
        own = list(node.inputs)
        for i, name in enumerate(own):
            constant = file.constants.get(name)
            if name in taken and constant is not None:
                own[i] = file.fresh(name)
                file.constants[own[i]] = constant
            taken.add(name)
        file.nodes[place] = node._replace(inputs=tuple(own))


def _give_regions(builder: FloatModelBuilder) -> None:
    """Have each Resize read a region of one number and scales of its own, which hls4ml removes with it.

    hls4ml asks whether the region's numbers are true, which NumPy refuses of none and of several.
    """
    file = builder.file
    for place, node in enumerate(file.nodes):
        scales = file.constants.get(node.inputs[2]) if len(node.inputs) == 3 else None
        if node.op_type == "Resize" and scales is not None:
            region = file.constant(f"{node.outputs[0]}_region", np.zeros(1, np.float32))
            array = scales[0] if isinstance(scales, tuple) else scales
            own = file.constant(f"{node.outputs[0]}_scales", array)
            file.nodes[place] = node._replace(inputs=(node.inputs[0], region, own))
    read = {name for node in file.nodes for name in node.inputs} | {*builder.graph.outputs}
    file.constants = {name: array for name, array in file.constants.items() if name in read}


def _name_without_dots(builder: FloatModelBuilder) -> Mapping[str, str]:
    """Have no dot in the names of constants and inputs, and return the names instead by those with one.

    hls4ml writes `_` where it makes the tensor, and not where a layer reads it.
    """
    file = builder.file
    # Within the length from which on names of ours are shortened, which would write dots.
    renamed = {
        name: file.fresh(name.replace(".", "_")[:MAX_STEM])
        for name in (*builder.graph.inputs, *file.constants)
        if "." in name
    }
    file.constants = {renamed.get(name, name): array for name, array in file.constants.items()}
    for place, node in enumerate(file.nodes):
        inputs = tuple([renamed.get(name, name) for name in node.inputs])
        file.nodes[place] = node._replace(inputs=inputs)
    return renamed


def _is_sign(graph: Graph, name: str) -> bool:
    return any(isinstance(fact, Bipolar) for fact in graph.values[name].facts)


def fixed_point(kind: Uniform, *, guard: int = 0) -> str:
    """The `ap_fixed` of a type: exact for scales that are powers of two, else with guard bits.

    Signed where a real below 0 is held; W bits of which I, the sign included, stand before the point; `guard`
    more behind it.
    """
    fraction = _fraction(kind)
    if any(math.frexp(scale)[0] != 0.5 for scale in kind.scales):
        fraction += GUARD_BITS
    return _spelled(kind.lo, kind.hi, fraction + guard)


def _spelled(low: float, high: float, fraction: int) -> str:
    """The `ap_fixed` that holds an interval with so many bits behind the point, 64 in all."""
    sign = "ap_fixed" if low < 0 else "ap_ufixed"
    whole = math.ceil(math.log2(max(-low, high + 2.0**-fraction))) + (low < 0)
    return f"{sign}<{min(MOST_BITS, max(1, whole + fraction))},{whole},AP_RND_CONV,AP_SAT>"


def _tables(graph: Graph, op: Op, kind: PortTyped) -> Mapping[str, str]:
    """Types of a softmax's tables: exponentials and quotients are at most 1, their sum at most their number.

    hls4ml's own types spend 8 bits before the point, and so find a sum in one of a handful of entries. Its
    type of the distance to the largest number wraps around at half the range of the numbers; this one
    saturates, where all numbers so far away add up to little.
    """
    shape = graph.values[op.inputs[0]].shape
    size = shape[op.attributes.get("axis", -1)] if shape else None
    if not isinstance(size, int):
        return {}
    farthest = math.log(size / TABLE_REST)
    if isinstance(kind, Uniform):
        farthest = min(farthest, kind.hi - kind.lo)
    wholes = (1, size.bit_length(), math.ceil(math.log2(farthest)))
    one, total, distance = (f"ap_ufixed<{TABLE_BITS},{whole},AP_RND,AP_SAT>" for whole in wholes)
    return {"ExpTableT": one, "InpNormT": distance, "InvInpT": total, "InvTableT": one}


def _is_gemm(block: Block) -> bool:
    op = block.region.ops[0]
    others = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    return op.type == "Gemm" and all(op.attributes.get(key, value) == value for key, value in others.items())


def _write(builder: FloatModelBuilder, block: Block) -> None:
    (_write_gemm if _is_gemm(block) else write_block)(builder, block)


def _write_gemm(builder: FloatModelBuilder, block: Block) -> None:
    """Gemm as MatMul, with the weight turned if need be, and Add."""
    op, rest = block.region.ops[0], block.region.ops[1:]
    kind = block.kinds.get((op.name, 1))
    x = builder.real(op.inputs[0], block.kinds.get((op.name, 0)))
    is_turned = op.attributes.get("transB") and op.inputs[1] in builder.graph.constants
    if op.attributes.get("transB") and not is_turned:
        write_block(builder, block)
        return
    w = builder.turned(op.inputs[1], kind) if is_turned else builder.real(op.inputs[1], kind)
    port = next(port for port in block.kernel.outputs if port.value)
    raw = builder.raw_name(port.value, port.type)
    has_bias = len(op.inputs) > 2 and bool(op.inputs[2])
    result = op.outputs[0] if rest else raw
    product = builder.file.fresh(f"{op.outputs[0]}_product") if has_bias else result
    builder.file.emit_op(Op(op.name, "MatMul", (), (), {}), [x, w], [product])
    if has_bias:
        bias = builder.real(op.inputs[2], block.kinds.get((op.name, 2)))
        builder.file.emit("Add", [product, bias], [result], name=_adding(op))
    inner = {op.outputs[0]: result}
    for i, other in enumerate(rest):
        outputs = [raw if i == len(rest) - 1 else name for name in other.outputs]
        inputs = [
            inner.get(name) or builder.real(name, block.kinds.get((other.name, k)))
            for k, name in enumerate(other.inputs)
        ]
        inner.update(zip(other.outputs, outputs, strict=True))
        builder.file.emit_op(other, inputs, outputs)
    builder.define(port.value, raw, port.type)


def _adding(op: Op) -> str:
    """Name of the Add that a Gemm's bias becomes."""
    return f"{op.name}/bias"


def _precisions(graph: Graph, block: Block, extents: Mapping[str, Extent]) -> Precisions:
    """Types of weights, biases, sums and results by the op they belong to, as it is written."""
    op, last = block.region.ops[0], block.region.ops[-1].name
    found: Precisions = {}
    if op.type in LINEAR:
        _add(found, op.name, "weight", block.kinds.get((op.name, 1)))
        _add(found, op.name, "bias", block.kinds.get((op.name, 2)))
        inner = [other.name for other in block.region.ops]
        if _is_gemm(block) and len(op.inputs) > 2 and op.inputs[2]:
            inner.insert(1, _adding(op))
            last = inner[-1]
        total = _sum_type(graph, block)
        if total:
            found.setdefault(op.name, {})["accum"] = total
            # A float result is the sum as it is: fixed point has no other word for it.
            for name in inner if block.float_result else inner[:-1]:
                found.setdefault(name, {})["result"] = total
    for port in block.kernel.outputs:
        if port.value and port.value == block.region.ops[-1].outputs[0]:
            _add(found, last, "result", port.type)
    for name in (op.name for op in block.region.ops if op.name in extents):
        found[name] = {"result": _spelled(*extents[name])}
    return found


def _sum_type(graph: Graph, block: Block) -> str:
    """The accumulator: as many bits as the weights make it need, on the products' grid; "" if unknown.

    For a layer that stands for a kernel without weights, what sums of the widest numbers need.
    """
    op, bits = block.region.ops[0], block.kernel.accumulator_bits
    sides = [block.kinds.get((op.name, i)) for i in range(2)]
    kinds = [kind for kind in sides if isinstance(kind, Uniform)]
    weight = graph.constants.get(op.inputs[1])
    if bits is None and op.type == "Conv" and weight is not None and weight.array is not None:
        terms = math.prod(weight.array.shape[1:])
        bits = sum(kind.storage.bits for kind in kinds) + terms.bit_length()
    if bits is None or len(kinds) != len(sides):
        return ""
    fraction = sum(_fraction(kind) for kind in kinds)
    whole = bits - fraction
    bias = _bias_type(block)
    if bias is not None and _fraction(bias) > fraction:
        fraction = _fraction(bias)
        # The larger of two numbers needs one bit more for their sum.
        whole = 1 + max(whole, 1 + math.ceil(math.log2(max(-bias.lo, bias.hi))))
    return f"ap_fixed<{whole + fraction},{whole},AP_RND,AP_SAT>"


def _bias_type(block: Block) -> Uniform | None:
    """The type of the bias that a product takes, or the Add behind it."""
    op, *rest = block.region.ops
    places = [(op.name, 2), *((one.name, i) for one in rest[:1] if one.type == "Add" for i in range(2))]
    kinds = (block.kinds.get(place) for place in places)
    return next((kind for kind in kinds if isinstance(kind, Uniform)), None)


def _add(found: Precisions, name: str, what: str, kind: PortTyped) -> None:
    if isinstance(kind, Uniform):
        found.setdefault(name, {})[what] = fixed_point(kind)


def _default(graph: Graph, parts: Sequence[Block]) -> str:
    """A type that holds every activation, input and bias exactly: for layers that hls4ml makes of its own."""
    ports = _ports(parts)
    whole, fraction = 6, 10
    for port in ports:
        if not isinstance(port.type, Uniform):
            continue
        array = graph.constants[port.value].array if port.value in graph.constants else None
        largest = max(-port.type.lo, port.type.hi) if array is None else float(np.abs(array).max(initial=0.0))
        guard = GUARD_BITS if port.value in graph.inputs else 0
        whole = max(whole, math.frexp(largest)[1] + 1)
        fraction = max(fraction, _fraction(port.type) + guard)
    return f"ap_fixed<{min(MOST_BITS, whole + fraction)},{whole},AP_RND,AP_SAT>"


def _fraction(kind: Uniform) -> int:
    """Bits behind the point of the finest scale, if it is a power of two."""
    return -min(math.frexp(scale)[1] - 1 for scale in kind.scales)


def _ports(parts: Sequence[Block]) -> list[Port]:
    return [port for block in parts for port in (*block.kernel.inputs, *block.kernel.outputs)]


def _quantizers(
    builder: FloatModelBuilder,
    parts: Sequence[Block],
    inputs: Mapping[str, Uniform],
    undotted: Mapping[str, str],
) -> Mapping[str, Any]:
    """Precision of each Quant of an activation, which hls4ml makes a layer of its own, and of each input.

    An input is not quantized before its Quant, so it gets guard bits below that one's last.
    """
    kinds = {port.value: port.type for port in reversed(_ports(parts))}
    own = {new: old for old, new in undotted.items()}
    found = {
        name: {"Precision": {"result": fixed_point(kind, guard=GUARD_BITS)}} for name, kind in inputs.items()
    }
    for node in builder.file.nodes:
        read = own.get(node.inputs[0], node.inputs[0]) if node.inputs else ""
        for name in (read if read in builder.graph.inputs else "", node.outputs[0]):
            kind = kinds.get(name, builder.kinds.get(name))
            if node.op_type == QUANT_NAME and isinstance(kind, Uniform):
                where, guard = (node.name, 0) if name != read else (name, GUARD_BITS)
                found[where] = {"Precision": {"result": fixed_point(kind, guard=guard)}}
    return found


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()
