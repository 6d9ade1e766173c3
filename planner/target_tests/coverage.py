"""Coverage of a model by a target: kernels without a row, and the row that would serve each.

Rows are chosen as planning does, without ranges. A drafted row is a start, not a claim about the device: its
types are the target's own, its rules the usual ones of such an op. Source: docs/command.md.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.fusion.fuse import fuse
from planner.ir.expand import expand
from planner.ir.graph import Graph, Region
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Storage
from planner.ops import LINEAR, defined, of_form
from planner.ops.forms import Form
from planner.propagation.selection.apart import served
from planner.propagation.selection.remedies import Remedies
from planner.target.docs.support import value_text
from planner.target.predicates import found_instead
from planner.target.records import Target
from planner.target.rules import expand_ports

STATES: Final[Mapping[str, tuple[str, ...]]] = {"GRU": ("h",), "LSTM": ("h", "c"), "RNN": ("h",)}
"""Recurrent ops and the states they carry from step to step."""
VARIADIC: Final = of_form(Form.CONCAT, Form.VARIADIC)


@dataclass(frozen=True, slots=True)
class Missing:
    """Kernels of one name and kind of ports that no row serves.

    Attributes:
      count: of them.
      example: name of the first.
      reason: for which no row serves it.
      row: YAML of a row that would, a line of `kernels:`.
    """

    kernel: str
    count: int
    example: str
    reason: str
    row: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """The part of a model that a target serves: kernels by name; missing ones, most frequent first."""

    model: str
    target: str
    served: Mapping[str, int]
    missing: tuple[Missing, ...]

    @property
    def complete(self) -> bool:
        """Whether every kernel has a row."""
        return not self.missing


def coverage(model: Graph, target: Target) -> Coverage:
    """List the kernels of a model that a row of the target serves, and draft rows for the others."""
    lenient = replace(target, on_no_kernel="float")
    whole = expand(model)
    graph, choices, _ = served(fuse(whole, lenient), lenient, Remedies(), (), fuses=not whole.regions)
    counts: Counter[str] = Counter()
    missing: dict[str, list[tuple[Region, str]]] = {}
    for choice in choices:
        if not any((*choice.region.inputs, *choice.region.outputs)):
            continue  # a kernel without float operands (shapes, indices) needs no row
        if choice.row is not None:
            counts[choice.region.kernel] += 1
        else:
            row = draft_row(choice.region, graph, target)
            missing.setdefault(row, []).append((choice.region, choice.reason))
    found = [
        Missing(cases[0][0].kernel, len(cases), cases[0][0].name, cases[0][1], row)
        for row, cases in missing.items()
    ]
    return Coverage(
        model.name, target.id, dict(counts), tuple(sorted(found, key=lambda m: (-m.count, m.kernel)))
    )


def draft_row(region: Region, graph: Graph, target: Target) -> str:
    """Write the row that would serve a region, as a line of YAML."""
    if region.kernel in STATES:
        return f"- {value_text(_recurrent(region.kernel, target))}"
    ports, sums = _inputs(region, graph, target)
    port = _port_spec(target)
    many = len(region.outputs) > 1
    outputs = {f"y{i}" if many else "y": port for i in range(len(region.outputs))}
    fields: dict[str, Any] = {"kernel": region.kernel, "in": ports, "out": outputs}
    fields["rules"] = sums or _rules(region, graph, target, ports, outputs)
    if any(op.type in LINEAR for op in region.ops) and "w" in ports:
        fields["axis"] = {"w": "out_channel"}
    if not fields["rules"]:
        fields.pop("rules")
    if when := _when(region, graph, target, [name.rstrip("?*") for name in ports]):
        fields["when"] = when
    return f"- {value_text(fields)}"


def _when(region: Region, graph: Graph, target: Target, ports: Sequence[str]) -> dict[str, Any]:
    """The kernel's own values where a row of these ports requires others: the draft is for this case alone.

    The device may have the kernel for other strides and not for these, so the draft must not claim both.
    """
    for row in target.rows.get(region.kernel, ()):
        patterns = expand_ports(row.inputs, region.inputs)
        if patterns is None or not row.when:
            continue
        bound: dict[str, tuple[str, ...]] = {port.name: () for port in (*row.inputs, *row.outputs)}
        ends = expand_ports(row.outputs, region.outputs) or ()
        values = [*zip(patterns, region.inputs, strict=True), *zip(ends, region.outputs, strict=False)]
        for pattern, name in values:
            bound[pattern.name] += (name,) if name else ()
        theirs = {pattern.name: ours for pattern, ours in zip(row.inputs, ports, strict=False)}
        found = found_instead(
            row.when, ports=bound, ops=region.ops, attributes=region.attributes, graph=graph
        )
        if found:
            return {_renamed(key, theirs): value for key, value in found.items()}
    return {}


def _renamed(key: str, names: Mapping[str, str]) -> str:
    """A predicate by the draft's names of ports, in quotes where YAML would read its brackets."""
    owner, dot, what = key.rpartition(".")
    found = f"{names.get(owner, owner)}{dot}{what}" if dot else names.get(key, key)
    return f'"{found}"' if "[" in found else found


