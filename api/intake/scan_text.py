"""Scans of text before a parser has it: YAML of targets, MLIR of models. Nothing is built, time is linear.

The parsers have limits of their own (`target.yamltree`, `formats.mlir.parse`); these keep libyaml
and xDSL from input whose cost grows faster than its length. Source: YAML 1.2.2; MLIR LangRef.
"""

import re
from itertools import islice
from typing import Final, NoReturn

from planner.errors import ModelError, Problem, TargetError, quantity

from .scan import deeper_at

YAML_BYTES: Final = 1_000_000
YAML_LINE: Final = 16_384
YAML_DEPTH: Final = 64
# Brackets in prose count too, and need not be closed there; the parser counts exactly.
YAML_BRACKETS: Final = 1024
MLIR_BYTES: Final = 256 << 20
MLIR_DEPTH: Final = 128
MLIR_NAMES: Final = 5_000_000
MLIR_NAME: Final = 4096
MLIR_DIGITS: Final = 5

# Runs of dashes and question marks that open a collection each, as in `- - - a`.
_OPENERS: Final = re.compile(rb"^[ ]*+((?:[-?][ ]++){%d,}+)" % (YAML_DEPTH + 1), re.MULTILINE)
# What to look for first, in one pass, of letters that are all alike: most texts have none.
_OPENER: Final = bytes(ord("a") if sign in b"-? " else 0 for sign in range(256))
_ONLY_OPENERS: Final = b"a" * (2 * YAML_DEPTH + 2)
_NO_END: Final = bytes(0 if sign in b"\r\n" else ord("a") for sign in range(256))
_NO_ENDS: Final = b"a" * (YAML_LINE + 1)
_INDENT: Final = re.compile(rb"^( +)[^ \r\n#]", re.MULTILINE)
# It begins with a set of letters, so that a search passes over all the others.
_QUOTED: Final = re.compile(
    rb"""["'#](?:(?<=")(?:[^"\\\n]|\\.)*+"|(?<=')[^'\n]*+'|(?:(?<=^#)|(?<=\s#))[^\n]*+)"""
)
_FLOW: Final = re.compile(rb"[\[\]{}]")
_MLIR_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|//[^\n]*+|->', re.DOTALL)
_ALIKE_FLOW: Final = bytes.maketrans(b"{}", b"[]")
_NO_FLOW: Final = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE: Final = bytes.maketrans(b"({<)}>", b"[[[]]]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[](){}<>"))
# It begins with the letter it is found by, so that a search passes over all the others.
_MLIR_WIDE: Final = re.compile(
    rb"i(?:(?<=\bi)|(?<=\b[su]i)|(?<=[0-9?*]xi)|(?<=[0-9?*]x[su]i))([0-9]{%d,}+)" % (MLIR_DIGITS + 1)
)
_MLIR_WORD: Final = re.compile(rb"[\w.$]++")
_LETTERS: Final = bytes(ord("a") if _MLIR_WORD.fullmatch(bytes([sign])) else 0 for sign in range(256))
_TOO_LONG: Final = b"a" * (MLIR_NAME + 1)


def scan_yaml(data: bytes, name: str = "text") -> None:
    """Refuse YAML text that is too long, has a line that is, or nests too deep.

    Args:
      name: what messages call it.

    Raises:
      TargetError: where and which limit.
    """
    if len(data) > YAML_BYTES:
        _refuse(name, 1, "T002", f"{len(data)} bytes; a target has at most {YAML_BYTES}")
    if _NO_ENDS in data.translate(_NO_END):
        for number, line in enumerate(data.splitlines(), 1):
            if len(line) > YAML_LINE:
                _refuse(name, number, "T002", f"a line of {len(line)} bytes; {YAML_LINE} are the limit")
    if _ONLY_OPENERS in data.translate(_OPENER) and (found := _OPENERS.search(data)):
        _refuse(name, _line(data, found.start(1)), "T003", f"nested deeper than {YAML_DEPTH}")
    _scan_indents(data, name)
    _scan_flow(data, name)


def _scan_indents(data: bytes, name: str) -> None:
    if b" " * (2 * YAML_DEPTH) not in data:  # each level is wider than the one before
        return
    stack = [0]
    for found in _INDENT.finditer(data):
        width = len(found[1])
        while stack[-1] > width:
            stack.pop()
        if stack[-1] < width:
            stack.append(width)
        # A line of text that goes on may lie deeper than anything that is nested.
        if len(stack) > 2 * YAML_DEPTH:
            _refuse(
                name,
                _line(data, found.start()),
                "T003",
                f"indented deeper than {quantity(2 * YAML_DEPTH, 'level')}",
            )


def _scan_flow(data: bytes, name: str) -> None:
    if data.count(b"[") + data.count(b"{") <= YAML_BRACKETS:
        return
    signs = _QUOTED.sub(b" ", data).translate(_ALIKE_FLOW, _NO_FLOW)
    found = deeper_at(signs, YAML_BRACKETS, from_zero=True)
    if found is not None:
        bare = _QUOTED.sub(lambda text: b" " * len(text[0]), data)
        place = next(islice(_FLOW.finditer(bare), found, None)).start()
        _refuse(name, _line(data, place), "T003", f"more than {YAML_BRACKETS} open brackets")


def scan_mlir(data: bytes) -> None:
    """Refuse MLIR text that nests too deep, or holds too many names or one too long.

    Raises:
      ModelError: which limit.
    """
    if len(data) > MLIR_BYTES:
        raise ModelError(f"{len(data)} bytes of MLIR; {MLIR_BYTES} are the limit")
    if data.count(b"%") > MLIR_NAMES:
        raise ModelError(f"more than {MLIR_NAMES} names of values in MLIR")
    bare = _MLIR_TEXT.sub(b" ", data)
    if wide := _MLIR_WIDE.search(bare):
        raise ModelError(f"an integer type of {len(wide[1])} digits in MLIR; {MLIR_DIGITS} are the limit")
    at = bare.translate(_LETTERS).find(_TOO_LONG)
    if at >= 0 and (long := _MLIR_WORD.match(bare, at)):
        raise ModelError(f"a word of {len(long[0])} letters in MLIR; {MLIR_NAME} are the limit")
    if deeper_at(bare.translate(_ALIKE, _NO_BRACKETS), MLIR_DEPTH) is not None:
        raise ModelError(f"MLIR nested too deep: more than {MLIR_DEPTH} brackets are open")


def _line(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _refuse(name: str, line: int, code: str, message: str) -> NoReturn:
    raise TargetError(errors=(Problem(name, line, 1, code, message),))
