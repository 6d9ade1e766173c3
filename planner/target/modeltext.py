"""Models in a few lines of text: the `model:` of a test in a target file, read into a `Graph` of ops.

    x : f32[1,8,4,4] {-1, 1}                            # a model input: element type, shape, range
    w = constant : f32[8,8,3,3] {-0.5, 0.5}             # or numbers: constant [1, 2] : i64[2]
    y = Conv(x, w, _) [pads=[1,1,1,1]] : f32[1,8,4,4] {-2, 2} !quant.any<i16>
    a, b = Split(y) [axis=1] : f32[1,4,4,4], f32[1,4,4,4]
    return a, b                                         # without it: all that nothing reads

`_` is an absent operand; a number or a list of numbers is a constant, i64, or f32 where one has a point:
`Reshape(x, [1, -1])`, `Clip(x, 0.0, 6.0)`. A name that no line defines is an input of the type of the first
result that reads it, with the range {-1, 1} where that has none. Ops are ONNX's (opset 21), or kernels of the
target's own; an op is named by its first result. Source: docs/targets/reference.md.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from planner.errors import ModelError, PlannerError, TargetError
from planner.ir.dtypes import NUMPY
from planner.ir.graph import FLOAT_DTYPES, Constant, Dim, Graph, Op, Shape, Value
from planner.ir.topology import topological
from planner.ir.types.fit import refuse_misfits
from planner.ir.types.qtypes import Calibrated, QType
from planner.ir.types.ranges import check_range
from planner.ir.types.typetext import parse_type
from planner.ir.validity import validate

OPSET: Final = 21
MAX_LINES: Final = 1_000
MAX_ELEMENTS: Final = 1 << 20
ABSENT: Final = "_"

_NAME: Final = r"[A-Za-z_][\w./-]*"
_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_NUMBERS: Final = rf"{_NUMBER}|\[\s*(?:{_NUMBER}(?:\s*,\s*{_NUMBER})*)?\s*\]"
_NAMES: Final = rf"{_NAME}(?:\s*,\s*{_NAME})*"
_RETURN: Final = re.compile(rf"return\s+(?P<names>{_NAMES})")
_INPUT: Final = re.compile(rf"(?P<name>{_NAME})\s*:\s*(?P<types>.+)")
_CONSTANT: Final = re.compile(
    rf"(?P<name>{_NAME})\s*=\s*constant(?![\w(])\s*(?P<numbers>[^:]*?)\s*:\s*(?P<types>.+)"
)
_OP: Final = re.compile(
    rf"(?P<names>{_NAMES})\s*=\s*(?P<op>[A-Za-z_][\w.]*(?:::\w+)?)\s*\((?P<operands>[^()]*)\)\s*"
    r"(?:\[(?P<attributes>[^:]*)\]\s*)?:\s*(?P<types>.+)"
)
_TYPE: Final = re.compile(
    r"(?P<dtype>[A-Za-z]\w*)\s*(?:\[(?P<shape>[^\]]*)\])?\s*(?:\{(?P<range>[^{}]*)\})?\s*(?P<facts>.*)"
)


@dataclass(slots=True)
class _Draft:
    """Values, constants and ops of the lines read so far."""

    values: dict[str, Value] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    constants: dict[str, Constant] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    outputs: tuple[str, ...] = ()


def read_model_text(text: str, name: str) -> Graph:
    """Read a model.

    Raises:
      TargetError: `line N: ...`, the first line that cannot be read, or a fault of the model as a whole.
    """
    draft = _Draft()
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        raise TargetError(f"a model of {len(lines)} lines; at most {MAX_LINES} are read")
    for number, line in enumerate(lines, 1):
        statement = re.sub(r"(^|\s)#.*", "", line).strip()
        if not statement:
            continue
        try:
            _statement(statement, number, draft)
        except PlannerError as error:
            raise TargetError(f"line {number}: {error}") from error
    try:
        return _graph(draft, name)
    except ModelError as error:
        raise TargetError(error.message.removeprefix(f"model {name!r}: ")) from error


def _statement(text: str, line: int, draft: _Draft) -> None:
    if found := _RETURN.fullmatch(text):
        draft.outputs = tuple(_split(found["names"]))
    elif found := _CONSTANT.fullmatch(text):
        _constant(found, line, draft)
    elif found := _OP.fullmatch(text):
        _op(found, line, draft)
    elif found := _INPUT.fullmatch(text):
        _define(found["name"], found["types"], line, draft)
        draft.inputs.append(found["name"])
    else:
        _fail(f"cannot read {text!r}; write 'y = Op(x, w) [axis=1] : f32[1,8] {{-1, 1}}'")


def _op(found: re.Match[str], line: int, draft: _Draft) -> None:
    names, types = _split(found["names"]), _split(found["types"])
    if len(names) != len(types):
        _fail(f"{len(names)} results and {len(types)} types; each result has one")
    for result, kind in zip(names, types, strict=True):
        _define(result, kind, line, draft)
    operands = tuple(
        _operand(text, f"{names[0]}.operand{position}", line, draft)
        for position, text in enumerate(_split(found["operands"]))
    )
    attributes = dict(_attributes(found["attributes"] or ""))
    draft.ops.append(Op(names[0], found["op"], operands, tuple(names), attributes))


def _operand(text: str, place: str, line: int, draft: _Draft) -> str:
    """Name of an operand; numbers become a constant that is named by its place."""
    if re.fullmatch(_NAME, text):
        return "" if text == ABSENT else text
    if not re.fullmatch(_NUMBERS, text):
        _fail(f"{text!r} is no name of a value, no number and no list of numbers")
    count = "" if text[0] != "[" else str(len(_split(text[1:-1])))
    kind = "f32" if re.search(r"[.e]", text) else "i64"
    value = _define(place, f"{kind}[{count}]", line, draft)
    draft.constants[place] = Constant(_array(text, value))
    return place


def _constant(found: re.Match[str], line: int, draft: _Draft) -> None:
    name, numbers = found["name"], found["numbers"]
    value = _define(name, found["types"], line, draft)
    facts = [fact for fact in value.facts if not isinstance(fact, Calibrated)]
    draft.values[name] = Value(name, value.shape, value.dtype, tuple(facts))
    if numbers:
        draft.constants[name] = Constant(_array(numbers, value))
        return
    ranges = [fact for fact in value.facts if isinstance(fact, Calibrated)]
    if not ranges or not value.is_float:
        _fail(f"constant {name!r} has neither a range {{lo, hi}} nor numbers")
    draft.constants[name] = Constant(None, ranges[0].los, ranges[0].his, ranges[0].axis)


def _array(text: str, value: Value) -> np.ndarray:
    kind, shape = NUMPY.get(value.dtype), value.shape
    if kind is None or shape is None or not all(isinstance(dim, int) for dim in shape):
        _fail(f"numbers need a known element type and shape, found {value.dtype} of {value.shape}")
    if value.elements > MAX_ELEMENTS:
        _fail(f"{value.elements} numbers; at most {MAX_ELEMENTS}")
    sizes = tuple(int(dim) for dim in shape if isinstance(dim, int))
    try:
        array = np.asarray(json.loads(text), dtype=kind)
        array = np.broadcast_to(array, sizes)
    except (ValueError, TypeError, OverflowError):
        _fail(f"{text!r} is no number or list of {value.dtype} of shape {list(sizes)}")
    return array


def _define(name: str, text: str, line: int, draft: _Draft) -> Value:
    if name in draft.values:
        _fail(f"{name!r} is already defined in line {draft.lines[name]}")
    found = _TYPE.fullmatch(text.strip())
    if found is None or (found["dtype"] not in FLOAT_DTYPES and found["dtype"] not in NUMPY):
        _fail(f"cannot read the type {text.strip()!r}; write 'f32[1,8] {{-1, 1}}'")
    facts: list[QType] = []
    if found["range"] is not None:
        facts.append(_range(found["range"], found["dtype"]))
    facts += [parse_type(fact) for fact in _split(found["facts"], " ")]
    value = Value(name, _shape(found["shape"]), found["dtype"], tuple(facts))
    draft.values[name], draft.lines[name] = value, line
    return value


def _range(text: str, dtype: str) -> Calibrated:
    bounds = _split(text)
    try:
        lo, hi = map(float, bounds)
    except ValueError:
        _fail(f"{{{text}}} is no range; write {{lo, hi}}, such as {{-1, 1}}")
    check_range(lo, hi)
    return Calibrated((lo,), (hi,), dtype)


def _shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    return tuple(_dim(dim) for dim in _split(text))


def _dim(text: str) -> Dim:
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    if text == "?":
        return None
    if not re.fullmatch(r"[A-Za-z_]\w*", text):
        _fail(f"dimension {text!r} is no size, no name and no '?'")
    return text


def _attributes(text: str) -> Iterator[tuple[str, Any]]:
    for item in _split(text):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key) or not value:
            _fail(f"attribute {item!r}; write [axis=1, mode=linear, pads=[1,1,1,1]]")
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        yield key, tuple(read) if isinstance(read, list) else read


def _split(text: str, sign: str = ",") -> list[str]:
    """Parts between signs that no bracket holds; none of an empty text."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[{(<") - (character in "]})>")
        if character == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    parts = [part.strip() for part in parts]
    if sign == " " or parts == [""]:
        return [part for part in parts if part]
    if "" in parts:
        _fail(f"nothing between two commas of {text.strip()!r}")
    return parts


def _fail(message: str) -> NoReturn:
    raise TargetError(message)


def _graph(draft: _Draft, name: str) -> Graph:
    values = dict(draft.values)
    inputs = list(draft.inputs)
    for op in draft.ops:
        for operand in op.inputs:
            if operand and operand not in values:
                values[operand] = _input_like(operand, values[op.outputs[0]])
                inputs.append(operand)
    graph = Graph(
        name=name,
        values=values,
        ops=topological(draft.ops),
        inputs=tuple(inputs),
        outputs=draft.outputs or _unread(draft.ops),
        constants=draft.constants,
        opsets={"": OPSET},
    )
    return refuse_misfits(validate(graph))


def _input_like(name: str, result: Value) -> Value:
    ranges = tuple(fact for fact in result.facts if isinstance(fact, Calibrated))
    if not result.is_float:
        return Value(name, result.shape, result.dtype)
    return Value(name, result.shape, result.dtype, ranges or (Calibrated((-1.0,), (1.0,), result.dtype),))


def _unread(ops: list[Op]) -> tuple[str, ...]:
    read = {name for op in ops for name in op.inputs}
    written: Mapping[str, None] = dict.fromkeys(name for op in ops for name in op.outputs)
    return tuple(name for name in written if name not in read)
