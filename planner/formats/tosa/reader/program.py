"""A TOSA program as a model: its one function, or `@main` with its callees put in place.

An op with an exact equivalent in ONNX becomes that, so that targets' fusions find it; any other stays
under its own name, float and opaque, and a note says why. Stored integers are computed with as they are: a
program that is quantized already is planned no further, quantized element types apart, which are constraints.
Source: TOSA specification 1.0; MLIR dialect `tosa`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from xdsl.dialects import builtin, func
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from planner.errors import ModelError
from planner.formats.mlir.dialect import RegionOp
from planner.formats.mlir.generic import OPAQUE_TEXT
from planner.formats.mlir.parse import TextParser, parse_text, verify
from planner.formats.mlir.places import StuckAt, place
from planner.formats.mlir.stablehlo_ops import expressed_type, items_of, name_of
from planner.formats.mlir.text.opaque import captured, opaque_text
from planner.formats.mlir.text.plain_functions import read_plain
from planner.formats.mlir.text.reading import ReadState
from planner.formats.mlir.types import uniform_of
from planner.formats.onnx.drafts.draft import OPSET
from planner.formats.onnx.drafts.simplify import tidy
from planner.formats.onnx.normalise import normalise
from planner.formats.stablehlo.reader.prepare import model_function, prepare
from planner.formats.tosa.reader import linear, scaling
from planner.formats.tosa.reader.builder import Builder, Unread
from planner.formats.tosa.reader.control_flow import control
from planner.formats.tosa.reader.custom_form import generic
from planner.formats.tosa.reader.elementwise import ELEMENTWISE, Reader
from planner.formats.tosa.reader.movement import MOVEMENT
from planner.ir.expand import expand
from planner.ir.graph import Facts, Graph, Op, Value
from planner.ir.types.fit import refuse_misfits
from planner.ir.validity import validate

_READERS: Final[Mapping[str, Reader]] = {
    **ELEMENTWISE,
    **MOVEMENT,
    "arithmetic_right_shift": scaling.shift_right,
    "avg_pool2d": linear.average,
    "avg_pool2d_adaptive": linear.average,
    "clz": scaling.leading_zeros,
    "conv2d": linear.conv,
    "conv3d": linear.conv,
    "depthwise_conv2d": linear.depthwise,
    "fully_connected": linear.fully_connected,
    "logical_left_shift": scaling.shift_left,
    "logical_right_shift": scaling.shift_right_logical,
    "matmul": linear.matmul,
    "max_pool2d": linear.largest,
    "max_pool2d_adaptive": linear.largest,
    "mul": scaling.multiply,
    "negate": scaling.negate,
    "rescale": scaling.rescale,
    "table": scaling.table,
    "transpose_conv2d": linear.transpose_conv,
}
_MARK: Final = "tosa."
_SHARED: Final = frozenset({"tosa.const", "tosa.const_shape", "tosa.rescale"})
"""Ops that modules of other dialects have, too."""
_AROUND: Final = frozenset({"builtin", "func", "tosa"})
_WIDER: Final[Mapping[int, int]] = {48: 64}
_WIDEST: Final = 16
_FAULTS: Final = (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError)


def read_tosa_model(text: str) -> Graph | None:
    """Read a TOSA program; None where the text is no such program.

    Raises:
      ModelError: `line:column: ` and the fault there.
    """
    if _MARK not in text or "stablehlo." in text:
        return None
    source = generic(text)
    module, parser = parse_text(source)
    if any(isinstance(op, RegionOp) for op in module.walk()) or not _is_tosa(module):
        return None
    main = model_function(module)
    try:
        prepare(module, main)
        verify(module, source, parser.starts)
        for op in module.walk():
            _held(op)
        graph = _function(source, parser, main)
    except StuckAt as error:
        raise ModelError(f"{place(source, parser.starts.get(id(error.op), 0))}: {error.message}") from None
    return refuse_misfits(validate(replace(graph, module=text)))


def _is_tosa(module: builtin.ModuleOp) -> bool:
    names = [name_of(op) for op in module.walk()]
    own = [name for name in names if name.startswith(_MARK)]
    is_alone = all(name.partition(".")[0] in _AROUND for name in names)
    return not _SHARED.issuperset(own) or ("tosa.rescale" in own and is_alone)


def _held(op: Operation) -> None:
    """Let 48 bits be 64, and sums of a quantized type reals that are still to be rescaled."""
    values: list[SSAValue] = [*op.results]
    values += [arg for region in op.regions for block in region.blocks for arg in block.args]
    for value in values:
        kind = value.type
        if not isinstance(kind, builtin.TensorType):
            continue
        uniform = uniform_of(kind)
        if uniform is not None and uniform.storage.bits > _WIDEST and name_of(op).startswith(_MARK):
            Rewriter.replace_value_with_new_type(value, expressed_type(kind))
        wide = _wider(kind)
        if wide is not None:
            Rewriter.replace_value_with_new_type(value, wide)


def _wider(kind: builtin.TensorType[Any]) -> Attribute | None:
    element = kind.element_type
    if not isinstance(element, builtin.IntegerType) or element.width.data not in _WIDER:
        return None
    return builtin.TensorType(builtin.IntegerType(_WIDER[element.width.data]), kind.get_shape())


def _function(source: str, parser: TextParser, main: func.FuncOp) -> Graph:
    block = main.body.blocks.first
    if block is None or block.next_block is not None:
        raise StuckAt(main, "the model's function has one block")
    draft = Builder(ReadState(source, parser.starts, parser.spelled))
    inputs = draft.read.define(main, block.args, None)
    graph = _block(draft, block, inputs, main.sym_name.data)
    if not draft.functions:
        return graph
    # In normal form before they are put in place: what only a loop's border reads would go.
    bodies = {name: normalise(body) for name, body in draft.functions.items()}
    return expand(replace(normalise(graph), functions=bodies))


def _body(around: Builder, given: Sequence[SSAValue], block: Block) -> Graph:
    """The graph of a region."""
    state = ReadState(around.read.source, around.read.starts, around.read.spelled)
    draft = Builder(state, notes=around.notes, sizes=around.sizes, functions=around.functions)
    owner = block.parent_op()
    assert owner is not None  # noqa: S101 - a region is of an op
    inputs = draft.read.define(owner, given, None)
    return _block(draft, block, inputs, "body")


def _block(draft: Builder, block: Block, inputs: tuple[str, ...], name: str) -> Graph:
    outputs: tuple[str, ...] = ()
    for op in block.ops:
        try:
            if isinstance(op, func.ReturnOp):
                outputs = tuple([draft.read.names.get(v) or draft.read.integers[v] for v in op.operands])
            elif name_of(op) == "tosa.yield":
                outputs = _copied(draft, [draft.name(value) for value in op.operands], inputs)
            else:
                _read(draft, op)
        except _FAULTS as error:
            raise StuckAt(op, f"an attribute of this op has the wrong form: {error!r}") from None
    tidy(draft, outputs)
    return Graph(
        name=name,
        values=_used(draft, inputs, outputs),
        ops=tuple(draft.read.ops),
        inputs=inputs,
        outputs=outputs,
        constants=draft.read.constants,
        opsets={"": OPSET},
        notes=tuple(draft.notes),
    )


def _copied(draft: Builder, names: Sequence[str], inputs: Sequence[str]) -> tuple[str, ...]:
    """Results of a region, each a value that is made in it and no other result."""
    found: list[str] = []
    for name in names:
        is_own = name not in inputs and name not in draft.read.constants and name not in found
        shape = draft.shape(name)
        if not is_own and shape is not None:
            name = draft.between("Identity", [name], shape)  # noqa: PLW2901 - a copy of it
        found.append(name)
    return tuple(found)


def _read(draft: Builder, op: Operation) -> None:
    name = name_of(op)
    if name == "tosa.const_shape" or (name == "tosa.const" and _is_narrow(op)):
        _integers(draft, op)
        return
    reader = READERS.get(name.removeprefix(_MARK)) if name.startswith(_MARK) else None
    if reader is None and read_plain(draft.read, op, name):
        return
    why = "no ONNX op means the same"
    if reader is not None:
        before = len(draft.read.ops)
        try:
            reader(draft, op)
        except Unread as reason:
            del draft.read.ops[before:]
            why = str(reason)
        else:
            return
    _opaque(draft, op, why)


def _is_narrow(op: Operation) -> bool:
    """Whether a constant has elements that no array of xDSL has: 4 bits, or 48."""
    element = getattr(op.results[0].type, "element_type", None)
    return (
        isinstance(element, builtin.IntegerType)
        and str(element) != "i1"
        and (element.width.data not in (8, 16, 32, 64) or _shown(op) != element)
    )


def _shown(op: Operation) -> Attribute | None:
    """The element type of a constant's numbers: 48 bits, where its own is 64 by now."""
    found = _numbers(op)
    return None if found is None else found.get_element_type()


