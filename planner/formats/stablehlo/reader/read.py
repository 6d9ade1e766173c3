"""Reading the ops of a StableHLO function into a graph of ONNX's ops, opset 21.

An op with an exact equivalent becomes that, so that targets' fusions find it; any other stays under its own
name, float and opaque, and a note says why. Quantized types are constraints of values. Source: StableHLO
specification; `elementwise`, `movement`, `linear`, `reductions` for the ops.
"""

from collections.abc import Mapping
from typing import Final

from xdsl.ir import Operation

from planner.formats.mlir.generic import OPAQUE_TEXT
from planner.formats.mlir.places import place
from planner.formats.mlir.stablehlo_ops import name_of
from planner.formats.mlir.text.opaque import captured, opaque_text
from planner.formats.stablehlo.reader.elementwise import ELEMENTS, Reader
from planner.formats.stablehlo.reader.gathers import gather
from planner.formats.stablehlo.reader.graph_builder import GraphBuilder
from planner.formats.stablehlo.reader.linear import LINEAR
from planner.formats.stablehlo.reader.movement import MOVEMENT
from planner.formats.stablehlo.reader.reductions import REDUCTIONS
from planner.ir.graph import Op

READERS: Final[Mapping[str, Reader]] = {
    **ELEMENTS,
    **LINEAR,
    **MOVEMENT,
    **REDUCTIONS,
    "stablehlo.gather": gather,
}
_DOMAINS: Final = frozenset({"chlo", "stablehlo"})


def read_hlo(draft: GraphBuilder, op: Operation) -> bool:
    """Read an op of StableHLO; False if it is none, or states a constant or a constraint."""
    name = name_of(op)
    domain, _, plain = name.partition(".")
    if domain not in _DOMAINS or name == "stablehlo.constant":
        settle(draft, op)
        return False
    reader = READERS.get(name)
    why = "no ONNX op means the same" if reader is None else reader(draft, op)
    if not why:
        return True
    inputs = tuple([draft.name(value) for value in op.operands])
    captures = tuple([draft.name(value) for value in captured(op)])
    outputs = draft.read.define(op, op.results, None)
    kind, first = f"{domain}::{plain}", outputs[0] if outputs else plain
    draft.read.ops.append(Op(first, kind, inputs, outputs, {OPAQUE_TEXT: opaque_text(op)}, captures))
    line = place(draft.read.source, draft.read.starts.get(id(op), 0))
    draft.notes.append(f"{line}: {name} {first!r} stays opaque and float: {why}")
    return True


def settle(draft: GraphBuilder, op: Operation) -> None:
    """Expand the broadcasts that an op reads."""
    for value in op.operands:
        if value in draft.aligned:
            draft.name(value)
