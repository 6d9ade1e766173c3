"""View of a plan for a report's graph, as one JSON value: kernels with places, edges, rescales, the log.

Columns instead of records and every text once, so that 50,000 kernels stay a few megabytes. The page's script
(`page/`) draws it and decides nothing. Source: docs/service.md.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from planner.accuracy.losses import Losses
from planner.ir.graph import BOUNDARY, modules_of_steps, port_address
from planner.ir.types.qtypes import Uniform
from planner.plans.diff import diff, worded
from planner.plans.explain import DEPTH, WORDINGS, refusal, type_text
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, Port, step_rows
from planner.report.causes import Cause
from planner.report.figures import figures
from planner.report.offers import Offer, offers
from planner.report.placement.layout import Layout
from planner.report.placement.nested import place_nested
from planner.report.placement.scopes import Group, Scope, groups_of, ordered, scopes_of
from planner.report.plan_charts import causes_by_kernel
from planner.report.rescale_causes import rescale_causes
from planner.report.summary import cards_data
from planner.report.totals import row_text

MODEL: Final = "model"
FLOAT: Final = "float"
FIGURES: Final = ("macs", "work", "lost", "share", "sqnr")
"""Numbers of the nodes; None for inputs and outputs, and where nothing was measured. Columns
of losses are empty without losses."""
OF_LOSSES: Final = ("share", "sqnr")

Columns: TypeAlias = dict[str, list[Any]]


class Texts:
    """Texts, each once; a place stands for a text."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The place of a text."""
        return self._places.setdefault(text, len(self._places))

    def __len__(self) -> int:
        return len(self._places)

    def listed(self) -> list[str]:
        """All of them, by place."""
        return list(self._places)


@dataclass(frozen=True, slots=True)
class _Node:
    """A kernel, or an input or output of the model, then `first` says which."""

    name: str
    kernel: str
    kind: str
    why: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    accumulator_bits: int | None = None
    first: int = 0


