"""Reading a plan from JSON: `qplan.plan/1`, checked field by field.

The `rescales` of the file must be the ones that the port types give. Source: docs/formats.md.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from planner.errors import PlanFormatError, PlannerError, QTypeError, quantity
from planner.formats.annotated.attributes import attributes_from_json
from planner.formats.annotated.document import graph_from_document
from planner.formats.annotated.jsontext import read_checked
from planner.ir.graph import Graph, port_address
from planner.ir.types.held_pins import Storages
from planner.ir.types.qtypes import FloatType, Uniform
from planner.ir.types.storages import storage
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
from planner.plans.records import KernelPlan, Port, PortTyped, Refused, Step, TargetRef, ValuePlan
from planner.plans.write_json import FIRST_WORDS, VERSION, TypeTexts, rescale_document, row_texts
from planner.target.records import UNLIMITED, Costs, Row
from planner.target.show import engines_from_json, files_from_json, row_from_json, work_from_json


def plan_from_json(text: str | bytes) -> Plan:
    """Read a plan file.

    Raises:
      PlanFormatError: another file; the message starts with the path of the fault.
      ModelError: a graph that breaks a rule of validity.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> ready = planner.annotate(model, stats=stats)
      >>> plan = planner.plan(ready, "litert-int8")
      >>> planner.plan_from_json(plan.to_json()).key == plan.key
      True
    """
    document = read_checked(text, PLAN, VERSION)
    types = PortTypes()
    graph = graph_from_document(document["graph"], "graph.")
    target = target_from_document(document["target"])
    keys = row_keys(target)
    kernels: dict[str, KernelPlan] = {}
    for i, entry in enumerate(document["kernels"]):
        if entry["name"] in kernels:
            raise PlanFormatError(f"kernels[{i}].name: two kernels are named {entry['name']!r}")
        kernels[entry["name"]] = _read_kernel(entry, graph, keys, types, f"kernels[{i}]")
    plan = assemble(document, graph, target, tuple(kernels.values()), types)
    _check_rescales(document["rescales"], plan)
    return plan


class PortTypes:
    """Port types by their MLIR text, each read once."""

    def __init__(self) -> None:
        self._types: dict[str | None, PortTyped] = {None: None}

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


def assemble(
    rest: PlanRestDoc, graph: Graph, target: TargetRef, kernels: tuple[KernelPlan, ...], types: PortTypes
) -> Plan:
    """Build the plan of a checked file from its parts."""
    values = {name: _read_value(entry, types, f"values.{name}") for name, entry in rest["values"].items()}
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
        excused=rest.get("excused", 0.0),
        optimal=rest["optimal"],
        bound=rest["bound"],
        warnings=tuple(rest["warnings"]),
        sources=rest.get("sources", {}),
        words=rest.get("words", FIRST_WORDS),
    )


def target_from_document(entry: TargetDoc) -> TargetRef:
    """Build the target reference of a checked file.

    Raises:
      PlanFormatError: an unknown price, or a row that cannot be read.
    """
    known = {field.name for field in dataclasses.fields(Costs)}
    for name, price in entry["costs"].items():
        if name not in known or (price is None and name not in UNLIMITED):
            raise PlanFormatError(f"target.costs.{name}: no such price; known: {', '.join(sorted(known))}")
    prices: dict[str, Any] = {**entry["costs"]}
    prices["wanted_float"] = bool(prices.get("wanted_float"))
    return TargetRef(
        id=entry["id"],
        version=entry["version"],
        digest=entry["digest"],
        file=entry["file"],
        rows={key: _read_row(row, f"target.rows.{key}") for key, row in entry["rows"].items()},
        costs=Costs(**prices),
        rescale_single_consumer=entry["rescale_single_consumer"],
        float_work=work_from_json(entry.get("float_work", {})),
        work_unit=entry.get("work_unit", ""),
        engines=engines_from_json(entry.get("engines", {})),
        files=files_from_json(entry.get("files", {})),
        storages=_read_storages(entry.get("storages")),
    )


def _read_storages(names: list[str] | None) -> Storages:
    try:
        stores = [storage(name) for name in names or ()]
    except QTypeError as error:
        raise PlanFormatError(f"target.storages: {error}") from None
    return None if names is None else frozenset((s.bits, s.signed, s.float_name) for s in stores)


def _read_row(entry: Mapping[str, Any], path: str) -> Row:
    try:
        return row_from_json(entry)
    except (PlannerError, KeyError, TypeError, ValueError) as error:
        raise PlanFormatError(f"{path}: not a row: {error}") from None


def row_keys(target: TargetRef) -> dict[str | None, str | None]:
    """Key of each row by what `row_texts` calls it, None by None."""
    return {None: None, **{text: key for key, text in row_texts(target).items()}}


def _read_kernel(
    entry: KernelPlanDoc, graph: Graph, keys: Mapping[str | None, str | None], types: PortTypes, path: str
) -> KernelPlan:
    if entry["row"] not in keys:
        raise PlanFormatError(f"{path}.row: {entry['row']!r} is no row of target.rows")
    ports = [
        _read_ports("in", entry, graph, types, path),
        _read_ports("out", entry, graph, types, path),
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
    types: PortTypes,
    path: str,
) -> tuple[Port, ...]:
    names = entry["inputs"] if side == "in" else entry["outputs"]
    told = entry[side]
    if len(names) != len(told):
        raise PlanFormatError(f"{path}.{side}: {len(told)} types for {quantity(len(names), 'port')}")
    ports = []
    for i, (name, text) in enumerate(zip(names, told, strict=True)):
        if name and name not in graph.values:
            raise PlanFormatError(f"{path}.{side}puts[{i}]: {name!r} is no value of the graph")
        type_ = types.type(text, f"{path}.{side}[{i}]")
        ports.append(Port(port_address(entry["name"], side, i), name or "", type_))
    return tuple(ports)


def _check_rescales(entries: Sequence[RescaleDoc], plan: Plan) -> None:
    texts = TypeTexts()
    derived = [rescale_document(rescale, texts) for rescale in plan.rescales]
    for i, (entry, expected) in enumerate(zip(entries, derived, strict=False)):
        found = {"to_pin": False, **entry}
        for name, value in {"to_pin": False, **expected}.items():
            if found[name] != value:
                raise PlanFormatError(
                    f"rescales[{i}].{name}: {found[name]!r}, but the port types give {value!r}"
                )
    if len(entries) != len(derived):
        raise PlanFormatError(f"rescales: {len(entries)} listed, but the port types give {len(derived)}")


def _read_value(entry: ValuePlanDoc, types: PortTypes, path: str) -> ValuePlan:
    type_ = types.type(entry["type"], f"{path}.type")
    return ValuePlan(type_, entry["bits_lost"], entry["clip"], entry["decided_by"])


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
                Refused(
                    other["label"],
                    math.inf if other["cost"] is None else other["cost"],
                    other.get("why", ""),
                )
                for other in entry["refused"]
            ]
        ),
    )
