"""`extends`: one document laid over another, as marked trees.

Maps merge deep. Kernels merge by kernel and the types of their ports in order, whatever types and ports are
called (and by `when`, where the base has several alike), fusions by kernel and pattern: the author's entries
come first, each over the inherited one of its key; the other inherited ones follow; `remove` deletes.
Other lists are replaced. Identity (`id`, `version`, `title`) and tests are never inherited.
Op groups become single kernels here, so that one op of a group can be replaced. Source:
docs/targets/reference.md.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from planner.errors import Problem, TargetError
from planner.target.yamltree import Node, nearest, plain

NOT_INHERITED: Final = ("id", "version", "title", "tests", "extends")
KEYED: Final[Mapping[str, tuple[str, ...]]] = {
    "kernels": ("kernel", "in", "out"),
    "blocks": ("kernel", "pattern"),
    "fusions": ("kernel", "pattern"),
    "legalize": ("kernel",),
}
"""Lists whose entries have an identity, and the fields that form it."""
SIDES: Final = ("in", "out")
NAMING: Final = ("axis", "rules", "when")
"""Fields of a row that name its ports."""
MOST_SHOWN: Final = 8
"""Inherited entries that an error lists."""
UNSAID: Final[Mapping[str, Any]] = {"granularity": "tensor", "symmetric": False, "power_of_two": False}
"""Fields of a type that say no more than their absence."""

Meaning: TypeAlias = Callable[[str, Node | None], Any]
"""The meaning of an entry's field, so that entries can be compared."""


def merge(base: Node, child: Node) -> Node:
    """Lay `child` over `base`, both whole documents.

    Raises:
      TargetError: T027, `remove` that removes nothing.
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
            meaning = _signatures(merged.get("types")) if key == "kernels" else _as_written
            data[key] = _keyed(inherited[key], child.data[key], identity, meaning, problems)
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


def _as_written(_field: str, node: Node | None) -> Any:
    return None if node is None else plain(node)


def _signatures(types: Node | None) -> Meaning:
    """Fields of rows: signatures as the types of their ports in order, all others as they are written."""
    named = {name: plain(node) for name, node in types.items()} if types is not None else {}

    def meaning(field: str, node: Node | None) -> Any:
        if field not in SIDES or node is None or not isinstance(node.data, Mapping):
            return _as_written(field, node)
        return [(name[len(name.rstrip("?*")) :], _type(plain(kind), named)) for name, kind in node.items()]

    return meaning


def _type(kind: Any, named: Mapping[str, Any]) -> Any:
    """A port's type: the mapping behind its name, without what is the default anyway; `*` for any."""
    kind = named.get(kind, kind) if isinstance(kind, str) else kind
    if not isinstance(kind, Mapping):
        return kind or "*"
    said = {key: item for key, item in kind.items() if item is not None and UNSAID.get(key) != item}
    return "*" if said == {"storage": "*"} else said


def _identity(entry: Node, fields: tuple[str, ...], meaning: Meaning) -> str:
    return repr([meaning(field, entry.get(field)) for field in fields])


def _keyed(
    base: Node, child: Node, fields: tuple[str, ...], meaning: Meaning, problems: list[Problem]
) -> Node:
    left = list(base.entries())
    known = {id(node): _identity(node, fields, meaning) for node in left}
    result: list[Node] = []
    for entry in child.entries():
        remove = entry.get("remove")
        # A removal need not spell out the whole signature: it deletes all rows that agree with its fields.
        if remove is not None and (remove.data is True or isinstance(remove.data, Mapping)):
            gone = [node for node in left if _agrees(entry, node, (*fields, "when"), meaning)]
            if not gone:
                problems.append(_removes_nothing(entry, remove, left, meaning))
            left = [node for node in left if not any(node is other for other in gone)]
            continue
        own = _identity(entry, fields, meaning)
        same = _replaced(entry, [node for node in left if known[id(node)] == own])
        if same is not None:
            left.remove(same)
        result.append(entry if same is None else _over(_renamed(same, entry), entry))
    # The author's rows first: order is preference, so new rows win over inherited ones that also fit.
    return child._replace(data=(*result, *left))


