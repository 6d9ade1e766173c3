"""Control flow: IF, WHILE, CALL and STABLEHLO_COMPOSITE run subgraphs, read as functions of the graph.

A WHILE is an ONNX Loop: it runs while its condition holds. If the condition compares a count from zero with a
number, that is the Loop's number of trips; what no trip changes enters every trip as it is; a tensor that
each trip writes its own slice of is a result with the slices of all trips.
Source: TensorFlow Lite, kernels of IF, WHILE, CALL and DYNAMIC_UPDATE_SLICE; ONNX If and Loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.formats.litert.reader.builder import Builder, Unread
from planner.formats.litert.reader.file import File, Operator
from planner.formats.litert.reader.linear import Reader
from planner.formats.onnx.drafts.draft import OPSET
from planner.formats.onnx.dtypes import enum_of
from planner.ir.graph import Graph, Op, Value
from planner.ir.structure import UNKNOWN_TRIPS, Branches, Call, Loop

TYPES: Final[Mapping[str, str]] = {"tflite::CALL": "Call", "tflite::IF": "If", "tflite::WHILE": "Loop"}
"""Ops that run functions, as they are called until all is in normal form, and then."""

_MOST_TRIPS: Final = 1 << 20
_UPDATE: Final = "DYNAMIC_UPDATE_SLICE"


def choose(builder: Builder, op: Operator) -> None:
    """IF."""
    options = builder.options(op, "IfOptions")
    operands = [builder.value(op, i) for i in range(len(op.inputs))]
    _check_answer(builder.file, op.inputs[0], "condition")
    bodies = [builder.subgraph(i) for i in (options.ThenSubgraphIndex(), options.ElseSubgraphIndex())]
    for body in bodies:
        _check(builder, op.inputs[1:], op.outputs, body)
    names = tuple([builder.function(body) for body in bodies])
    _run(builder, op, "tflite::IF", operands, op.outputs, Branches(names))


def call(builder: Builder, op: Operator) -> None:
    """CALL: a subgraph once; STABLEHLO_COMPOSITE: the one that it is made of."""
    if op.name == "CALL":
        index = builder.options(op, "CallOptions").Subgraph()
    else:
        index = builder.options(op, "StableHLOCompositeOptions").DecompositionSubgraphIndex()
    body = builder.subgraph(index)
    _check(builder, op.inputs, op.outputs, body)
    operands = [builder.value(op, i) for i in range(len(op.inputs))]
    _run(builder, op, "tflite::CALL", operands, op.outputs, Call(builder.function(body)))


def repeat(builder: Builder, op: Operator) -> None:
    """WHILE."""
    options = builder.options(op, "WhileOptions")
    question = builder.subgraph(options.CondSubgraphIndex())
    body = builder.subgraph(options.BodySubgraphIndex())
    _check(builder, op.inputs, op.outputs, body)
    _check(builder, op.inputs, (), question)
    if len(question.outputs) != 1:
        raise Unread(f"its question has {len(question.outputs)} results")
    _check_answer(question, question.outputs[0][1], "answer")
    cycle = _cycle(builder, op, question, body)
    operands = [builder.value(op, i) for i in range(len(op.inputs))]
    written = {body.outputs[item.index][1] for item in cycle.collected}
    kept = tuple([each for each in body.operators if written.isdisjoint(each.outputs)])
    function = builder.function(replace(body, outputs=tuple(cycle.results.values()), operators=kept))
    most, start = cycle.bound(builder, operands), ""
    if cycle.flag is not None:
        start = operands[cycle.flag]
    elif cycle.count is None:
        start = _asked(builder, builder.function(question), operands, question)
    given = [most, start, *(operands[i] for i in (*cycle.carried, *cycle.constant))]
    asked = "" if cycle.count is not None else builder.function(question)
    name = _trip(builder, cycle, function, asked)
    carried = ((1, 0), *((2 + i, 1 + i) for i in range(len(cycle.carried))))
    structure = Loop(name, cycle.trips or UNKNOWN_TRIPS, carried, varying=(0,))
    for i in cycle.constant:
        builder.names[op.outputs[i]] = operands[i]
    made = [builder.enter(op.outputs[i]) for i in cycle.carried]
    slices = [_stacked(builder, body, made_of) for made_of in cycle.collected]
    outputs = ("", *made, *slices)
    builder.read.ops.append(
        Op(_name(builder, "WHILE"), "tflite::WHILE", tuple(given), outputs, structure=structure)
    )
    for found, name in zip(cycle.collected, slices, strict=True):
        _spread(builder, op, found, name)


@dataclass(frozen=True, slots=True)
class _Collected:
    """A tensor that every trip writes its slice of.

    Attributes:
      index: among the operands.
      slice_: the tensor of the body that is written, without the axis of slices.
      axis: of the slices.
      is_back: whether the first trip writes the last slice.
    """

    index: int
    slice_: int
    axis: int
    is_back: bool


@dataclass(frozen=True, slots=True)
class _Cycle:
    """A WHILE taken apart; operands and results are numbered as its own.

    Attributes:
      count: the operand that counts trips from zero; None: only the question ends it.
      trips: their number where it is a constant.
      most: the operand that is their number, where it is one.
      flag: the operand that says whether there is another trip, beside the count.
      carried: what trips hand on; the flag only where a trip reads it.
      constant: what enters every trip as it is.
      results: of the body that something reads, by number, with slices instead of whole tensors.
    """

    count: int | None
    trips: int | None
    most: int | None
    flag: int | None
    carried: tuple[int, ...]
    constant: tuple[int, ...]
    collected: tuple[_Collected, ...]
    results: Mapping[int, tuple[str, int]]

    def bound(self, builder: Builder, operands: Sequence[str]) -> str:
        """The value that is the number of trips; "" where only a condition ends them."""
        if self.trips is not None:
            return builder.constant(np.asarray(self.trips, np.int64), "trips")
        return "" if self.most is None else builder.cast(operands[self.most], "i64")


def _cycle(builder: Builder, op: Operator, question: File, body: File) -> _Cycle:
    places, made = [place for _, place in body.inputs], [place for _, place in body.outputs]
    same = tuple([i for i, place in enumerate(places) if made[i] == place])
    carried = tuple([i for i in range(len(places)) if i not in same])
    every = {i: body.outputs[i] for i in carried}
    plain = _Cycle(None, None, None, None, carried, same, (), every)
    asked = _asked_of(question)
    if asked is None:
        return plain
    count, most, flag = asked
    is_number = isinstance(most, np.ndarray)
    if count in same or not _is_counted(builder, op, body, count) or flag in (count, most):
        return plain
    if not is_number and most not in same:
        return plain
    if any(i is not None and _is_read(builder, op.outputs[i]) for i in (count, flag)):
        return plain
    trips = max(0, int(most.reshape(-1)[0])) if isinstance(most, np.ndarray) else None
    if trips is not None and trips > _MOST_TRIPS:
        return plain
    collected = _collections(builder, op, body, count, trips) if flag is None and trips else ()
    written = {item.index: item for item in collected}
    handed_on = flag is not None and (_reads(body, places[flag]) or places[flag] in made)
    unread = {flag} if flag is not None and not handed_on else set()
    moved = [i for i in range(len(places)) if i not in (*same, *written, *unread, count)]
    results = {i: body.outputs[i] for i in (*moved, *unread) if i is not None}
    results |= {i: ("", item.slice_) for i, item in written.items()}
    bound = None if is_number else int(most)
    return _Cycle(count, trips, bound, flag, tuple(moved), same, collected, results)


def _asked_of(question: File) -> tuple[int, "np.ndarray | int", int | None] | None:
    """The operand that is less than a number or an operand, and the one that is true beside it."""
    operands = {place: i for i, (_, place) in enumerate(question.inputs)}
    makers = {place: each for each in question.operators for place in each.outputs}
    last, flag = makers.get(question.outputs[0][1]), None
    if last is not None and last.name == "LOGICAL_AND" and len(last.inputs) == 2:
        flag = next((operands[place] for place in last.inputs if place in operands), None)
        rest = [place for place in last.inputs if place not in operands]
        last = makers.get(rest[0]) if len(rest) == 1 else None
        if flag is None:
            return None
    if last is None or last.name != "LESS" or len(last.inputs) != 2:
        return None
    left, right = last.inputs
    bound = question.tensors[right]
    if left not in operands or any(question.tensors[i].element not in ("i32", "i64") for i in last.inputs):
        return None
    if bound.data is not None and bound.data.size == 1:
        return operands[left], bound.data, flag
    return (operands[left], operands[right], flag) if right in operands else None


def _is_counted(builder: Builder, op: Operator, body: File, index: int) -> bool:
    """Whether an operand starts at zero and is one more after each trip."""
    start = builder.file.tensors[op.inputs[index]].data
    place, result = body.inputs[index][1], body.outputs[index][1]
    maker = next((each for each in body.operators if result in each.outputs), None)
    is_scalar = not body.tensors[place].shape and start is not None and start.size == 1
    if start is None or not is_scalar or start.any() or maker is None or maker.name != "ADD":
        return False
    other = [i for i in maker.inputs if i != place]
    number = body.tensors[other[0]].data if len(other) == 1 and len(maker.inputs) == 2 else None
    options = maker.options("AddOptions")
    is_plain = options is None or not options.FusedActivationFunction()
    return is_plain and number is not None and number.size == 1 and int(number.reshape(-1)[0]) == 1


def _is_read(builder: Builder, place: int) -> bool:
    file = builder.file
    return _reads(file, place) or place in {i for _, i in file.outputs}


def _reads(file: File, place: int) -> bool:
    return any(place in each.inputs for each in file.operators)


def _collections(
    builder: Builder, op: Operator, body: File, count: int, trips: int
) -> tuple[_Collected, ...]:
    """The operands that the trips write slice by slice until none is left of what they were."""
    makers = {place: each for each in body.operators for place in each.outputs}
    found = []
    for i, ((_, place), (_, result)) in enumerate(zip(body.inputs, body.outputs, strict=True)):
        maker = makers.get(result)
        if maker is None or maker.name != _UPDATE or len(maker.inputs) != 3 or maker.inputs[0] != place:
            continue
        readers = [each for each in body.operators if place in each.inputs]
        way = _way(body, makers, maker.inputs[2], body.inputs[count][1], trips)
        # Another state that takes the tensor, old or new, takes all of it.
        outputs = [each for _, each in body.outputs]
        is_state = place in outputs or outputs.count(result) > 1
        is_alone = readers == [maker] and not _reads(body, result) and not is_state
        if not is_alone or way is None or builder.file.tensors[op.inputs[i]].data is None:
            continue
        axis, is_back = way
        shape, reshaped = body.tensors[place].shape, makers.get(maker.inputs[1])
        inner = tuple([size for at, size in enumerate(shape) if at != axis])
        if shape[axis] != trips or body.tensors[maker.inputs[1]].shape != (*inner[:axis], 1, *inner[axis:]):
            continue
        is_squeezed = reshaped is not None and reshaped.name == "RESHAPE"
        if reshaped is None or not is_squeezed or body.tensors[reshaped.inputs[0]].shape != inner:
            continue
        found.append(_Collected(i, reshaped.inputs[0], axis, is_back))
    return tuple(found)


def _way(
    body: File, makers: Mapping[int, Operator], starts: int, count: int, trips: int
) -> tuple[int, bool] | None:
    """The axis that a count moves a slice along, and whether from its end; None for other places."""
    product = makers.get(starts)
    if product is None or product.name != "MUL" or len(product.inputs) != 2:
        return None
    along = next((body.tensors[i].data for i in product.inputs if body.tensors[i].data is not None), None)
    at = next((i for i in product.inputs if body.tensors[i].data is None), None)
    if along is None or at is None or sorted(along.reshape(-1).tolist()) != [0] * (along.size - 1) + [1]:
        return None
    axis = int(np.argmax(along.reshape(-1)))
    if at == count:
        return axis, False
    turned = makers.get(at)
    if turned is None or turned.name != "SUB" or len(turned.inputs) != 2 or turned.inputs[1] != count:
        return None
    last = body.tensors[turned.inputs[0]].data
    return (axis, True) if last is not None and last.size == 1 and int(last.flat[0]) == trips - 1 else None


def _stacked(builder: Builder, body: File, found: _Collected) -> str:
    """The value with the slices of all trips along its first axis."""
    whole, tensor = body.tensors[body.inputs[found.index][1]], body.tensors[found.slice_]
    name = builder.read.fresh(tensor.name)
    is_real = tensor.kind is not None or tensor.element == "f16"
    shape = (whole.shape[found.axis], *tensor.shape)
    builder.read.values[name] = Value(name, shape, "f32" if is_real else tensor.element)
    if tensor.kind is not None:
        builder.read.stated[name] = (tensor.kind,)
    return name


def _spread(builder: Builder, op: Operator, found: _Collected, name: str) -> None:
    """The result of a WHILE: slices in their order, along their axis."""
    value, facts = builder.read.values[name], builder.read.stated.get(name, ())
    if found.is_back:
        ends = [[-1], [-(1 << 31)], [0], [-1]]
        operands = [builder.constant(np.array(part, np.int64), "reversed") for part in ends]
        name = builder.between("Slice", [name, *operands], builder.shape(name) or (), {}, value.dtype)
        if facts:
            builder.read.stated[name] = facts
    order = [*range(1, found.axis + 1), 0, *range(found.axis + 1, len(value.shape or ()))]
    builder.names[op.outputs[found.index]] = builder.turned(name, order)


def _run(  # noqa: PLR0917
    builder: Builder,
    op: Operator,
    kind: str,
    operands: Sequence[str],
    results: Sequence[int],
    structure: Branches | Call,
) -> None:
    made = tuple([builder.enter(place) for place in results])
    builder.read.ops.append(Op(_name(builder, op.name), kind, tuple(operands), made, structure=structure))


def _name(builder: Builder, kind: str) -> str:
    """A name that no other op has: those of values say nothing of it."""
    return f"{kind}_{len(builder.read.ops)}"


def _check_answer(file: File, place: int, what: str) -> None:
    """Refuse a condition that is not one truth value, as the runtime does."""
    tensor = file.tensors[place]
    if tensor.element != "bool" or tensor.kind is not None or any(size != 1 for size in tensor.shape):
        raise Unread(f"its {what} {tensor.name!r} is {tensor.element}{list(tensor.shape)}, not one bool")


def _check(builder: Builder, given: Sequence[int], made: Sequence[int], body: File) -> None:
    """Refuse a subgraph whose operands or results are others than the operator's."""
    tensors = builder.file.tensors
    for what, outer, inner in (("operands", given, body.inputs), ("results", made, body.outputs)):
        if what == "results" and not made:
            continue
        sides = [
            [(t.shape, t.element, t.kind) for t in part]
            for part in ([tensors[i] for i in outer], [body.tensors[i] for _, i in inner])
        ]
        if min(outer, default=0) < 0 or sides[0] != sides[1]:
            raise Unread(f"the {what} of its subgraph {body.name!r} have other shapes or types")


