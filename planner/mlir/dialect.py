"""Our `quant` dialect on xDSL: types carried whole as `QType`, and the ops of annotated modules.

A type's text is found by its brackets and handed to `ir.typetext`; nothing of the grammar is repeated
here. Ops: `quant.region`, `quant.return`, `quant.constant`. Source: MLIR quant dialect; the RFC's region
op; design 09, "MLIR".
"""

import re
from typing import ClassVar, Final

from xdsl.dialects.builtin import ArrayAttr, BytesAttr, NoneType, StringAttr
from xdsl.ir import Attribute, Data, Dialect, TypeAttribute
from xdsl.irdl import (
    IRDLOperation,
    attr_def,
    irdl_attr_definition,
    irdl_op_definition,
    opt_attr_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Span

from planner.errors import QTypeError
from planner.ir.qtypes import QType
from planner.ir.typetext import parse_type

_COLUMN: Final = re.compile(r"column (\d+): ")


class QuantType(Data[QType], TypeAttribute):
    """A type of the dialect; `data` is the type itself."""

    name: ClassVar[str]

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> QType:
        """Read the bracketed rest of a type.

        Raises:
          ParseError: at the character that `parse_type` points to.
        """
        body, start = bracketed(parser)
        head = f"!{cls.name}"
        try:
            return parse_type(head + body)
        except QTypeError as error:
            column = _COLUMN.match(error.message)
            at = start + (max(int(column[1]) - 1 - len(head), 0) if column else 0)
            message = error.message if column is None else error.message[column.end() :]
            source = parser._current_token.span.input  # noqa: SLF001
            raise ParseError(Span(at, at + 1, source), message) from None

    def print_parameter(self, printer: Printer) -> None:
        """Write the bracketed rest of the type."""
        printer.print_string(str(self.data).removeprefix(f"!{self.name}"))


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


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends the body of a region and names its results."""

    name = "quant.return"
    values = var_operand_def()
    traits = traits_def(IsTerminator())


@irdl_op_definition
class RegionOp(IRDLOperation):
    """A logical kernel. One spec a port; the spec of an absent optional port is `none`."""

    name = "quant.region"
    values = var_operand_def()
    results_ = var_result_def()
    body = region_def()
    kernel = opt_attr_def(Attribute)
    logical_kernel = opt_attr_def(Attribute)
    input_specs = attr_def(ArrayAttr[Attribute])
    output_specs = attr_def(ArrayAttr[Attribute])
    traits = traits_def(IsolatedFromAbove())

    def verify_(self) -> None:
        """Check that specs, operands, results and body agree in number and type."""
        if not isinstance(self.kernel or self.logical_kernel, StringAttr | BytesAttr):
            raise VerifyException("quant.region needs a 'kernel' attribute, a string")
        for what, specs, values in (
            ("input_specs", self.input_specs, self.values),
            ("output_specs", self.output_specs, self.results_),
        ):
            present = [spec for spec in specs.data if not isinstance(spec, NoneType)]
            if len(present) != len(values):
                raise VerifyException(
                    f"{what} has {len(present)} specs (absent ports not counted) for {len(values)} values"
                )
        self._verify_body()

    def _verify_body(self) -> None:
        block = self.body.blocks.first
        if block is None:
            return
        if block.next_block is not None:
            raise VerifyException("the body of quant.region is one block")
        if [arg.type for arg in block.args] != [value.type for value in self.values]:
            raise VerifyException("the arguments of the body must have the types of the operands")
        last = block.last_op
        if not isinstance(last, ReturnOp):
            raise VerifyException("the body of quant.region ends with quant.return")
        if [value.type for value in last.values] != [value.type for value in self.results_]:
            raise VerifyException("quant.return must give the types of the results")


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """Data known before running: its numbers as `value`, or only its `range`."""

    name = "quant.constant"
    result = result_def()


TYPES: Final = (AnyType, BipolarType, CalibratedType, ElementType, NoQuantizedType, UniformType)
Quant: Final = Dialect("quant", [ConstantOp, RegionOp, ReturnOp], list(TYPES))
