"""External resources of a module: text beside the ops, at the end of the file, that tools carry along.

A document is laid out over lines, each an entry under its number: tools print entries one a line, and a
change of one line is a change of one entry. Source: MLIR language reference, "External resources".
"""

import re
from collections.abc import Mapping
from typing import Final

from planner.errors import ModelError
from planner.formats.mlir.text.elements import string

_OPEN: Final = "\n{-#"
_ESCAPE: Final = re.compile(rb'\\([0-9A-Fa-f]{2}|[nt"\\])')
_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[A-Za-z0-9_$.-]+|[{}:,]', re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


def resource_text(group: str, document: str) -> str:
    """Write a text as the resources of one group, an entry a line; goes behind the module."""
    entries = (f"      l{i}: {string(line)}" for i, line in enumerate(document.splitlines()))
    inside = ",\n".join(entries)
    return f"{{-#\n  external_resources: {{\n    {group}: {{\n{inside}\n    }}\n  }}\n#-}}\n"


def without_resources(source: str) -> tuple[str, Mapping[str, str]]:
    """Take external resources off the end of a module.

    Returns:
      The module, other resources kept, and the lines of each group put together.

    Raises:
      ModelError: resources that are not in form.
    """
    at = source.rfind(_OPEN)
    if at < 0 or not source.rstrip().endswith("#-}"):
        return source, {}
    start = source.find("external_resources", at)
    if start < 0:
        return source, {}
    try:
        groups, end = _table(source, start)
    except (IndexError, ValueError) as error:  # a brace too many, no UTF-8, a number without end
        raise ModelError(f"the resources at the end of the module are wrong: {error}") from None
    before, behind = source[:start].rstrip(), source[end:].lstrip()
    joined = before.removesuffix(",") + (behind if before.endswith("{-#") else f"\n{behind}")
    if before.endswith("{-#"):
        joined = before + "\n" + behind.removeprefix(",")
    left = joined[at:].replace("{-#", "").replace("#-}", "").strip()
    return joined if left else joined[:at] + "\n", groups


def _table(source: str, start: int) -> tuple[dict[str, str], int]:
    """Text of each group, and where the table ends; `start` is at its name."""
    path: list[str] = []
    found: dict[str, dict[int, str]] = {}
    key = ""
    for match in _WORD.finditer(source, start):
        word = match[0]
        if word == "{":
            path.append(key)
        elif word == "}":
            path.pop()
            if not path:
                return {
                    name: "\n".join([lines[i] for i in sorted(lines)]) for name, lines in found.items()
                }, match.end()
        elif word in (":", ","):
            continue
        elif word.startswith('"') and len(path) == 2 and key:
            number = key[1:]
            if key.startswith("l") and number.isdecimal():
                found.setdefault(path[1], {})[int(number)] = _unescaped(word[1:-1])
            key = ""
        else:
            key = _unescaped(word[1:-1]) if word.startswith('"') else word
    raise ModelError("the resources at the end of the module are never closed")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(
        lambda match: _ESCAPED.get(match[1]) or bytes.fromhex(match[1].decode()), text.encode()
    )
    return plain.decode()
