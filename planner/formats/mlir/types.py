"""Types of the `quant` dialect on xDSL; a type's data is a `QType`, or the text where that says more.

Text in canonical form is found by its brackets and handed to `typetext`; other text is read token by
token (`verbatim_types`). Ours beside upstream's: `!quant.none`, `!quant.bipolar`, `!quant.dtype`, and
calibrated types per axis. Source: MLIR quant dialect; docs/mlir.md.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias

from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Data, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError
from xdsl.utils.lexer import Span

from planner.errors import QTypeError
from planner.formats.mlir.text.spelling import UPSTREAM_BITS, is_ours
from planner.formats.mlir.verbatim_types import (
    Written,
    WrittenUniform,
    as_written,
    read_any,
    read_calibrated,
    read_quantile,
    read_uniform,
)
from planner.ir.types.qtypes import QType, Uniform
from planner.ir.types.typetext import parse_type

_COLUMN: Final = re.compile(r"column (\d+): ")
_OURS: Final = re.compile(r"<[^<]*:|.*\{", re.DOTALL)
"""Calibrated types that upstream has not: per axis, or with more than a range."""
TypeData: TypeAlias = QType | Written


class QuantType(Data["QType | Written"], TypeAttribute):
    """A type of the dialect; `data` is the type itself."""

    name: ClassVar[str]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TypeData:
        """Read the bracketed rest of a type.

        Raises:
          ParseError: at the character that does not fit.
        """
        body, start = bracketed(parser)
        found = _canonical(f"!{cls.name}{body}")
        if found is not None:
            return found
        read = _READERS.get(cls.name)
        if read is None or not body or (read is read_calibrated and _OURS.match(body)):
            ours = _our_error(cls.name, body, start, parser)
            if ours is not None:
                raise ours
            return parse_type(f"!{cls.name}{body}")
        parser._resume_from(start)  # noqa: SLF001
        try:
            return read(parser)
        except (ParseError, QTypeError) as error:
            # Where our own reader gets as far, its message says more.
            ours = None if read is read_quantile else _our_error(cls.name, body, start, parser)
            at = error.span.start if isinstance(error, ParseError) else start
            if ours is not None and ours.span.start >= at:
                raise ours from None
            raise

    def print_parameter(self, printer: Printer) -> None:
        """Write the bracketed rest of the type."""
        printer.print_string(str(self.data).removeprefix(f"!{self.name}"))


@lru_cache(maxsize=1024)
def _canonical(text: str) -> QType | None:
    try:
        found = parse_type(text)
    except QTypeError:
        return None
    return found if str(found) == text else None


def _our_error(name: str, body: str, start: int, parser: AttrParser) -> ParseError | None:
    """The error of our own parser, at its place in the module; None where it reads the type."""
    head = f"!{name}"
    try:
        parse_type(head + body)
    except QTypeError as error:
        column = _COLUMN.match(error.message)
        at = start + (max(int(column[1]) - 1 - len(head), 0) if column else 0)
        message = error.message if column is None else error.message[column.end() :]
        return ParseError(Span(at, at + 1, parser.lexer.input), message)
    return None


def bracketed(parser: AttrParser) -> tuple[str, int]:
    """Take the text from the current `<` to its matching `>`, with its position; "" where there is none."""
    span = parser._current_token.span  # noqa: SLF001
    text, start = str(span.input.content), span.start
    if not text.startswith("<", start):
        return "", start
    depth = 0
    for match in re.compile("[<>]").finditer(text, start):
        depth += 1 if match[0] == "<" else -1
        if depth == 0:
            parser._resume_from(match.end())  # noqa: SLF001
            return text[start : match.end()], start
    raise ParseError(Span(start, start + 1, span.input), "this '<' is never closed")


@irdl_attr_definition
class UniformType(QuantType):
    """`!quant.uniform<...>`."""

    name = "quant.uniform"


@irdl_attr_definition
class AnyType(QuantType):
    """`!quant.any<...>`."""

    name = "quant.any"


@irdl_attr_definition
class CalibratedType(QuantType):
    """`!quant.calibrated<...>`."""

    name = "quant.calibrated"


@irdl_attr_definition
class QuantileType(QuantType):
    """`!quant.quantile<...>`; we only carry it."""

    name = "quant.quantile"


@irdl_attr_definition
class NoQuantizedType(QuantType):
    """`!quant.none` (ours)."""

    name = "quant.none"


@irdl_attr_definition
class BipolarType(QuantType):
    """`!quant.bipolar<...>` (ours)."""

    name = "quant.bipolar"


@irdl_attr_definition
class ElementType(Data[str], TypeAttribute):
    """`!quant.dtype<"str">` (ours): an element type that MLIR has no name for."""

    name = "quant.dtype"

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Read the name."""
        parser.parse_punctuation("<")
        name = parser.parse_str_literal()
        parser.parse_punctuation(">")
        return name

    def print_parameter(self, printer: Printer) -> None:
        """Write the name."""
        printer.print_string("<")
        printer.print_string_literal(self.data)
        printer.print_string(">")


def spelled(kind: QuantType | ElementType) -> str:
    """Write a type: `!quant.uniform<...>` where upstream has it, else `!qplan.none`."""
    if isinstance(kind, ElementType):
        ours = True
    elif isinstance(kind.data, Written):
        ours = kind.data.storage.bits > UPSTREAM_BITS
    else:
        ours = is_ours(kind.data)
    return str(kind).replace("!quant.", "!qplan.", 1) if ours else str(kind)


def uniform_of(kind: Attribute) -> WrittenUniform | None:
    """The uniform type of a scalar or of a tensor's elements, as written; None for every other type."""
    element = element_of(kind)
    if not isinstance(element, UniformType):
        return None
    data = element.data
    if isinstance(data, Uniform):
        return as_written(data)
    return data if isinstance(data, WrittenUniform) else None


def element_of(kind: Attribute) -> Attribute:
    """Element type of a tensor; any other type is its own."""
    return kind.element_type if isinstance(kind, TensorType | UnrankedTensorType) else kind


@lru_cache(maxsize=4096)
def with_element(kind: Attribute, element: Attribute) -> Attribute:
    """Give the type of the same shape with other elements."""
    if isinstance(kind, TensorType):
        return TensorType(element, kind.get_shape(), kind.encoding)
    return UnrankedTensorType(element) if isinstance(kind, UnrankedTensorType) else element


_READERS: Final[Mapping[str, Callable[[AttrParser], TypeData]]] = {
    "quant.any": read_any,
    "quant.calibrated": read_calibrated,
    "quant.quantile": read_quantile,
    "quant.uniform": read_uniform,
}
TYPES: Final = (
    AnyType,
    BipolarType,
    CalibratedType,
    ElementType,
    NoQuantizedType,
    QuantileType,
    UniformType,
)
