"""Modules in, modules out: read each part of a text, run passes over it, print it canonically.

A file holds several modules with lines of `// -----` between them; one that is wrong keeps the others
from nothing. Errors name line and column of the whole file. Source: mlir-opt's `--split-input-file`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Final

from xdsl.dialects import builtin
from xdsl.ir import Attribute
from xdsl.printer import Printer

from planner.errors import ModelError, PlannerError, unknown_name
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.casts import CastOp, zero_point_warning
from planner.formats.mlir.dialect import RegionOp
from planner.formats.mlir.parse import parse_text, verify
from planner.formats.mlir.passes.table import PASSES
from planner.formats.mlir.places import StuckAt, place
from planner.formats.mlir.text.read_module import read_mlir
from planner.formats.mlir.text.resources import resource_text, without_resources
from planner.formats.mlir.text.spelling import Spelling, as_rfc
from planner.formats.mlir.text.write_module import write_mlir
from planner.formats.mlir.types import ElementType, QuantType, spelled
from planner.formats.stablehlo.reader.custom_form import readable

SEPARATOR: Final = "// -----"
_LINE: Final = re.compile(r"^[ \t]*// -----[ \t]*\r?$\n?", re.MULTILINE)
_JSON: Final = re.compile(r'\s*\{\s*["}]')
_COUNT: Final = re.compile(r"(_\d+)+$")
_PLACE: Final = re.compile(r"(\d+):(\d+): ")
_LINES: Final = re.compile(r"\s*\n\s*")


@dataclass(frozen=True, slots=True)
class Part:
    """Result of one module: its text, or its error; lines and columns from 1.

    Attributes:
      line: at which the part starts in the file.
      text: the module printed, "" where there is an error.
      error: `line:column: message`, "" where there is none.
      warnings: likewise, of a module that is accepted.
    """

    line: int
    text: str
    error: str = ""
    warnings: tuple[str, ...] = ()


def split(source: str) -> Iterator[tuple[int, str]]:
    """Cut a text at its separator lines: the first line of each part (from 1), and the part."""
    start = 0
    for match in _LINE.finditer(source):
        yield source.count("\n", 0, start) + 1, source[start : match.start()]
        start = match.end()
    yield source.count("\n", 0, start) + 1, source[start:]


def run_parts(
    source: str,
    passes: Sequence[str] = (),
    *,
    separate: bool = False,
    truncating: bool = False,
    to_json: bool = False,
    spelling: Spelling = "qplan",
) -> tuple[Part, ...]:
    """Parse, verify, transform and print every module of a text.

    Args:
      source: MLIR text, or an annotated model as JSON.
      passes: names from `PASSES`, run in order.
      separate: whether `// -----` lines separate modules.
      truncating: lower quantizing casts the upstream way, see `lowering`.
      to_json: give annotated models as JSON rather than modules.
      spelling: of ops and types that upstream's `quant` dialect has not.

    Raises:
      UnknownName: a pass that is none.
      PlanFormatError: JSON that is no annotated model.
    """
    for name in passes:
        if name not in PASSES:
            raise unknown_name("pass", name, PASSES)
    if _JSON.match(source):
        source = write_mlir(read_annotated(source))
    parts = split(source) if separate else [(1, source)]
    found = [_run(line, text, passes, truncating=truncating, to_json=to_json) for line, text in parts]
    if spelling == "rfc" and not to_json:
        found = [replace(part, text=as_rfc(part.text)) for part in found]
    return tuple(found)


def _run(line: int, text: str, passes: Sequence[str], *, truncating: bool, to_json: bool) -> Part:
    try:
        printed, warnings = transform(text, passes, truncating=truncating)
        if to_json:
            printed = write_annotated(read_mlir(printed if passes else text))
    except PlannerError as error:
        return Part(line, "", in_file(str(error), line))
    return Part(line, printed, "", tuple([in_file(warning, line) for warning in warnings]))


def transform(
    text: str, passes: Sequence[str] = (), *, truncating: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Parse and verify one module, run passes, print it.

    Returns:
      The module's text, and warnings, each `line:column: message`.

    Raises:
      ModelError: `line:column: ` and the fault there, or the limit of a pass.
    """
    text, resources = without_resources(text)
    text = readable(text)
    module, parser = parse_text(text)
    warnings: dict[str, str] = {}
    for op in module.walk():
        message = zero_point_warning(op) if isinstance(op, CastOp) else ""
        if message:
            warnings.setdefault(message, f"{place(text, parser.starts.get(id(op), 0))}: {message}")
    for name in passes:
        try:
            PASSES[name](module, truncating)
        except StuckAt as error:
            at = place(text, parser.starts.get(id(error.op), 0))
            raise ModelError(f"{at}: {name}: {error.message}") from None
        verify(module, text, parser.starts)
    behind = [resource_text(name, document) for name, document in resources.items()]
    return "".join([print_module(module), *behind]), tuple(warnings.values())


class _TypePrinter(Printer):
    """A printer that spells types as `type_text` does."""

    def print_attribute(self, attribute: Attribute) -> None:
        """Print an attribute; a quantized type as its dialect is called."""
        if isinstance(attribute, QuantType | ElementType):
            self.print_string(spelled(attribute))
        else:
            super().print_attribute(attribute)


class _Printer(_TypePrinter):
    """The same, which makes the text of each tensor type once, on one line.

    Line breaks of an encoding that nobody here knows would be indented, and make it another type.
    """

    def __init__(self, stream: StringIO) -> None:
        super().__init__(stream)
        self.spelled: dict[int, tuple[Attribute, str]] = {}

    def print_attribute(self, attribute: Attribute) -> None:
        """Print an attribute, a tensor type from the text of the first time."""
        if not isinstance(attribute, builtin.TensorType):
            super().print_attribute(attribute)
            return
        if id(attribute) not in self.spelled:
            stream = StringIO()
            _TypePrinter(stream).print_attribute(attribute)
            # With the type itself, so that its id stays its own.
            self.spelled[id(attribute)] = attribute, _LINES.sub(" ", stream.getvalue())
        self.print_string(self.spelled[id(attribute)][1])


def print_module(module: builtin.ModuleOp) -> str:
    """Print a module canonically: custom forms where there are any, `kernel` for `logical_kernel`."""
    for op in module.walk():
        if isinstance(op, RegionOp) and op.logical_kernel is not None:
            kernel = op.attributes.pop("logical_kernel")
            op.attributes.setdefault("kernel", kernel)
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(argument for block in blocks for argument in block.args)):
            # xDSL counts names up: a name that ends in a number already could be given twice.
            value.name_hint = _COUNT.sub("", value.name_hint or "") or None
    stream = StringIO()
    _Printer(stream).print_op(module)
    return stream.getvalue() + "\n"


def in_file(message: str, line: int) -> str:
    """Move the place at the start of an error message down to where its part starts."""
    match = _PLACE.match(message)
    if match is None:
        return f"{line}:1: {message}"
    return f"{int(match[1]) + line - 1}:{match[2]}: {message[match.end() :]}"
