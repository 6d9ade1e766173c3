"""A cursor over the text of a type: tokens, columns, and errors that point at them.

No grammar of types here (`typetext` has it). Numbers are ASCII; a hexadecimal number is the bits of a
double, as MLIR writes reals that no decimal stands for. Source: MLIR language reference, lexical syntax.
"""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from planner.errors import QTypeError

MAX_TEXT: Final = 64_000_000
_SPACE: Final = re.compile(r"\s*+", re.ASCII)
_TOKEN: Final = re.compile(
    r"(?P<name>!?[A-Za-z_][\w.]*+)"
    r"|(?P<number>[-+]?(?:0x[0-9A-Fa-f]++|\d++(?:\.\d*+)?(?:[eE][-+]?\d++)?))"
    r"|(?P<sign>[<>{}:,()=])",
    re.ASCII,
)
_INTEGER: Final = re.compile(r"[-+]?\d{1,40}", re.ASCII)
_HEX: Final = re.compile(r"0x[0-9A-Fa-f]{1,16}")


class Reader:
    """Reads one text token by token; `at` is where the next token starts."""

    def __init__(self, text: str) -> None:
        """Start at the first token.

        Raises:
          QTypeError: a text beyond `MAX_TEXT` characters.
        """
        if len(text) > MAX_TEXT:
            raise QTypeError(f"type text of {len(text)} characters; at most {MAX_TEXT} are read")
        self.text = text
        self._go(0)

    def _go(self, end: int) -> None:
        space = _SPACE.match(self.text, end)
        self.at = space.end() if space else end
        self.next = _TOKEN.match(self.text, self.at)

    def fail(self, wanted: str) -> QTypeError:
        """Make the error for a next token that is not the expected one."""
        found = self.text[self.at : self.at + 12] or "the end"
        return QTypeError(
            f"column {self.at + 1}: expected {wanted}, found {found!r} in {self.text[:80]!r}",
        )

    @contextmanager
    def pointing(self, at: int) -> Iterator[None]:
        """Put the column of `at` before the message of a type error raised inside."""
        try:
            yield
        except QTypeError as error:
            raise wrong(at, error.message) from None

    def take(self, kind: str, wanted: str) -> str:
        """Take a token of a kind: name, number or sign."""
        if self.next is None or self.next[kind] is None:
            raise self.fail(wanted)
        token: str = self.next[kind]
        self._go(self.next.end())
        return token

    def sign(self, sign: str) -> None:
        """Take this sign."""
        if not self.accept(sign):
            raise self.fail(repr(sign))

    def accept(self, sign: str) -> bool:
        """Take this sign if it is next."""
        if self.next is None or self.next["sign"] != sign:
            return False
        self._go(self.next.end())
        return True

    def integer(self) -> int:
        """Take a decimal integer of at most 40 digits."""
        if self.next is None or self.next["number"] is None or not _INTEGER.fullmatch(self.next["number"]):
            raise self.fail("an integer")
        return int(self.take("number", "an integer"))

    def real(self) -> float:
        """Take a decimal number, or the bits of a double in hexadecimal."""
        if self.next is None or self.next["number"] is None:
            raise self.fail("a number")
        token: str = self.next["number"]
        if "x" not in token:
            self._go(self.next.end())
            return float(token)
        if not _HEX.fullmatch(token):
            raise self.fail("a number of at most 16 hexadecimal digits")
        self._go(self.next.end())
        bits: float = struct.unpack(">d", int(token, 16).to_bytes(8, "big"))[0]
        return bits

    def end(self) -> None:
        """Refuse text that is left."""
        if self.at < len(self.text):
            raise self.fail("the end")


def wrong(at: int, message: str) -> QTypeError:
    """Make the error for something at this place of the text."""
    return QTypeError(f"column {at + 1}: {message}")
