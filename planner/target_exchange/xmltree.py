"""XML of other tools as marked trees: elements with their text, children, file, line and column.

No document type, no entities of its own, limits on size, depth and number before a tree is built: files are
untrusted. The parser is expat, from the standard library.
"""

from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from xml.parsers import expat

from planner.errors import InputError

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 32
MAX_ELEMENTS: Final = 50_000


@dataclass(slots=True)
class Element:
    """One element: its name, attributes, the text directly in it, and its children in order."""

    name: str
    attributes: dict[str, str]
    source: str
    line: int
    column: int
    text: str = ""
    children: "list[Element]" = field(default_factory=list)

    def fail(self, message: str, *, accepted: str = "") -> NoReturn:
        """Refuse this element: its place, the error, and the accepted values."""
        raise InputError(f"{self.source}:{self.line}:{self.column}: <{self.name}>: {message}", hint=accepted)

    def all(self, name: str) -> "list[Element]":
        """Children of a name."""
        return [child for child in self.children if child.name == name]

    def one(self, name: str) -> "Element | None":
        """The child of a name, None where there is none; two are refused."""
        found = self.all(name)
        if len(found) > 1:
            found[1].fail(f"a second <{name}> in <{self.name}>", accepted="one")
        return found[0] if found else None

    def words(self, name: str, default: str = "") -> str:
        """The text of the child of a name, blanks joined."""
        child = self.one(name)
        return default if child is None else " ".join(child.text.split())

    def truth(self, name: str, *, default: bool) -> bool:
        """The truth value of the child of a name: true, false, 1, 0."""
        child = self.one(name)
        word = self.words(name).lower()
        if child is None or not word:
            return default
        if word not in ("true", "false", "1", "0"):
            child.fail(f"{word!r} is no truth value", accepted="true or false")
        return word in ("true", "1")


def read_xml(text: str, name: str) -> Element:
    """Read one XML document.

    Raises:
      InputError: the first thing that is no XML, or none that is taken, as `name:line:column: ...`.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise InputError(f"{name}: more than {MAX_BYTES} bytes")
    parser = expat.ParserCreate()
    # One piece of text at a time, not one a line: many pieces would be joined again and again.
    parser.buffer_text, parser.buffer_size = True, MAX_BYTES
    open_elements: list[Element] = []
    roots: list[Element] = []
    count = 0

    def refuse(message: str) -> NoReturn:
        where = f"{name}:{parser.CurrentLineNumber}:{parser.CurrentColumnNumber + 1}"
        raise InputError(f"{where}: {message}")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS:
            refuse(f"more than {MAX_ELEMENTS} elements")
        if len(open_elements) >= MAX_DEPTH:
            refuse(f"nested deeper than {MAX_DEPTH}")
        element = Element(tag, attributes, name, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)
        (open_elements[-1].children if open_elements else roots).append(element)
        open_elements.append(element)

    def end(_: str) -> None:
        open_elements.pop()

    def data(piece: str) -> None:
        if open_elements:
            open_elements[-1].text += piece

    def doctype(*_: Any) -> None:
        refuse("a document type is not taken")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = data, doctype
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        message = expat.errors.messages[error.code]
        raise InputError(f"{name}:{error.lineno}:{error.offset + 1}: not XML: {message}") from error
    return roots[0]