def _replaced(entry: Node, same: Sequence[Node]) -> Node | None:
    """The inherited entry of the same identity; of several, which differ in `when`, the one of the same."""
    # `when` is no part of the identity, so that an author can change it; only to tell twins apart it counts.
    if len(same) > 1:
        own = _as_written("when", entry.get("when"))
        same = [node for node in same if _as_written("when", node.get("when")) == own]
    return same[0] if same else None


def _agrees(entry: Node, node: Node, fields: tuple[str, ...], meaning: Meaning) -> bool:
    """Whether an inherited entry is like `entry` in every field of these that `entry` names."""
    named = tuple(field for field in fields if entry.get(field) is not None)
    if _identity(node, named, meaning) != _identity(entry, named, meaning):
        return False
    wanted = _storage_removed(entry)
    return wanted is None or wanted in _storages(node, meaning)


def _storage_removed(entry: Node) -> Any:
    """The storage of `remove: {storage: i16}`; None where the whole entry is meant."""
    remove = entry.get("remove")
    storage = None if remove is None else remove.get("storage")
    return None if storage is None else storage.data


def _storages(row: Node, meaning: Meaning) -> Iterator[Any]:
    """Storages of a row's ports."""
    for side in SIDES:
        for _, kind in meaning(side, row.get(side)) or ():
            yield kind["storage"] if isinstance(kind, Mapping) else kind


def _removes_nothing(entry: Node, remove: Node, left: Sequence[Node], meaning: Meaning) -> Problem:
    """T027, with what there is of the kernel."""
    kernel = _as_written("kernel", entry.get("kernel"))
    alike = [node for node in left if _as_written("kernel", node.get("kernel")) == kernel]
    shown = "; ".join(dict.fromkeys(_shown(node, meaning) for node in alike[:MOST_SHOWN]))
    more = f"; and {len(alike) - MOST_SHOWN} more" if len(alike) > MOST_SHOWN else ""
    there = f"of {kernel!r} there is {shown}{more}" if alike else "no such entry is inherited"
    return remove.problem("T027", f"removes nothing: {there}")


def _shown(entry: Node, meaning: Meaning) -> str:
    """An inherited entry in short: a fusion's pattern, or a row's storages."""
    if entry.get("pattern") is not None:
        return str(_as_written("pattern", entry.get("pattern")))
    sides = [meaning(side, entry.get(side)) for side in SIDES]
    texts = [
        ", ".join(str(kind["storage"] if isinstance(kind, Mapping) else kind) + mark for mark, kind in side)
        if isinstance(side, list)
        else "any"
        for side in sides
    ]
    when = " with `when`" if entry.get("when") is not None else ""
    return f"({texts[0]}) -> ({texts[1]}){when}"


def _renamed(row: Node, over: Node) -> Node:
    """An inherited row with the names that the author's gives its ports, wherever it speaks of them."""
    if not isinstance(row.data, Mapping):
        return row
    names: dict[str, str] = {}
    data = dict(row.data)
    for side in SIDES:
        mine, theirs = over.get(side), row.get(side)
        if mine is not None and theirs is not None:
            pairs = zip(dict(theirs.items()), dict(mine.items()), strict=True)
            names |= {old.rstrip("?*"): new.rstrip("?*") for old, new in pairs}
            data[side] = mine
    if all(old == new for old, new in names.items()):
        return row
    pattern = re.compile(rf"(?<![\w.:])({'|'.join(map(re.escape, names))})(?![\w(:])")

    def text(found: str) -> str:
        return pattern.sub(lambda match: names[match[1]], found)

    def renamed(node: Node) -> Node:
        if isinstance(node.data, str):
            return node._replace(data=text(node.data))
        if isinstance(node.data, tuple):
            return node._replace(data=tuple(map(renamed, node.data)))
        if isinstance(node.data, dict):
            keys = {text(key): place for key, place in node.keys.items()}
            return node._replace(data={text(key): renamed(item) for key, item in node.items()}, keys=keys)
        return node

    return row._replace(data={key: renamed(node) if key in NAMING else node for key, node in data.items()})