def _numbers(op: Operation) -> builtin.DenseIntOrFPElementsAttr[Any] | None:
    items = items_of(op)
    found = items.get("values", items.get("value"))
    return found if isinstance(found, builtin.DenseIntOrFPElementsAttr) else None


def _integers(draft: Builder, op: Operation) -> None:
    """Read a shape, or a constant of 4 or 48 bits."""
    found = _numbers(op)
    if found is None:
        raise StuckAt(op, f"{name_of(op)} has no attribute 'values' of numbers")
    numbers = [int(item) for item in found.get_values()]
    if name_of(op) == "tosa.const_shape":
        draft.sizes[op.results[0]] = tuple(numbers)
        return
    shape = tuple(found.get_shape())
    array = np.broadcast_to(np.array(numbers, np.int64).reshape(shape if len(numbers) > 1 else ()), shape)
    wide = op.results[0].type.element_type.width.data > 8  # type: ignore[attr-defined]
    name = draft.constant(array.astype(np.int64 if wide else np.int8))
    draft.read.names[op.results[0]] = name


def _opaque(draft: Builder, op: Operation, why: str) -> None:
    """Carry an op under its own name."""
    name = name_of(op)
    domain, _, plain = name.partition(".")
    known = [value for value in (*op.operands, *captured(op)) if value not in draft.sizes]
    inputs = tuple([draft.name(value) for value in known if value in op.operands])
    captures = tuple([draft.name(value) for value in known if value not in op.operands])
    outputs = draft.read.define(op, op.results, None)
    kind, first = f"{domain}::{plain}", outputs[0] if outputs else plain
    draft.read.ops.append(Op(first, kind, inputs, outputs, {OPAQUE_TEXT: opaque_text(op)}, captures))
    at = place(draft.read.source, draft.read.starts.get(id(op), 0))
    draft.notes.append(f"{at}: {name} {first!r} stays opaque and float: {why}")


def _used(draft: Builder, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> dict[str, Value]:
    """Values that something reads or makes, with their facts; constants that nothing reads go."""
    read = draft.read
    wanted = {*inputs, *outputs}
    for op in read.ops:
        wanted.update((*op.inputs, *op.captures, *op.outputs))
    for name in [name for name in read.constants if name not in wanted]:
        del read.constants[name]
    facts: Mapping[str, Facts] = read.stated
    return {
        name: replace(value, facts=facts.get(name, ()))
        for name, value in read.values.items()
        if name in wanted
    }


READERS: Final[Mapping[str, Reader]] = {**_READERS, **control(_body)}
"""Import functions of ops, by their names in the dialect."""
