"""Re-verify predicates independently: a row's `when` holds for its kernel, by the checker's own reading.

Shares nothing with `target.predicates` but the format: conditions have one parser (`conditions.grammar`) and
are judged here anew. Terms that need the model's numbers (bounds of a clip) are passed over where no model
was given; unknown terms do not hold, nor does their contrary. Source: docs/targets/reference.md.
"""

import enum
import itertools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np

from planner.checker.kernel_ports import Served, own_facts
from planner.checker.rows.asked import asked_bits, asked_of, has_asked
from planner.errors import LimitError, RuleError
from planner.ir.graph import Op
from planner.ir.opattributes import NOTHING, REDUCTIONS, as_written, default_of
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.types.qtypes import AnyType, Bipolar, Uniform
from planner.target.conditions.grammar import (
    SUBJECT,
    Compared,
    Condition,
    Negated,
    Side,
    Text,
    is_condition,
    parse_condition,
    refs_of,
)
from planner.target.expressions import Ref, Steps, evaluate

OPERANDS: Final[Mapping[tuple[str, str], tuple[int, Any]]] = {
    ("Clip", "max"): (2, math.inf),
    ("Clip", "min"): (1, -math.inf),
    ("CumSum", "axis"): (1, None),
    ("GRU", "sequence_lens"): (4, "absent"),
    ("LSTM", "sequence_lens"): (4, "absent"),
    ("Pad", "axes"): (3, None),
    ("Pad", "pads"): (1, None),
    ("Pad", "value"): (2, 0.0),
    ("RNN", "sequence_lens"): (4, "absent"),
    **{(f"Reduce{how}", "axes"): (1, None) for how in REDUCTIONS},
    ("Resize", "scales"): (2, "absent"),
    ("Resize", "sizes"): (3, "absent"),
    ("Slice", "axes"): (3, None),
    ("Slice", "ends"): (2, None),
    ("Slice", "starts"): (1, None),
    ("Slice", "steps"): (4, 1),
    ("Split", "split"): (1, "absent"),
    ("Squeeze", "axes"): (1, None),
    ("Tile", "repeats"): (1, None),
    ("TopK", "k"): (1, None),
    ("Unsqueeze", "axes"): (1, None),
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
_INDEXED: Final = re.compile(r"(\w+)\[(-?\d+)\]")
_DIMENSION: Final = re.compile(r"shape\[(-?\d+)\]")


_PARAMETERS: Final[Mapping[str, Callable[[Uniform], Any]]] = {
    "qmax": lambda kind: kind.storage.qmax,
    "qmin": lambda kind: kind.storage.qmin,
    "scale": lambda kind: kind.scale if kind.is_per_tensor else list(kind.scales),
    "zero_point": lambda kind: kind.zero_point if kind.is_per_tensor else list(kind.zero_points),
}
"""What the rule `requires` may ask of the types at a port."""


class _Undecided(Exception):
    """A term whose value is in a model that was not given."""


class _Unknown(Exception):
    """A term that has no value here; the text says why."""


class _Says(enum.Enum):
    """Answers of a condition; `SILENT`: it asks for what is not there, `NUMBERS`: for a model's numbers."""

    YES = 1
    NO = 2
    SILENT = 3
    UNKNOWN = 4
    NUMBERS = 5


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
    if key == "asked" and wanted is True:
        asked = asked_of(served.graph, served.region)
        is_asked = asked is not None and has_asked(served, asked.wanted)
        return None if is_asked else "nothing asks the kernel to run so"
    if key == "holds":
        return _first_broken(served, [wanted] if isinstance(wanted, str) else wanted)
    owner, dot, what = key.rpartition(".")
    names = {entry.name for entry in (*served.row.inputs, *served.row.outputs)}
    if not dot:
        if key not in names:
            return f"{key!r} names no port of the row"
        return _role_problem(served, key, wanted)
    if owner not in names and (what == "rank" or _DIMENSION.fullmatch(what)):
        return f"{owner!r} names no port of the row"
    for value in _values(served, owner, what):
        if not _fits(served, value, wanted):
            return f"{key} is {value!r}"
    return None


def breaks_requirement(served: Served, text: str) -> bool:
    """Whether the types of the kernel's ports break the condition of a `requires` rule."""
    said = _says(served, parse_condition(text, of_key=False), None)
    return said in (_Says.NO, _Says.UNKNOWN)


def _first_broken(served: Served, texts: Any) -> str | None:
    for text in texts:
        said = _says(served, parse_condition(text, of_key=False), None)
        if said in (_Says.NO, _Says.UNKNOWN):
            return f"{text!r} is not so"
    return None


def _values(served: Served, owner: str, what: str) -> Iterator[Any]:
    """The values of `owner.what`: of each value at a port, of each op of a type, else of the kernel."""
    if owner in {entry.name for entry in (*served.row.inputs, *served.row.outputs)}:
        ports = served.named(owner)
        if what == "count":
            yield sum(1 for port in ports if port.value)
        elif what == "bits":
            yield from _asked_bits(served, owner)
        elif what in _PARAMETERS:
            yield from (_PARAMETERS[what](port.type) for port in ports if isinstance(port.type, Uniform))
        else:
            yield from (_of_tensor(served, port.value, what) for port in ports)
        return
    indexed = _INDEXED.fullmatch(what)
    name = what if indexed is None else indexed[1]
    if served.region.ops:
        ops = ops_to_run(served.region)
        found = [_of_op(served, op, name) for op in ops if op.type == owner]
    else:
        found = [_of_region(served, owner, name)]
    for value in found:
        if indexed is None or not isinstance(value, list):
            yield value
        elif -len(value) <= int(indexed[2]) < len(value):
            yield value[int(indexed[2])]
        else:
            raise _Unknown(f"{owner}.{name} has {len(value)} elements")


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
        most = max(_asked_bits(served, name), default=0)
        if most < bits:
            return f"the facts of {name!r} ask for {most} bits"
    return None


def _asked_bits(served: Served, name: str) -> Iterator[int]:
    """The width that the model asks for before any row, at each value of a port: types in the plan would make
    this circular.
    """
    for i, port in enumerate(served.ports):
        if port.value and served.patterns[i].name == name:
            facts = (*served.graph.values[port.value].facts, *own_facts(served.region, i))
            asked = [f.storage.bits for f in facts if isinstance(f, Uniform)]
            asked += [1 for f in facts if isinstance(f, Bipolar)]
            asked += [f.bits for f in facts if isinstance(f, AnyType)]
            yield max(0, *asked, asked_bits(served, i))


def _of_tensor(served: Served, name: str, what: str) -> Any:
    value = served.graph.values[name]
    if what == "dtype":
        return value.dtype
    dimension = _DIMENSION.fullmatch(what)
    if what not in ("elements", "rank") and dimension is None:
        raise _Unknown(f"a port has rank, shape[AXIS], dtype, elements, bits and count, not {what!r}")
    if value.shape is None:
        raise _Unknown(f"{name!r} has no shape")
    if what == "elements":
        count = 1
        for size in value.shape:
            if not isinstance(size, int):
                raise _Unknown(f"the shape of {name!r} is not fixed")
            count *= size
        return count
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
    if (op.type, what) in (("Conv", "kernel_shape"), ("ConvTranspose", "kernel_shape")):
        weights = served.graph.values[op.inputs[1]].shape
        if weights is not None:
            return list(weights[2:])
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


def _fits(served: Served, value: Any, wanted: Any) -> bool:
    wanted = _plain(wanted)
    if is_condition(wanted):
        said = _says(served, parse_condition(wanted, of_key=True), value)
        if said is _Says.NUMBERS:
            raise _Undecided
        return said in (_Says.YES, _Says.SILENT)
    # A list is ambiguous: the value itself (`strides: [2, 2]`), or a choice of values and conditions.
    if _equal(value, wanted):
        return True
    choice = wanted if isinstance(wanted, list) else []
    return any(_fits(served, value, one) if is_condition(one) else _equal(value, one) for one in choice)


def _equal(value: Any, wanted: Any) -> bool:
    """Whether a value is the one wanted; one number beside a list stands for each of its entries."""
    if isinstance(value, list) != isinstance(wanted, list):
        many, one = (value, wanted) if isinstance(value, list) else (wanted, value)
        return all(item == one for item in many) and (many is value or many != [])
    return bool(value == wanted)


def _says(served: Served, condition: Condition, subject: Any) -> _Says:
    if isinstance(condition, Negated):
        said = _says(served, condition.part, subject)
        return {_Says.YES: _Says.NO, _Says.NO: _Says.YES}.get(said, said)
    if isinstance(condition, Compared):
        try:
            return _compare(served, condition, subject)
        except LimitError:
            raise
        except (_Unknown, RuleError):
            return _Says.UNKNOWN
        except _Undecided:
            return _Says.NUMBERS
    said_by = [_says(served, part, subject) for part in condition.parts]
    decides = _Says.YES if condition.word == "or" else _Says.NO
    other = _Says.NO if decides is _Says.YES else _Says.YES
    for answer in (decides, _Says.UNKNOWN, _Says.NUMBERS, other):
        if answer in said_by:
            return answer
    return _Says.SILENT


def _compare(served: Served, test: Compared, subject: Any) -> _Says:
    """Judge a comparison on each combination of its terms' values."""
    found_by: dict[Ref, list[Any]] = {}
    missing: _Unknown | None = None
    for ref in refs_of(test):
        owner, _, what = str(ref).rpartition(".")
        try:
            found_by[ref] = [subject] if ref == SUBJECT else list(_values(served, owner, what))
        except _Unknown as reason:
            # Silence about another term comes first: a test on an absent operand asks for nothing.
            missing = reason
            continue
    if not all(found_by.values()):
        return _Says.SILENT
    if missing is not None:
        raise missing
    # One by one: terms of variadic ports have more combinations than memory has room for.
    combined = itertools.product(*found_by.values())
    steps = Steps()
    holds = all(_true(test, dict(zip(found_by, values, strict=True)), steps) for values in combined)
    return _Says.YES if holds else _Says.NO


def _true(test: Compared, row: Mapping[Ref, Any], steps: Steps) -> bool:
    steps.take()
    lists = [value for value in row.values() if isinstance(value, list)]
    if not lists:
        left, right = _side(test.left, row, steps), _side(test.right, row, steps)
        if test.sign not in ("==", "!=") and (isinstance(left, str | None) or isinstance(right, str | None)):
            raise _Unknown("text has no order")
        return _ORDERS[test.sign](left, right)
    if any(len(one) != len(lists[0]) for one in lists):
        return test.sign == "!="
    return all(
        _true(
            test, {ref: value[i] if isinstance(value, list) else value for ref, value in row.items()}, steps
        )
        for i in range(len(lists[0]))
    )


def _side(side: Side, row: Mapping[Ref, Any], steps: Steps) -> Any:
    if isinstance(side, Text):
        return side.value
    if isinstance(side, Ref):
        return _exact(row[side])

    def look(ref: Ref) -> Any:
        number = _exact(row[ref])
        if isinstance(number, str | None):
            raise _Unknown(f"{ref} is no number")
        return number

    return evaluate(side, look, steps)


def _exact(value: Any) -> Any:
    # A float means the decimal it was written as: 0.1 is a tenth.
    if isinstance(value, float) and math.isfinite(value):
        return Fraction(Decimal(repr(value)))
    return Fraction(value) if isinstance(value, int) else value


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return as_written(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
