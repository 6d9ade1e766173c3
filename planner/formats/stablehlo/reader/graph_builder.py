"""Ops of a graph as a StableHLO function is read: values by name, constants folded, broadcasts put off.

ONNX's element-wise ops broadcast by themselves, so a `broadcast_in_dim` is a reshape that lines axes up, and
only a consumer that needs the whole tensor makes it an Expand.
Source: ONNX operators, opset 21; StableHLO specification, `broadcast_in_dim`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation, SSAValue

from planner.formats.mlir.text.reading import ReadState
from planner.formats.onnx.drafts.draft import Draft
from planner.ir.graph import Op


@dataclass
class GraphBuilder(Draft[ReadState]):
    """The graph that is built while StableHLO is read, with the state of its function.

    Attributes:
      aligned: values that are broadcasts of a smaller value, with that value's name; not yet expanded.
    """

    aligned: dict[SSAValue, str] = field(default_factory=dict)

    def name(self, value: SSAValue) -> str:
        """The name of a value of full shape."""
        if value in self.aligned:
            small = self.aligned.pop(value)
            shape = [int(size) for size in value.type.get_shape()]  # type: ignore[attr-defined]
            self.result("Expand", [small, self.integers(shape)], value)
        return self.read.names[value]

    def loose(self, value: SSAValue) -> str:
        """The name of a value, or of the smaller one that it is a broadcast of."""
        return self.aligned.get(value) or self.read.names[value]

    def result(
        self, kind: str, inputs: Sequence[str], value: SSAValue, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Add an op whose result is a value of the function."""
        (name,) = self.read.define(self.op(value), [value], None)
        self.read.ops.append(Op(name, kind, tuple(inputs), (name,), attributes or {}))

    def alias(self, value: SSAValue, name: str) -> None:
        """Let a value of the function be another by name, with the facts its own type states."""
        probe = self.read.fresh(name)
        self.read.names[value] = name
        self.read.add(self.op(value), probe, value.type)
        del self.read.values[probe]
        stated = self.read.stated.pop(probe, ())
        if stated:
            self.read.stated.setdefault(name, stated)

    @staticmethod
    def op(value: SSAValue) -> Operation:
        """The op that a value is a result of."""
        owner = value.owner
        if not isinstance(owner, Operation):
            raise TypeError("an argument has no op")
        return owner
