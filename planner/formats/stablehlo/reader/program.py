"""A StableHLO program as an annotated model: its one function, or `@main` with its callees put in place.

Custom form goes through jaxlib (`custom_form`). Source: StableHLO specification, "Programs"; docs/formats.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from xdsl.dialects import func
from xdsl.ir import Operation

from planner.errors import ModelError
from planner.formats.mlir.casts import QuantizeCastOp
from planner.formats.mlir.dialect import RegionOp
from planner.formats.mlir.parse import TextParser, parse_text, verify
from planner.formats.mlir.places import StuckAt, place
from planner.formats.mlir.stablehlo_ops import name_of
from planner.formats.mlir.text.plain_functions import read_plain
from planner.formats.mlir.text.reading import ReadState
from planner.formats.onnx.drafts.draft import OPSET
from planner.formats.onnx.drafts.simplify import tidy
from planner.formats.stablehlo.reader.constants import round_constant
from planner.formats.stablehlo.reader.custom_form import readable
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.formats.stablehlo.reader.prepare import is_hlo, model_function, prepare
from planner.formats.stablehlo.reader.read import read_hlo, settle
from planner.ir.graph import Facts, Graph, Value
from planner.ir.types.fit import refuse_misfits
from planner.ir.validity import validate

_MARK: Final = "stablehlo."


def read_hlo_model(text: str) -> Graph | None:
    """Read a StableHLO program; None where the text is no such program, but an annotated model, say.

    Raises:
      ModelError: `line:column: ` and the fault there.
    """
    if _MARK not in text:
        return None
    source = readable(text)
    module, parser = parse_text(source)
    if not is_hlo(module) or any(isinstance(op, RegionOp) for op in module.walk()):
        return None
    main = model_function(module)
    try:
        prepare(module, main)
        verify(module, source, parser.starts)
        graph = _function(source, parser, main)
    except StuckAt as error:
        raise ModelError(f"{_place(source, parser, error.op)}: {error.message}") from None
    return refuse_misfits(validate(replace(graph, module=text)))


def _function(source: str, parser: TextParser, main: func.FuncOp) -> Graph:
    block = main.body.blocks.first
    if block is None or block.next_block is not None:
        raise StuckAt(main, "the model's function has one block")
    draft = GraphBuilder(ReadState(source, parser.starts, parser.spelled))
    read = draft.read
    inputs = read.define(main, block.args, None)
    outputs: tuple[str, ...] = ()
    for op in block.ops:
        try:
            if isinstance(op, func.ReturnOp):
                settle(draft, op)
                outputs = tuple([read.names.get(value) or read.integers[value] for value in op.operands])
            elif isinstance(op, QuantizeCastOp) and round_constant(draft, op):
                continue
            elif not read_hlo(draft, op) and not read_plain(read, op, name_of(op)):
                raise StuckAt(op, f"{name_of(op)} is no op of StableHLO")
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise StuckAt(op, f"an attribute of this op has the wrong form: {error!r}") from None
    tidy(draft, outputs)
    return Graph(
        name=main.sym_name.data,
        values=_used(draft, inputs, outputs, read.stated),
        ops=tuple(read.ops),
        inputs=inputs,
        outputs=outputs,
        constants=read.constants,
        opsets={"": OPSET},
        notes=tuple(draft.notes),
    )


def _used(
    draft: GraphBuilder, inputs: tuple[str, ...], outputs: tuple[str, ...], stated: Mapping[str, Facts]
) -> dict[str, Value]:
    """Values that something reads or makes, with their facts; constants that nothing reads go."""
    read = draft.read
    wanted = {*inputs, *outputs}
    for op in read.ops:
        wanted.update((*op.inputs, *op.captures))
        wanted.update(op.outputs)
    for name in [name for name in read.constants if name not in wanted]:
        del read.constants[name]
    return {
        name: replace(value, facts=stated.get(name, ()))
        for name, value in read.values.items()
        if name in wanted
    }


def _place(source: str, parser: TextParser, op: Operation) -> str:
    return place(source, parser.starts.get(id(op), 0))
