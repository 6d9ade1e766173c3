"""Calls: origins of the ops of local functions, once the functions are inlined.

Each call gets a copy of its function whose nodes bear the call's path, so that onnx's inliner, which does the
work, cannot lose it. Source: onnx.proto, FunctionProto; `ir.structure.Scope`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto

from planner.errors import ModelError
from planner.formats.onnx.naming import unused
from planner.ir.structure import Scope

SCOPE_KEY: Final = "qplan.scope"
"""Key of a node's metadata that holds the path of the call it came from."""
MOST_CALLS: Final = 100_000

Key: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class _Marking:
    """Copies made so far, and the scope of each."""

    functions: Mapping[Key, FunctionProto]
    copies: list[FunctionProto] = field(default_factory=list)
    scopes: dict[str, Scope] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)


def mark_calls(model: ModelProto) -> tuple[ModelProto, Mapping[str, Scope]]:
    """Give every call of a local function a copy of its own.

    Returns:
      The model, ready to be inlined, and the calls by path.

    Raises:
      ModelError: a function that runs itself, or calls beyond what can be inlined.
    """
    marked = ModelProto()
    marked.CopyFrom(model)
    marking = _Marking({_key(function): function for function in model.functions})
    _mark(marking, marked.graph.node, "", ())
    del marked.functions[:]
    marked.functions.extend(marking.copies)
    return marked, marking.scopes


def _mark(marking: _Marking, nodes: Iterable[NodeProto], path: str, chain: tuple[Key, ...]) -> None:
    for i, node in enumerate(nodes):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                _mark(marking, attribute.g.node, path, chain)
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type, node.overload)
        if key in marking.functions:
            _copy(marking, node, path, (*chain, key), node.name or f"{node.op_type}_{i}")
        elif path:
            node.metadata_props.add(key=SCOPE_KEY, value=path)


def _copy(marking: _Marking, node: NodeProto, path: str, chain: tuple[Key, ...], own: str) -> None:
    """Let a node call a copy of its function, the last of `chain`."""
    key = chain[-1]
    name = ".".join(filter(None, key[:2]))
    if key in chain[:-1]:
        raise ModelError(f"function {name} runs itself", hint="unroll the recursion")
    if len(marking.copies) >= MOST_CALLS:
        raise ModelError(f"more than {MOST_CALLS} calls of local functions once all are inlined")
    site = unused(f"{path}/{own}" if path else own, marking.paths)
    copy = FunctionProto()
    copy.CopyFrom(marking.functions[key])
    copy.name = node.op_type = f"{node.op_type}@{len(marking.copies)}"
    marking.copies.append(copy)
    marking.scopes[site] = Scope("call", own, "::".join(filter(None, key[:2])), name, parent=path)
    _mark(marking, copy.node, site, chain)


def _key(function: FunctionProto) -> Key:
    return ("" if function.domain == "ai.onnx" else function.domain, function.name, function.overload)
