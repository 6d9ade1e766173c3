"""Elements of dense literals that xDSL misreads: in hexadecimal, a float is its bits and no integer.

Source: MLIR builtin dialect, "DenseIntOrFPElementsAttr"; language reference, float literals.
"""

from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import AnyFloat
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import ParseError


@dataclass
class HexadecimalElement(AttrParser._TensorLiteralElement):  # noqa: SLF001 - xDSL gives no other place to say it
    """An element written as `0x..`, whose meaning its type decides."""

    def to_type(self, parser: AttrParser, type: Any) -> Any:  # noqa: A002 - xDSL's name
        """Give the bits as a float, or the number as an integer.

        Raises:
          ParseError: more bits than the float has.
        """
        if not isinstance(type, AnyFloat):
            return super().to_type(parser, type)
        if not isinstance(self.value, int) or self.is_negative:
            raise ParseError(self.span, "hexadecimal floats have no sign of their own")
        try:
            data = self.value.to_bytes(type.size, "little")
        except OverflowError:
            raise ParseError(self.span, f"{self.span.text} has more bits than {type}") from None
        return type.unpack(data, 1)[0]


def hexadecimal(element: Any) -> Any:
    """The element, decoded where it is written in hexadecimal."""
    if element.span.text.lstrip("-").lower().startswith("0x"):
        return HexadecimalElement(element.is_negative, element.value, element.span)
    return element
