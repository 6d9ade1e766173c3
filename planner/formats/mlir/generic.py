"""Generic: MLIR modules written in generic operation form from plain records.

For exporters that make thousands of operations of dialects we hold no definitions of: no xDSL, one pass,
nothing is verified but that operands are defined. Attributes are finished MLIR text; the `*_text` functions
here make the common ones. Source: MLIR language reference, "Generic operation format", "Builtin attributes".
"""

import math
import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.formats.mlir.text.elements import entries, string
from planner.ir.dtypes import NUMPY
from planner.ir.types.qtypes import float_text as decimal_text

Array: TypeAlias = npt.NDArray[Any]

OPAQUE_TEXT: Final = "mlir"
"""Attribute of an op that is carried and not read: its text in generic form."""
SHORT: Final = 32
"""Constants of more elements than this are written in hexadecimal."""

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_$.-]")
_FLOATS: Final = frozenset({"bf16", "f16", "f32", "f64"})


@dataclass(frozen=True, slots=True)
class Block:
    """A region's only block.

    Attributes:
      arguments: (SSA name without %, type text).
      operations: in order, the terminator last.
    """

    arguments: tuple[tuple[str, str], ...]
    operations: "tuple[Operation, ...]"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
      name: with its dialect, `stablehlo.add`.
      operands: SSA names without %, defined earlier or outside.
      results: (SSA name without %, type text).
      attributes: finished attribute text by name; "unit" for a flag.
      regions: each of one block.
      comment: lines written above it.
      text: of an op that is written as it stands, with the names of its operands and results.
    """

    name: str
    operands: tuple[str, ...] = ()
    results: tuple[tuple[str, str], ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()
    comment: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Function:
    """A `func.func`.

    Attributes:
      arguments: (SSA name without %, type text).
      results: SSA names of its results; the `func.return` is written from these.
      body: without the return.
      attributes: more than name and type, such as `arg_attrs` and `res_attrs`.
      comment: lines written above it.
    """

    name: str
    arguments: tuple[tuple[str, str], ...]
    results: tuple[str, ...]
    body: tuple[Operation, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""


def module_text(functions: Iterable[Function]) -> str:
    """Write a module of functions in generic form; operand types come from where the operands are defined."""
    lines = ['"builtin.module"() ({']
    for function in functions:
        lines.extend(_function_lines(function))
    lines.append("}) : () -> ()")
    return "\n".join(lines) + "\n"


def ssa_name(stem: str) -> str:
    """Make an SSA name of any text: characters not allowed there become `_`; not unique by itself."""
    text = _UNFIT.sub("_", stem)
    return f"v{text}" if not text or text[0].isdigit() or text[0] in "-." else text


def tensor_text(shape: Sequence[int], element: str) -> str:
    """Write a ranked tensor type: `tensor<1x8xf32>`."""
    return _tensor_text(tuple(shape), element)


@lru_cache(maxsize=1 << 14)
def _tensor_text(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{''.join([f'{size}x' for size in shape])}{element}>"


def number_text(value: float | np.generic, element: str) -> str:
    """Write a number without its type: decimal that reads back exactly, hexadecimal where not finite."""
    if element == "i1":
        return "true" if value else "false"
    if element not in _FLOATS:
        return str(int(value))
    number = float(value)
    if math.isfinite(number):
        return decimal_text(number)
    return f"0x{np.asarray(number).astype(NUMPY[element]).tobytes()[::-1].hex().upper()}"


def float_text(value: float, element: str = "f32") -> str:
    """Write a float attribute, exact: `0.5 : f32`."""
    return f"{number_text(value, element)} : {element}"


def array_text(values: Iterable[int], element: str = "i64") -> str:
    """Write a dense array attribute: `array<i64: 1, 2>`."""
    items = ", ".join(number_text(value, element) for value in values)
    return f"array<{element}: {items}>" if items else f"array<{element}>"


def dense_text(array: Array, element: str) -> str:
    """Write numbers as a `dense` attribute with its type.

    One number where all are equal, decimal where they are few, else hexadecimal, little-endian, one byte an
    element below 8 bits.

    Args:
      array: integers or floats of any dtype that hold the element type's numbers.
      element: `i8`, `ui8`, `i4`, `f32`, `i1`, ...
    """
    kind = tensor_text(array.shape, element)
    if not array.size:
        return f"dense<> : {kind}"
    stored = array.astype(_held(element))
    flat = stored.reshape(-1)
    if flat.size == 1 or bytes(flat[:1].tobytes()) * flat.size == flat.tobytes():
        return f"dense<{number_text(flat[0], element)}> : {kind}"
    if flat.size <= SHORT or element == "i1":
        return f"dense<{_nested(stored, element)}> : {kind}"
    little = stored.astype(stored.dtype.newbyteorder("<"))
    return f'dense<"0x{little.tobytes().hex().upper()}"> : {kind}'


def _held(element: str) -> Any:
    """The numpy dtype that MLIR holds an element in."""
    if element in _FLOATS:
        return NUMPY[element]
    if element == "i1":
        return np.bool_
    bits = next(width for width in (8, 16, 32, 64) if width >= int(element.lstrip("sui")))
    return np.dtype(f"{'u' if element.startswith('u') else ''}int{bits}")


def _nested(array: Array, element: str) -> str:
    if array.ndim == 0:
        return number_text(array.item(), element)
    return f"[{', '.join(_nested(part, element) for part in array)}]"


def _function_lines(function: Function) -> Iterator[str]:
    types = dict(function.arguments)
    body: list[str] = []
    for operation in function.body:
        _write_operation(operation, types, "    ", body)
    returned = [types[name] for name in function.results]
    signature = f"({', '.join(kind for _, kind in function.arguments)}) -> ({', '.join(returned)})"
    yield from _comment_lines(function.comment, "  ")
    heads = {"function_type": signature, "sym_name": string(function.name), **function.attributes}
    yield '  "func.func"() ({'
    yield f"  ^bb0({_arguments(function.arguments)}):"
    yield from body
    operands = ", ".join(f"%{name}" for name in function.results)
    yield f'    "func.return"({operands}) : ({", ".join(returned)}) -> ()'
    yield f"  }}){_braced(heads)} : () -> ()"


def _write_operation(
    operation: Operation, types: MutableMapping[str, str], indent: str, lines: list[str]
) -> None:
    """Append lines; `types` gains the results; names that regions define stay inside."""
    if operation.comment:
        lines.extend(_comment_lines(operation.comment, indent))
    operands, results = operation.operands, operation.results
    if operation.text:
        lines.extend(f"{indent}{line}" for line in operation.text.splitlines())
        types.update(results)
        return
    head = f"{indent}%{', %'.join([name for name, _ in results])} = " if results else indent
    start = f'{head}"{operation.name}"({"%" + ", %".join(operands) if operands else ""})'
    taken = ", ".join([types[name] for name in operands])
    tail = f"{_braced(operation.attributes)} : ({taken}) -> ({', '.join([kind for _, kind in results])})"
    if not operation.regions:
        lines.append(start + tail)
    else:
        lines.append(f"{start} ({{")
        for i, block in enumerate(operation.regions):
            if i:
                lines.append(f"{indent}}}, {{")
            lines.append(f"{indent}^bb0({_arguments(block.arguments)}):")
            inner = ChainMap(dict(block.arguments), types)
            for item in block.operations:
                _write_operation(item, inner, indent + "  ", lines)
        lines.append(f"{indent}}}){tail}")
    types.update(results)


def _arguments(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"%{name}: {kind}" for name, kind in pairs)


def _braced(attributes: Mapping[str, str]) -> str:
    if not attributes:
        return ""
    items = [key if text == "unit" else entries({key: text}) for key, text in attributes.items()]
    return f" {{{', '.join(items)}}}"


def _comment_lines(comment: str, indent: str) -> Iterator[str]:
    for line in comment.splitlines():
        yield f"{indent}// {line}"
