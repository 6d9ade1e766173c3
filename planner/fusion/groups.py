"""Groups: ops that belong together without a tree: of one name scope, of one call, or a chain of linear ops.

In: an index of the ops and a pattern `scope:GLOB`, `function:DOMAIN.NAME` or `linear_chain`. Out: candidate
groups, ascending op numbers. Whether a group may become a kernel is for `fuse` to say. Source:
docs/targets/reference.md; MLIR quantization RFC, "linear ops between two non-linear ones" (code-gen targets
merge their scales).
"""

import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from planner.fusion.op_index import OpIndex
from planner.ir.borders import closed_scope
from planner.ir.graph import Op
from planner.ir.structure import BORDERS
from planner.ir.topology import reads
from planner.ops import defined, of_form
from planner.ops.forms import Factors, Form
from planner.target.patterns import Pattern

# Linear in their one operand that is no constant, of all elements or of each alone.
LINEAR: Final = (
    of_form(Form.LINEAR, Form.SUM)
    | {
        name
        for name in of_form(Form.POOL, Form.REDUCTION, Form.UNARY, Form.VIEW)
        if defined(name).factors is Factors.ANY
    }
    | {"BatchNormalization", "Mul", "Transpose"}
)
LINEAR_IN_FIRST: Final = frozenset({"Div"})
LEAST_CHAIN: Final = 2


@dataclass(frozen=True, slots=True)
class Group:
    """Ops to become one kernel: its name, and their numbers, ascending."""

    name: str
    members: tuple[int, ...]


def groups_of(pattern: Pattern, index: OpIndex) -> tuple[Group, ...]:
    """List the groups that a pattern stands for, by their first op; none for a tree."""
    found: Iterable[Group] = ()
    if pattern.chain:
        found = _chains(index)
    elif pattern.scope:
        found = _scopes(pattern.scope, index)
    elif pattern.function:
        found = _calls(pattern.function, index)
    return tuple(sorted(found, key=lambda group: group.members))


def is_group(pattern: Pattern) -> bool:
    """Whether a pattern stands for groups of ops, besides those of its tree."""
    return pattern.chain or bool(pattern.scope) or bool(pattern.function)


def ports_of_group(group: Group, index: OpIndex) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Values at a group's ports: read from outside, and read outside, in order; the data of a chain first."""
    inside = frozenset(group.members)
    written = {name for i in group.members for name in index.ops[i].outputs if name}
    operands = dict.fromkeys(name for i in group.members for name in index.operands[i] if name)
    inputs = [name for name in operands if name not in written]
    outputs = [
        name
        for i in group.members
        for name in index.ops[i].outputs
        if name and index.graph.values[name].is_float and _leaves(name, inside, index)
    ]
    dynamic = [name for name in inputs if name not in index.graph.constants]
    return (*dynamic, *(name for name in inputs if name in index.graph.constants)), tuple(outputs)


def reenters(group: Group, index: OpIndex) -> str | None:
    """Name an op that keeps a group apart: between two of its own, or at a border; None where none does."""
    inside = frozenset(group.members)
    first, last = group.members[0], group.members[-1]
    stray = _across_a_border(group, index)
    if stray is not None:
        return stray
    behind = {name for i in group.members for name in index.ops[i].outputs if name}
    # Ops between the first and the last member that read the group and are read by it: as one kernel the
    # group would wait for itself.
    outside: set[str] = set()
    for i in range(first, last + 1):
        op = index.ops[i]
        if i in inside:
            found = next((name for name in reads(op) if name in outside), None)
            if found is not None:
                return index.ops[index.writer[found]].name
        elif any(name in behind or name in outside for name in reads(op)):
            outside.update(name for name in op.outputs if name)
    return None


def _across_a_border(group: Group, index: OpIndex) -> str | None:
    """Name an op of a group that stands at the border of a body, or in another body than the first."""
    scopes = index.graph.scopes
    if not scopes:
        return None
    home = closed_scope(scopes, index.ops[group.members[0]].scope)
    ops = (index.ops[i] for i in group.members)
    return next((op.name for op in ops if op.type in BORDERS or closed_scope(scopes, op.scope) != home), None)


def _leaves(name: str, inside: frozenset[int], index: OpIndex) -> bool:
    return name in index.results or any(reader not in inside for reader in index.readers.get(name, ()))


def _scopes(glob: str, index: OpIndex) -> Iterator[Group]:
    """One group per scope whose path matches: the ops named `path/...`; outermost paths only."""
    members: dict[str, list[int]] = {}
    depth = glob.count("/") + 1
    for i, op in enumerate(index.ops):
        parts = op.name.strip("/").split("/")
        path = "/".join(parts[:depth])
        if len(parts) > depth and _matches(parts[:depth], glob.split("/")):
            members.setdefault(path, []).append(i)
    for path, numbers in members.items():
        yield Group(path, tuple(numbers))


def _calls(function: str, index: OpIndex) -> Iterator[Group]:
    """One group per call of a function: all its ops, those of the functions it calls too."""
    scopes = index.graph.scopes
    outermost: dict[str, str] = {}
    for path, scope in scopes.items():
        outer = outermost.get(scope.parent, "")
        outermost[path] = outer or (path if scope.kind == "call" and scope.function == function else "")
    members: dict[str, list[int]] = {}
    for i, op in enumerate(index.ops):
        if outermost.get(op.scope):
            members.setdefault(outermost[op.scope], []).append(i)
    for path, numbers in members.items():
        yield Group(path, tuple(numbers))


def _matches(parts: list[str], globs: list[str]) -> bool:
    return all(fnmatch.fnmatchcase(part, glob) for part, glob in zip(parts, globs, strict=True))


def _chains(index: OpIndex) -> Iterator[Group]:
    """Longest runs of linear ops, each read by the next alone; two or more ops."""
    data = {i: _data_of(op, index) for i, op in enumerate(index.ops)}
    begun: set[int] = set()
    for i, value in data.items():
        if not value or i in begun:
            continue
        # Greedily forward: every op on the way has one data operand and one reader, so runs never branch or
        # meet.
        run = [i]
        while (after := _next(run[-1], data, index)) is not None:
            run.append(after)
        begun.update(run)
        if len(run) >= LEAST_CHAIN:
            yield Group(index.ops[run[0]].name, tuple(run))


def _next(at: int, data: dict[int, str], index: OpIndex) -> int | None:
    op = index.ops[at]
    value = op.outputs[0]
    users = index.readers.get(value, ())
    if value in index.results or len(users) != 1 or sum(map(bool, op.outputs)) != 1:
        return None
    return users[0] if data[users[0]] == value else None


def _data_of(op: Op, index: OpIndex) -> str:
    """The one operand that is no constant of an op that is linear in it; "" for any other op."""
    names = [name for name in (*op.inputs, *op.captures) if name]
    dynamic = [name for name in names if name not in index.graph.constants]
    if len(dynamic) != 1 or not index.graph.values[dynamic[0]].is_float:
        return ""
    first = bool(names) and names[0] == dynamic[0]
    linear = op.type in LINEAR or (op.type in LINEAR_IN_FIRST and first)
    return dynamic[0] if linear and not op.captures else ""
