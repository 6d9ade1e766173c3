"""Variables: what a streaming file keeps from call to call, as inputs and outputs of the model.

VAR_HANDLE names a variable, READ_VARIABLE gives what it holds, ASSIGN_VARIABLE replaces that. ONNX keeps
nothing between runs: the model gets an input with the name of the variable, and an output `NAME/next` that
is its input of the next call. CALL_ONCE only gives them their first numbers, zeros of most files.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from planner.errors import ModelError
from planner.formats.litert.reader.builder import Builder
from planner.formats.litert.reader.file import Operator
from planner.ir.graph import Op

FIRST: Final = "variables become inputs and outputs of the model, whose first numbers the caller gives: {}"


def _variable(builder: Builder, operator: Operator) -> str:
    place = operator.inputs[0] if operator.inputs else -1
    if place not in builder.handles:
        raise ModelError(f"operator {operator.name} reads a variable that no VAR_HANDLE names")
    return builder.handles[place]


def _name(builder: Builder, operator: Operator) -> None:
    (place,) = operator.outputs
    builder.handles[place] = builder.file.tensors[place].name or f"state_{place}"


def _read(builder: Builder, operator: Operator) -> None:
    name, (place,) = _variable(builder, operator), operator.outputs
    if place in builder.names:
        raise ModelError(f"operator {operator.name} defines tensor {place}, which is defined already")
    if name in builder.held:
        builder.names[place] = builder.held[name]
        return
    free = name not in builder.read.values and name not in builder.taken
    builder.held[name] = builder.states[name] = builder.enter(place, name=name if free else "")


def _assign(builder: Builder, operator: Operator) -> None:
    builder.held[_variable(builder, operator)] = builder.value(operator, 1)


def _first(builder: Builder, operator: Operator) -> None:
    """Nothing: subgraphs that run once, before the first call."""


VARIABLES: Final[Mapping[str, Callable[[Builder, Operator], None]]] = {
    "ASSIGN_VARIABLE": _assign,
    "CALL_ONCE": _first,
    "READ_VARIABLE": _read,
    "VAR_HANDLE": _name,
}


def next_states(builder: Builder) -> tuple[str, ...]:
    """Add the outputs of variables that are assigned, and return their names.

    Raises:
      ModelError: in a body of a loop or branch, which has the inputs and outputs of its operator alone.
    """
    found = []
    for variable, held in builder.held.items():
        if builder.states.get(variable) == held:
            continue  # read alone
        name = f"{variable}/next"
        if name in builder.read.values:
            name = builder.read.fresh(name)
        builder.read.values[name] = replace(builder.read.values[held], name=name)
        if held in builder.read.stated:
            builder.read.stated[name] = builder.read.stated[held]
        builder.read.ops.append(Op(name, "Identity", (held,), (name,)))
        found.append(name)
    if builder.held and len(builder.chain) > 1:
        raise ModelError(
            f"variable {next(iter(builder.held))!r} is read or assigned in a loop or branch",
            hint="accepted: variables of the main subgraph",
        )
    if builder.held:
        builder.notes.append(FIRST.format(", ".join(map(repr, builder.held))))
    return tuple(found)
