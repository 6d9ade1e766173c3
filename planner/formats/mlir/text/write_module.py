"""Writing a graph as an MLIR module of `qplan.region` ops, as text and without xDSL.

Generic op forms; every name, shape and attribute that MLIR's own syntax cannot hold rides in `qplan.`
attributes, so `read_module` gives an equal graph back. A region whose ops are unknown has an empty body.
Source: docs/mlir.md.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from planner.formats.annotated.attributes import array_to_json
from planner.formats.annotated.document import definition_order
from planner.formats.annotated.structure import scope_to_json
from planner.formats.mlir.text.elements import (
    DENSE,
    attribute_text,
    dense_text,
    element_text,
    entries,
    facts_text,
    string,
    strings,
    tensor_text,
)
from planner.formats.mlir.text.resources import resource_text
from planner.formats.mlir.text.specs import port_facts, shown_facts, value_facts
from planner.formats.mlir.text.spelling import Spelling, as_rfc, type_text
from planner.formats.mlir.text.write_structure import Running, running_lines
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Constant, Facts, Graph, Op, Region, Value, scaled_to_json, without_written
from planner.ir.structure import Loop, Structure
from planner.ir.types.qtypes import FloatType, float_text
from planner.ir.types.wanted import wanted_to_data

_SSA: Final = re.compile(r"[A-Za-z_$.][A-Za-z0-9_$.]*")
_LONGEST: Final = 16
"""Characters of an SSA name; a value with a longer name gets a number, its name is in `qplan.values`."""
Specs: TypeAlias = Literal["values", "ports"]
_NOTHING: Final[Mapping[str, Any]] = {}


def write_mlir(
    graph: Graph,
    *,
    extras: Mapping[str, Mapping[str, Any]] = _NOTHING,
    attributes: Mapping[str, Any] = _NOTHING,
    specs: Specs = "values",
    resources: Mapping[str, str] = _NOTHING,
    spelling: Spelling = "qplan",
) -> str:
    """Write a graph as a module.

    Args:
      graph: regions, or ops, or both.
      extras: more attributes of regions, by region name; their names start with `qplan.`.
      attributes: attributes of the module, likewise; a module without any is its function alone.
      specs: whether the specs of regions show the facts of values, or of ports and nothing else.
      resources: texts to go behind the module, by name.
      spelling: of ops and types that upstream has not: `qplan.region`, or as in the RFC, `quant.region`.
    """
    graph = without_written(graph)
    parts = {"main": graph, **graph.functions}
    text = "".join([_Writer(part, extras, specs, name).function() for name, part in parts.items()])
    if attributes:
        table = entries({key: attribute_text(value) for key, value in attributes.items()})
        text = f"builtin.module attributes {{{table}}} {{\n{text}}}\n"
    text = as_rfc(text) if spelling == "rfc" else text
    return "".join([text, *(resource_text(name, document) for name, document in resources.items())])


class _Names:
    """SSA names: short and readable where the value's name allows it, unique always."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def new(self, wanted: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_$.]", "_", wanted) if len(wanted) <= _LONGEST else f"v{len(self.taken)}"
        base = base if _SSA.fullmatch(base) else f"v{base}"
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return f"%{name}"


