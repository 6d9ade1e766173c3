"""Graph: values, ops, constants and regions, frozen and flat.

One Graph serves every source. An ONNX file gives ops (no regions until `fuse`); an annotated model
(JSON, MLIR) gives regions, with or without ops inside. Names are unique within a graph and are the
ids. Nothing here knows a file format; validity rules are in `validity`.
"""

import hashlib
import json
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from planner.ir.mapped import let_go
from planner.ir.structure import Scope, Structure
from planner.ir.types.qtypes import QType, Uniform
from planner.ir.types.wanted import Wanted
from planner.notebook import html_of, html_table

Found = TypeVar("Found")
Dim: TypeAlias = int | str | None
Shape: TypeAlias = tuple[Dim, ...]

FLOAT_DTYPES: Final = frozenset({"f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2"})
BOUNDARY: Final = "@model"
HALVES: Final = "quantizers of float16 are no types, and fall back to float operators"
"""Begins the note of a model that has some."""
LEFT_BEHIND: Final = "metadata of the model are in no file made of it"
"""Begins the note of a model that has some."""
WRITTEN_LEFT_OUT: Final = "the quantizers of the model's own file are not here, only the types that they gave"
"""Note of an annotated model whose source had quantizers of its own."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor by name: shape (None: rank unknown), element type (`f32`, `i64`, ...), the user's facts.

    Attributes:
      seen: sizes that it had on the largest sample, where its shape leaves some open. They weigh prices and
        work and decide nothing else; None where none were observed.
      varies: axes of `seen` that had other sizes on other samples.
    """

    name: str
    shape: Shape | None = None
    dtype: str = "f32"
    facts: tuple[QType, ...] = ()
    seen: tuple[int, ...] | None = None
    varies: tuple[int, ...] = ()

    @property
    def is_float(self) -> bool:
        """Whether quantization can concern it: indices, shapes and masks are not."""
        return self.dtype in FLOAT_DTYPES

    @property
    def elements(self) -> int:
        """Number of elements, by `sizes`."""
        total = 1
        for dim in self.sizes:
            total *= dim
        return total

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes to count with: of an open dimension that of the samples, 1 where none was observed."""
        if self.shape is None:
            return self.seen or ()
        if self.seen is None or len(self.seen) != len(self.shape):
            return tuple([dim if isinstance(dim, int) else 1 for dim in self.shape])
        return tuple(
            [dim if isinstance(dim, int) else size for dim, size in zip(self.shape, self.seen, strict=True)]
        )

    @property
    def is_open(self) -> bool:
        """Whether a size, or the rank, is not known before running."""
        return self.shape is None or not all(isinstance(dim, int) for dim in self.shape)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Constant:
    """Data known before running: the array itself, or (annotated models) only its range.

    Attributes:
      array: the numbers, possibly a memory map; None where only the range is known.
      lo, hi: reals, one per tensor or one per slice of `axis`; filled only where `array` is None.
    """

    array: np.ndarray | None = None
    lo: tuple[float, ...] = ()
    hi: tuple[float, ...] = ()
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute only its own format understands (a subgraph of `If`): kept, never read."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Op:
    """A source op. `type` is the ONNX name, prefixed `domain::` outside the standard domain.

    `inputs` holds "" for an absent optional operand; `captures` are the outer values that subgraph
    bodies of this op read; `structure` says that it runs functions; `scope` is the body it stands in.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    structure: Structure | None = None
    scope: str = ""


