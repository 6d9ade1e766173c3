"""`extends`: one document laid over another, as marked trees.

Maps merge deep. Kernels merge by kernel and signature (and `when`, where the base has several alike),
fusions by kernel and pattern: the author's entries come first, each over the inherited one of its key; the
other inherited ones follow; `remove: true` deletes.
Other lists are replaced. Identity (`id`, `version`, `title`) and tests are never inherited.
Op groups become single kernels here, so that one op of a group can be replaced. Source: design 04.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from planner.errors import Problem, TargetError
from planner.target.yamltree import Node, nearest, plain

NOT_INHERITED: Final = ("id", "version", "title", "tests", "extends")
KEYED: Final[Mapping[str, tuple[str, ...]]] = {
    "kernels": ("kernel", "in", "out"),
    "fusions": ("kernel", "pattern"),
    "legalize": ("kernel",),
}
"""Lists whose entries have an identity, and the fields that form it."""


def merge(base: Node, child: Node) -> Node:
    """Lay `child` over `base`, both whole documents.

    Raises:
      TargetError: T027, `remove: true` that removes nothing.
    """
    if not isinstance(base.data, Mapping) or not isinstance(child.data, Mapping):
        return child
    inherited = {key: node for key, node in base.data.items() if key not in NOT_INHERITED}
    # Maps first; then lists with identities replace the plain result, which is the author's list alone.
    merged = _over(base._replace(data=inherited), child)
    problems: list[Problem] = []
    data = dict(merged.items())
    for key, identity in KEYED.items():
        if key in inherited and key in child.data:
            data[key] = _keyed(inherited[key], child.data[key], identity, problems)
    if problems:
        raise TargetError(errors=problems)
    return merged._replace(data=data)


def expand_groups(root: Node, groups: Mapping[str, Node]) -> Node:
    """Replace each kernel `{group: view}` by one entry per op of the group, at the same place.

    Raises:
      TargetError: T021, unknown group.
    """
    kernels = root.get("kernels")
    if kernels is None or not kernels.entries() or not isinstance(root.data, Mapping):
        return root
    entries: list[Node] = []
    for entry in kernels.entries():
        kernel = entry.get("kernel")
        group = kernel.get("group") if kernel else None
        if group is None or not isinstance(entry.data, Mapping) or not isinstance(group.data, str):
            entries.append(entry)
            continue
        if group.data not in groups:
            hint = nearest(group.data, list(groups)) or " (op_groups has none)"
            raise TargetError(errors=[group.problem("T021", f"unknown op group {group.data!r}{hint}")])
        ops = groups[group.data].entries()
        entries += [entry._replace(data={**entry.data, "kernel": group._replace(data=op.data)}) for op in ops]
    return root._replace(data={**root.data, "kernels": kernels._replace(data=tuple(entries))})


def _over(base: Node, child: Node) -> Node:
    if not isinstance(base.data, Mapping) or not isinstance(child.data, Mapping):
        return child
    data = dict(base.data)
    for key, node in child.data.items():
        data[key] = _over(base.data[key], node) if key in base.data else node
    return child._replace(data=data, keys={**base.keys, **child.keys})


def _identity(entry: Node, fields: tuple[str, ...]) -> str:
    found = (entry.get(field) for field in fields)
    return repr([None if node is None else plain(node) for node in found])


def _keyed(base: Node, child: Node, fields: tuple[str, ...], problems: list[Problem]) -> Node:
    left = list(base.entries())
    known = {id(node): _identity(node, fields) for node in left}
    result: list[Node] = []
    for entry in child.entries():
        remove = entry.get("remove")
        # A removal need not spell out the whole signature: it deletes all rows that agree with its fields.
        if remove is not None and remove.data is True:
            kept = [node for node in left if not _agrees(entry, node, (*fields, "when"))]
            if len(kept) == len(left):
                problems.append(remove.problem("T027", "removes nothing: no such entry is inherited"))
            left = kept
            continue
        own = _identity(entry, fields)
        same = _replaced(entry, [node for node in left if known[id(node)] == own])
        if same is not None:
            left.remove(same)
        result.append(entry if same is None else _over(same, entry))
    # The author's rows first: order is preference, so new rows win over inherited ones that also fit.
    return child._replace(data=(*result, *left))


def _replaced(entry: Node, same: Sequence[Node]) -> Node | None:
    """The inherited entry of the same identity; of several, which differ in `when`, the one of the same."""
    # `when` is no part of the identity, so that an author can change it; only to tell twins apart it counts.
    if len(same) > 1:
        same = [node for node in same if _identity(node, ("when",)) == _identity(entry, ("when",))]
    return same[0] if same else None


def _agrees(entry: Node, node: Node, fields: tuple[str, ...]) -> bool:
    """Whether an inherited entry is like `entry` in every field of these that `entry` names."""
    named = tuple(field for field in fields if entry.get(field) is not None)
    return _identity(node, named) == _identity(entry, named)
