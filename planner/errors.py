"""The error tree: every failure a caller can act on has a class here.

    PlannerError
    ├── InputError            bad input, exit code 2
    │   ├── ModelError        a model we cannot read, with the node
    │   │   └── EngineError   an exported file that its engine does not load or run
    │   ├── QTypeError        a quantized type that breaks a rule of the quant dialect
    │   ├── TargetError       a target description, with line and column; `.errors`
    │   │   └── LimitError    an expression beyond a limit of the language; a RuleError, too
    │   ├── RuleError         a rule of a target that cannot be applied to these ports
    │   ├── AnnotationError   an annotation or constraint that does not fit the model
    │   ├── StatsError        statistics that do not fit the model, or are not numbers
    │   ├── SampleError       a sample of the wrong name, shape or element type
    │   ├── PlanFormatError   a plan file of an unknown version or with unknown fields
    │   ├── UnknownName       no such target, value, port, rescale (nearest names given)
    │   └── UnsupportedExport a plan this format cannot say, with port and row
    ├── Conflict              constraints that cannot all hold, exit code 1; `.facts`
    └── PlanInvalid           the checker's refusal, exit code 1; `.port`, `.row`

A message says what, where, why, and what would be accepted instead.
"""

import difflib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_COMPARED: Final = 1_000_000
"""Pairs of characters that are compared at most where something has the nearest names in its error."""
_CANDIDATES: Final = 50
_LONGEST: Final = 200
_SHORT: Final = 24
"""Names that an error lists in full, where none of them is much like the wrong one."""
_CLOSE: Final = 0.55
"""Likeness of a name that was probably meant: `int8` is neither `finn` nor `litert`."""

REMEDIES: Final = {
    "PlannerError": "",
    "InputError": "as the line says",
    "ModelError": "export it again; the line names the node",
    "EngineError": "`qplan plan` and `quantize` keep the plan, and name the node and the optimization",
    "QTypeError": "the line has the column",
    "TargetError": "one line an error, `file:line:column: CODE`; see [codes](targets/codes.md)",
    "RuleError": "the line names the kernel, the row and the line of the function",
    "LimitError": "the line names the limit, and the place as `file:line`",
    "AnnotationError": "the nearest names are given",
    "StatsError": "calibrate again",
    "SampleError": "the line says what the model takes",
    "PlanFormatError": "the line has the path inside the file",
    "UnsupportedExport": "another format, or annotate the port that the line names",
    "UnknownName": "the nearest names are given",
    "Conflict": "drop one of the facts",
    "PlanInvalid": "the plan belongs to another model or target, or was edited",
}
"""Advice for each class, for the page of errors."""


class PlannerError(Exception):
    """The base class of all errors of the planner.

    `hint` is the remedy; `str(error)` is one line, hint included.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(PlannerError):
    """An argument, a combination of options or a file is not usable."""


class ModelError(InputError):
    """A file is no model, is truncated, or breaks a rule of models."""


class EngineError(ModelError):
    """onnxruntime does not load or run an exported file."""


class QTypeError(InputError):
    """A text is no type, or a type breaks an integrity rule."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a text file: where (line and column from 1), its stable code, and the line itself."""

    file: str
    line: int
    column: int
    code: str
    message: str
    path: str = ""
    quote: str = ""

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}:{self.column}: {self.code} {self.message}"
        return f"{head} | {self.quote}" if self.quote else head


class TargetError(InputError):
    """A target description has errors; `.errors` has a record of each."""

    def __init__(self, message: str = "", *, errors: Iterable[Problem] = (), hint: str = "") -> None:
        self.errors = tuple(errors)
        super().__init__(message or "\n".join(str(error) for error in self.errors), hint=hint)


class RuleError(InputError):
    """A rule does not apply: your function fails or decides no port, or a tensor lacks the axis."""


class LimitError(TargetError, RuleError):
    """An expression of a target takes too many steps or has too large numbers."""

    def at(self, source: str, code: str, where: str) -> "LimitError":
        """The same error with its place, `file:line`; as it is where it has one.

        Args:
          where: the clause that the expression belongs to: "when of add".
        """
        if self.errors:
            return self
        file, _, line = source.rpartition(":")
        number = int(line) if line.isdecimal() else 1
        problem = Problem(file or source, number, 1, code, f"{where}: {self.message}")
        return LimitError(errors=[problem], hint=self.hint)


