"""HTML elements as text, escaped unless made here: a name can never become a tag.

Text only; no page is known here.
"""

import html
from typing import Final

_VOID: Final = frozenset({"br", "hr", "input", "meta"})


class Markup(str):
    """Text that is HTML already. Everything else is escaped when it enters an element."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: str) -> Markup:
    """Write `<name attributes>children</name>`; attribute names: `class_` is `class`, `data_x` `data-x`."""
    marks = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(text)}"' for key, text in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{marks}>")
    return Markup(f"<{name}{marks}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Write children one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def escape(text: object) -> Markup:
    """Make text of anything; characters that HTML has no place for become U+FFFD."""
    shown = "".join(c if c.isprintable() or c in "\n\t " else "\ufffd" for c in str(text))
    return Markup(html.escape(shown))


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> Markup:
    """Write a table with a head; `(none)` where there are no rows."""
    if not rows:
        return element("p", "(none)", class_="none")
    cells = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    whole = element(
        "table",
        element("thead", element("tr", *map(_head, head))),
        element("tbody", *cells),
    )
    return element("div", whole, class_="wide", tabindex="0")


def _head(title: str) -> Markup:
    """The head of a column; one without a name is an empty cell."""
    return element("th", title, scope="col") if title else element("td")
