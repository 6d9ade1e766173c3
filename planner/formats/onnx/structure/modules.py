"""Modules: the PyTorch module that each op comes from, as PyTorch's exporter notes it in the nodes' metadata.

In: nodes of a file. Out: paths such as `layers.0/mlp` by names of ops and values; the page folds its graph by
them. They decide nothing. Source: torch.onnx, `pkg.torch.onnx.name_scopes` and `namespace`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from onnx import NodeProto

from planner.ir.graph import Graph, Op

SCOPES: Final = "pkg.torch.onnx.name_scopes"
NAMESPACE: Final = "namespace"
LONGEST: Final = 4_000
"""Characters of an entry; a longer one is somebody else's."""
DEEPEST: Final = 32

_QUOTED: Final = re.compile(r"'([^']*)'")


def modules_of(nodes: Iterable[NodeProto]) -> dict[str, str]:
    """Read the path of each node, by the names of its results; nothing where no exporter noted any."""
    found: dict[str, str] = {}
    for node in nodes:
        path = _path(node) if node.metadata_props else ""
        if path:
            found.update((name, path) for name in node.output if name)
    return found


def with_modules(graph: Graph, by_result: Mapping[str, str]) -> Graph:
    """Give the ops of a model that was read their paths.

    An op that the import made has that of the op whose name begins its own: `linear` for `linear/bias`.
    """
    if not by_result:
        return graph
    known = {op.name: path for op in graph.ops if (path := _of_results(op, by_result))}
    for op in graph.ops:
        name = op.name
        while op.name not in known and "/" in name:
            name = name.rpartition("/")[0]
            whole = known.get(name) or by_result.get(name)
            if whole:
                known[op.name] = whole
    return replace(graph, modules=known)


def _of_results(op: Op, by_result: Mapping[str, str]) -> str:
    return next((by_result[name] for name in op.outputs if name in by_result), "")


def _path(node: NodeProto) -> str:
    entries = {entry.key: entry.value for entry in node.metadata_props}
    if text := entries.get(SCOPES, "")[:LONGEST]:
        names = _QUOTED.findall(text)
    else:
        text = entries.get(NAMESPACE, "")[:LONGEST]
        names = [part.partition(": ")[0] for part in text.split("/")] if ": " in text else []
    # The last is the operation itself, the first, without a name, the model.
    return "/".join(_relative([name for name in names[:-1] if name][:DEEPEST]))


def _relative(names: list[str]) -> list[str]:
    """`layers.0`, `mlp` for `layers.0`, `layers.0.mlp`; a number stays with the name that it counts."""
    found, around = [], ""
    for name in names:
        inner = name.removeprefix(f"{around}.") if around else name
        is_number = inner.isdecimal()
        found.append(f"{around.rpartition('.')[2]}.{inner}" if is_number and inner != name else inner)
        around = name
    return found
