"""Annotated model <-> `Graph`: the file format `qplan.annotated/1`.

Kernels become regions; `ops`, `opsets`, `notes`, `reason`, port facts and constant numbers are ours, so
that a graph from any source goes through unchanged. Calls, loops and branches are `structure`'s.
Source: docs/formats.md.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from planner.errors import AnnotationError, PlanFormatError, QTypeError
from planner.formats.annotated.attributes import (
    array_from_json,
    array_to_json,
    attributes_from_json,
    attributes_to_json,
)
from planner.formats.annotated.jsontext import (
    Lines,
    Nested,
    encode,
    quote,
    quote_all,
    read_checked,
    write_compact,
    write_lines,
)
from planner.formats.annotated.schema import (
    ANNOTATED,
    VERSION,
    AnnotatedDoc,
    ConstantDoc,
    GraphDoc,
    KernelDoc,
    OpDoc,
    ValueDoc,
)
from planner.formats.annotated.structure import (
    scope_from_json,
    scope_to_json,
    structure_from_json,
    structure_to_json,
)
from planner.ir.dims import odd_sizes, symbol_of
from planner.ir.dtypes import NUMPY
from planner.ir.edges import with_edges
from planner.ir.graph import (
    Constant,
    Facts,
    Graph,
    Op,
    Region,
    Value,
    modules_of_steps,
    scaled_from_json,
    scaled_to_json,
    without_written,
)
from planner.ir.topology import topological
from planner.ir.types.fit import refuse_misfits
from planner.ir.types.qtypes import QType, Uniform
from planner.ir.types.ranges import check_range
from planner.ir.types.typetext import parse_type
from planner.ir.types.wanted import Wanted, wanted_from_data, wanted_to_data
from planner.ir.validity import validate


def read_annotated(text: str | bytes) -> Graph:
    """Read an annotated model, JSON text of format `qplan.annotated/1`.

    Raises:
      PlanFormatError: not such a file; the message starts with the path of the fault.
      ModelError: a graph that breaks a rule of validity, a type that does not fit its tensor.
    """
    return _annotated(read_checked(text, ANNOTATED, VERSION))


def annotated_from_data(data: Any) -> Graph:
    """Read an annotated model that is parsed already, by `json.loads`.

    Raises:
      PlanFormatError, ModelError: as `read_annotated`.
    """
    try:
        document = ANNOTATED.validate_python(data)
    except ValidationError:
        return read_annotated(json.dumps(data))  # which says where in the text
    return _annotated(document)


def _annotated(document: AnnotatedDoc) -> Graph:
    functions: dict[str, Graph] = {}
    for i, entry in enumerate(document.get("functions", ())):
        path = f"functions[{i}]."
        if entry["name"] in functions:
            raise PlanFormatError(f"{path}name: {entry['name']!r} names two functions")
        if "wanted" in entry:
            raise PlanFormatError(f"{path}wanted: belongs to the model, and names kernels of bodies by path")
        functions[entry["name"]] = refuse_misfits(_read_graph(entry, path))
    graph = replace(_read_graph(document, ""), functions=functions)
    return refuse_misfits(with_edges(validate(graph)))


def write_annotated(graph: Graph) -> str:
    """Write a graph as an annotated model; `read_annotated` gives an equal one back, less `written`."""
    graph = without_written(graph)
    document = {"format": VERSION, **graph_to_document(graph)}
    if graph.functions:
        bodies = map(graph_to_document, graph.functions.values())
        document["functions"] = Lines(map(write_compact, bodies), spread=False)
    return write_lines(document) + "\n"


def graph_to_document(graph: Graph) -> Nested:
    """Turn a graph into the data of `GraphDoc`, for `write_lines`; values in order of definition."""
    known: dict[Any, str] = {}
    types: dict[int, str] = {}
    document = Nested(
        name=graph.name,
        values=Lines(_value_line(graph.values[name], graph, known) for name in definition_order(graph)),
        kernels=Lines(_kernel_line(region, types) for region in graph.regions),
        inputs=list(graph.inputs),
        outputs=list(graph.outputs),
    )
    if graph.ops:
        document["ops"] = (_op_doc(op) for op in graph.ops)
    if graph.opsets:
        document["opsets"] = dict(graph.opsets)
    notes = without_written(graph).notes
    if notes:
        document["notes"] = list(notes)
    if graph.scopes:
        document["scopes"] = (scope_to_json(path, scope) for path, scope in graph.scopes.items())
    if graph.wanted:
        document["wanted"] = {key: wanted_to_data(wanted) for key, wanted in graph.wanted.items()}
    if graph.caches:
        document["caches"] = [list(pair) for pair in graph.caches]
    if graph.scaled:
        document["scaled"] = scaled_to_json(graph.scaled)
    if modules := modules_of_steps(graph):
        document["modules"] = {path: [] for path in modules.values()}
        for name, path in modules.items():
            document["modules"][path].append(name)
    if graph.metadata:
        document["metadata"] = dict(graph.metadata)
    return document


def graph_from_document(document: GraphDoc, path: str = "") -> Graph:
    """Build the graph of a checked document; `path` is its place in the file (`graph.`).

    Raises:
      PlanFormatError: a type, constant or attribute that cannot be read, a value listed twice.
      ModelError: a graph that breaks a rule of validity.
    """
    return validate(_read_graph(document, path))


def _read_graph(document: GraphDoc, path: str) -> Graph:
    reader = _Types()
    values: dict[str, Value] = {}
    constants: dict[str, Constant] = {}
    for i, entry in enumerate(document["values"]):
        here = f"{path}values[{i}]"
        value = _read_value(entry, reader, here)
        if value.name in values or not value.name:
            raise PlanFormatError(f"{here}.name: {value.name!r} is empty or names two values")
        values[value.name] = value
        if "constant" in entry:
            constants[value.name] = _read_constant(entry["constant"], value, f"{here}.constant")
    kernels = enumerate(document["kernels"])
    regions = [_read_kernel(entry, i, reader, f"{path}kernels[{i}]") for i, entry in kernels]
    ops = tuple(_read_op(op, f"{path}ops[{i}]") for i, op in enumerate(document.get("ops", ())))
    for side in ("inputs", "outputs"):
        for i, name in enumerate(document[side]):
            if name not in values:
                raise PlanFormatError(f"{path}{side}[{i}]: {name!r} is not listed under values")
    scopes = document.get("scopes", ())
    return Graph(
        name=document["name"],
        values=values,
        ops=ops,
        inputs=tuple(document["inputs"]),
        outputs=tuple(document["outputs"]),
        constants=constants,
        regions=topological(regions),
        opsets=document.get("opsets", {}),
        notes=tuple(document.get("notes", ())),
        scopes={e["path"]: scope_from_json(e, f"{path}scopes[{i}]") for i, e in enumerate(scopes)},
        wanted=wanted_from_json(document.get("wanted", {}), f"{path}wanted"),
        caches=tuple((past, present) for past, present in document.get("caches", ())),
        scaled=scaled_from_json(document.get("scaled", ())),
        modules={name: path for path, names in document.get("modules", {}).items() for name in names},
        metadata=document.get("metadata", {}),
    )


def wanted_from_json(document: Mapping[str, Any], path: str) -> dict[str, Wanted]:
    """Read what is asked of kernels, key by key.

    Raises:
      PlanFormatError: nothing that can be asked of a kernel.
    """
    found: dict[str, Wanted] = {}
    for key, data in document.items():
        try:
            found[key] = wanted_from_data(data)
        except AnnotationError as error:
            raise PlanFormatError(f"{path}.{key}: {error.message}") from None
    return found


def definition_order(graph: Graph) -> tuple[str, ...]:
    """Names of all values: model inputs, then operands and results of each kernel, then the rest."""
    order: dict[str, None] = dict.fromkeys(graph.inputs)
    for step in graph.steps():
        order |= dict.fromkeys(step.inputs)
        for op in step.ops if isinstance(step, Region) else (step,):
            order |= dict.fromkeys((*op.inputs, *op.captures, *op.outputs))
        order |= dict.fromkeys(step.outputs)
    order |= dict.fromkeys(graph.constants)
    order |= dict.fromkeys(graph.values)
    return tuple(name for name in order if name in graph.values)


class _Types:
    """Types already read, by their text: models repeat them."""

    def __init__(self) -> None:
        self.known: dict[str, QType] = {}

    def read(self, text: str, path: str) -> QType:
        found = self.known.get(text)
        if found is None:
            try:
                found = self.known[text] = parse_type(text)
            except QTypeError as error:
                raise PlanFormatError(f"{path}: {error}") from None
        return found

    def facts(self, texts: Sequence[str], path: str) -> Facts:
        return tuple([self.read(text, f"{path}[{i}]") for i, text in enumerate(texts)])

    def ports(self, lists: Sequence[Sequence[str]], ports: Sequence[Any], path: str) -> tuple[Facts, ...]:
        if lists and len(lists) != len(ports):
            raise PlanFormatError(f"{path}: {len(lists)} lists for {len(ports)} ports")
        for i, texts in enumerate(lists):
            if texts and not ports[i]:
                raise PlanFormatError(f"{path}[{i}]: facts on a port that is absent")
        return tuple([self.facts(texts, f"{path}[{i}]") for i, texts in enumerate(lists)])


def _type_text(fact: QType) -> str:
    return fact.written_text if isinstance(fact, Uniform) else str(fact)


def _texts(facts: Iterable[QType], types: dict[int, str]) -> list[str]:
    return [types.get(id(fact)) or types.setdefault(id(fact), _type_text(fact)) for fact in facts]


def _value_line(value: Value, graph: Graph, known: dict[Any, str]) -> str:
    """Write a value; `known` holds texts of types by their identity, and of shapes, which repeat."""
    shape = known.get(value.shape)
    if shape is None:
        shape = known[value.shape] = encode(None if value.shape is None else list(value.shape))
    text = f'{{"name": {quote(value.name)}, "shape": {shape}, "dtype": "{value.dtype}"'
    if value.seen is not None:
        text += f', "seen": {list(value.seen)}'
        text += f', "varies": {list(value.varies)}' if value.varies else ""
    if value.facts:
        facts = [
            known.get(id(fact)) or known.setdefault(id(fact), quote(_type_text(fact))) for fact in value.facts
        ]
        text += f', "constraints": [{", ".join(facts)}]'
    if value.name in graph.constants:
        text += f', "constant": {encode(_constant_doc(graph.constants[value.name]))}'
    return text + "}"


def _constant_doc(constant: Constant) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if constant.axis is not None:
        entry["range"] = [[lo, hi] for lo, hi in zip(constant.lo, constant.hi, strict=True)]
        entry["axis"] = constant.axis
    elif constant.lo:
        entry["range"] = [constant.lo[0], constant.hi[0]]
    if constant.array is not None:
        entry["value"] = {"array": array_to_json(constant.array)}
    return entry


def _read_value(entry: ValueDoc, types: _Types, path: str) -> Value:
    shape = entry.get("shape")
    for i, dim in enumerate(shape or ()):
        if isinstance(dim, int) and dim < 0:
            raise PlanFormatError(f"{path}.shape[{i}]: {dim} is negative; an unknown size is null or a name")
    facts = types.facts(entry["constraints"], f"{path}.constraints") if "constraints" in entry else ()
    sizes = (
        None if shape is None else tuple([symbol_of(dim) if isinstance(dim, str) else dim for dim in shape])
    )
    value = Value(entry["name"], sizes, entry.get("dtype", "f32"), facts)
    if "seen" not in entry and "varies" not in entry:
        return value
    found = replace(value, seen=tuple(entry.get("seen", ())), varies=tuple(entry.get("varies", ())))
    problem = odd_sizes(found)
    if problem:
        raise PlanFormatError(f"{path}.seen: {problem}")
    return found


def _read_constant(entry: ConstantDoc, value: Value, path: str) -> Constant:
    array = _read_numbers(entry["value"], value, f"{path}.value") if "value" in entry else None
    axis = entry.get("axis")
    pairs: list[Any] = entry.get("range", [])
    if axis is None:
        pairs = [pairs] if pairs else []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or any(isinstance(x, list) for x in pair):
            wanted = "[lo, hi]" if axis is None else "a list of [lo, hi], one per slice of the axis"
            raise PlanFormatError(f"{path}.range: expected {wanted}, found {entry.get('range')!r:.60}")
        try:
            check_range(*pair)
        except QTypeError as error:
            raise PlanFormatError(f"{path}.range: {error}") from None
    _check_axis(axis, len(pairs), value, path)
    return Constant(array, tuple(float(lo) for lo, _ in pairs), tuple(float(hi) for _, hi in pairs), axis)


def _check_axis(axis: int | None, slices: int, value: Value, path: str) -> None:
    if axis is None:
        return
    shape = value.shape
    if not slices or axis < 0 or (shape is not None and axis >= len(shape)):
        raise PlanFormatError(f"{path}.axis: {axis} is no axis of {value.name!r} with ranges per slice")
    size = None if shape is None else shape[axis]
    if isinstance(size, int) and size != slices:
        raise PlanFormatError(f"{path}.range: {slices} ranges for axis {axis} of size {size}")


def _read_numbers(data: Any, value: Value, path: str) -> np.ndarray:
    known = NUMPY.get(value.dtype)
    try:
        if isinstance(data, dict):
            array = array_from_json(data["array"], f"{path}.array")
        else:
            array = np.asarray(data, dtype=known)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        message = f"{path}: not a (nested) list of {value.dtype} nor an array: {error}"
        raise PlanFormatError(message) from None
    if known is not None and array.dtype != known:
        raise PlanFormatError(f"{path}: elements of {array.dtype.name} in a value of {value.dtype}")
    if array.shape != value.shape:
        raise PlanFormatError(f"{path}: shape {list(array.shape)} in a value of shape {value.shape}")
    return array


def _names(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple([name or "" for name in names])


def _op_doc(op: Op) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": op.name, "type": op.type}
    entry["inputs"] = [name or None for name in op.inputs]
    entry["outputs"] = [name or None for name in op.outputs]
    if op.attributes:
        entry["attributes"] = attributes_to_json(op.attributes)
    if op.captures:
        entry["captures"] = list(op.captures)
    if op.scope:
        entry["scope"] = op.scope
    return entry


def _read_op(entry: OpDoc, path: str) -> Op:
    attributes = attributes_from_json(entry.get("attributes", {}), f"{path}.attributes")
    inputs, outputs = _names(entry["inputs"]), _names(entry["outputs"])
    name, captures = entry["name"], tuple(entry.get("captures", ()))
    return Op(name, entry["type"], inputs, outputs, attributes, captures, scope=entry.get("scope", ""))


def _kernel_line(region: Region, types: dict[int, str]) -> str:
    text = f'{{"name": {quote(region.name)}, "kernel": {quote(region.kernel)}'
    text += f', "inputs": {quote_all(region.inputs)}, "outputs": {quote_all(region.outputs)}'
    more = _kernel_doc(region, types)
    return f"{text}, {encode(more)[1:]}" if more else text + "}"


def _kernel_doc(region: Region, types: dict[int, str]) -> dict[str, Any]:
    """Fields of a kernel after its ports."""
    entry: dict[str, Any] = {}
    if region.attributes:
        entry["attributes"] = attributes_to_json(region.attributes)
    if region.trip_count != 1:
        entry["trip_count"] = region.trip_count
    if region.ops:
        entry["ops"] = [_op_doc(op) for op in region.ops]
    if region.input_facts:
        entry["input_facts"] = [_texts(facts, types) for facts in region.input_facts]
    if region.output_facts:
        entry["output_facts"] = [_texts(facts, types) for facts in region.output_facts]
    if region.reason:
        entry["reason"] = region.reason
    if region.scope:
        entry["scope"] = region.scope
    return entry | structure_to_json(region.structure)


def _read_kernel(entry: KernelDoc, index: int, types: _Types, path: str) -> Region:
    trip_count = entry.get("trip_count", 1)
    if trip_count < 1:
        raise PlanFormatError(f"{path}.trip_count: {trip_count} is not positive")
    return Region(
        name=entry.get("name", f"kernel_{index}"),
        kernel=entry["kernel"],
        inputs=_names(entry["inputs"]),
        outputs=_names(entry["outputs"]),
        **(_read_more(entry, types, path) if len(entry) > _PLAIN_FIELDS else {}),
        trip_count=trip_count,
    )


def _read_more(entry: KernelDoc, types: _Types, path: str) -> dict[str, Any]:
    """Read the fields of a kernel after its ports."""
    return {
        "ops": tuple([_read_op(op, f"{path}.ops[{i}]") for i, op in enumerate(entry.get("ops", ()))]),
        "attributes": attributes_from_json(entry.get("attributes", {}), f"{path}.attributes"),
        "input_facts": types.ports(entry.get("input_facts", ()), entry["inputs"], f"{path}.input_facts"),
        "output_facts": types.ports(entry.get("output_facts", ()), entry["outputs"], f"{path}.output_facts"),
        "reason": entry.get("reason", ""),
        "structure": structure_from_json(entry, path),
        "scope": entry.get("scope", ""),
    }


_PLAIN_FIELDS: Final = 4
"""Number of fields of a kernel with ports alone: name, kind, inputs and outputs."""
