"""Pipelines of passes as `mlir-opt --pass-pipeline` takes them: `builtin.module(func.func(cse),inline)`.

Only the text is read here; what the passes do is `passes`. Every pass of ours runs over the whole module,
which is what a pass does that runs over each of its functions. Source: MLIR pass infrastructure, "Textual
pass pipeline specification".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from planner.errors import ModelError, unknown_name

ANCHORS: Final = ("any", "builtin.module", "func.func")
"""What a pipeline runs over."""
OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "canonicalize": frozenset(
        {"max-iterations", "max-num-rewrites", "region-simplify", "test-convergence", "top-down"}
    ),
}
"""Accepted options of passes: how upstream's driver goes about it, which changes no result of ours."""
OF_MODULES: Final = frozenset({"inline", "strip-func-quant-types"})
"""Passes that change more than one function."""

_TOKEN: Final = re.compile(r"\s*(?:([\w.-]+)|([(),])|\{([^{}]*)\})")


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
    last = ""  # a name that is not yet known as a pass or an anchor
    ended = False
    for at, word, options in _tokens(text):
        if ended:
            raise _wrong(text, at, "the pipeline has ended here")
        if options is not None:
            _check_options(text, at, last, options)
            continue
        if word == "(":
            if last not in ANCHORS:
                raise _wrong(text, at, f"{last!r} is no anchor; accepted: {', '.join(ANCHORS)}")
            anchors.append(last)
            last = ""
        elif word in (",", ")"):
            if last:
                passes.append(_pass(text, at, last, anchors, known))
            last = ""
            if not anchors:
                raise _wrong(text, at, "a pipeline starts with builtin.module(...)")
            if word == ")":
                anchors.pop()
                ended = not anchors
        else:
            last = word
    if not ended:
        raise _wrong(text, len(text), "a pipeline is builtin.module(...), each '(' closed")
    return tuple(passes)


def _tokens(text: str) -> Iterator[tuple[int, str, str | None]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(text, at, "expected a name, '(', ')', ',' or {options}")
        yield match.start(), match[1] or match[2] or "", match[3]
        at = match.end()


def _pass(text: str, at: int, name: str, anchors: list[str], known: Mapping[str, object]) -> str:
    if name not in known:
        raise unknown_name("pass", name, known)
    if name in OF_MODULES and "func.func" in anchors:
        raise _wrong(text, at, f"{name} changes more than one function: it runs on builtin.module")
    return name


def _check_options(text: str, at: int, name: str, options: str) -> None:
    accepted = OPTIONS.get(name, frozenset())
    for option in options.split():
        if option.partition("=")[0] not in accepted:
            told = ", ".join(sorted(accepted)) or "none"
            raise _wrong(text, at, f"{name} has no option {option!r}; accepted: {told}")


def _wrong(text: str, at: int, message: str) -> ModelError:
    return ModelError(f"pipeline {text[:80]!r}, column {at + 1}: {message}")