@dataclass(frozen=True, slots=True)
class _Wires:
    """Edges of the drawing: the node that gives and the one that takes, its port, the rescale or -1."""

    ends: list[tuple[int, int]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    rescales: list[int] = field(default_factory=list)


def view_of(
    plan: Plan, before: Plan | None = None, *, losses: Losses | None = None, live: bool = False
) -> dict[str, Any]:
    """Describe a plan for the page; JSON's own types only.

    Args:
      before: another plan, whose view and the changes since are then in it.
      losses: of the plan, for the share of noise of each kernel.
      live: whether a host takes edits from the page.
    """
    texts = Texts()
    nodes = _nodes(plan)
    wires = _wires(plan, nodes)
    order, groups = _groups(plan, nodes, wires)
    layout, frames = place_nested(len(nodes), wires.ends, order, groups)
    known = figures(plan, losses)
    kinds = [MODEL, FLOAT, *sorted({node.kind for node in nodes} - {MODEL, FLOAT})]
    asked = offers(plan)
    kept = list(dict.fromkeys(asked.values()))
    place_of = {offer: i for i, offer in enumerate(kept)}
    view = {
        "format": "qplan.view/1",
        "kinds": kinds,
        "depth": DEPTH,
        "wordings": WORDINGS,
        "nodes": {
            "name": [texts(node.name) for node in nodes],
            "kernel": [texts(node.kernel) for node in nodes],
            "kind": [kinds.index(node.kind) for node in nodes],
            "why": [texts(node.why) for node in nodes],
            "bits": [node.accumulator_bits for node in nodes],
            "offer": [place_of[asked[node.name]] if node.kind != MODEL else -1 for node in nodes],
            "rank": list(layout.ranks),
            "column": list(layout.columns),
            **{
                key: [known[node.name][key] if node.kind != MODEL else None for node in nodes]
                if losses is not None or key not in OF_LOSSES
                else []
                for key in FIGURES
            },
        },
        "groups": {
            "name": [texts(group.name) for group in groups],
            "parent": [group.parent for group in groups],
            "first": [group.first for group in groups],
            "last": [group.last for group in groups],
            "rank": [frame.rank for frame in frames],
            "ranks": [frame.ranks for frame in frames],
            "column": [frame.column for frame in frames],
            "columns": [frame.columns for frame in frames],
        },
        "order": order if groups else [],
        "ports": _ports(nodes, texts),
        "edges": _edges(wires, layout),
        "rescales": _rescales(plan, texts),
        "values": _values(plan, texts),
        "offers": list(map(_offer, kept)),
        "floats": _floats(plan, nodes, texts),
        "cards": cards_data(plan),
        "changes": None if before is None else _changes(before, plan, nodes, texts),
        "before": None if before is None else view_of(before),
        "page": {
            "live": live,
            "plan": plan.key,
            "model": plan.graph.name,
            "target": plan.target.id,
            "work": plan.target.work_unit or "elements",
        },
        "log_texts": len(texts),
    }
    return view | {"steps": _steps(plan, texts), "texts": texts.listed()}


def view_json(
    plan: Plan, before: Plan | None = None, *, losses: Losses | None = None, live: bool = False
) -> str:
    """The same as text that may stand inside a `script` element: nothing in it ends one."""
    return _text(view_of(plan, before, losses=losses, live=live))


def view_blocks(
    plan: Plan, before: Plan | None = None, *, losses: Losses | None = None, live: bool = False
) -> tuple[str, str]:
    """The same in two: what is drawn, and the log with the texts that it alone has, most of the whole."""
    view = view_of(plan, before, losses=losses, live=live)
    first = view["log_texts"]
    log = {"steps": view["steps"], "texts": view["texts"][first:]}
    return _text(view | {"steps": None, "texts": view["texts"][:first]}), _text(log)


def _text(view: dict[str, Any]) -> str:
    text = json.dumps(view, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _nodes(plan: Plan) -> list[_Node]:
    """The model's inputs, the kernels in plan order, the model's outputs."""
    graph = plan.graph
    defined = {name: value.type for name, value in plan.values.items()}
    wanted = {use: rescale.to_type for rescale in plan.rescales for use in rescale.consumers}
    inputs, outputs = [], []
    for i, name in enumerate(graph.inputs):
        port = Port(port_address(BOUNDARY, "out", i), name, defined.get(name))
        inputs.append(_Node(name, "input", MODEL, "an input of the model", (), (port,), first=i))
    for i, name in enumerate(graph.outputs):
        port = Port(port_address(BOUNDARY, "in", i), name, wanted.get((BOUNDARY, i), defined.get(name)))
        outputs.append(_Node(name, "output", MODEL, "an output of the model", (port,), (), first=i))
    kernels = [
        _Node(kernel.name, kernel.kernel, _kind(kernel), row_text(plan, kernel), kernel.inputs,
              kernel.outputs, kernel.accumulator_bits)
        for kernel in plan.kernels_in_order
    ]  # fmt: skip
    return [*inputs, *kernels, *outputs]


def _groups(plan: Plan, nodes: Sequence[_Node], wires: _Wires) -> tuple[list[int], tuple[Group, ...]]:
    """An order of the nodes and the groups in it, by scopes of names; inputs and outputs are in none."""
    kernels = [node for node in nodes if node.kind != MODEL]
    weights = [[port.value for port in node.inputs if port.value in plan.graph.constants] for node in kernels]
    found = scopes_of([node.name for node in kernels], weights, modules_of_steps(plan.graph))
    first = len(plan.graph.inputs)
    outputs: list[Scope] = [()] * (len(nodes) - first - len(found))
    scopes: list[Scope] = [*([()] * first), *found, *outputs]
    order = ordered(scopes, wires.ends)
    return order, groups_of(scopes, order)


def _kind(kernel: KernelPlan) -> str:
    """The storage a kernel computes, else the one it reads, else float."""
    for port in (*kernel.outputs, *kernel.inputs):
        if isinstance(port.type, Uniform):
            return port.type.storage.name
    return FLOAT


def _wires(plan: Plan, nodes: Sequence[_Node]) -> _Wires:
    rescale_at = {
        port_address(kernel, "in", index): i
        for i, rescale in enumerate(plan.rescales)
        for kernel, index in rescale.consumers
    }
    makers = {port.value: i for i, node in enumerate(nodes) for port in node.outputs if port.value}
    wires = _Wires()
    for i, node in enumerate(nodes):
        for index, port in enumerate(node.inputs):
            if port.value in makers:
                wires.ends.append((makers[port.value], i))
                wires.ports.append(index)
                wires.rescales.append(rescale_at.get(port.address, -1))
    return wires


def _ports(nodes: Iterable[_Node], texts: Texts) -> Columns:
    """Ports of all nodes, one node after the other, inputs first."""
    columns: Columns = {"node": [], "out": [], "index": [], "value": [], "type": []}
    for i, node in enumerate(nodes):
        for out, ports in enumerate((node.inputs, node.outputs)):
            for index, port in enumerate(ports, node.first):
                columns["node"].append(i)
                columns["out"].append(out)
                columns["index"].append(index)
                columns["value"].append(texts(port.value))
                columns["type"].append(texts(type_text(port.type) if port.value else ""))
    return columns


def _edges(wires: _Wires, layout: Layout) -> Columns:
    return {
        "from": [source for source, _ in wires.ends],
        "to": [reader for _, reader in wires.ends],
        "port": wires.ports,
        "rescale": wires.rescales,
        "bends": [list(bends) for bends in layout.bends],
    }


def _rescales(plan: Plan, texts: Texts) -> Columns:
    return {
        "id": [texts(rescale.id) for rescale in plan.rescales],
        "kind": [texts(rescale.kind) for rescale in plan.rescales],
        "from": [texts(type_text(rescale.from_type)) for rescale in plan.rescales],
        "to": [texts(type_text(rescale.to_type)) for rescale in plan.rescales],
        "elements": [rescale.elements for rescale in plan.rescales],
        "cost": [rescale.cost for rescale in plan.rescales],
        "cause": _causes(plan, texts),
    }


def _causes(plan: Plan, texts: Texts) -> list[int]:
    """The cause of each rescale, as a sentence."""
    found = [0] * len(plan.rescales)
    for cause in rescale_causes(plan):
        for at in cause.rescales:
            found[at] = texts(cause.text)
    return found


def _offer(offer: Offer) -> dict[str, Any]:
    """The choices for a kernel and for its ports."""
    return {"kernel": offer.kernel, "in": offer.inputs, "out": offer.outputs}


def _floats(plan: Plan, nodes: Sequence[_Node], texts: Texts) -> Columns:
    """Why kernels run in float: a sentence on those of one cause, and their nodes, largest first."""
    at = {node.name: i for i, node in enumerate(nodes) if node.kind != MODEL}
    found: list[tuple[Cause, list[str]]] = causes_by_kernel(plan)
    return {
        "text": [texts(cause.text()) for cause, _ in found],
        "nodes": [[at[name] for name in names] for _, names in found],
    }


def _values(plan: Plan, texts: Texts) -> Columns:
    """Values with the step that decided each, bits that its consumers lose, the share that is clipped."""
    return {
        "name": [texts(name) for name in plan.values],
        "step": [value.decided_by for value in plan.values.values()],
        "shape": [texts(_shape(plan, name)) for name in plan.values],
        "lost": [round(value.bits_lost, 3) for value in plan.values.values()],
        "clip": [round(value.clip, 5) for value in plan.values.values()],
    }


def _shape(plan: Plan, name: str) -> str:
    """`1×16×8×8`, `?` for a dimension without a name; "" where the rank is unknown."""
    value = plan.graph.values.get(name)
    if value is None or value.shape is None:
        return ""
    return "×".join("?" if dim is None else str(dim) for dim in value.shape) or "scalar"


def _steps(plan: Plan, texts: Texts) -> Columns:
    """The log: a step is known by its place."""
    columns: Columns = {"port": [], "type": [], "rule": [], "source": [], "because": [], "refused": []}
    for _, port, kind, rule, source, because, refused in step_rows(plan.steps):
        columns["port"].append(texts(port))
        columns["type"].append(texts(kind))
        columns["rule"].append(texts(rule))
        columns["source"].append(texts(source))
        columns["because"].append(list(because))
        columns["refused"].append([texts(refusal(other)) for other in refused])
    return columns


def _changes(before: Plan, after: Plan, nodes: Sequence[_Node], texts: Texts) -> dict[str, Any]:
    """Differences, each at the node that shows it; -1 where that node is gone."""
    found = diff(before, after)
    at = {node.name: i for i, node in enumerate(nodes) if node.kind != MODEL}
    at |= {port.address: i for i, node in enumerate(nodes) if node.kind == MODEL for port in node.inputs}
    gone, new = _readers(before), _readers(after)
    columns: Columns = {"node": [], "text": []}
    for change in (*found.kernels, *found.ports, *found.rescales):
        readers = (new if change.after else gone).get(change.at, [])
        places = [change.at, change.at.rpartition(".")[0], *readers]
        columns["node"].append(next((at[place] for place in places if place in at), -1))
        columns["text"].append(texts(worded(change)))
    totals = [[name, f"{a:g}", f"{b:g}"] for name, (a, b) in found.totals.items() if a != b]
    return {"plan": texts(before.key), "totals": totals, **columns}


def _readers(plan: Plan) -> dict[str, list[str]]:
    """Kernels that read each rescale, and outputs of the model by address."""
    return {
        item.id: [port_address(name, "in", i) if name == BOUNDARY else name for name, i in item.consumers]
        for item in plan.rescales
    }
