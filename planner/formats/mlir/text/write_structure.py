"""Calls, loops and branches as text: `func.call`, `scf.for` and `scf.if` around calls of private functions.

Every result of a loop is an argument of its next trip; one that nothing carries starts as `ub.poison`. Facts
that their syntax has no word for ride in `qplan.` attributes. The reading side is `read_structure`.
Source: docs/mlir.md; MLIR dialects func and scf.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.formats.mlir.text.elements import string
from planner.ir.structure import Branches, Call, Loop, Structure


@dataclass(frozen=True, slots=True)
class Running:
    """One kernel that runs functions, as its text needs it.

    Attributes:
      operands, results: SSA names.
      taken, given: their types.
      items: its attributes, without braces.
      fresh: makes an SSA name.
    """

    structure: Structure
    operands: Sequence[str]
    taken: Sequence[str]
    results: Sequence[str]
    given: Sequence[str]
    items: str
    fresh: Callable[[str], str]


def running_lines(kernel: Running) -> list[str]:
    """The lines of a kernel that runs functions."""
    match kernel.structure:
        case Call(function):
            return [f"  {_call(kernel, function, kernel.operands, kernel.results, kernel.items)}"]
        case Loop() as loop:
            return _loop(kernel, loop)
        case Branches(bodies):
            return _branches(kernel, bodies)


def _call(
    kernel: Running, function: str, operands: Sequence[str], results: Sequence[str], items: str = ""
) -> str:
    taken = kernel.taken[1:] if isinstance(kernel.structure, Branches) else kernel.taken
    signature = f"({', '.join(taken)}) -> {_listed(kernel.given)}"
    more = f", {items}" if items else ""
    return (
        f'{_defined(results)}"func.call"({", ".join(operands)}) {{callee = @{string(function)}{more}}} '
        f": {signature}"
    )


def _loop(kernel: Running, loop: Loop) -> list[str]:
    lines = []
    bounds = []
    for word, number in (("from", 0), ("to", loop.trip_count), ("by", 1)):
        bounds.append(kernel.fresh(word))
        lines.append(f'  {bounds[-1]} = "arith.constant"() {{value = {number} : index}} : () -> index')
    source = {written: read for read, written in loop.carried}
    starts, inside = [], list(kernel.operands)
    arguments = [f"{kernel.fresh('trip')}: index"]
    for i, kind in enumerate(kernel.given):
        argument = kernel.fresh("state")
        arguments.append(f"{argument}: {kind}")
        if i in source:
            starts.append(kernel.operands[source[i]])
            inside[source[i]] = argument
        else:
            starts.append(kernel.fresh("nothing"))
            lines.append(f'  {starts[-1]} = "ub.poison"() : () -> {kind}')
    made = [kernel.fresh("next") for _ in kernel.results]
    given = ", ".join(kernel.given)
    used = ", ".join((*bounds, *starts))
    begun = [kernel.taken[source[i]] if i in source else kind for i, kind in enumerate(kernel.given)]
    kinds = ", ".join(("index", "index", "index", *begun))
    return [
        *lines,
        f'  {_defined(kernel.results)}"scf.for"({used}) ({{',
        f"  ^bb0({', '.join(arguments)}):",
        f"    {_call(kernel, loop.body, inside, made)}",
        f'    "scf.yield"({", ".join(made)}) : ({given}) -> ()',
        f"  }}) {{{kernel.items}}} : ({kinds}) -> {_listed(kernel.given)}",
    ]


def _branches(kernel: Running, bodies: Sequence[str]) -> list[str]:
    condition = kernel.fresh("condition")
    lines = [f'  {condition} = "tensor.extract"({kernel.operands[0]}) : ({kernel.taken[0]}) -> i1']
    parts = []
    for function in bodies:
        made = [kernel.fresh("made") for _ in kernel.results]
        call = _call(kernel, function, kernel.operands[1:], made)
        given = ", ".join(kernel.given)
        parts.append(f'    {call}\n    "scf.yield"({", ".join(made)}) : ({given}) -> ()')
    inside = "\n  }, {\n".join(parts)
    lines.append(
        f'  {_defined(kernel.results)}"scf.if"({condition}) ({{\n{inside}\n  }}) {{{kernel.items}}} '
        f": (i1) -> {_listed(kernel.given)}"
    )
    return lines


def _defined(results: Sequence[str]) -> str:
    return f"{', '.join(results)} = " if results else ""


def _listed(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
