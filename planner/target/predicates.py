"""Predicates: conditions of `where` (fusions) and `when` (rows) on ops, shapes and constants.

`Conv.group: 1` an attribute, its ONNX default where it is absent, floats as their shortest decimals;
`w: constant` a port; `x.rank: 4` and `x.shape[1]: ">= 2"` a shape. A list means any of its entries,
`"== x.shape[1]"` compares with another term. A predicate on an absent op or port holds. `min_bits`
belongs to the propagation and is passed over here. Source: design 04.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from planner.errors import TargetError
from planner.ir.graph import Graph, Op
from planner.ir.opattributes import NOTHING, REDUCTIONS, as_written, default_of

PortValues: TypeAlias = Mapping[str, str | tuple[str, ...]]

# Operands that read as attributes: (index, value where absent).
OPERANDS: Final[Mapping[str, tuple[int, Any]]] = {
    "Clip.max": (2, math.inf),
    "Clip.min": (1, -math.inf),
    "GRU.sequence_lens": (4, "absent"),
    "LSTM.sequence_lens": (4, "absent"),
    "Pad.value": (2, 0.0),
    "RNN.sequence_lens": (4, "absent"),
    **{f"Reduce{how}.axes": (1, None) for how in REDUCTIONS},
}

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARISON: Final = re.compile(r"(==|!=|>=|<=|>|<)\s*(\S+)")
_COMPARES: Final = re.compile(r"\s*[=!<>]")
_SHAPE: Final = re.compile(r"shape\[(-?\d+)\]")
_ROLES: Final = ("constant", "dynamic", "present", "absent")


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A term without a value, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class _Scope:
    """The kernel that predicates are judged on: its ports, ops and attributes."""

    ports: PortValues
    ops: tuple[Op, ...]
    attributes: Mapping[str, Any]
    graph: Graph


def failing(
    predicates: Mapping[str, Any],
    *,
    ports: PortValues,
    ops: tuple[Op, ...],
    attributes: Mapping[str, Any],
    graph: Graph,
) -> str | None:
    """Say the first predicate that does not hold, e.g. "Conv.group is 32, wanted 1"; None if all hold.

    Args:
      ports: the value at each port, by the port's name; "" where absent, a tuple for a variadic port.
      ops: source ops of the kernel.
      attributes: the kernel's own, for annotated models that have no ops.

    Raises:
      TargetError: a predicate of no known form, or one that compares values without an order.
    """
    scope = _Scope(ports, ops, attributes, graph)
    for key, wanted in predicates.items():
        problem = None if key == "min_bits" else _problem(key, wanted, scope)
        if problem:
            return problem
    return None


def _problem(key: str, wanted: Any, scope: _Scope) -> str | None:
    wanted = _plain(wanted)
    _check_readable(key, wanted)
    if "." not in key:
        return _role_problem(key, wanted, scope)
    for value in _values(key, scope):
        if isinstance(value, _Unknown):
            return f"{key} is {value.why}, wanted {_prose(wanted)}"
        problem = _difference(key, value, wanted, scope)
        if problem:
            return problem
    return None


def _check_readable(key: str, wanted: Any) -> None:
    """Refuse text that looks like a comparison and is none."""
    # `=2` for `==2` would be compared as text and never hold; better to refuse it.
    entries = wanted if isinstance(wanted, list) else [] if _is_comparison(wanted) else [wanted]
    for entry in entries:
        if isinstance(entry, str) and _COMPARES.match(entry):
            hint = "write '>= 2' or '== x.shape[1]', alone and not in a list"
            raise TargetError(f"predicate {key}: {entry!r} is no comparison", hint=hint)


def _is_comparison(wanted: Any) -> bool:
    return isinstance(wanted, str) and _COMPARISON.fullmatch(wanted.strip()) is not None


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
        if what not in ("rank", "dtype") and not _SHAPE.fullmatch(what):
            raise TargetError(f"unknown predicate {term!r}", hint="a port has rank, shape[AXIS] and dtype")
        for name in _names(owner, scope):
            yield _of_shape(name, what, scope)
        return
    if what == "rank" or _SHAPE.fullmatch(what):
        raise TargetError(
            f"predicate {term!r} names no port", hint=f"ports here are {', '.join(scope.ports) or 'none'}"
        )
    if not owner or not re.fullmatch(r"[A-Za-z_]\w*", what):
        raise TargetError(
            f"unknown predicate {term!r}", hint="write PORT, PORT.rank, PORT.shape[AXIS] or OP.ATTRIBUTE"
        )
    # An op type that no op of the kernel has yields nothing, so optional ops of a pattern need no case.
    if scope.ops:
        yield from (_of_op(op, term, what, scope.graph) for op in scope.ops if op.type == owner)
        return
    yield _plain(scope.attributes.get(term, scope.attributes.get(what, _default(owner, what))))


def _of_shape(name: str, what: str, scope: _Scope) -> Any:
    value = scope.graph.values[name]
    if what == "dtype":
        return value.dtype
    match = _SHAPE.fullmatch(what)
    if value.shape is None:
        return _Unknown(f"unknown ({name!r} has no shape)")
    if match is None:
        return len(value.shape)
    axis = int(match[1])
    if not -len(value.shape) <= axis < len(value.shape):
        return _Unknown(f"not there ({name!r} has rank {len(value.shape)})")
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else _Unknown(f"not fixed ({dim!r})" if dim else "unknown")


def _of_op(op: Op, term: str, attribute: str, graph: Graph) -> Any:
    if attribute in op.attributes:
        return _plain(op.attributes[attribute])
    if term == "Clip.range":
        bounds = [_of_op(op, "Clip.min", "min", graph), _of_op(op, "Clip.max", "max", graph)]
        return next((bound for bound in bounds if isinstance(bound, _Unknown)), bounds)
    if term in OPERANDS:
        index, absent = OPERANDS[term]
        name = op.inputs[index] if index < len(op.inputs) else ""
        if not name:
            return absent
        constant = graph.constants.get(name)
        if constant is None or constant.array is None:
            return _Unknown(f"not a constant ({name!r})")
        return _plain(constant.array)
    return _default(op.type, attribute)


def _default(op: str, attribute: str) -> Any:
    default = default_of(op, attribute)
    return _Unknown("absent") if default is NOTHING else default


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return as_written(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _difference(key: str, value: Any, wanted: Any, scope: _Scope) -> str | None:
    match = _COMPARISON.fullmatch(wanted.strip()) if isinstance(wanted, str) else None
    if match is None:
        return None if _fits(value, wanted) else f"{key} is {_prose(value)}, wanted {_prose(wanted)}"
    sign, term = match.groups()
    for other in _others(term, scope):
        if isinstance(other, _Unknown):
            return f"{key} is {_prose(value)}, wanted {sign} {term}, which is {other.why}"
        try:
            holds = _COMPARE[sign](value, other)
        except TypeError as error:
            raise TargetError(f"predicate {key}: {wanted!r} compares {value!r} with {other!r}") from error
        if not holds:
            told = f"{term} ({other})" if "." in term and not _is_number(term) else term
            return f"{key} is {_prose(value)}, wanted {sign} {told}"
    return None


def _others(term: str, scope: _Scope) -> Iterator[Any]:
    if _is_number(term):
        yield float(term)
    elif "." in term:
        yield from _values(term, scope)
    else:
        yield term


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text) is not None


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(value, list):
        if isinstance(wanted, list):
            return value == wanted or any(isinstance(one, list) and value == one for one in wanted)
        return all(item == wanted for item in value)
    if isinstance(wanted, list):
        return value in wanted
    return bool(value == wanted)


def _prose(wanted: Any) -> str:
    if isinstance(wanted, list):
        return " or ".join(map(str, wanted)) if wanted and isinstance(wanted[0], list) else str(wanted)
    return str(wanted)