def _recurrent(kernel: str, target: Target) -> dict[str, Any]:
    """The whole op, absent operands and results too: each state has one scale on its way in and out."""
    port, weight = _port_spec(target), "{storage: i8, range: [-127, 127], symmetric: true}"
    weight = _named_type(target, {"storage": "i8", "granularity": None, "symmetric": True}, weight)
    cell = "{storage: i16, symmetric: true, power_of_two: true}"
    cell = _named_type(target, {"storage": "i16", "power_of_two": True, "symmetric": True}, cell)
    bias = _named_type(target, {"storage": "i32"}, "{storage: i32, symmetric: true}")
    types = {"h": port, "c": cell}
    states = STATES[kernel]
    ports = {"x": port, "w": weight, "r": weight, "b?": bias, **{f"{s}_in?": types[s] for s in states}}
    classes = [{"same_scale": [f"{s}_in", *(("y",) if s == "h" else ()), f"{s}_out"]} for s in states]
    return {
        "kernel": kernel,
        "in": ports | ({"p?": cell} if "c" in states else {}),
        "out": {"y?": port, **{f"{s}_out?": types[s] for s in states}},
        "rules": [{"multiplier_accumulator_scale": {"port": "b", "of": ["x", "w"]}}, *classes],
    }


def _inputs(region: Region, graph: Graph, target: Target) -> tuple[dict[str, Any], list[Any]]:
    """Ports by name with their types, and the rule of the bias where there is one."""
    linear = any(op.type in LINEAR for op in region.ops)
    constant = [name in graph.constants for name in region.inputs]
    if linear and len(region.inputs) >= 2 and constant[1]:
        ports: dict[str, Any] = {"x": _port_spec(target), "w": _weight_spec(target)}
        if len(region.inputs) == 3:
            ports["b?"] = _named_type(target, {"storage": "i32"}, "{storage: i32, symmetric: true}")
            return ports, [{"multiplier_accumulator_scale": {"port": "b", "of": ["x", "w"]}}]
        return ports, []
    if len(region.inputs) > 3 or any(op.type in VARIADIC for op in region.ops):
        return {"xs*": _port_spec(target)}, []
    absent = [not name for name in region.inputs]
    names = ("x",) if len(region.inputs) == 1 else ("a", "b", "c")[: len(region.inputs)]
    return {f"{n}{'?' * gone}": _port_spec(target) for n, gone in zip(names, absent, strict=True)}, []


def _port_spec(target: Target) -> str:
    """The default port's type, by its name in the file where it has one."""
    written = target.document.get("defaults", {}).get("port")
    return written if isinstance(written, str) else f"{{storage: {target.default_port.storage or 'i8'}}}"


def _weight_spec(target: Target) -> str:
    other = "{storage: i8, range: [-127, 127], granularity: axis, symmetric: true}"
    return _named_type(target, {"granularity": "axis", "symmetric": True}, other)


def _named_type(target: Target, wanted: Mapping[str, Any], other: str) -> str:
    """The first of the file's types with these fields, else `other`."""
    for name, fields in target.document.get("types", {}).items():
        if all(fields.get(key) == value for key, value in wanted.items()):
            return str(name)
    return other


def _rules(
    region: Region, graph: Graph, target: Target, ports: Mapping[str, Any], outputs: Mapping[str, Any]
) -> list[Any]:
    everything = [*(name.rstrip("?*") for name in ports), *outputs]
    if region.ops and all(is_movement(op, graph) for op in region.ops):
        return [{"same_scale": everything}]
    last = region.ops[-1].type if region.ops else region.kernel
    fixed = FIXED.get(defined(last).bounds)
    store = target.default_port.storage
    if fixed is not None and isinstance(store, Storage) and store.bits == 8 and len(outputs) == 1:
        return [{"fixed_scale": {"port": next(iter(outputs)), **fixed(store)}}]
    return []


def _unit(store: Storage) -> Mapping[str, Any]:
    return {"scale": "1/256", "zero_point": store.qmin}


def _signed_unit(store: Storage) -> Mapping[str, Any]:
    return {"scale": "1/128", "zero_point": store.offset}


FIXED: Final[Mapping[tuple[float, float] | None, Callable[[Storage], Mapping[str, Any]]]] = {
    (-1.0, 1.0): _signed_unit,
    (0.0, 1.0): _unit,
}
"""By what results lie between: 8-bit devices usually fix their type."""


def drafted(target: Target, missing: Sequence[Missing]) -> str:
    """The drafted rows as a target over `target`, to be checked against the device's manual."""
    rows = "\n".join(
        f"  # {item.count} x {item.kernel}, first {item.example}\n  {item.row}" for item in missing
    )
    return (
        f"apiVersion: planner/v1\nkind: Target\nid: {target.id}-drafted\nversion: 0.1.0\n"
        f"extends: {target.id}\nkernels:\n{rows}\n"
    )
