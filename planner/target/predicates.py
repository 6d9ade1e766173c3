"""Predicates: what `where` (fusions) and `when` (rows) ask of ops, shapes and constants.

`Conv.group: 1` an attribute, its ONNX default where it is absent; `w: constant` a port; `x.rank: 4` and
`x.shape[1]: ">= 2"` a shape. A list means any of its entries, `"== x.shape[1]"` compares with another
term. What names an op or a port that is not there holds. `min_bits` belongs to the propagation and is
passed over here. Source: design 04.
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

PortValues: TypeAlias = Mapping[str, str | tuple[str, ...]]

ONNX_DEFAULTS: Final[Mapping[str, Any]] = {
    "ArgMax.axis": 0,
    "ArgMax.keepdims": 1,
    "ArgMax.select_last_index": 0,
    "AveragePool.auto_pad": "NOTSET",
    "AveragePool.ceil_mode": 0,
    "AveragePool.count_include_pad": 0,
    "AveragePool.dilations": 1,
    "AveragePool.pads": 0,
    "AveragePool.strides": 1,
    "Conv.auto_pad": "NOTSET",
    "Conv.dilations": 1,
    "Conv.group": 1,
    "Conv.pads": 0,
    "Conv.strides": 1,
    "ConvTranspose.auto_pad": "NOTSET",
    "ConvTranspose.dilations": 1,
    "ConvTranspose.group": 1,
    "ConvTranspose.output_padding": 0,
    "ConvTranspose.pads": 0,
    "ConvTranspose.strides": 1,
    "DepthToSpace.mode": "DCR",
    "Elu.alpha": 1.0,
    "Flatten.axis": 1,
    "GRU.activations": ("Sigmoid", "Tanh"),
    "GRU.clip": "absent",
    "GRU.direction": "forward",
    "GRU.layout": 0,
    "GRU.linear_before_reset": 0,
    "GRU.sequence_lens": "absent",
    "Gather.axis": 0,
    "GatherND.batch_dims": 0,
    "Gelu.approximate": "none",
    "Gemm.alpha": 1.0,
    "Gemm.beta": 1.0,
    "Gemm.transA": 0,
    "Gemm.transB": 0,
    "HardSigmoid.alpha": 0.2,
    "HardSigmoid.beta": 0.5,
    "LSTM.activations": ("Sigmoid", "Tanh", "Tanh"),
    "LSTM.clip": "absent",
    "LSTM.direction": "forward",
    "LSTM.input_forget": 0,
    "LSTM.layout": 0,
    "LSTM.sequence_lens": "absent",
    "LayerNormalization.axis": -1,
    "LeakyRelu.alpha": 0.01,
    "LogSoftmax.axis": -1,
    "LpNormalization.axis": -1,
    "LpNormalization.p": 2,
    "MaxPool.auto_pad": "NOTSET",
    "MaxPool.ceil_mode": 0,
    "MaxPool.dilations": 1,
    "MaxPool.pads": 0,
    "MaxPool.storage_order": 0,
    "MaxPool.strides": 1,
    "Pad.mode": "constant",
    "RNN.activations": ("Tanh",),
    "RNN.clip": "absent",
    "RNN.direction": "forward",
    "RNN.layout": 0,
    "RNN.sequence_lens": "absent",
    "ReduceMax.keepdims": 1,
    "ReduceMean.keepdims": 1,
    "ReduceMin.keepdims": 1,
    "ReduceSum.keepdims": 1,
    "Resize.antialias": 0,
    "Resize.coordinate_transformation_mode": "half_pixel",
    "Resize.mode": "nearest",
    "Resize.nearest_mode": "round_prefer_floor",
    "ScatterElements.reduction": "none",
    "ScatterND.reduction": "none",
    "Softmax.axis": -1,
    "Split.axis": 0,
    "TopK.axis": -1,
    "TopK.largest": 1,
    "TopK.sorted": 1,
}

# Operands that read as attributes: (index, value where absent).
_OPERANDS: Final[Mapping[str, tuple[int, Any]]] = {
    "Clip.max": (2, math.inf),
    "Clip.min": (1, -math.inf),
    "GRU.sequence_lens": (4, "absent"),
    "LSTM.sequence_lens": (4, "absent"),
    "Pad.value": (2, 0.0),
    "RNN.sequence_lens": (4, "absent"),
    "ReduceMax.axes": (1, None),
    "ReduceMean.axes": (1, None),
    "ReduceMin.axes": (1, None),
    "ReduceSum.axes": (1, None),
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
_SHAPE: Final = re.compile(r"shape\[(-?\d+)\]")
_ROLES: Final = ("constant", "dynamic", "present", "absent")


@dataclass(frozen=True, slots=True)
class _Unknown:
    """A term without a value, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a predicate may look at."""

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
      TargetError: a predicate of no known form, or one that compares what cannot be compared.
    """
    scope = _Scope(ports, ops, attributes, graph)
    for key, wanted in predicates.items():
        problem = None if key == "min_bits" else _problem(key, wanted, scope)
        if problem:
            return problem
    return None


def _problem(key: str, wanted: Any, scope: _Scope) -> str | None:
    wanted = _plain(wanted)
    if "." not in key:
        return _role_problem(key, wanted, scope)
    for value in _values(key, scope):
        if isinstance(value, _Unknown):
            return f"{key} is {value.why}, wanted {_prose(wanted)}"
        problem = _difference(key, value, wanted, scope)
        if problem:
            return problem
    return None


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
    """Yield what a term stands for: once per value at a port, once per op of the type."""
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
    if scope.ops:
        yield from (_of_op(op, term, what, scope.graph) for op in scope.ops if op.type == owner)
        return
    absent = ONNX_DEFAULTS.get(term, _Unknown("absent"))
    yield _plain(scope.attributes.get(term, scope.attributes.get(what, absent)))


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
    if term in _OPERANDS:
        index, absent = _OPERANDS[term]
        name = op.inputs[index] if index < len(op.inputs) else ""
        if not name:
            return absent
        constant = graph.constants.get(name)
        if constant is None or constant.array is None:
            return _Unknown(f"not a constant ({name!r})")
        return _plain(constant.array)
    return _plain(ONNX_DEFAULTS.get(term, _Unknown("absent")))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.item() if value.size == 1 and value.ndim == 0 else value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
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
