"""Structure: calls, loops and branches, whose bodies are functions of the graph.

Data only. `expand` puts the bodies in place; what is left of them then is the scope of each kernel and, at
its borders, the ops named here, which move data: `BEGIN` hands a value into a body, `END` out of a loop,
`JOIN` makes one value of the results of branches. Source: docs/specification.md, section 5; tests/cases,
cases 40 and 41.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

BEGIN: Final = "qplan::Begin"
END: Final = "qplan::End"
JOIN: Final = "qplan::Join"
BORDERS: Final = frozenset({BEGIN, END, JOIN})
"""Types of the ops at the borders of a body."""

UNKNOWN_TRIPS: Final = 10
"""Number of trips at which a loop is priced if only the data decides it."""


@dataclass(frozen=True, slots=True)
class Call:
    """Runs a function once; operands and results are the function's, in order."""

    function: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs a function again and again; operands and results are the function's, in order.

    Attributes:
      body: the function.
      trip_count: number of runs of the body in one run of the loop.
      carried: (operand, result) indices of values that one trip hands to the next.
      varying: operands that are something else in every trip though none hands them on: a slice, a count.
        All others are the same in every trip. Other results are the last trip's, or those of all trips.
    """

    body: str
    trip_count: int
    carried: tuple[tuple[int, int], ...] = ()
    varying: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Branches:
    """Runs one of several functions; the first operand chooses, the others are the functions', in order."""

    bodies: tuple[str, ...]


Structure: TypeAlias = Call | Loop | Branches


@dataclass(frozen=True, slots=True)
class Scope:
    """A body in its place, by its path in `Graph.scopes`.

    Attributes:
      kind: of its kernel.
      owner: name of that kernel.
      type: its type, as the source has it (`Scan`), or its kind.
      function: the body.
      operands, results: values of the model that the kernel reads and writes, "" for absent ones.
      attributes: the kernel's own.
      parent: path of the scope around it, "" for the model.
      index: among the bodies of its kernel.
      trips: number of runs of the body in one run of the model.
      ran: the most runs that a sample took, 0 where none were observed: prices count it in place of `trips`.
    """

    kind: Literal["call", "loop", "branch"]
    owner: str
    type: str
    function: str
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    parent: str = ""
    index: int = 0
    trips: int = 1
    # Not in the text that digests are made of: whether somebody looked makes no other model.
    ran: int = field(default=0, repr=False)

    @property
    def runs(self) -> int:
        """Number of runs of the body in one run of the model, to count with."""
        return self.ran or self.trips


def with_runs(scopes: Mapping[str, Scope], ran: Mapping[str, int]) -> dict[str, Scope]:
    """Return scopes with the runs that samples took: of loops by path, and of what stands inside them."""
    found = dict(scopes)
    for path, scope in scopes.items() if ran else ():
        around = path
        while around and around not in ran:
            around = scopes[around].parent
        if around:
            more = max(1, scope.trips // max(1, scopes[around].trips))
            found[path] = replace(scope, ran=ran[around] * more)
    return found


def functions_of(structure: Structure | None) -> tuple[str, ...]:
    """The functions that a kernel runs."""
    if structure is None:
        return ()
    if isinstance(structure, Call):
        return (structure.function,)
    return (structure.body,) if isinstance(structure, Loop) else structure.bodies
