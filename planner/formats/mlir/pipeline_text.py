"""Pipelines of passes as `mlir-opt --pass-pipeline` takes them: `builtin.module(func.func(cse),inline)`.

Only the text is read here; what the passes do is `passes`. Every pass of ours runs over the whole module,
which is what a pass does that runs over each of its functions. Source: MLIR pass infrastructure, "Textual
pass pipeline specification"; `parsePassPipeline` in PassRegistry.cpp.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from planner.errors import ModelError, unknown_name

ANCHORS: Final = ("any", "builtin.module", "func.func")
"""The ops that a pipeline can run on."""
_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)")
_FLAG: Final = re.compile(r"|0|1|true|TRUE|True|false|FALSE|False")
OPTIONS: Final[Mapping[str, Mapping[str, tuple[re.Pattern[str], str]]]] = {
    "canonicalize": {
        "max-iterations": (_INTEGER, "an integer"),
        "max-num-rewrites": (_INTEGER, "an integer"),
        "region-simplify": (re.compile("disabled|normal|aggressive"), "disabled, normal or aggressive"),
        "test-convergence": (_FLAG, "true or false"),
        "top-down": (_FLAG, "true or false"),
    },
    "inline": {
        "default-pipeline": (re.compile(""), "nothing: bodies are inlined as they are"),
        "max-iterations": (_INTEGER, "an integer"),
    },
}
"""Accepted options of passes with their values: how upstream's driver goes about it, no other result."""
OF_MODULES: Final = frozenset({"inline", "strip-func-quant-types"})
"""Passes that change more than one function."""

_WRAPPED: Final = "a pipeline is wrapped with its anchor: builtin.module(...)"
_OPEN: Final = "'(' of {} is not closed"
_NAME: Final = re.compile(r"[^,(){}]*")
_SPACE: Final = re.compile(r"\s*")
_OPTION: Final = re.compile(r"""([^\s="']*)(?:=((?:"[^"]*"|'[^']*'|[^\s"'])*))?""")


def read_pipeline(text: str, known: Mapping[str, object]) -> tuple[str, ...]:
    """The passes of a pipeline, in order.

    Args:
      known: passes by name.

    Raises:
      ModelError: text that is no pipeline, an anchor or option that is none, a pass on the wrong anchor.
      UnknownName: a pass that is none.
    """
    anchors: list[str] = []
    passes: list[str] = []
    at = 0
    while True:
        at = _behind(_SPACE, text, at)
        end = _behind(_NAME, text, at)
        name = text[at:end].rstrip()
        if text.startswith("(", end):
            _check_anchor(text, at, name, anchors)
            anchors.append(name)
            at = end + 1
            if len(anchors) > 1 or not text.startswith(")", at):
                continue
        else:
            at = _pass(text, at, name, anchors, known, passes)
        at = _closed(text, _behind(_SPACE, text, at), anchors)
        if not anchors:
            return tuple(passes)
        if not text.startswith(",", at):
            raise _wrong(text, at, "expected ',' or ')'" if text[at:] else _OPEN.format(anchors[-1]))
        at += 1


def _closed(text: str, at: int, anchors: list[str]) -> int:
    """Leave the anchors that are closed here."""
    while anchors and text.startswith(")", at):
        anchors.pop()
        at = _behind(_SPACE, text, at + 1)
    if not anchors and text[at:]:
        raise _wrong(text, at, "the pipeline has ended here")
    return at


def _check_anchor(text: str, at: int, name: str, anchors: list[str]) -> None:
    if name not in ANCHORS:
        raise _wrong(text, at, f"{name!r} is no anchor; accepted: {', '.join(ANCHORS)}")
    if not anchors and name == "func.func":
        raise _wrong(text, at, "the outer anchor is the module: builtin.module(func.func(...))")
    if anchors and (name == "builtin.module" or len(anchors) > 1):
        told = "(".join([*anchors, name])
        raise _wrong(
            text, at, f"{told}(...) runs on no op here: inside the module are functions, and no more"
        )


def _pass(  # noqa: PLR0917 - the state of the reader
    text: str, at: int, name: str, anchors: list[str], known: Mapping[str, object], passes: list[str]
) -> int:
    """Read a pass with its options; give the offset behind."""
    if not anchors:
        raise _wrong(text, at, _WRAPPED)
    if not name:
        raise _wrong(text, at, "expected the name of a pass" if text[at:] else _OPEN.format(anchors[-1]))
    if len(name.split()) > 1:
        raise _wrong(text, at + len(name.split(maxsplit=1)[0]), "expected ',' between two passes")
    if name not in known:
        raise unknown_name("pass", name, known)
    if name in OF_MODULES and len(anchors) > 1:
        raise _wrong(text, at, f"{name} changes more than one function: it runs on builtin.module")
    passes.append(name)
    end = _behind(_NAME, text, at)
    if not text.startswith("{", end):
        return end
    close = _closing(text, end)
    for start, option in _options(text, end + 1, close):
        _check_option(text, start, name, option)
    return close + 1


def _closing(text: str, start: int) -> int:
    """The offset of the brace that closes another one, quoted ones left out."""
    depth, quote = 0, ""
    for at in range(start, len(text)):
        char = text[at]
        if quote or char in "\"'":
            quote = ("" if char == quote else quote) if quote else char
        else:
            depth += (char == "{") - (char == "}")
            if not depth:
                return at
    raise _wrong(text, start, "'{' is not closed")


def _options(text: str, start: int, end: int) -> Iterator[tuple[int, re.Match[str]]]:
    """Options between two braces, `key`, `key=value` or `key="a value"`."""
    at = _behind(_SPACE, text, start)
    while at < end:
        match = _OPTION.match(text, at, end)
        if match is None or not match[1] or (match.end() < end and not text[match.end()].isspace()):
            raise _wrong(text, at, "expected an option, key=value")
        yield at, match
        at = _behind(_SPACE, text, match.end())


def _check_option(text: str, at: int, name: str, option: re.Match[str]) -> None:
    accepted = OPTIONS.get(name, {})
    key, value = option[1], option[2] or ""
    if key not in accepted:
        told = ", ".join(sorted(accepted)) or "none"
        raise _wrong(text, at, f"{name} has no option {key!r}; accepted: {told}")
    form, told = accepted[key]
    if value[:1] in ('"', "'") and value[-1:] == value[:1]:
        value = value[1:-1]
    if not form.fullmatch(value):
        raise _wrong(text, at, f"{name}: {key} is {told}, not {value!r}")


def _behind(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _wrong(text: str, at: int, message: str) -> ModelError:
    return ModelError(f"pipeline {text[:80]!r}, column {at + 1}: {message}")