class _Writer:
    """The text of one function, built line by line."""

    def __init__(
        self, graph: Graph, extras: Mapping[str, Mapping[str, Any]], specs: Specs, name: str
    ) -> None:
        self.graph, self.name = graph, name
        self.extras = extras
        self.names = _Names()
        self.ssa: dict[str, str] = {}
        self.lines: list[str] = []
        self.order = definition_order(graph)
        self.facts = {name: graph.values[name].facts for name in self.order}
        self.specs_of = specs
        self.implied = self.facts if specs == "values" else {}
        self.shown = [shown_facts(region, self.implied) for region in graph.regions]
        self.listed = {*graph.inputs, *graph.constants}

    def function(self) -> str:
        graph = self.graph
        arguments = ", ".join(f"{self.define(name)}: {self.type(name)}" for name in graph.inputs)
        for name in self.order:
            if name in graph.constants and name not in graph.inputs:
                self.lines.append(self.constant(name, graph.constants[name]))
        outside = self.read_outside()
        for region, shown in zip(graph.regions, self.shown, strict=True):
            self.region(region, shown, outside[region.name])
        for op in graph.ops:
            self.op(op, self.ssa, "  ")
        results = ", ".join(self.type(name) for name in graph.outputs)
        returned = ", ".join(self.ssa[name] for name in graph.outputs)
        self.lines.append(f"  func.return {returned} : {results}" if graph.outputs else "  func.return")
        arrow = f" -> ({results})" if graph.outputs else ""
        symbol = self.name if _SSA.fullmatch(self.name) else string(self.name)
        private = "" if self.name == "main" else "private "
        attributes = entries(self.function_attributes())
        head = f"func.func {private}@{symbol}({arguments}){arrow} attributes {{{attributes}}} {{"
        return "\n".join([head, *self.lines, "}", ""])

    def function_attributes(self) -> dict[str, str]:
        graph = self.graph
        values = {name: graph.values[name] for name in self.order}
        told = value_facts(graph.regions, self.shown) if self.specs_of == "values" else {}
        tables = {
            "qplan.facts": {n: facts_text(f) for n, f in self.facts.items() if f != told.get(n, ())},
            "qplan.shapes": {
                name: attribute_text(value.shape)
                for name, value in values.items()
                if any(isinstance(dim, str) for dim in value.shape or ())
            },
            "qplan.seen": {
                name: attribute_text([list(value.seen), list(value.varies)])
                for name, value in values.items()
                if value.seen is not None
            },
            "qplan.unused": {n: tensor_text(value) for n, value in values.items() if n not in self.listed},
        }
        items = {"qplan.name": string(graph.name), "qplan.inputs": strings(graph.inputs)}
        items["qplan.outputs"] = strings(graph.outputs)
        if self.specs_of != "values":
            items["qplan.specs"] = string(self.specs_of)
        # Pairs, not a dictionary: names are any text, and keys are not.
        pairs = {
            key: [f"[{string(n)}, {text}]" for n, text in table.items()] for key, table in tables.items()
        }
        items |= {key: f"[{', '.join(table)}]" for key, table in pairs.items() if table}
        if graph.opsets:
            items["qplan.opsets"] = attribute_text(tuple(graph.opsets.items()))
        if graph.notes:
            items["qplan.notes"] = strings(graph.notes)
        if graph.scopes:
            told_of = (scope_to_json(path, scope) for path, scope in graph.scopes.items())
            items["qplan.scopes"] = string(json.dumps(list(told_of)))
        if graph.wanted:
            asked = {key: wanted_to_data(wanted) for key, wanted in graph.wanted.items()}
            items["qplan.wanted"] = string(json.dumps(asked))
        if graph.caches:
            items["qplan.caches"] = attribute_text(graph.caches)
        if graph.scaled:
            items["qplan.scaled"] = string(json.dumps(scaled_to_json(graph.scaled)))
        if graph.metadata:
            items["qplan.metadata"] = string(json.dumps(dict(graph.metadata)))
        return items

    def read_outside(self) -> dict[str, tuple[str, ...]]:
        """By region, the results of its ops that no port shows and that others read: shapes, indices."""
        readers: dict[str, set[str]] = {name: {""} for name in self.graph.outputs}
        for step in self.graph.steps():
            for op in step.ops if isinstance(step, Region) else (step,):
                for name in (*op.inputs, *op.captures):
                    readers.setdefault(name, set()).add(step.name)
        return {
            region.name: tuple(
                name
                for op in region.ops
                for name in op.outputs
                if name and name not in region.outputs and readers.get(name, set()) - {region.name}
            )
            for region in self.graph.regions
        }

    def define(self, name: str) -> str:
        self.ssa[name] = self.names.new(name)
        return self.ssa[name]

    def type(self, name: str) -> str:
        value = self.graph.values.get(name)
        if value is None:
            return "none"
        self.listed.add(name)
        return tensor_text(value)

    def constant(self, name: str, constant: Constant) -> str:
        items = {"qplan.name": string(name)}
        items |= constant_entries(constant, self.graph.values[name])
        return f'  {self.define(name)} = "qplan.constant"() {{{entries(items)}}} : () -> {self.type(name)}'

    def region(
        self, region: Region, shown: tuple[tuple[Facts, ...], tuple[Facts, ...]], outside: tuple[str, ...]
    ) -> None:
        ports = [name for name in region.inputs if name]
        made = {name for op in region.ops for name in op.outputs}
        read = dict.fromkeys(name for op in region.ops for name in op.inputs)
        more = [n for n in read if n and n not in made and n not in ports]
        operands, results = [*ports, *more], [*[n for n in region.outputs if n], *outside]
        used = ", ".join(self.ssa[name] for name in operands)
        signature = self.signature(operands, results)
        body = self.body(region, operands, results)
        defined = ", ".join(self.define(name) for name in results)
        items = {"kernel": string(region.kernel), "qplan.name": string(region.name)}
        items["qplan.values"] = strings(results)
        items["input_specs"] = self.specs(region.inputs, shown[0], more)
        items["output_specs"] = self.specs(region.outputs, shown[1], outside)
        items |= self.region_entries(region, shown, len(more), len(outside))
        if region.structure is not None:
            self.running(region.structure, operands, results, items)
            return
        equals = f"{defined} = " if defined else ""
        self.lines.append(f'  {equals}"qplan.region"({used}) ({{{body}}}) {{{entries(items)}}}')
        self.lines.append(f"    : {signature}")

    def running(
        self, structure: Structure, operands: Sequence[str], results: Sequence[str], items: Mapping[str, str]
    ) -> None:
        """Write a kernel that runs functions."""
        kernel = Running(
            structure=structure,
            operands=[self.ssa[name] for name in operands],
            taken=[self.type(name) for name in operands],
            results=[self.ssa[name] for name in results],
            given=[self.type(name) for name in results],
            items=entries(items),
            fresh=self.names.new,
        )
        self.lines += running_lines(kernel)

    def region_entries(
        self, region: Region, shown: tuple[tuple[Facts, ...], tuple[Facts, ...]], more: int, outside: int
    ) -> dict[str, str]:
        items: dict[str, Any] = {
            "qplan.operands": more,
            "qplan.results": outside,
            "qplan.attributes": dict(region.attributes),
            "qplan.trip_count": region.trip_count if region.trip_count != 1 else 0,
            "qplan.unfused": region.reason,
            "qplan.scope": region.scope,
            "qplan.varying": region.structure.varying if isinstance(region.structure, Loop) else (),
        }
        items = {key: item for key, item in items.items() if item}
        if port_facts(region.inputs, shown[0], self.implied) != region.input_facts:
            items["qplan.input_facts"] = region.input_facts
        if port_facts(region.outputs, shown[1], self.implied) != region.output_facts:
            items["qplan.output_facts"] = region.output_facts
        items |= self.extras.get(region.name, {})
        return {key: attribute_text(item) for key, item in items.items()}

    def specs(self, names: Sequence[str], shown: Sequence[Facts], more: Iterable[str]) -> str:
        texts = [self.spec(name, facts) for name, facts in zip(names, shown, strict=True)]
        return f"[{', '.join([*texts, *(self.spec(name, ()) for name in more)])}]"

    def spec(self, name: str, facts: Facts) -> str:
        if not name:
            return "none"
        value = self.graph.values.get(name)
        element = "unit" if value is None else element_text(value.dtype)
        if len(facts) == 1 and not (isinstance(facts[0], FloatType) and facts[0].name == element):
            return type_text(facts[0])
        return facts_text(facts) if facts else element

    def signature(self, operands: Sequence[str], results: Sequence[str]) -> str:
        taken = ", ".join(self.type(name) for name in operands)
        given = ", ".join(self.type(name) for name in results)
        return f"({taken}) -> {given}" if len(results) == 1 else f"({taken}) -> ({given})"

    def body(self, region: Region, operands: Sequence[str], results: Sequence[str]) -> str:
        if not region.ops:
            return ""
        inner = {name: self.names.new(name) for name in dict.fromkeys(operands)}
        arguments = []
        for i, name in enumerate(operands):
            first = name not in operands[:i]
            arguments.append(f"{inner[name] if first else self.names.new(name)}: {self.type(name)}")
        outer, self.lines = self.lines, []
        for op in region.ops:
            self.op(op, inner, "    ")
        returned = ", ".join(inner[name] for name in results)
        kinds = ", ".join(self.type(name) for name in results)
        lines, self.lines = self.lines, outer
        start = f"\n  ^bb0({', '.join(arguments)}):"
        return "\n".join([start, *lines, f'    "qplan.return"({returned}) : ({kinds}) -> ()', "  "])

    def op(self, op: Op, ssa: dict[str, str], indent: str) -> None:
        operands = [name for name in op.inputs if name]
        used = ", ".join(ssa[name] for name in operands)
        signature = self.signature(operands, op.outputs)
        domain, _, plain = op.type.rpartition("::")
        items: dict[str, Any] = {"qplan.name": op.name, "qplan.values": op.outputs}
        if domain or op.type.startswith("::"):
            items["qplan.domain"] = domain
        if len(operands) < len(op.inputs):
            items["qplan.absent"] = tuple(i for i, name in enumerate(op.inputs) if not name)
        if op.captures:
            items["qplan.captures"] = op.captures
        if op.scope:
            items["qplan.scope"] = op.scope
        items |= op.attributes
        defined = []
        for name in op.outputs:
            ssa[name] = self.names.new(name or "absent")
            defined.append(ssa[name])
        equals = f"{', '.join(defined)} = " if defined else ""
        table = entries({key: attribute_text(item) for key, item in items.items()})
        self.lines.append(f"{indent}{equals}{string('onnx.' + plain)}({used}) {{{table}}} : {signature}")


def constant_entries(constant: Constant, value: Value) -> dict[str, str]:
    """Write the contents of a constant: `value`, `range` [lo, hi], or `range` of each slice of `axis`."""
    items = {}
    pairs = [
        f"[{float_text(lo)} : f64, {float_text(hi)} : f64]"
        for lo, hi in zip(constant.lo, constant.hi, strict=True)
    ]
    if constant.axis is not None:
        items = {"range": f"[{', '.join(pairs)}]", "axis": f"{constant.axis} : i64"}
    elif pairs:
        items = {"range": pairs[0]}
    array = constant.array
    if array is None:
        return items
    if array.dtype in DENSE and NUMPY.get(value.dtype) == array.dtype and array.shape == value.shape:
        return {**items, "value": dense_text(array)}
    return {**items, "qplan.value": string(json.dumps(array_to_json(array)))}
