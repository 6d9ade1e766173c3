"""Re-verify predicates independently: a row's `when` holds for its kernel, by the checker's own reading.

Shares nothing with `target.predicates` but the format. Terms that need the model's numbers (bounds of a
clip) are passed over where no model was given; unknown terms do not hold. Source: design 04.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from planner.checker.asked import asked_bits
from planner.checker.kernel_ports import Served, own_facts
from planner.ir.graph import Op
from planner.ir.opattributes import NOTHING, REDUCTIONS, as_written, default_of
from planner.ir.types.qtypes import AnyType, Uniform

OPERANDS: Final[Mapping[tuple[str, str], tuple[int, Any]]] = {
    ("Clip", "max"): (2, math.inf),
    ("Clip", "min"): (1, -math.inf),
    ("GRU", "sequence_lens"): (4, "absent"),
    ("LSTM", "sequence_lens"): (4, "absent"),
    ("Pad", "value"): (2, 0.0),
    ("RNN", "sequence_lens"): (4, "absent"),
    **{(f"Reduce{how}", "axes"): (1, None) for how in REDUCTIONS},
}
"""Operands that a predicate names like attributes: index, and the meaning of an absent one."""

_ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDER: Final = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(\S+)\s*")
_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_DIMENSION: Final = re.compile(r"shape\[(-?\d+)\]")


class _Undecided(Exception):
    """A term whose value is in a model that was not given."""


class _Unknown(Exception):
    """A term that has no value here; the text says why."""


def broken_predicate(served: Served) -> str | None:
    """Say the first `when` predicate of the row that does not hold for the kernel; None if all hold."""
    for key, wanted in served.row.when.items():
        try:
            problem = _judge(served, key, wanted)
        except _Undecided:
            continue
        except _Unknown as reason:
            problem = f"{reason}"
        if problem:
            return f"`when` {key}: {wanted!r} does not hold, {problem}"
    return None


def _judge(served: Served, key: str, wanted: Any) -> str | None:
    if key == "min_bits":
        return _bits_problem(served, wanted)
    owner, dot, what = key.rpartition(".")
    names = {entry.name for entry in (*served.row.inputs, *served.row.outputs)}
    if not dot:
        if key not in names:
            return f"{key!r} names no port of the row"
        return _role_problem(served, key, wanted)
    if owner not in names and (what == "rank" or _DIMENSION.fullmatch(what)):
        return f"{owner!r} names no port of the row"
    if owner in names:
        values: Iterator[Any] = (_of_tensor(served, port.value, what) for port in served.named(owner))
    elif served.region.ops:
        values = (_of_op(served, op, what) for op in served.region.ops if op.type == owner)
    else:
        values = iter([_of_region(served, owner, what)])
    for value in values:
        if not _holds(served, value, wanted):
            return f"{key} is {value!r}"
    return None


def _role_problem(served: Served, name: str, wanted: Any) -> str | None:
    ports = served.named(name)
    if wanted in ("present", "absent"):
        return None if bool(ports) == (wanted == "present") else f"{name!r} is the other"
    if wanted not in ("constant", "dynamic"):
        return "which is none of constant, dynamic, present, absent"
    for port in ports:
        if (port.value in served.graph.constants) != (wanted == "constant"):
            return f"{port.value!r} is {'no' if wanted == 'constant' else 'a'} constant"
    return None


def _bits_problem(served: Served, wanted: Mapping[str, int]) -> str | None:
    for name, bits in wanted.items():
        most = 0
        for i, port in enumerate(served.ports):
            if port.value and served.patterns[i].name == name:
                # The width that the model asks for, before any
                # row: types in the plan would make this circular.
                facts = (*served.graph.values[port.value].facts, *own_facts(served.region, i))
                asked = [f.storage.bits for f in facts if isinstance(f, Uniform)]
                most = max(most, *asked, *(f.bits for f in facts if isinstance(f, AnyType)), 0)
                most = max(most, asked_bits(served, i))
        if most < bits:
            return f"the facts of {name!r} ask for {most} bits"
    return None


def _of_tensor(served: Served, name: str, what: str) -> Any:
    value = served.graph.values[name]
    if what == "dtype":
        return value.dtype
    dimension = _DIMENSION.fullmatch(what)
    if what != "rank" and dimension is None:
        raise _Unknown(f"a port has rank, shape[AXIS] and dtype, not {what!r}")
    if value.shape is None:
        raise _Unknown(f"{name!r} has no shape")
    if dimension is None:
        return len(value.shape)
    axis = int(dimension[1])
    if not -len(value.shape) <= axis < len(value.shape):
        raise _Unknown(f"{name!r} has rank {len(value.shape)}")
    size = value.shape[axis]
    if not isinstance(size, int):
        raise _Unknown(f"dimension {axis} of {name!r} is not fixed")
    return size


def _of_op(served: Served, op: Op, what: str) -> Any:
    if what in op.attributes:
        return _plain(op.attributes[what])
    # Since opset 11 the bounds of Clip are operands; `Clip.range` puts both into one term.
    if (op.type, what) == ("Clip", "range"):
        return [_of_op(served, op, "min"), _of_op(served, op, "max")]
    operand = OPERANDS.get((op.type, what))
    if operand is not None:
        index, absent = operand
        name = op.inputs[index] if index < len(op.inputs) else ""
        if not name:
            return absent
        if name not in served.graph.constants:
            raise _Unknown(f"{name!r} is no constant")
        found = served.numbers.get(name)
        if found is None or found.array is None:
            raise _Undecided
        return _plain(found.array)
    return _default(op.type, what)


def _of_region(served: Served, owner: str, what: str) -> Any:
    attributes = served.region.attributes
    # Annotated regions hold no ops; their attributes may be qualified by the op where a kernel fuses several.
    for key in (f"{owner}.{what}", what):
        if key in attributes:
            return _plain(attributes[key])
    return _default(owner, what)


def _default(owner: str, what: str) -> Any:
    default = default_of(owner, what)
    if default is NOTHING:
        raise _Unknown(f"{owner} carries no {what!r}")
    return default


def _holds(served: Served, value: Any, wanted: Any) -> bool:
    wanted = _plain(wanted)
    order = _ORDER.fullmatch(wanted) if isinstance(wanted, str) else None
    if order is not None:
        compare = _ORDERS[order[1]]
        return all(compare(value, other) for other in _terms(served, order[2]))
    if isinstance(value, list) and isinstance(wanted, list):
        # A list is ambiguous: the value itself (`strides: [2, 2]`), or a choice of values.
        return value == wanted or value in wanted
    if isinstance(value, list):
        # `strides: 2` means 2 along every axis.
        return all(item == wanted for item in value)
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _terms(served: Served, text: str) -> Iterator[Any]:
    if _NUMBER.fullmatch(text):
        yield float(text)
        return
    owner, dot, what = text.rpartition(".")
    if not dot:
        yield text
        return
    ports = served.named(owner)
    if ports:
        yield from (_of_tensor(served, port.value, what) for port in ports)
    else:
        yield from (_of_op(served, op, what) for op in served.region.ops if op.type == owner)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return as_written(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
