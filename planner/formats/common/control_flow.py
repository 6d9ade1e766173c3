"""Control flow: the blocks of a plan as they stand in one another, for formats with loops and branches.

Blocks come flat, each with its scope; here a body is what its kernel runs, and the borders are that kernel's
operands and results. A call's body stands where the call does. Nothing here writes.
Source: docs/specification.md, section 5; `ir.structure`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

from planner.errors import UnsupportedExport
from planner.formats.common.blocks import blocks
from planner.ir.borders import border_op, inner_scope
from planner.ir.graph import Op
from planner.ir.structure import BEGIN, JOIN, Scope
from planner.lowering.blocks import Block
from planner.lowering.bodies import Border, Branch, Choice, Cycle
from planner.plans.plan import Plan

_TYPES: Final = ("If", "Loop", "Scan")
Item: TypeAlias = Block | Border | Choice | Cycle


@dataclass(slots=True)
class _Found:
    """Bodies met so far, by their paths, and the borders that wait for their kernels."""

    scopes: Mapping[str, Scope]
    begins: dict[str, list[Border]] = field(default_factory=dict)
    bodies: dict[str, tuple[Item, ...]] = field(default_factory=dict)
    joins: dict[str, list[Border]] = field(default_factory=dict)


def nested(plan: Plan, *, dynamic: bool = False) -> tuple[Item, ...]:
    """The items of a plan in the order they are written; a border that stays is that of a call.

    Args:
      dynamic: whether the format has activations that are quantized at run time.

    Raises:
      UnsupportedExport: a loop or branch that is none of ONNX's.
    """
    found = _Found(plan.graph.scopes)
    for scope in plan.graph.scopes.values():
        if scope.kind != "call" and scope.type not in _TYPES:
            raise UnsupportedExport(
                f"{scope.owner!r} is a {scope.kind} that ONNX has no operator for; "
                f"accepted: {', '.join(_TYPES)}",
                hint="write it as one of these in the source model",
            )
    every = tuple(blocks(plan, dynamic=dynamic))
    for block in every:
        op = border_op(block.region)
        if op is not None and op.type == JOIN:
            found.joins.setdefault(str(op.attributes["body"]), []).append(_border(block, op))
    return tuple(_inside(found, every, ""))


def _inside(found: _Found, members: Iterable[Block], path: str) -> Iterator[Item]:
    for child, group in groupby(members, lambda block: inner_scope(found.scopes, block.region.scope, path)):
        if not child:
            for block in group:
                yield from _here(found, block)
            continue
        items = tuple(_inside(found, group, child))
        scope = found.scopes[child]
        if scope.kind == "branch":
            found.bodies[child] = items
            continue
        ends = tuple(item for item in items if isinstance(item, Border) and item.body == child)
        inner = tuple(item for item in items if item not in ends)
        begins = tuple(sorted(found.begins.get(child, ()), key=_place))
        yield Cycle(scope, begins, inner, tuple(sorted(ends, key=_place)))


def _border(block: Block, op: Op) -> Border:
    outputs = block.kernel.outputs
    return Border(op, outputs[0].type if outputs else None)


def _place(border: Border) -> int:
    return border.index


def _here(found: _Found, block: Block) -> Iterator[Item]:
    op = border_op(block.region)
    if op is None:
        yield block
        return
    border = _border(block, op)
    body = border.body
    if op.type == JOIN:
        joins = found.joins.pop(body, None)
        if joins is not None:
            yield _choice(found, body, tuple(joins))
    elif op.type == BEGIN and found.scopes[body].kind != "call":
        found.begins.setdefault(body, []).append(border)
    else:
        yield border


def _choice(found: _Found, owner: str, joins: tuple[Border, ...]) -> Choice:
    paths = [path for path, scope in found.scopes.items() if scope.kind == "branch" and scope.owner == owner]
    branches = tuple(
        Branch(tuple(found.begins.get(path, ())), found.bodies.get(path, ()))
        for path in sorted(paths, key=lambda path: found.scopes[path].index)
    )
    return Choice(found.scopes[paths[0]], branches, joins)