def _asked(builder: Builder, function: str, operands: Sequence[str], question: File) -> str:
    """The answer of a question."""
    name = builder.read.fresh("going")
    builder.read.values[name] = Value(name, question.tensors[question.outputs[0][1]].shape, "bool")
    builder.read.ops.append(
        Op(_name(builder, "CALL"), "tflite::CALL", tuple(operands), (name,), structure=Call(function))
    )
    return name


def _trip(builder: Builder, cycle: _Cycle, body: str, asked: str) -> str:
    """The function of a Loop: count, condition and operands to condition, what is handed on, and slices."""
    inner = builder.functions[body]
    inputs, values = ["trip", "go"], {"trip": Value("trip", (), "i64"), "go": Value("go", (), "bool")}
    operands: dict[int, str] = {}
    results: dict[int, str] = {}
    ops: list[Op] = []
    for i, name in enumerate(inner.inputs):
        operands[i] = f"state_{i}"
        values[operands[i]] = replace(inner.values[name], name=operands[i])
    for i, name in zip(cycle.results, inner.outputs, strict=True):
        results[i] = f"after_{i}"
        values[results[i]] = replace(inner.values[name], name=results[i])
    if cycle.count is not None:
        dtype = values[operands[cycle.count]].dtype
        operands[cycle.count] = _counted(values, ops, operands[cycle.count], dtype)
    if cycle.flag is not None:
        values["go"] = replace(values[operands[cycle.flag]], name="go")
    inputs += [operands[i] for i in (*cycle.carried, *cycle.constant)]
    # What no operator of a trip reads: a flag, and tensors that are written slice by slice.
    slices = [item.index for item in cycle.collected]
    unread = [i for i in operands if i not in (*cycle.carried, *cycle.constant, cycle.count)]
    constants = {operands[i]: builder.zeros(values[operands[i]]) for i in unread}
    made = tuple(results.values())
    ops.append(Op("body", "tflite::CALL", tuple(operands.values()), made, structure=Call(body)))
    if cycle.flag is not None:
        on = results[cycle.flag]
    elif asked:
        on = "on"
        after = tuple([results.get(i, operand) for i, operand in operands.items()])
        ops.append(Op("going", "tflite::CALL", after, (on,), structure=Call(asked)))
        values[on] = replace(_only(builder.functions[asked]), name=on)
        values["go"] = replace(values[on], name="go")
    else:
        on = "on"
        ops.append(Op("going", "Identity", ("go",), (on,)))
        values[on] = Value(on, (), "bool")
    outputs = (on, *(results[i] for i in cycle.carried), *(results[i] for i in slices))
    name = builder.named("loop")
    builder.functions[name] = Graph(
        name=name,
        values=values,
        ops=tuple(ops),
        inputs=tuple(inputs),
        outputs=outputs,
        constants=constants,
        opsets={"": OPSET},
    )
    return name


def _only(graph: Graph) -> Value:
    return graph.values[graph.outputs[0]]


def _counted(values: dict[str, Value], ops: list[Op], name: str, dtype: str) -> str:
    """The number of trips so far, in the element type that the file counts in."""
    if dtype == "i64":
        del values[name]
        return "trip"
    ops.append(Op(name, "Cast", ("trip",), (name,), {"to": enum_of(dtype)}))
    return name


CONTROL: Final[Mapping[str, Reader]] = {
    "CALL": call,
    "IF": choose,
    "STABLEHLO_COMPOSITE": call,
    "WHILE": repeat,
}
