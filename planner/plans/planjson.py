"""Plans as JSON: `qplan.plan/1`, exactly and both ways.

`graph` holds the model's structure as in an annotated model. `rescales` are written for readers of the
file; on reading they must be the ones that the port types give. Types stand as MLIR text, float as null.
Source: design 09, "Plan".
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from planner.annotated.attributes import attributes_from_json, attributes_to_json
from planner.annotated.document import graph_from_document, graph_to_document
from planner.annotated.jsontext import (
    Lines,
    Nested,
    encode,
    number,
    quote,
    quote_all,
    read_checked,
    write_lines,
)
from planner.errors import PlanFormatError, PlannerError, QTypeError
from planner.ir.graph import Graph, port_address
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ir.types.typetext import parse_type
from planner.plans.plan import Plan
from planner.plans.planschema import (
    PLAN,
    KernelPlanDoc,
    PlanRestDoc,
    RescaleDoc,
    StepDoc,
    TargetDoc,
    ValuePlanDoc,
)
from planner.plans.records import (
    KernelPlan,
    Port,
    PortTyped,
    Refused,
    Rescale,
    Step,
    StepRow,
    TargetRef,
    ValuePlan,
    step_rows,
)
from planner.target.records import Costs, Row
from planner.target.show import row_from_json, row_to_json

VERSION: Final = "qplan.plan/1"
"""The `format` of this file."""


def plan_to_json(plan: Plan) -> str:
    """Write a plan; `plan_from_json` gives an equal plan back."""
    texts = TypeTexts()
    rest = plan_rest(plan, texts)
    rows: dict[str | None, str] = {None: "null"}
    rows.update((key, quote(text)) for key, text in row_texts(plan.target).items())
    document: dict[str, Any] = {"format": VERSION}
    document |= {name: rest[name] for name in ("key", "model", "options", "cost", "optimal", "bound")}
    document["warnings"] = rest["warnings"]
    document["kernels"] = Lines(_kernel_line(kernel, rows, texts) for kernel in plan.kernels_in_order)
    document["values"] = rest["values"]
    document["rescales"] = (_rescale_doc(rescale, texts) for rescale in plan.rescales)
    document["steps"] = rest["steps"]
    document["target"] = rest["target"]
    document["graph"] = graph_to_document(plan.graph)
    return write_lines(document) + "\n"


def plan_from_json(text: str | bytes) -> Plan:
    """Read a plan file.

    Raises:
      PlanFormatError: not such a file; the message starts with the path of what is wrong.
      ModelError: a graph that breaks a rule of validity.
    """
    document = read_checked(text, PLAN, VERSION)
    texts = TypeTexts()
    graph = graph_from_document(document["graph"], "graph.")
    target = target_from_document(document["target"])
    keys = row_keys(target)
    kernels: dict[str, KernelPlan] = {}
    for i, entry in enumerate(document["kernels"]):
        if entry["name"] in kernels:
            raise PlanFormatError(f"kernels[{i}].name: two kernels are named {entry['name']!r}")
        kernels[entry["name"]] = _read_kernel(entry, graph, keys, texts, f"kernels[{i}]")
    plan = assemble(document, graph, target, tuple(kernels.values()), texts)
    _check_rescales(document["rescales"], plan, texts)
    return plan


class TypeTexts:
    """Type texts both ways, each made once: plans repeat them. Lives while the types it was given do."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._quoted: dict[int, str] = {}
        self._types: dict[str | None, PortTyped] = {None: None}

    def text(self, kind: PortTyped) -> str | None:
        """MLIR text of a type, None for float."""
        if kind is None:
            return None
        return self._texts.get(id(kind)) or self._texts.setdefault(id(kind), str(kind))

    def quoted(self, kind: PortTyped) -> str:
        """The same as JSON text."""
        return self._quoted.get(id(kind)) or self._quoted.setdefault(id(kind), encode(self.text(kind)))

    def type(self, text: str | None, path: str) -> PortTyped:
        """Type of a text at `path`.

        Raises:
          PlanFormatError: text that is no type, or a type that no port can have.
        """
        if text not in self._types:
            try:
                found = parse_type(text or "")
            except QTypeError as error:
                raise PlanFormatError(f"{path}: {error}") from None
            if not isinstance(found, Uniform | FloatType):
                raise PlanFormatError(
                    f"{path}: {text} is no port type; a port is uniform, a float type or null"
                )
            self._types[text] = found
        return self._types[text]