Facts: TypeAlias = tuple[QType, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """A logical kernel: a named slice of the graph, atomic for the planner.

    Attributes:
      inputs, outputs: value names of its ports ("" for an absent optional port). Integer operands
        (shapes, indices) are no ports; the ops inside still read them.
      ops: the source ops inside, in execution order; empty in annotated models without ops.
      attributes: read by `when` predicates where there are no ops.
      input_facts, output_facts: constraints on ports rather than on values; empty, or one per port.
      trip_count: number of runs in one run of the model.
      reason: the reason why no fusion took its op into a bigger kernel; "" where one did.
      structure: the functions it runs, if it is a call, a loop or an if.
      scope: path of the body it stands in, "" for the model's own.
    """

    name: str
    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[Op, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    input_facts: tuple[Facts, ...] = ()
    output_facts: tuple[Facts, ...] = ()
    trip_count: int = 1
    reason: str = ""
    structure: Structure | None = None
    scope: str = ""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Graph:
    """A model: `ops` in topological order (before `fuse`) or `regions` in topological order (after).

    Attributes:
      values: every value, by name, constants included.
      constants: data of the constant values, by value name.
      opsets: operator set versions by domain, of ONNX sources.
      notes: steps that the import took or left out, for the report.
      functions: bodies of calls, loops and branches, by name; each sees its own values only.
      scopes: bodies in their place, by path, where `expand` put them in.
      written: the model as its file has it, where the file has quantizers of its own; runs alone read it.
      wanted: requests for kernels, by name or glob of a kernel or an op, in order (`ir.kernel_requests`).
      caches: an input and the output that comes back as it in the next run, stored alike.
      module: the MLIR text that the model was read from, which the format `mlir` edits.
      scaled: names of the model as it was read that no value here has, each with the value here that has its
        numbers times a factor (`factors.absorb`); not a number where that is a vector.
      modules: path of the source's module that an op or region stands for, by name, for people alone.
      made: constants that reading made, of which the source has no tensor; None where it is not known.
      metadata: entries beside an ONNX graph that programs look up, such as names of classes and sample rates;
        ONNX files that are written have them again.
    """

    name: str
    values: Mapping[str, Value]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    functions: Mapping[str, "Graph"] = field(default_factory=dict)
    scopes: Mapping[str, Scope] = field(default_factory=dict)
    written: "Graph | None" = None
    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    caches: tuple[tuple[str, str], ...] = ()
    module: str = field(default="", compare=False)
    scaled: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict, compare=False)
    made: frozenset[str] | None = field(default=None, compare=False)
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = f"{len(self.values)} values, {sum(1 for _ in self.all_ops())} ops"
        return f"<Graph {self.name!r}: {counts}, inputs {self.inputs}, outputs {self.outputs}>"

    def _repr_html_(self) -> str:
        """The notebook view: inputs, outputs, and ops by type."""
        ports = [("input", name, self.values[name]) for name in self.inputs]
        ports += [("output", name, self.values[name]) for name in self.outputs]
        rows = [
            (side, name, "?" if value.shape is None else " x ".join(map(str, value.shape)), value.dtype)
            for side, name, value in ports
        ]
        counts = Counter(op.type for op in self.all_ops()) + Counter(
            r.kernel for r in self.regions if not r.ops
        )
        title = f"Model {self.name}: {len(self.values)} values, {sum(counts.values())} ops"
        ops = html_table(("op", "count"), counts.most_common())
        return html_of(title, html_table(("", "name", "shape", "type"), rows), ops)

    def all_ops(self) -> Iterator[Op]:
        """Ops in order, wherever they stand."""
        for region in self.regions:
            yield from region.ops
        yield from self.ops

    def steps(self) -> tuple["Op | Region", ...]:
        """Everything that runs, in order: regions, then ops that no region holds."""
        return (*self.regions, *self.ops)


def modules_of_steps(graph: Graph) -> dict[str, str]:
    """Path of the source's module by region, and by op that no region holds; those that have one."""
    found = {}
    for step in graph.steps() if graph.modules else ():
        names = (step.name, *(op.name for op in step.ops)) if isinstance(step, Region) else (step.name,)
        path = next((graph.modules[name] for name in names if name in graph.modules), "")
        if path:
            found[step.name] = path
    return found


def port_address(kernel: str, side: str, index: int) -> str:
    """`conv1.in[0]`; `side` is "in" or "out". The model's own boundary is the kernel `@model`."""
    return f"{kernel}.{side}[{index}]"


def once_per_graph(found_of: Callable[[Graph], Found]) -> Callable[[Graph], Found]:
    """A function of a graph's structure, which never changes: done once, kept as long as the graph is."""
    known: WeakKeyDictionary[Graph, Found] = WeakKeyDictionary()

    @wraps(found_of)
    def kept(graph: Graph) -> Found:
        found = known.get(graph)
        if found is None:
            found = known[graph] = found_of(graph)
        return found

    return kept


@once_per_graph
def structure_digest(graph: Graph) -> str:
    """`sha256:...` of everything but the numbers in constants (their shapes and types count); taken once."""
    told: list[object] = [(graph.name, graph.inputs, graph.outputs, sorted(graph.opsets.items()))]
    for name in sorted(graph.values):
        value = graph.values[name]
        facts = _written(value.facts)
        told.append((name, value.shape, value.dtype, facts, name in graph.constants))
        if value.seen is not None:
            told.append((name, "seen", value.seen, value.varies))
    told += map(region_key, graph.regions)
    told += map(op_key, graph.all_ops())
    told += _told_of_bodies(graph)
    told += [(key, str(wanted)) for key, wanted in graph.wanted.items()]
    told += [("cache", *pair) for pair in graph.caches]
    return f"sha256:{hashlib.sha256(''.join(map(repr, told)).encode()).hexdigest()}"


def region_key(region: Region) -> tuple[object, ...]:
    """Return a region's part of a digest, beside its ops."""
    specs = tuple([_written(facts) for facts in (*region.input_facts, *region.output_facts)])
    head = (region.name, region.kernel, region.inputs, region.outputs, specs, region.trip_count)
    return (head, sorted(region.attributes.items(), key=str))


def op_key(op: Op) -> tuple[object, ...]:
    """Return an op's part of a digest: equal for equal ops, arrays in attributes included."""
    attributes = sorted([(key, _attribute_key(item)) for key, item in op.attributes.items()])
    return (op.name, op.type, op.inputs, op.outputs, attributes, op.captures)


def _written(facts: Facts) -> tuple[str, ...]:
    """Facts with the digits that their scales were given with, which other texts may not show."""
    return tuple([fact.written_text if isinstance(fact, Uniform) else str(fact) for fact in facts])


def _told_of_bodies(graph: Graph) -> Iterator[object]:
    """Functions, scopes and the steps that run them; nothing for a graph without."""
    for name in sorted(graph.functions):
        yield name, structure_digest(graph.functions[name])
    if graph.scopes:
        yield sorted(graph.scopes.items())
        yield from [("ran", path, scope.ran) for path, scope in sorted(graph.scopes.items()) if scope.ran]
    for step in (*graph.steps(), *graph.all_ops()) if graph.functions or graph.scopes else ():
        if step.structure is not None or step.scope:
            yield step.name, step.structure, step.scope


def without_written(model: Graph) -> Graph:
    """The model as an annotated file holds it: without `written`, and a note of that."""
    if model.written is None:
        return model
    return replace(model, written=None, notes=(*model.notes, WRITTEN_LEFT_OUT))


def has_quantizers(model: Graph) -> bool:
    """Whether the model's own file has quantizers, also where it came through other texts since."""
    return model.written is not None or WRITTEN_LEFT_OUT in model.notes


def with_sizes(model: Graph, other: Graph) -> Graph:
    """Return a model with the sizes of another form of it: fixed there, seen in samples, and trips of loops.

    Sizes that the model has itself stay.
    """
    values = {name: _sized_like(value, other.values.get(name)) for name, value in model.values.items()}
    scopes = {
        path: replace(scope, ran=other.scopes[path].ran) if not scope.ran and path in other.scopes else scope
        for path, scope in model.scopes.items()
    }
    if all(map(operator.is_, values.values(), model.values.values())) and scopes == model.scopes:
        return model
    return replace(model, values=values, scopes=scopes)


def _sized_like(value: Value, other: Value | None) -> Value:
    if other is None or not value.is_open or other is value:
        return value
    found = replace(value, seen=other.seen, varies=other.varies) if value.seen is None else value
    if other.is_open or other.shape is None:
        return found if found != value else value
    ours = value.shape or other.shape
    fits = len(ours) == len(other.shape) and all(
        not isinstance(mine, int) or mine == theirs for mine, theirs in zip(ours, other.shape, strict=True)
    )
    return replace(value, shape=other.shape, seen=None, varies=()) if fits else found


def with_facts(model: Graph, other: Graph) -> Graph:
    """Return a model with the facts of another form of it: of values and ports, and requests for kernels."""
    model = with_sizes(model, other)
    values = {
        name: replace(value, facts=other.values[name].facts) if name in other.values else value
        for name, value in model.values.items()
    }
    held = {region.name: region for region in other.regions} if model.regions else {}
    regions = [
        replace(region, input_facts=twin.input_facts, output_facts=twin.output_facts)
        if (twin := held.get(region.name)) is not None
        else region
        for region in model.regions
    ]
    facts: dict[str, Any] = {"wanted": other.wanted, "caches": other.caches}
    return replace(model, values=values, regions=tuple(regions), **facts)


_DIGESTS: Final[WeakKeyDictionary[Graph, str]] = WeakKeyDictionary()


def model_digest(graph: Graph) -> str:
    """`sha256:...` of the structure and the numbers in constants; taken once where no number can change."""
    known = _DIGESTS.get(graph)
    if known is not None:
        return known
    found = _digest_of_all(graph)
    if has_fixed_numbers(graph):
        _DIGESTS[graph] = found
    return found


def source_digest(graph: Graph) -> str:
    """`model_digest`, and also of what is written back: the text of a module, metadata.

    Texts that differ in comments are one model, for which one plan and one set of statistics hold; who keeps
    models or plans for others keeps them under this.
    """
    found, kept = model_digest(graph), written_back(graph)
    return f"sha256:{hashlib.sha256((found + ''.join(kept)).encode()).hexdigest()}" if kept else found


def written_back(graph: Graph) -> list[str]:
    """Parts that no plan depends on and that files repeat: the text of a module, metadata."""
    kept = [graph.module] if graph.module else []
    return [*kept, json.dumps(graph.metadata, sort_keys=True)] if graph.metadata else kept


def has_fixed_numbers(graph: Graph) -> bool:
    """Whether no number in its constants can change."""
    arrays = (item.array for item in graph.constants.values() if item.array is not None)
    return not any(array.flags.writeable for array in arrays)


def _digest_of_all(graph: Graph) -> str:
    digest = hashlib.sha256(structure_digest(graph).encode())
    for name in sorted(graph.constants):
        constant = graph.constants[name]
        digest.update(repr((name, constant.lo, constant.hi, constant.axis)).encode())
        if constant.array is not None:
            array = constant.array
            # A constant that repeats one number (ConstantOfShape) is not spread out to be hashed.
            if array.size > 1 and not any(array.strides):
                array = array[(slice(0, 1),) * array.ndim]
            digest.update(_bytes_of(array))
            let_go(array)
    for name in sorted(graph.functions):
        digest.update(repr((name, _digest_of_all(graph.functions[name]))).encode())
    return f"sha256:{digest.hexdigest()}"


def _bytes_of(array: np.ndarray) -> Any:
    """The part of an array in a digest: its bytes; for texts, which numpy holds by reference, a list."""
    if array.dtype.hasobject:
        return repr((array.shape, [str(item) for item in array.flat])).encode()
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1).data


def _attribute_key(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return (str(item.dtype), item.shape, hashlib.sha256(np.ascontiguousarray(item).tobytes()).hexdigest())
    if isinstance(item, Opaque):
        return (item.kind, hashlib.sha256(item.data).hexdigest())
    return item


def scaled_to_json(scaled: Mapping[str, tuple[str, float]]) -> list[list[Any]]:
    """Write `Graph.scaled`: a name of the model, the value here, the factor; null for a vector."""
    return [[old, new, None if math.isnan(factor) else factor] for old, (new, factor) in scaled.items()]


def scaled_from_json(rows: Iterable[Sequence[Any]]) -> dict[str, tuple[str, float]]:
    """Read `Graph.scaled`."""
    return {str(old): (str(new), math.nan if factor is None else float(factor)) for old, new, factor in rows}
