"""Reading an MLIR module of `qplan.region` ops into a graph; xDSL parses and verifies.

Ops of other dialects become source ops; casts, statistics and element types become constraints
(`plain_functions`); calls, loops and branches are `read_structure`'s. Source: docs/mlir.md; the writing
side is `write_module`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from xdsl.dialects import builtin, func
from xdsl.ir import Attribute, Block, Operation, SSAValue

from planner.errors import ModelError, PlanFormatError, QTypeError
from planner.formats.annotated.attributes import array_from_json
from planner.formats.annotated.document import wanted_from_json
from planner.formats.annotated.structure import scope_from_json
from planner.formats.mlir.attributes import attribute_value, spec_facts
from planner.formats.mlir.dialect import PLAN, ConstantOp, RegionOp
from planner.formats.mlir.generic import OPAQUE_TEXT
from planner.formats.mlir.parse import TextParser, parse_text
from planner.formats.mlir.places import place
from planner.formats.mlir.text.opaque import captured, opaque_text
from planner.formats.mlir.text.plain_functions import read_plain
from planner.formats.mlir.text.read_structure import (
    CALL,
    RUNNING,
    callee,
    is_foreign,
    is_scaffold,
    op_name,
    read_running,
)
from planner.formats.mlir.text.reading import ReadState
from planner.formats.mlir.text.resources import without_resources
from planner.formats.mlir.text.specs import port_facts, value_facts
from planner.ir.dims import odd_sizes, symbol_of
from planner.ir.edges import FLOAT, RESCALE, with_edges
from planner.ir.graph import Constant, Facts, Graph, Op, Region, scaled_from_json
from planner.ir.structure import Scope, Structure
from planner.ir.topology import topological
from planner.ir.types.fit import refuse_misfits
from planner.ir.types.ranges import check_range
from planner.ir.types.wanted import Wanted
from planner.ir.validity import validate

_KNOWN: Final = frozenset(
    {
        "qplan.attributes",
        "qplan.input_facts",
        "qplan.name",
        "qplan.operands",
        "qplan.output_facts",
        "qplan.results",
        "qplan.scope",
        "qplan.trip_count",
        "qplan.unfused",
        "qplan.values",
        "qplan.varying",
    }
)


_PRIVATE: Final = builtin.StringAttr("private")


@dataclass(frozen=True, slots=True)
class Module:
    """Contents of a module: the graph, more `qplan.` attributes of regions by name, and of the module.

    Attributes:
      resources: texts behind the module, by name.
      names: of the values of the public function, by their SSA values.
      parser: knows where in the text each op stands.
    """

    graph: Graph
    extras: Mapping[str, Mapping[str, Any]]
    attributes: Mapping[str, Any]
    resources: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[SSAValue, str] = field(default_factory=dict)
    parser: TextParser | None = None


def read_mlir(text: str | bytes) -> Graph:
    """Read an annotated model from MLIR text.

    Raises:
      ModelError: `line:column: ` and the fault there, a graph that breaks a rule of validity,
        or a type that does not fit its tensor.
    """
    module = read_module(text)
    planned = PLAN in module.attributes
    graph = with_edges(_as_decided(module) if planned else module.graph)
    if not any(isinstance(value.owner, RegionOp) for value in module.names):
        graph = replace(graph, module=text if isinstance(text, str) else text.decode())
    return refuse_misfits(graph, planned=planned)


def _as_decided(module: Module) -> Graph:
    """The model of a planned module: its types and its float values are kept."""
    values = module.graph.values

    def decided(names: Sequence[str], facts: Sequence[Facts]) -> tuple[Facts, ...]:
        shown = zip(names, facts or ((),) * len(names), strict=True)
        return tuple([own or ((FLOAT,) if name and values[name].is_float else ()) for name, own in shown])

    regions = [
        region
        if region.kernel == RESCALE or "qplan.dead" in module.extras.get(region.name, {})
        else replace(
            region,
            input_facts=decided(region.inputs, region.input_facts),
            output_facts=decided(region.outputs, region.output_facts),
        )
        for region in module.graph.regions
    ]
    return replace(module.graph, regions=tuple(regions))


def read_module(text: str | bytes) -> Module:
    """Read a module with everything that rides in `qplan.` attributes; raises as `read_mlir`."""
    try:
        source = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise ModelError(f"not UTF-8 text at byte {error.start}") from None
    source, resources = without_resources(source)
    module, parser = parse_text(source)
    functions = [op for op in module.body.ops if isinstance(op, func.FuncOp)]
    main = [op for op in functions if op.sym_visibility != _PRIVATE]
    if len(main) != 1 or len(list(module.body.ops)) != len(functions):
        raise ModelError(
            f"1:1: a model is one public func.func @main, and private ones that it calls; this module holds "
            f"{len(main)} public functions and {len(list(module.body.ops)) - len(functions)} other ops"
        )
    inline = _plain_callees(functions)
    if inline:
        functions = main
    graphs: dict[str, Graph] = {}
    extras: dict[str, dict[str, Any]] = {}
    names: Mapping[SSAValue, str] = {}
    for function in functions:
        reader = _Reader(source, parser.starts, parser.spelled, inline=inline)
        try:
            graphs[function.sym_name.data] = reader.function(function)
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
            at = place(source, parser.starts.get(id(reader.current), 0))
            raise ModelError(f"{at}: an attribute of this op has the wrong form: {error!r}") from None
        extras |= reader.extras
        if function is main[0]:
            names = {value: name for value, name in reader.names.items() if _home(value) is function}
    graph = replace(graphs.pop(main[0].sym_name.data), functions=graphs)
    attributes = {key: attribute_value(item) for key, item in module.attributes.items()}
    return Module(validate(graph), extras, attributes, resources, names, parser)


def _plain_callees(functions: Sequence[func.FuncOp]) -> Mapping[str, func.FuncOp]:
    """Functions whose ops go in place of their calls: of a module without kernels of its own."""
    inside = [op for function in functions for op in function.walk()]
    if any(
        isinstance(op, RegionOp) or (op_name(op) in RUNNING - {CALL} and not is_foreign(op)) for op in inside
    ):
        return {}
    calls = [op for op in inside if op_name(op) == CALL]
    if not calls or any("kernel" in op.attributes or "qplan.name" in op.attributes for op in calls):
        return {}
    return {function.sym_name.data: function for function in functions if function.body.blocks}


def _home(value: SSAValue) -> Operation | None:
    """The function whose block defines a value."""
    owner = value.owner
    block = owner if isinstance(owner, Block) else owner.parent
    return None if block is None else block.parent_op()


@dataclass
class _Reader(ReadState):
    """Reads functions with regions, and their specs."""

    regions: list[Region] = field(default_factory=list)
    shown: list[tuple[tuple[Facts, ...], tuple[Facts, ...]]] = field(default_factory=list)
    extras: dict[str, dict[str, Any]] = field(default_factory=dict)
    current: Operation | None = None
    inline: Mapping[str, func.FuncOp] = field(default_factory=dict)
    calling: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def function(self, function: func.FuncOp) -> Graph:
        self.current = function
        told = {key: self.plain(function, item) for key, item in function.attributes.items()}
        block = function.body.blocks.first
        if block is None or block.next_block is not None:
            self.fail(function, "the model's function has one block")
        inputs = self.define(function, block.args, told.get("qplan.inputs"))
        outputs: tuple[str, ...] = ()
        for op in block.ops:
            self.current = op
            if isinstance(op, func.ReturnOp):
                outputs = tuple([self.names.get(value) or self.integers[value] for value in op.operands])
            else:
                self.step(op)
        unused = function.attributes.get("qplan.unused")
        for pair in unused.data if isinstance(unused, builtin.ArrayAttr) else ():
            self.add(function, self.plain(function, pair.data[0]), pair.data[1])
        self.set_shapes(function, dict(told.get("qplan.shapes", ())))
        self.set_seen(function, dict(told.get("qplan.seen", ())))
        regions = self.facts(dict(told.get("qplan.facts", ())), told.get("qplan.specs", "values"))
        return Graph(
            name=told.get("qplan.name", function.sym_name.data),
            values=self.values,
            ops=tuple(self.ops),
            inputs=inputs,
            outputs=outputs,
            constants=self.constants,
            regions=topological(regions),
            opsets=dict(told.get("qplan.opsets", ())),
            notes=(*told.get("qplan.notes", ()), *self.notes),
            scopes=self.scopes(told.get("qplan.scopes", "[]")),
            wanted=self.wanted(function, told.get("qplan.wanted", "{}")),
            caches=tuple((past, present) for past, present in told.get("qplan.caches", ())),
            scaled=self.scaled(function, told.get("qplan.scaled", "[]")),
            metadata=self.metadata(function, told.get("qplan.metadata", "{}")),
        )

    def scopes(self, text: str) -> Mapping[str, Scope]:
        """The bodies in their place of a plan's graph."""
        return {entry["path"]: scope_from_json(entry, "qplan.scopes") for entry in json.loads(text)}

    def scaled(self, function: func.FuncOp, text: str) -> Mapping[str, tuple[str, float]]:
        """Values that absorbed factors left no name to."""
        try:
            return scaled_from_json(json.loads(text))
        except (TypeError, ValueError):
            self.fail(function, "qplan.scaled is no list of a name, a value and a factor")

    def metadata(self, function: func.FuncOp, text: str) -> Mapping[str, str]:
        """The entries beside the model."""
        try:
            entries = json.loads(text)
        except (TypeError, ValueError):
            entries = None
        if not isinstance(entries, dict) or not all(isinstance(entry, str) for entry in entries.values()):
            self.fail(function, "qplan.metadata is no dictionary of texts")
        return entries

    def wanted(self, function: func.FuncOp, text: str) -> Mapping[str, Wanted]:
        """The requests for the kernels."""
        try:
            return wanted_from_json(json.loads(text), "qplan.wanted")
        except PlanFormatError as error:
            self.fail(function, error.message)

    def step(self, op: Operation) -> None:
        if isinstance(op, ConstantOp):
            self.constant(op)
        elif isinstance(op, RegionOp):
            self.region(op)
        elif (name := op_name(op)) == CALL and self.inline:
            self.in_place(op)
        elif name in RUNNING and not is_foreign(op):
            self.running(op)
        elif name.startswith("scf.") and not op.regions:
            self.fail(op, f"{name}: of scf, for and if are read, around one func.call each")
        elif not is_scaffold(op) and not read_plain(self, op, name):
            self.ops.append(self.op(op, self.names))

    def in_place(self, call: Operation) -> None:
        """Read the ops of a called function where the call stands."""
        name = callee(self, call)
        body = self.inline[name].body.blocks.first if name in self.inline else None
        if body is None or body.next_block is not None or name in self.calling:
            why = "which calls itself" if name in self.calling else "whose body is no block here"
            self.fail(call, f"a call of @{name}, {why}")
        self.calling = (*self.calling, name)
        self.names |= {arg: self.names[value] for arg, value in zip(body.args, call.operands, strict=True)}
        for op in body.ops:
            self.current = op
            for value in op.results:  # named by the call before
                self.names.pop(value, None)
            if isinstance(op, func.ReturnOp):
                returned = [self.names[value] for value in op.operands]
                self.names |= dict(zip(call.results, returned, strict=True))
            else:
                self.step(op)
        self.calling = self.calling[:-1]

    def facts(self, told: Mapping[str, Facts], specs: str) -> list[Region]:
        """Put facts on values, and on ports where a region has its own."""
        facts = {**value_facts(self.regions, self.shown), **told} if specs == "values" else dict(told)
        facts |= self.stated
        implied = facts if specs == "values" else {}
        for name, value in self.values.items():
            self.values[name] = replace(value, facts=facts.get(name, ()))
        regions = []
        for region, (inputs, outputs) in zip(self.regions, self.shown, strict=True):
            extras = self.extras[region.name]
            own = extras.pop("qplan.input_facts", port_facts(region.inputs, inputs, implied))
            own_out = extras.pop("qplan.output_facts", port_facts(region.outputs, outputs, implied))
            regions.append(replace(region, input_facts=own, output_facts=own_out))
        self.extras = {name: extras for name, extras in self.extras.items() if extras}
        return regions

    def set_shapes(self, op: Operation, shapes: Mapping[str, Any]) -> None:
        for name, shape in shapes.items():
            if name not in self.values:
                self.fail(op, f"qplan.shapes names {name!r}, which is no value")
            sizes = tuple([symbol_of(dim) if isinstance(dim, str) else dim for dim in shape])
            self.values[name] = replace(self.values[name], shape=sizes)

    def set_seen(self, op: Operation, told: Mapping[str, Any]) -> None:
        for name, pair in told.items():
            if name not in self.values:
                self.fail(op, f"qplan.seen names {name!r}, which is no value")
            try:
                sizes, axes = map(tuple, pair)
            except (TypeError, ValueError):
                self.fail(op, f"qplan.seen of {name!r} is {pair!r}; accepted: [sizes, axes that varied]")
            found = replace(self.values[name], seen=sizes, varies=axes)
            problem = odd_sizes(found)
            if problem:
                self.fail(op, f"qplan.seen of {name!r}: {problem}")
            self.values[name] = found

    def constant(self, op: ConstantOp) -> None:
        told = {key: self.plain(op, item) for key, item in op.attributes.items()}
        name = told.get("qplan.name")
        (name,) = self.define(op, op.results, None if name is None else (name,))
        array = told.get("value")
        try:
            if "qplan.value" in told:
                array = array_from_json(json.loads(told["qplan.value"]), "qplan.value")
            axis = told.get("axis")
            pairs = told.get("range", ())
            pairs = (pairs,) if axis is None and pairs else pairs
            for lo, hi in pairs:
                check_range(lo, hi)
        except (KeyError, TypeError, ValueError, PlanFormatError, QTypeError) as error:
            self.fail(op, f"constant {name!r}: {error}")
        lows, highs = tuple([lo for lo, _ in pairs]), tuple([hi for _, hi in pairs])
        self.constants[name] = Constant(array, lows, highs, axis)

    def running(self, op: Operation) -> None:
        """Read a call, loop or branch; one without specs has none on its ports."""
        found = read_running(self, op)
        specs = (op.attributes.get("input_specs"), op.attributes.get("output_specs"))
        sides = ([value.type for value in found.operands], [value.type for value in op.results])
        given, made = (
            spec if isinstance(spec, builtin.ArrayAttr) else builtin.ArrayAttr(map(_element, types))
            for spec, types in zip(specs, sides, strict=True)
        )
        name = op.attributes.get("kernel", builtin.StringAttr(op_name(op)))
        self.kernel(op, found.operands, (given, made), name, found.structure)

    def region(self, op: RegionOp) -> None:
        self.kernel(op, op.operands, (op.input_specs, op.output_specs), op.kernel or op.logical_kernel)

    def kernel(
        self,
        op: Operation,
        read: Sequence[SSAValue],
        specs: tuple[builtin.ArrayAttr[Any], builtin.ArrayAttr[Any]],
        kernel: Attribute | None,
        structure: Structure | None = None,
    ) -> None:
        """Read a kernel: its ports, and everything in `qplan.` attributes."""
        told = {k: self.plain(op, item) for k, item in op.attributes.items() if k.startswith("qplan.")}
        results = self.define(op, op.results, told.get("qplan.values"))
        operands = [self.names[value] for value in read]
        more, outside = told.get("qplan.operands", 0), told.get("qplan.results", 0)
        inputs, inputs_shown = self.ports(op, specs[0], operands, read, more)
        outputs, outputs_shown = self.ports(op, specs[1], results, op.results, outside)
        name = told.get("qplan.name", f"kernel_{len(self.regions)}")
        if kernel is None or name in self.extras:
            self.fail(op, f"two kernels are named {name!r}")
        region = Region(
            name=name,
            kernel=self.plain(op, kernel),
            inputs=inputs,
            outputs=outputs,
            ops=self.body(op, operands, results) if isinstance(op, RegionOp) else (),
            attributes=told.get("qplan.attributes", {}),
            trip_count=told.get("qplan.trip_count", 1),
            reason=told.get("qplan.unfused", ""),
            structure=structure,
            scope=told.get("qplan.scope", ""),
        )
        self.regions.append(region)
        self.shown.append((inputs_shown, outputs_shown))
        kept = ("qplan.input_facts", "qplan.output_facts")
        self.extras[name] = {k: item for k, item in told.items() if k not in _KNOWN or k in kept}

    def ports(
        self,
        op: Operation,
        specs: builtin.ArrayAttr[Any],
        names: Sequence[str],
        values: Sequence[SSAValue],
        more: int,
    ) -> tuple[tuple[str, ...], tuple[Facts, ...]]:
        """Names and facts of the ports of one side, absent ones put back, the last `more` left out."""
        rest = iter(zip(names, values, strict=True))
        found: list[str] = []
        shown: list[Facts] = []
        for spec in specs.data[: len(specs.data) - more]:
            absent = isinstance(spec, builtin.NoneType)
            name, value = ("", None) if absent else next(rest)
            found.append(name)
            try:
                shown.append(spec_facts(spec, None if value is None else value.type))
            except ModelError as error:
                self.fail(op, str(error))
        return tuple(found), tuple(shown)

    def body(self, op: RegionOp, operands: Sequence[str], results: Sequence[str]) -> tuple[Op, ...]:
        block = op.body.blocks.first
        if block is None:
            return ()
        names: dict[SSAValue, str] = dict(zip(block.args, operands, strict=True))
        last = block.last_op
        if last is not None:
            names |= {v: n for v, n in zip(last.operands, results, strict=True) if v not in names}
        return tuple([self.op(inner, names) for inner in block.ops if inner is not last])

    def op(self, op: Operation, names: dict[SSAValue, str]) -> Op:
        items = {**op.attributes, **op.properties}
        items.pop("op_name__", None)
        told = {key: self.plain(op, item) for key, item in items.items()}
        outputs = told.pop("qplan.values", None)
        if outputs is None:
            outputs = tuple(
                [names.get(v) or self.called(v, f"v{len(self.names)}_{i}") for i, v in enumerate(op.results)]
            )
        if len(outputs) != len(op.results):
            self.fail(op, f"{len(outputs)} names for {len(op.results)} results")
        inputs = [names[value] for value in op.operands if not op.regions or value in names]
        for i in told.pop("qplan.absent", ()):
            inputs.insert(i, "")
        for name, value in zip(outputs, op.results, strict=True):
            known = names.get(value) == name and name in self.values
            names[value] = name
            if not known:
                self.add(op, name, value.type)
        domain, _, plain = op_name(op).partition(".")
        if op.regions:
            return self.opaque(op, tuple(inputs), tuple(outputs), names)
        domain = told.pop("qplan.domain", "" if domain == "onnx" else domain)
        if not domain:
            told.pop("onnx_node_name", None)  # onnx-mlir's note of where an op is from, which no ONNX op has
        return Op(
            name=told.pop("qplan.name", outputs[0] if outputs else plain),
            type=f"{domain}::{plain}" if domain else plain,
            inputs=tuple(inputs),
            outputs=outputs,
            captures=told.pop("qplan.captures", ()),
            scope=told.pop("qplan.scope", ""),
            attributes=told,
        )

    def opaque(
        self, op: Operation, inputs: tuple[str, ...], outputs: tuple[str, ...], names: Mapping[SSAValue, str]
    ) -> Op:
        """An op with regions of its own: it stays as it is, in float, and reads what they read."""
        domain, _, plain = op_name(op).partition(".")
        outputs = tuple([name for name in outputs if name in self.values])
        first = outputs[0] if outputs else plain
        at = place(self.source, self.starts.get(id(op), 0))
        self.notes.append(f"{at}: {op_name(op)} {first!r} stays opaque and float: it has regions of its own")
        captures = tuple([names[value] for value in captured(op) if value in names])
        return Op(
            name=first,
            type=f"{domain}::{plain}",
            inputs=inputs,
            outputs=outputs,
            captures=tuple(dict.fromkeys(captures)),
            attributes={OPAQUE_TEXT: opaque_text(op)},
        )


def _element(kind: Attribute) -> Attribute:
    return kind.element_type if isinstance(kind, builtin.TensorType) else kind
