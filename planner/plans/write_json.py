"""Writing a plan as JSON: `qplan.plan/1`; `read_json` gives an equal plan back.

`graph` holds the model's structure as in an annotated model. `rescales` are written for consumers of the
file. Types stand as MLIR text, float as null. Source: docs/formats.md.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from planner.formats.annotated.attributes import attributes_to_json
from planner.formats.annotated.document import graph_to_document
from planner.formats.annotated.jsontext import Lines, Nested, encode, line_parts, number, quote, quote_all
from planner.ir.graph import port_address
from planner.plans.fields import PlanFields
from planner.plans.records import (
    KernelPlan,
    PortTyped,
    Refused,
    Rescale,
    StepRow,
    TargetRef,
    ValuePlan,
    step_rows,
)
from planner.target.records import Files, Row, WorkRates
from planner.target.show import engines_to_json, files_to_json, row_to_json, work_to_json

VERSION: Final = "qplan.plan/1"
"""The `format` of this file."""
FIRST_WORDS: Final = 1
"""Revision of the words of warnings that is not written: plans had no such field then."""


def plan_to_json(plan: PlanFields) -> str:
    """Write a plan."""
    return "".join(json_parts(plan))


def json_parts(plan: PlanFields) -> Iterator[str]:
    """Write a plan in parts: one of a large model is never in memory as a whole."""
    texts = TypeTexts()
    rest = plan_rest(plan, texts)
    rows: dict[str | None, str] = {None: "null"}
    rows.update((key, quote(text)) for key, text in row_texts(plan.target).items())
    document: dict[str, Any] = {"format": VERSION}
    first = ("key", "model", "options", "cost", "excused", "optimal", "bound")
    document |= {name: rest[name] for name in first}
    document["warnings"] = rest["warnings"]
    document["kernels"] = Lines(_kernel_line(kernel, rows, texts) for kernel in plan.kernels_in_order)
    document["values"] = rest["values"]
    document["rescales"] = (rescale_document(rescale, texts) for rescale in plan.rescales)
    document["steps"] = rest["steps"]
    document["target"] = rest["target"]
    document |= {name: rest[name] for name in ("words", "sources") if name in rest}
    document["graph"] = graph_to_document(plan.graph)
    yield from line_parts(document)
    yield "\n"


class TypeTexts:
    """MLIR text of port types, each made once: plans repeat them. Lives while the types it was given do.

    Texts of more than `LONGEST` characters are made anew: they are of weights, of which each has its own.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._quoted: dict[int, str] = {}

    def text(self, kind: PortTyped) -> str | None:
        """MLIR text of a type, None for float."""
        if kind is None:
            return None
        return self._texts.get(id(kind)) or _kept(self._texts, id(kind), str(kind))

    def quoted(self, kind: PortTyped) -> str:
        """The same as JSON text."""
        return self._quoted.get(id(kind)) or _kept(self._quoted, id(kind), encode(self.text(kind)))


LONGEST: Final = 1 << 18


def _kept(texts: dict[int, str], key: int, text: str) -> str:
    if len(text) <= LONGEST:
        texts[key] = text
    return text


def plan_rest(plan: PlanFields, texts: TypeTexts) -> dict[str, Any]:
    """Say what a plan holds besides its graph and kernels, as data of `PlanRestDoc` for `write_lines`."""
    return {
        "format": VERSION,
        "key": plan.key,
        "model": plan.model,
        "target": _target_doc(plan.target),
        "options": attributes_to_json(plan.options),
        "cost": float(plan.cost),
        "excused": float(plan.excused),
        "optimal": plan.optimal,
        "bound": float(plan.bound),
        "warnings": list(plan.warnings),
        "values": Lines((_value_line(*item, texts) for item in plan.values.items()), "{}"),
        "steps": Lines(_step_lines(step_rows(plan.steps))),
        **({"words": plan.words} if plan.words != FIRST_WORDS else {}),
        **({"sources": dict(plan.sources)} if plan.sources else {}),
    }


def row_texts(target: TargetRef) -> dict[str, str]:
    """`file:line` of each row by its key; the key itself where two rows share a line."""
    sources = Counter(row.source for row in target.rows.values())
    return {
        key: row.source if sources[row.source] == 1 and row.source and row.source not in target.rows else key
        for key, row in target.rows.items()
    }


def rescale_document(rescale: Rescale, texts: TypeTexts) -> dict[str, Any]:
    """A rescale as data of `RescaleDoc`."""
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


def _target_doc(target: TargetRef) -> Nested:
    # Plans that ask for no floor read as before there was one.
    told = dataclasses.asdict(target.costs).items()
    costs = {k: v for k, v in told if not (k.startswith("wanted_") and (v is None or v is False))}
    work: dict[str, Any] = {}
    if target.float_work != WorkRates():
        work["float_work"] = work_to_json(target.float_work)
    if target.work_unit:
        work["work_unit"] = target.work_unit
    if target.engines.names:
        work["engines"] = engines_to_json(target.engines)
    if target.files != Files():
        work["files"] = files_to_json(target.files)
    if target.storages is not None:
        work["storages"] = [
            form or f"{'i' if signed else 'u'}{bits}" for bits, signed, form in sorted(target.storages)
        ]
    return Nested(
        id=target.id,
        version=target.version,
        digest=target.digest,
        file=target.file,
        rescale_single_consumer=target.rescale_single_consumer,
        costs={name: None if price is None else float(price) for name, price in costs.items()},
        **work,
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


def _value_line(name: str, value: ValuePlan, texts: TypeTexts) -> str:
    decided = "null" if value.decided_by is None else value.decided_by
    return (
        f'{quote(name)}: {{"type": {texts.quoted(value.type)}, "bits_lost": {number(value.bits_lost)}'
        f', "clip": {number(value.clip)}, "decided_by": {decided}}}'
    )


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
    why = f', "why": {quote(other.why)}' if other.why else ""
    return f'{{"label": {quote(other.label)}, "cost": {cost}{why}}}'
