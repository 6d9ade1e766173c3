"""COND_IF and WHILE_LOOP as ONNX's If and Loop: their regions are functions of the graph.

A loop runs while its question says so; where that compares a count from zero with a constant, that is the
number of trips it is priced at. Values of outside that a region reads are handed in.
Source: TOSA 1.0, control flow operators; ONNX If and Loop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from xdsl.ir import Block, Operation, Region, SSAValue

from planner.formats.mlir.stablehlo_ops import name_of
from planner.formats.mlir.text.opaque import captured
from planner.formats.onnx.drafts.draft import OPSET
from planner.formats.tosa.reader.builder import Builder, Unread
from planner.formats.tosa.reader.elementwise import Reader
from planner.ir.graph import Graph, Op, Value
from planner.ir.structure import UNKNOWN_TRIPS, Branches, Call, Loop

BodyReader = Callable[[Builder, Sequence[SSAValue], Block], Graph]
"""Reads a block as a graph; the values are what it is handed, its own arguments and those of outside."""

_YIELD: Final = "tosa.yield"


def control(read_body: BodyReader) -> Mapping[str, Reader]:
    """The import functions of the two ops, with one for the ops in their regions."""

    def choose(draft: Builder, op: Operation) -> None:
        more = captured(op)
        given = [draft.operand(op, 0), *map(draft.name, (*op.operands[1:], *more))]
        bodies = tuple([_function(draft, region, more, read_body, "branch") for region in op.regions])
        _run(draft, op, "If", given, Branches(bodies))

    def repeat(draft: Builder, op: Operation) -> None:
        more = captured(op)
        states, around = [draft.name(value) for value in op.operands], [draft.name(value) for value in more]
        question, body = (
            _function(draft, region, more, read_body, kind)
            for region, kind in zip(op.regions, ("question", "body"), strict=True)
        )
        start = draft.read.fresh("going")
        draft.read.values[start] = replace(_only(draft.functions[question]), name=start)
        call = Call(question)
        draft.read.ops.append(Op(start, "Call", (*states, *around), (start,), structure=call))
        name = _trip(draft, question, body, len(states))
        carried = ((1, 0), *((2 + i, 1 + i) for i in range(len(states))))
        loop = Loop(name, _trips(draft, op) or UNKNOWN_TRIPS, carried, varying=(0,))
        _run(draft, op, "Loop", ["", start, *states, *around], loop)

    return {"cond_if": choose, "while_loop": repeat}


def _run(draft: Builder, op: Operation, kind: str, given: Sequence[str], structure: Branches | Loop) -> None:
    made = draft.read.define(op, op.results, None)
    outputs = made if kind == "If" else ("", *made)
    name = draft.read.fresh(kind)
    draft.read.ops.append(Op(name, kind, tuple(given), outputs, structure=structure))


def _function(
    draft: Builder, region: Region, more: Sequence[SSAValue], read_body: BodyReader, kind: str
) -> str:
    """Read a region as a function; give its name."""
    block = region.blocks.first
    if block is None or block.next_block is not None or name_of(list(block.ops)[-1]) != _YIELD:
        raise Unread("a region of it is no block that ends with tosa.yield")
    graph = read_body(draft, (*block.args, *more), block)
    count = 1
    while (name := f"{kind}_{count}") in draft.functions:
        count += 1
    draft.functions[name] = replace(graph, name=name)
    return name


def _only(graph: Graph) -> Value:
    if len(graph.outputs) != 1:
        raise Unread(f"its question has {len(graph.outputs)} results")
    return graph.values[graph.outputs[0]]


def _trip(draft: Builder, question: str, body: str, count: int) -> str:
    """The function of a Loop: count, condition and states to condition and states."""
    inner = draft.functions[body]
    states = [f"state_{i}" for i in range(len(inner.inputs))]
    after = [f"after_{i}" for i in range(count)]
    values = {"trip": Value("trip", (), "i64")}
    for own, name in (*zip(states, inner.inputs, strict=True), *zip(after, inner.outputs, strict=True)):
        values[own] = replace(inner.values[name], name=own)
    answer = _only(draft.functions[question])
    values |= {name: replace(answer, name=name) for name in ("go", "on")}
    ops = (
        Op("body", "Call", tuple(states), tuple(after), structure=Call(body)),
        Op("going", "Call", (*after, *states[count:]), ("on",), structure=Call(question)),
    )
    number = 1
    while (name := f"loop_{number}") in draft.functions:
        number += 1
    draft.functions[name] = Graph(
        name=name,
        values=values,
        ops=ops,
        inputs=("trip", "go", *states),
        outputs=("on", *after),
        opsets={"": OPSET},
    )
    return name


def _trips(draft: Builder, op: Operation) -> int:
    """How many trips a loop makes that counts from zero to a constant; 0 where that is not known."""
    blocks = [region.blocks.first for region in op.regions]
    question, body = blocks
    if question is None or body is None:
        return 0
    asked, after = (list(block.ops)[-1].operands for block in (question, body))
    compared = asked[0].owner if asked else None
    if not isinstance(compared, Operation) or name_of(compared) != "tosa.greater":
        return 0
    most, counted = _number(compared.operands[0]), compared.operands[1]
    if most is None or counted not in question.args:
        return 0
    index = next(i for i, value in enumerate(question.args) if value is counted)
    first, step = draft.array(draft.name(op.operands[index])), after[index].owner
    if first is None or np.any(first) or not isinstance(step, Operation) or name_of(step) != "tosa.add":
        return 0
    adds = sorted(_number(value) or 0 for value in step.operands)
    return most if body.args[index] in step.operands and adds == [0, 1] else 0


def _number(value: SSAValue) -> int | None:
    """The number of a constant of one."""
    owner = value.owner
    if not isinstance(owner, Operation) or name_of(owner) != "tosa.const":
        return None
    items = {**owner.attributes, **owner.properties}
    found = [int(item) for item in items["values"].get_values()]  # type: ignore[attr-defined]
    return found[0] if len(set(found)) == 1 else None
