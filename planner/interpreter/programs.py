"""Programs: the float ops of one or more regions as one small onnxruntime session.

Operands of a program are fed, weights seen through a quantized type included; float constants are part of its
model. Optimisations are off, so each op runs as written. Source: docs/formats.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnxruntime

from planner.errors import ModelError
from planner.formats.onnx.sessions import FAILURES, one_line, open_nodes, run_arrays, session_options
from planner.formats.onnx.write import OPSET, Node, Port, write_model
from planner.interpreter.requantize import Array
from planner.ir.graph import Graph, Op
from planner.plans.records import PortTyped


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor a program is fed: `value` seen through the type `kind`; None: as it is."""

    feed: str
    value: str
    kind: PortTyped


@dataclass(frozen=True, eq=False)
class Program:
    """Float ops ready to run.

    Attributes:
      graph: the model: element types, and the numbers of constants.
      nodes: in order, operands renamed to the fed ones.
      reads: values that are fed.
      constants: names of the float and integer constants among the operands.
      outputs: value names, "" nowhere.
      prepacks: whether onnxruntime may lay weights out anew, which changes the order of float sums.
      in_f32: whether every float is a float32, whatever its element type in the model.
      threads: of the session; 0 is one a core.
    """

    graph: Graph
    nodes: tuple[Node, ...]
    reads: tuple[Read, ...]
    constants: tuple[str, ...]
    outputs: tuple[str, ...]
    prepacks: bool = True
    in_f32: bool = False
    threads: int = 0

    def run(self, feed: Callable[[Read], Array]) -> Mapping[str, Array]:
        """Results by value name; `feed` gives the array of each read.

        Raises:
          ModelError: onnxruntime refuses the ops or their operands.
        """
        if not self.outputs:
            return {}
        # arithmetic on an array without axes gives a number, which onnxruntime does not take
        arrays = {read.feed: np.asarray(feed(read)) for read in self.reads}
        try:
            results = run_arrays(self._session, self.outputs, arrays)
        except FAILURES as error:
            raise ModelError(f"onnxruntime cannot run {self._names()}: {one_line(error)}") from error
        return dict(zip(self.outputs, results, strict=True))

    @cached_property
    def _session(self) -> onnxruntime.InferenceSession:
        inputs: list[Port] = [(read.feed, self._dtype(read.value), None) for read in self.reads]

        def write(nodes: Sequence[Node]) -> bytes:
            return write_model(
                name=self.graph.name,
                nodes=nodes,
                inputs=inputs,
                outputs=[(name, self._dtype(name), None) for name in self.outputs],
                constants={name: (self._array(name), self._dtype(name)) for name in self.constants},
                opset=self.graph.opsets.get("", OPSET),
                domains={domain: number for domain, number in self.graph.opsets.items() if domain},
            )

        options = _options(prepacks=self.prepacks)
        options.intra_op_num_threads = self.threads
        return open_nodes(self.graph, self.nodes, write, options, self._names())

    def _dtype(self, name: str) -> str:
        value = self.graph.values[name]
        return "f32" if self.in_f32 and value.is_float else value.dtype

    def _array(self, name: str) -> Array:
        array = _array(self.graph, name)
        return array.astype(np.float32) if self._dtype(name) == "f32" else array

    def _names(self) -> str:
        first = self.nodes[0]
        rest = f" and {len(self.nodes) - 1} more ops" if len(self.nodes) > 1 else ""
        return f"{first.name!r} ({first.op_type}){rest}"


@dataclass(slots=True)
class _Draft:
    graph: Graph
    kinds: Mapping[tuple[str, int], PortTyped]
    nodes: list[Node] = field(default_factory=list)
    reads: dict[tuple[str, PortTyped], Read] = field(default_factory=dict)
    constants: dict[str, None] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)

    def add(self, op: Op) -> None:
        for name in op.captures:
            self._plain(name)
        inputs = tuple(self._operand(op, i, name) for i, name in enumerate(op.inputs))
        domain, _, kind = op.type.rpartition("::")
        self.nodes.append(Node(kind, inputs, op.outputs, op.name, domain, op.attributes))
        self.inner.update(op.outputs)

    def _operand(self, op: Op, index: int, name: str) -> str:
        kind = self.kinds.get((op.name, index))
        if not name or name in self.inner or kind is None:
            return self._plain(name)
        read = self.reads.setdefault((name, kind), Read(f"{name}@{len(self.reads)}", name, kind))
        return read.feed

    def _plain(self, name: str) -> str:
        if not name or name in self.inner:
            return name
        if name in self.graph.constants:
            self.constants[name] = None
        else:
            self.reads.setdefault((name, None), Read(name, name, None))
        return name


def program_of(
    graph: Graph,
    ops: Iterable[Op],
    outputs: Sequence[str],
    kinds: Mapping[tuple[str, int], PortTyped],
    *,
    in_f32: bool = False,
) -> Program:
    """Make the program of some ops.

    Args:
      graph: the float model with the numbers of its constants.
      ops: in order.
      outputs: value names to return.
      kinds: types through which operands are seen, by (op name, operand index); missing: float.
      in_f32: whether every float is a float32, whatever its element type in the model.
    """
    draft = _Draft(graph, kinds)
    for op in ops:
        _require_tensors(graph, op, {*outputs, *op.inputs} - draft.inner)
        draft.add(op)
    reads = tuple(draft.reads.values())
    return Program(graph, tuple(draft.nodes), reads, tuple(draft.constants), tuple(outputs), in_f32=in_f32)


def _require_tensors(graph: Graph, op: Op, handed: set[str]) -> None:
    """Refuse to hand a value that is no tensor from one step to the next.

    Raises:
      ModelError: an ONNX sequence, say, among values that an op takes from or leaves to other steps.
    """
    for name in (*op.inputs, *op.outputs):
        if name in handed and name in graph.values and not graph.values[name].dtype:
            raise ModelError(
                f"{op.type} at {op.name!r}: {name!r} is no tensor (an ONNX sequence, say), and the "
                "reference interpreter passes only tensors between kernels",
                hint="export the plan and run the file, or cut the model there",
            )


def _options(*, prepacks: bool) -> Any:
    options = session_options()
    if not prepacks:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _array(graph: Graph, name: str) -> Array:
    array = graph.constants[name].array
    if array is None:
        raise ModelError(f"constant {name!r} has a range but no numbers, so nothing can be computed with it")
    return np.asarray(array)