class AnnotationError(InputError):
    """An annotation names nothing in the model, or does not fit its tensor."""


class StatsError(InputError):
    """Statistics are missing, belong to another model, or hold a range that is none."""


class SampleError(InputError):
    """A sample has another name, shape or element type than an input."""


class PlanFormatError(InputError):
    """A plan, annotated model or statistics file has an unknown version or shape."""


class UnsupportedExport(InputError):
    """A format cannot express the plan."""


class UnknownName(InputError):
    """There is no such target, value, format, strategy or other name."""


class Conflict(PlannerError):
    """Constraints contradict each other; `.facts` is a minimal set of them.

    `facts` is a minimal set: planning with no other facts of values and ports meets the conflict, dropping
    any one of them ends it (of a dropped type the range it stood for remains). `concession` is the part that
    a best-effort plan gives up. While the facts are not named yet: `about` is the value whose neighbourhood
    holds them, `within` the values that are labelled together with it, `others` what the same planning met
    besides.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        facts: tuple[str, ...] = (),
        hint: str = "",
        concession: object = None,
        about: str = "",
        within: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(message, hint=hint)
        self.facts = facts
        self.concession = concession
        self.about = about
        self.within = within
        self.others: tuple[Conflict, ...] = ()


class PlanInvalid(PlannerError):
    """The independent checker refuses a plan; `.port` and `.row` say where."""

    exit_code = 1

    def __init__(self, message: str, *, port: str = "", row: str = "") -> None:
        super().__init__(message)
        self.port = port
        self.row = row


def expect(argument: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Refuse an argument of another kind; `what` is a clause on what it is: "a plan is what `plan` gives".

    Raises:
      InputError: the clause, and the kind that was given.
    """
    if not isinstance(argument, kinds):
        raise InputError(f"{what}, not a {type(argument).__name__}")


def nearest_names(name: str, known: Iterable[str], *, n: int = 3, cutoff: float = 0.4) -> list[str]:
    """Find the names that are most like `name`.

    Comparing takes the product of two lengths. If that is long, only the names with the longest common
    beginning are compared: models and addresses may be untrusted.
    """
    names = list(known)
    if len(name) * sum(map(len, names)) > _COMPARED:
        names = heapq.nlargest(_CANDIDATES, names, key=lambda other: _common_start(name, other))
        name, names = name[:_LONGEST], [other for other in names if len(other) <= _LONGEST]
    return difflib.get_close_matches(name, names, n=n, cutoff=cutoff)


def _common_start(a: str, b: str) -> int:
    """Count the characters that two texts begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def require_name(kind: str, name: object, known: Iterable[str]) -> None:
    """Refuse a name that is none of `known`, or no name at all.

    Raises:
      UnknownName: with the nearest three.
    """
    if not isinstance(name, str) or name not in known:
        raise unknown_name(kind, name, known)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownName:
    """Make the error for a `name` that is none of `known`, with the nearest three; else with a short list."""
    names, text = sorted(known), str(name)
    near = nearest_names(text, names)
    is_begun = bool(text) and any(one.startswith(text) for one in near)
    if near and (is_begun or len(names) > _SHORT or nearest_names(text, names, cutoff=_CLOSE)):
        hint = "did you mean " + " or ".join(repr(n) for n in near) + "?"
    else:
        most = len(names) if len(names) <= _SHORT else 8
        shown = ", ".join(repr(n) for n in names[:most])
        hint = f"known: {shown}{', ...' if len(names) > most else ''}" if names else "there are none"
    return UnknownName(f"unknown {kind} {name!r}", hint=hint)


def quantity(number: int, noun: str, form: str = "") -> str:
    """Return a number with its noun in the right grammatical number: `1 input`, `2 axes`, `1,000 bits`.

    Args:
      noun: in the singular.
      form: of the number, as a format has it: `,`.
    """
    return f"{number:{form}} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun of the field."""
    if noun.endswith("is"):
        return f"{noun[:-2]}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"
