"""Predicates: conditions of `where` (fusions) and `when` (rows) on ops, shapes and constants.

`Conv.group: 1` an attribute, its ONNX default where it is absent, floats as their shortest decimals;
`w: constant` a port; `x.rank: 4` and `x.shape[1]: ">= 2 and % 8 == 0"` a shape (`conditions`); `holds` any
condition. A list means any of its entries; a term that is a list stands for each of its elements. A predicate
about an absent op or port holds. `min_bits` and `asked: true` belong to propagation and are passed over;
`w.bits` is handed in by it. Source: docs/targets/reference.md.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from planner.errors import LimitError, TargetError
from planner.ir.graph import Graph, Op
from planner.ir.opattributes import NOTHING, REDUCTIONS, as_written, default_of
from planner.target.conditions.grammar import (
    SUBJECT,
    Condition,
    check_words,
    is_condition,
    parse_condition,
    refs_of,
)
from planner.target.conditions.verdicts import Unknown, Verdict, told, verdict
from planner.target.expressions import Ref, Steps
from planner.target.records import ASKED

PortValues: TypeAlias = Mapping[str, str | tuple[str, ...]]
BitsOfPort: TypeAlias = Callable[[str], Iterator[Any]]

# Operands that read as attributes: (index, value where absent).
OPERANDS: Final[Mapping[str, tuple[int, Any]]] = {
    "Clip.max": (2, math.inf),
    "Clip.min": (1, -math.inf),
    "CumSum.axis": (1, None),
    "GRU.sequence_lens": (4, "absent"),
    "LSTM.sequence_lens": (4, "absent"),
    "Pad.axes": (3, None),
    "Pad.pads": (1, None),
    "Pad.value": (2, 0.0),
    "RNN.sequence_lens": (4, "absent"),
    **{f"Reduce{how}.axes": (1, None) for how in REDUCTIONS},
    "Resize.scales": (2, "absent"),
    "Resize.sizes": (3, "absent"),
    "Slice.axes": (3, None),
    "Slice.ends": (2, None),
    "Slice.starts": (1, None),
    "Slice.steps": (4, 1),
    "Split.split": (1, "absent"),
    "Squeeze.axes": (1, None),
    "Tile.repeats": (1, None),
    "TopK.k": (1, None),
    "Unsqueeze.axes": (1, None),
}

CONVOLUTIONS: Final = ("Conv", "ConvTranspose")

_SHAPE: Final = re.compile(r"shape\[(-?\d+)\]")
_ATTRIBUTE: Final = re.compile(r"([A-Za-z_]\w*)(?:\[(-?\d+)\])?")
_ROLES: Final = ("constant", "dynamic", "present", "absent")


@dataclass(frozen=True, slots=True)
class _Scope:
    """The kernel that predicates are evaluated on: its ports, ops and attributes."""

    ports: PortValues
    ops: tuple[Op, ...]
    attributes: Mapping[str, Any]
    graph: Graph
    bits: BitsOfPort | None = None
    numbers: bool = True
    steps: Steps = field(default_factory=Steps)


class _Unsaid(Exception):
    """A term needs the constants of a model, which are not available."""


STEPS_CODE: Final = "L044"
"""Of findings and errors about limits of expressions."""


def failing(
    predicates: Mapping[str, Any],
    *,
    ports: PortValues,
    ops: tuple[Op, ...],
    attributes: Mapping[str, Any],
    graph: Graph,
    bits: BitsOfPort | None = None,
    place: tuple[str, str] = ("", ""),
    numbers: bool = True,
) -> str | None:
    """Say the first predicate that does not hold, e.g. `Conv.group is 32, wanted 1`; None if all hold.

    Args:
      ports: the value at each port, by the port's name; "" where absent, a tuple for a variadic port.
      ops: source ops of the kernel.
      attributes: the kernel's own, for annotated models that have no ops.
      bits: the bits that facts ask for at each value of a port; None in a `where`.
      place: `file:line` of the predicates and the clause they are, "when of add", for errors.
      numbers: whether the numbers of constants are available; else predicates that need them hold.

    Raises:
      TargetError: a predicate of no known form, or one that compares values without an order.
      LimitError: conditions that take too many steps, or have too big numbers.
    """
    scope = _Scope(ports, ops, attributes, graph, bits, numbers)
    for key, wanted in predicates.items():
        try:
            passed = is_of_facts(key, wanted) and (key == "min_bits" or bits is not None)
            problem = None if passed else _problem(key, wanted, scope)
        except _Unsaid:
            continue
        except LimitError as error:
            source, clause = place
            raise error.at(source, STEPS_CODE, f"{clause} {key}".strip()) from error
        if problem:
            return problem
    return None


def is_of_facts(key: str, wanted: Any) -> bool:
    """Whether a predicate is about facts and wishes, which propagation knows: `min_bits`, `asked: true`."""
    return key == "min_bits" or (key == ASKED and wanted is True)


def found_instead(
    predicates: Mapping[str, Any],
    *,
    ports: PortValues,
    ops: tuple[Op, ...],
    attributes: Mapping[str, Any],
    graph: Graph,
) -> dict[str, Any]:
    """Predicates that would hold in place of those that do not: `{"Conv.strides": [[4, 4]]}`.

    Nothing stands for what cannot be said: a dimension that is not fixed, an operand that is no constant.

    Raises:
      TargetError: as `failing`.
    """
    scope = _Scope(ports, ops, attributes, graph, bits_unsaid)
    found: dict[str, Any] = {}
    for key, wanted in predicates.items():
        if is_of_facts(key, wanted) or not _problem(key, wanted, scope):
            continue
        if key == "holds":
            texts = wanted if isinstance(wanted, list | tuple) else [wanted]
            terms = dict.fromkeys(str(ref) for text in texts for ref in refs_of(_read("holds", text)))
        elif "." not in key:
            found[key] = _OTHERWISE[wanted]
            continue
        else:
            terms = {key: None}
        for term in terms:
            values = [value for value in _values(term, scope) if not isinstance(value, Unknown)]
            if values:
                found[term] = [values[0]] if isinstance(values[0], list) else values[0]
    return found


def bits_unsaid(_: str) -> Iterator[Any]:
    """Bits of ports without available facts."""
    yield Unknown("not said")


_OTHERWISE: Final = {"absent": "present", "constant": "dynamic", "dynamic": "constant", "present": "absent"}


def _problem(key: str, wanted: Any, scope: _Scope) -> str | None:
    wanted = _plain(wanted)
    conditions = [one for one in (wanted if isinstance(wanted, list) else [wanted]) if is_condition(one)]
    if key == "holds":
        return _unmet(wanted if isinstance(wanted, list) else [wanted], scope)
    for text in conditions:
        _read(key, text)
    if "." not in key:
        return _role_problem(key, wanted, scope)
    for value in _values(key, scope):
        if isinstance(value, Unknown):
            return f"{key} is {value.why}, must be {_prose(wanted)}"
        problem = _difference(key, value, wanted, scope)
        if problem:
            return problem
    return None


def _unmet(texts: list[Any], scope: _Scope) -> str | None:
    """The first condition of `holds` that does not hold."""
    for text in texts:
        found = verdict(_read("holds", text), lambda ref: tuple(_values(str(ref), scope)), scope.steps)
        if found.holds is False:
            return f"requires {told(text, found)}"
    return None


def _read(key: str, text: Any) -> Condition:
    """Read a condition; a mistake in it names the predicate."""
    if not isinstance(text, str):
        raise TargetError(f"predicate {key}: {text!r} is no condition", hint="write 'x.shape[1] % 8 == 0'")
    try:
        condition = parse_condition(text, of_key=key != "holds")
        check_words(condition)
    except TargetError as error:
        raise TargetError(f"predicate {key}: {error.message}") from error
    return condition


def _role_problem(port: str, wanted: Any, scope: _Scope) -> str | None:
    if port not in scope.ports:
        raise TargetError(
            f"unknown predicate {port!r}", hint=f"ports here are {', '.join(scope.ports) or 'none'}"
        )
    if wanted not in _ROLES:
        raise TargetError(f"predicate {port}: {wanted!r} is none of {', '.join(_ROLES)}")
    names = _names(port, scope)
    if wanted in ("present", "absent"):
        return None if bool(names) == (wanted == "present") else f"{port} is {_presence(names)}"
    for name in names:
        if (name in scope.graph.constants) != (wanted == "constant"):
            kind = "not a constant" if wanted == "constant" else "a constant"
            return f"{port} ({name!r}) is {kind}"
    return None


def _presence(names: tuple[str, ...]) -> str:
    return f"present ({names[0]!r})" if names else "absent"


def _names(port: str, scope: _Scope) -> tuple[str, ...]:
    bound = scope.ports[port]
    return tuple(name for name in ((bound,) if isinstance(bound, str) else bound) if name)


def _values(term: str, scope: _Scope) -> Iterator[Any]:
    """Yield the values of a term: once per value at a port, once per op of the type."""
    owner, _, what = term.rpartition(".")
    if owner in scope.ports:
        if what not in ("bits", "count", "dtype", "elements", "rank") and not _SHAPE.fullmatch(what):
            raise TargetError(
                f"unknown predicate {term!r}",
                hint="a port has rank, shape[AXIS], dtype, elements, bits and count",
            )
        if what == "count":
            yield len(_names(owner, scope))
            return
        if what == "bits":
            if scope.bits is None:
                raise TargetError(f"predicate {term!r} tests bits, which only a row's `when` knows")
            yield from scope.bits(owner)
            return
        for name in _names(owner, scope):
            yield _of_shape(name, what, scope)
        return
    if what == "rank" or _SHAPE.fullmatch(what):
        raise TargetError(
            f"predicate {term!r} names no port", hint=f"ports here are {', '.join(scope.ports) or 'none'}"
        )
    named = _ATTRIBUTE.fullmatch(what)
    if not owner or named is None:
        raise TargetError(
            f"unknown predicate {term!r}", hint="write PORT, PORT.rank, PORT.shape[AXIS] or OP.ATTRIBUTE"
        )
    name, index = named.groups()
    # An op type that no op of the kernel has yields nothing, so optional ops of a pattern need no case.
    if scope.ops:
        found = [_of_op(op, name, scope) for op in scope.ops if op.type == owner]
    else:
        own = scope.attributes
        found = [_plain(own.get(f"{owner}.{name}", own.get(name, _default(owner, name))))]
    yield from (value if index is None else _element(value, int(index)) for value in found)


def _element(value: Any, index: int) -> Any:
    """One element of a list; of a default that stands for every axis, the default."""
    if not isinstance(value, list):
        return value
    return value[index] if -len(value) <= index < len(value) else Unknown(f"not there (it is {value})")


def _of_shape(name: str, what: str, scope: _Scope) -> Any:
    value = scope.graph.values[name]
    if what == "dtype":
        return value.dtype
    match = _SHAPE.fullmatch(what)
    if value.shape is None:
        return Unknown(f"unknown ({name!r} has no shape)")
    if what == "elements":
        fixed = [dim for dim in value.shape if isinstance(dim, int)]
        return math.prod(fixed) if len(fixed) == len(value.shape) else Unknown(f"not fixed ({name!r})")
    if match is None:
        return len(value.shape)
    axis = int(match[1])
    if not -len(value.shape) <= axis < len(value.shape):
        return Unknown(f"not there ({name!r} has rank {len(value.shape)})")
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else Unknown(f"not fixed ({dim!r})" if dim else "unknown")


def _of_op(op: Op, attribute: str, scope: _Scope) -> Any:
    if attribute in op.attributes:
        return _plain(op.attributes[attribute])
    term = f"{op.type}.{attribute}"
    if term == "Clip.range":
        bounds = [_of_op(op, "min", scope), _of_op(op, "max", scope)]
        return next((bound for bound in bounds if isinstance(bound, Unknown)), bounds)
    if term in OPERANDS:
        index, absent = OPERANDS[term]
        name = op.inputs[index] if index < len(op.inputs) else ""
        if not name:
            return absent
        constant = scope.graph.constants.get(name)
        if constant is not None and constant.array is None and not scope.numbers:
            raise _Unsaid
        if constant is None or constant.array is None:
            return Unknown(f"not a constant ({name!r})")
        return _plain(constant.array)
    if attribute == "kernel_shape" and op.type in CONVOLUTIONS:
        # ONNX infers it from the weights where it is left out.
        shape = scope.graph.values[op.inputs[1]].shape
        return Unknown("absent") if shape is None else list(shape[2:])
    return _default(op.type, attribute)


def _default(op: str, attribute: str) -> Any:
    default = default_of(op, attribute)
    return Unknown("absent") if default is NOTHING else default


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return as_written(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _difference(key: str, value: Any, wanted: Any, scope: _Scope) -> str | None:
    if not is_condition(wanted):
        fits = _fits(value, wanted) or any(
            _on_value(key, value, one, scope).holds for one in _entries(wanted) if is_condition(one)
        )
        return None if fits else f"{_found(key, value, scope)}, must be {_prose(wanted)}"
    found = _on_value(key, value, wanted, scope)
    return None if found.holds is not False else f"{_found(key, value, scope)}, must be {told(wanted, found)}"


def _found(key: str, value: Any, scope: _Scope) -> str:
    """A term and its value; bits are what facts of the model ask for, which its key does not say."""
    owner, _, what = key.rpartition(".")
    if what == "bits" and owner in scope.ports:
        return f"port {owner}: facts ask for {value or 'no'} bits"
    return f"{key} is {_prose(value)}"


def _on_value(key: str, value: Any, text: str, scope: _Scope) -> Verdict:
    def look(ref: Ref) -> tuple[Any, ...]:
        return (value,) if ref == SUBJECT else tuple(_values(str(ref), scope))

    return verdict(_read(key, text), look, scope.steps)


def _entries(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else []


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value is the required one, or one of them; `2` also stands for 2 along every axis."""
    if _same(value, wanted):
        return True
    return isinstance(wanted, list) and any(_same(value, one) for one in wanted)


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, list) and not isinstance(wanted, list):
        return all(item == wanted for item in value)
    if isinstance(wanted, list) and not isinstance(value, list):
        # Defaults stand for every axis: 1 is [1, 1].
        return bool(wanted) and all(item == value for item in wanted)
    return bool(value == wanted)


def _prose(wanted: Any) -> str:
    if isinstance(wanted, list):
        return " or ".join(map(str, wanted)) if wanted and isinstance(wanted[0], list) else str(wanted)
    return str(wanted)
