"""Structure in annotated models: calls, loops and branches of kernels, and their bodies.

`call`, `loop` and `branches` of a kernel; `scopes` of a graph whose bodies were put in place, as plans carry
it. Source: docs/formats.md; docs/specification.md, section 5.
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from planner.errors import PlanFormatError
from planner.formats.annotated.attributes import attributes_from_json, attributes_to_json
from planner.formats.annotated.jsontext import STRICT
from planner.ir.structure import Branches, Call, Loop, Scope, Structure


@with_config(STRICT)
class LoopDoc(TypedDict):
    """A function that runs `trip_count` times; `carried` are pairs of input and output index."""

    body: str
    trip_count: int
    carried: NotRequired[list[list[int]]]
    varying: NotRequired[list[int]]


@with_config(STRICT)
class ScopeDoc(TypedDict):
    """A body in its place."""

    path: str
    kind: Literal["call", "loop", "branch"]
    owner: str
    type: str
    function: str
    operands: list[str | None]
    results: list[str | None]
    attributes: NotRequired[dict[str, Any]]
    parent: NotRequired[str]
    index: NotRequired[int]
    trips: NotRequired[int]
    ran: NotRequired[int]


def structure_to_json(structure: Structure | None) -> dict[str, Any]:
    """The fields of a kernel for its call, loop or branches; none for a plain one."""
    match structure:
        case Call(function):
            return {"call": function}
        case Loop(body, trip_count, carried, varying):
            loop: dict[str, Any] = {"body": body, "trip_count": trip_count}
            loop |= {"carried": [list(pair) for pair in carried]} if carried else {}
            return {"loop": loop | ({"varying": list(varying)} if varying else {})}
        case Branches(bodies):
            return {"branches": list(bodies)}
    return {}


def structure_from_json(entry: Mapping[str, Any], path: str) -> Structure | None:
    """Read `call`, `loop` or `branches` of a kernel.

    Raises:
      PlanFormatError: two of them, or a `carried` that is no list of pairs.
    """
    given = [field for field in ("call", "loop", "branches") if field in entry]
    if len(given) > 1:
        raise PlanFormatError(f"{path}.{given[1]}: the kernel has {given[0]!r} too; accepted: one of them")
    if "call" in entry:
        return Call(entry["call"])
    if "branches" in entry:
        return Branches(tuple(entry["branches"]))
    if "loop" not in entry:
        return None
    loop: LoopDoc = entry["loop"]
    for i, pair in enumerate(loop.get("carried", ())):
        if len(pair) != 2:
            raise PlanFormatError(
                f"{path}.loop.carried[{i}]: {pair} is no pair of an input and an output index"
            )
    carried = tuple((pair[0], pair[1]) for pair in loop.get("carried", ()))
    return Loop(loop["body"], loop["trip_count"], carried, tuple(loop.get("varying", ())))


def scope_to_json(path: str, scope: Scope) -> dict[str, Any]:
    """One entry of `scopes`."""
    entry: dict[str, Any] = {"path": path, "kind": scope.kind, "owner": scope.owner, "type": scope.type}
    entry["function"] = scope.function
    entry["operands"] = [name or None for name in scope.operands]
    entry["results"] = [name or None for name in scope.results]
    if scope.attributes:
        entry["attributes"] = attributes_to_json(scope.attributes)
    entry |= {"parent": scope.parent} if scope.parent else {}
    entry |= {"index": scope.index} if scope.index else {}
    entry |= {"trips": scope.trips} if scope.trips != 1 else {}
    return entry | ({"ran": scope.ran} if scope.ran else {})


def scope_from_json(entry: ScopeDoc, path: str) -> Scope:
    """Read one entry of `scopes`."""
    return Scope(
        kind=entry["kind"],
        owner=entry["owner"],
        type=entry["type"],
        function=entry["function"],
        operands=tuple(name or "" for name in entry["operands"]),
        results=tuple(name or "" for name in entry["results"]),
        attributes=attributes_from_json(entry.get("attributes", {}), f"{path}.attributes"),
        parent=entry.get("parent", ""),
        index=entry.get("index", 0),
        trips=entry.get("trips", 1),
        ran=entry.get("ran", 0),
    )