def plan_rest(plan: Plan, texts: TypeTexts) -> dict[str, Any]:
    """Say what a plan holds besides its graph and kernels, as data of `PlanRestDoc` for `write_lines`."""
    return {
        "format": VERSION,
        "key": plan.key,
        "model": plan.model,
        "target": _target_doc(plan.target),
        "options": attributes_to_json(plan.options),
        "cost": float(plan.cost),
        "optimal": plan.optimal,
        "bound": float(plan.bound),
        "warnings": list(plan.warnings),
        "values": Lines((_value_line(*item, texts) for item in plan.values.items()), "{}"),
        "steps": Lines(_step_lines(step_rows(plan.steps))),
    }


def assemble(
    rest: PlanRestDoc, graph: Graph, target: TargetRef, kernels: tuple[KernelPlan, ...], texts: TypeTexts
) -> Plan:
    """Build the plan of a checked file from its parts."""
    values = {name: _read_value(entry, texts, f"values.{name}") for name, entry in rest["values"].items()}
    return Plan(
        key=rest["key"],
        model=rest["model"],
        target=target,
        options=attributes_from_json(rest["options"], "options"),
        graph=graph,
        kernels_in_order=kernels,
        values=values,
        steps=tuple([_read_step(entry) for entry in rest["steps"]]),
        cost=rest["cost"],
        optimal=rest["optimal"],
        bound=rest["bound"],
        warnings=tuple(rest["warnings"]),
    )


def target_from_document(entry: TargetDoc) -> TargetRef:
    """Build the target reference of a checked file.

    Raises:
      PlanFormatError: an unknown price, or a row that cannot be read.
    """
    known = {field.name for field in dataclasses.fields(Costs)}
    for name, price in entry["costs"].items():
        if name not in known or (price is None and name != "max_bits_lost"):
            raise PlanFormatError(f"target.costs.{name}: no such price; known: {', '.join(sorted(known))}")
    prices: dict[str, Any] = {**entry["costs"]}
    return TargetRef(
        id=entry["id"],
        version=entry["version"],
        digest=entry["digest"],
        file=entry["file"],
        rows={key: _read_row(row, f"target.rows.{key}") for key, row in entry["rows"].items()},
        costs=Costs(**prices),
        rescale_single_consumer=entry["rescale_single_consumer"],
    )


def _target_doc(target: TargetRef) -> Nested:
    costs = dataclasses.asdict(target.costs)
    return Nested(
        id=target.id,
        version=target.version,
        digest=target.digest,
        file=target.file,
        rescale_single_consumer=target.rescale_single_consumer,
        costs={name: None if price is None else float(price) for name, price in costs.items()},
        rows=Lines((f"{quote(key)}: {_row_text(row)}" for key, row in target.rows.items()), "{}"),
    )


def _row_text(row: Row) -> str:
    """JSON text of a row; plans repeat those of their targets, which live as long as the process."""
    known = _ROWS.get(id(row))
    if known is None or known[0] is not row:
        while len(_ROWS) >= _MOST_ROWS:
            _ROWS.pop(next(iter(_ROWS)), None)
        known = _ROWS[id(row)] = row, encode(row_to_json(row))
    return known[1]


_MOST_ROWS: Final = 1000
_ROWS: Final[dict[int, tuple[Row, str]]] = {}


def _read_row(entry: Mapping[str, Any], path: str) -> Row:
    try:
        return row_from_json(entry)
    except (PlannerError, KeyError, TypeError, ValueError) as error:
        raise PlanFormatError(f"{path}: not a row: {error}") from None


def row_texts(target: TargetRef) -> dict[str, str]:
    """`file:line` of each row by its key; the key itself where two rows share a line."""
    sources = Counter(row.source for row in target.rows.values())
    return {
        key: row.source if sources[row.source] == 1 and row.source and row.source not in target.rows else key
        for key, row in target.rows.items()
    }


def row_keys(target: TargetRef) -> dict[str | None, str | None]:
    """Key of each row by what `row_texts` calls it, None by None."""
    return {None: None, **{text: key for key, text in row_texts(target).items()}}


def _kernel_line(kernel: KernelPlan, rows: Mapping[str | None, str], texts: TypeTexts) -> str:
    quoted, inputs, outputs = texts.quoted, kernel.inputs, kernel.outputs
    reason = "null" if kernel.reason is None else quote(kernel.reason)
    bits = "null" if kernel.accumulator_bits is None else kernel.accumulator_bits
    return (
        f'{{"name": {quote(kernel.name)}, "kernel": {quote(kernel.kernel)}, "row": {rows[kernel.row]}'
        f', "reason": {reason}, "inputs": {quote_all([port.value for port in inputs])}'
        f', "outputs": {quote_all([port.value for port in outputs])}'
        f', "in": [{", ".join([quoted(port.type) for port in inputs])}]'
        f', "out": [{", ".join([quoted(port.type) for port in outputs])}]'
        f', "accumulator_bits": {bits}, "trip_count": {kernel.trip_count}}}'
    )


