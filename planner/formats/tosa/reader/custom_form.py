"""TOSA text in custom form made generic; ops whose form is regular: operands, attributes, a function type.

Attributes stand in a dictionary, or one by one as `axis(1)`, `mode<BILINEAR>`, as newer versions print them.
`tosa.cond_if` and `tosa.while_loop` have forms of their own and stay as they are, for the parser to refuse.
Source: MLIR, `TosaOps.td`, assembly formats; TOSA 1.0, enumerations.
"""

import re
from typing import Final

_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"'
_SKIPPED: Final = re.compile(rf"{_STRING}|//[^\n]*")
_OP: Final = re.compile(r"(?<![\"\w.#!@])tosa\.([a-z0-9_]++)(?!\s*=)[ \t]*+((?:%[\w.$#-]+(?:\s*,\s*)?)*+)\s*")
_OWN_FORM: Final = frozenset({"cond_if", "while_loop", "variable"})
_BRACKET: Final = re.compile(rf"{_STRING}|//[^\n]*|[\[({{<]|(?<!-)>|[\])}}]")
_ENUM: Final = re.compile(rf"({_STRING})|\b([a-z_]+)(\s*=\s*)([A-Z][A-Z0-9_]*)\b")
_CLAUSE: Final = re.compile(r"([a-z_0-9]+)([(<])")
_INTEGER: Final = re.compile(r"-?\d+")
_ENUMS: Final = {"mode": "resize_mode"}


def generic(text: str) -> str:
    """The text with its ops of TOSA in generic form; everything else stays."""
    hidden = [match.span() for match in _SKIPPED.finditer(text)]
    parts, at, skip = [], 0, 0
    for match in _OP.finditer(text):
        while skip < len(hidden) and hidden[skip][1] <= match.start():
            skip += 1
        inside = skip < len(hidden) and hidden[skip][0] <= match.start()
        if inside or match.start() < at or match[1] in _OWN_FORM:
            continue
        made = _made(text, match)
        if made is not None:
            parts += [text[at : match.start()], made[0]]
            at = made[1]
    return "".join([*parts, text[at:]])


def _made(text: str, match: re.Match[str]) -> tuple[str, int] | None:
    """An op in generic form up to its function type, and where that starts; None for any other form."""
    end, attributes = match.end(), ""
    operands = match[2].strip().removesuffix(",")
    clauses = []
    while True:
        clause = _CLAUSE.match(text, end)
        if clause is not None:
            stop = _closing(text, clause.end() - 1)
            clauses.append(_item(clause[1], clause[2], text[clause.end() : stop - 1]))
        elif text.startswith(("{", "<{"), end):
            stop = _closing(text, end)
            attributes += f" {_ENUM.sub(_enum, text[end:stop])}"
        else:
            break
        end = stop + len(text[stop:]) - len(text[stop:].lstrip())
    if clauses:
        attributes = f" <{{{', '.join(clauses)}}}>{attributes}"
    head = f'"tosa.{match[1]}"({operands}){attributes}'
    if text.startswith(":", end):
        kinds = text[end + 1 :].lstrip()
        if kinds.startswith("("):
            return f"{head} ", end
        line = kinds.partition("\n")[0]
        if match[1] == "yield":
            return f"{head} : ({line.rstrip()}) -> ()", end + 1 + text[end + 1 :].index(line) + len(line)
        return None
    return (f"{head} : () -> ()", end) if match[1] == "yield" and not operands else None


def _item(key: str, bracket: str, value: str) -> str:
    """An attribute of a dictionary, of a clause: `axis(1)` is `axis = 1 : i32`."""
    if bracket == "<":
        return f"{key} = #tosa.{_ENUMS.get(key, key)}<{value}>"
    if value.startswith("["):
        return f"{key} = array<i64: {value[1:-1]}>" if value[1:-1].strip() else f"{key} = array<i64>"
    return f"{key} = {value} : i32" if _INTEGER.fullmatch(value) else f"{key} = {value}"


def _enum(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    return f"{match[2]}{match[3]}#tosa.{_ENUMS.get(match[2], match[2])}<{match[4]}>"


def _closing(text: str, start: int) -> int:
    depth = 0
    for match in _BRACKET.finditer(text, start):
        if len(match[0]) == 1:
            depth += 1 if match[0] in "[({<" else -1
            if depth == 0:
                return match.end()
    return len(text)