def _read_kernel(
    entry: KernelPlanDoc, graph: Graph, keys: Mapping[str | None, str | None], texts: TypeTexts, path: str
) -> KernelPlan:
    if entry["row"] not in keys:
        raise PlanFormatError(f"{path}.row: {entry['row']!r} is no row of target.rows")
    ports = [
        _read_ports("in", entry, graph, texts, path),
        _read_ports("out", entry, graph, texts, path),
    ]
    return KernelPlan(
        name=entry["name"],
        kernel=entry["kernel"],
        row=keys[entry["row"]],
        reason=entry["reason"],
        inputs=ports[0],
        outputs=ports[1],
        accumulator_bits=entry["accumulator_bits"],
        trip_count=entry["trip_count"],
    )


def _read_ports(
    side: Literal["in", "out"],
    entry: KernelPlanDoc,
    graph: Graph,
    texts: TypeTexts,
    path: str,
) -> tuple[Port, ...]:
    names = entry["inputs"] if side == "in" else entry["outputs"]
    types = entry[side]
    if len(names) != len(types):
        raise PlanFormatError(f"{path}.{side}: {len(types)} types for {len(names)} ports")
    ports = []
    for i, (name, text) in enumerate(zip(names, types, strict=True)):
        if name and name not in graph.values:
            raise PlanFormatError(f"{path}.{side}puts[{i}]: {name!r} is no value of the graph")
        type_ = texts.type(text, f"{path}.{side}[{i}]")
        ports.append(Port(port_address(entry["name"], side, i), name or "", type_))
    return tuple(ports)


def _rescale_doc(rescale: Rescale, texts: TypeTexts) -> dict[str, Any]:
    entry = {
        "id": rescale.id,
        "value": rescale.value,
        "from": texts.text(rescale.from_type),
        "to": texts.text(rescale.to_type),
        "consumers": [port_address(kernel, "in", index) for kernel, index in rescale.consumers],
        "kind": rescale.kind,
        "elements": rescale.elements,
        "cost": float(rescale.cost),
    }
    return {**entry, "to_pin": True} if rescale.to_pin else entry


def _check_rescales(entries: Sequence[RescaleDoc], plan: Plan, texts: TypeTexts) -> None:
    derived = [_rescale_doc(rescale, texts) for rescale in plan.rescales]
    for i, (entry, expected) in enumerate(zip(entries, derived, strict=False)):
        found = {"to_pin": False, **entry}
        for name, value in {"to_pin": False, **expected}.items():
            if found[name] != value:
                raise PlanFormatError(
                    f"rescales[{i}].{name}: {found[name]!r}, but the port types give {value!r}"
                )
    if len(entries) != len(derived):
        raise PlanFormatError(f"rescales: {len(entries)} listed, but the port types give {len(derived)}")


def _value_line(name: str, value: ValuePlan, texts: TypeTexts) -> str:
    decided = "null" if value.decided_by is None else value.decided_by
    return (
        f'{quote(name)}: {{"type": {texts.quoted(value.type)}, "bits_lost": {number(value.bits_lost)}'
        f', "clip": {number(value.clip)}, "decided_by": {decided}}}'
    )


def _read_value(entry: ValuePlanDoc, texts: TypeTexts, path: str) -> ValuePlan:
    type_ = texts.type(entry["type"], f"{path}.type")
    return ValuePlan(type_, entry["bits_lost"], entry["clip"], entry["decided_by"])


def _step_lines(rows: Iterable[StepRow]) -> Iterator[str]:
    known: dict[str, str] = {}  # what steps say again and again
    for n, port, kind, rule, source, because, refused in rows:
        told = (
            f'"type": {known.get(kind) or known.setdefault(kind, quote(kind))}'
            f', "rule": {known.get(rule) or known.setdefault(rule, quote(rule))}'
            f', "source": {known.get(source) or known.setdefault(source, quote(source))}'
        )
        others = ", ".join(map(_refused, refused)) if refused else ""
        yield f'{{"n": {n}, "port": {quote(port)}, {told}, "because": {[*because]}, "refused": [{others}]}}'


def _refused(other: Refused) -> str:
    cost = number(other.cost) if math.isfinite(other.cost) else "null"
    return f'{{"label": {quote(other.label)}, "cost": {cost}}}'


def _read_step(entry: StepDoc) -> Step:
    return Step(
        n=entry["n"],
        port=entry["port"],
        type=entry["type"],
        rule=entry["rule"],
        source=entry["source"],
        because=tuple(entry["because"]),
        refused=tuple(
            [
                Refused(other["label"], math.inf if other["cost"] is None else other["cost"])
                for other in entry["refused"]
            ]
        ),
    )
