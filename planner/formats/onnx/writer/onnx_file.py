"""The ONNX file being written: its nodes and constants, under names that collide with nothing in the model.

A model's names are the user's and stay as they are, quotes and slashes included; ours step aside.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import UnsupportedExport
from planner.formats.onnx.write import Node, Port, write_model
from planner.formats.onnx.writer.guards.layouts import kept_in_layout
from planner.formats.onnx.writer.guards.optimisations import guarded, softmax_sizes
from planner.formats.onnx.writer.guards.own_weights import with_own_weights
from planner.formats.onnx.writer.opsets import within
from planner.ir.graph import Graph, Op, Opaque
from planner.plans.plan import Plan
from planner.version import MADE_BY

Array: TypeAlias = npt.NDArray[Any]

# Names of ours that rest on a longer one keep its two ends: a file is not to consist of names.
MAX_STEM: Final = 48


def shortened(stem: str) -> str:
    """A name of ours, or the two ends of a long one."""
    return stem if len(stem) <= MAX_STEM else f"{stem[: MAX_STEM // 2]}...{stem[-MAX_STEM // 2 :]}"


class Names:
    """A set of taken names that hands out free ones."""

    def __init__(self, graph: Graph, plan_graph: Graph) -> None:
        """Take every name of the model; names in subgraph bodies count by their bytes."""
        self._taken: set[str] = {*graph.values, *plan_graph.values}
        self._counts: dict[str, int] = {}
        ops = {id(op): op for part in (graph, plan_graph) for op in part.all_ops()}.values()
        self._taken.update([op.name for op in ops])
        items = [item for op in ops for item in op.attributes.values()]
        self._bodies = tuple(dict.fromkeys(item.data for item in items if isinstance(item, Opaque)))

    def fresh(self, stem: str) -> str:
        """Return `stem`, or `stem_1`, `stem_2`, ..., whichever is the first that is free, and take it."""
        stem = shortened(stem)
        if stem not in self._taken and not self._bodies:
            self._taken.add(stem)
            return stem
        count = self._counts.get(stem, 0)
        name = f"{stem}_{count}" if count else stem
        while name in self._taken or any(name.encode() in body for body in self._bodies):
            count += 1
            name = f"{stem}_{count}"
        self._counts[stem] = count + 1
        self._taken.add(name)
        return name


def origin_of(plan: Plan) -> dict[str, str]:
    """The origin that a file states: the plan, the target and the model, each by its digest."""
    return {
        "qplan.plan": plan.key,
        "qplan.target": f"{plan.target.id} {plan.target.version} {plan.target.digest}",
        "qplan.model": plan.model,
    }


class OnnxFile:
    """Nodes and constants written so far.

    Attributes:
      scope: of the body that what is written stands in.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        """Start empty."""
        self.graph, self.scope = graph, ""
        self._limits = plan.target.files.opset
        self._is_for_cpu = plan.target.files.is_for_cpu_provider
        self._origin = origin_of(plan)
        self.nodes: list[Node] = []
        self.constants: dict[str, Array | tuple[Array, str]] = {}
        self.fresh = Names(graph, plan.graph).fresh
        self._shared: dict[Hashable, str] = {}
        self._scalars: dict[tuple[str, float], str] = {}

    def emit(
        self,
        kind: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        name: str = "",
        domain: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Append a node; without a name it gets one from its type and place."""
        node_name = name or self.fresh(f"{kind}_{len(self.nodes)}")
        self.nodes.append(
            Node(kind, tuple(inputs), tuple(outputs), node_name, domain, attributes or {}, self.scope)
        )

    def emit_op(self, op: Op, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Append a source op on other tensors, its name and attributes as they are."""
        domain, _, kind = op.type.rpartition("::")
        self.nodes.append(
            Node(kind, tuple(inputs), tuple(outputs), op.name, domain, op.attributes, self.scope)
        )

    def constant(self, stem: str, array: Array) -> str:
        """Append a constant of our own under a fresh name."""
        name = self.fresh(stem)
        self.constants[name] = array
        return name

    def shared(self, stem: str, array: Array, key: Hashable) -> str:
        """A constant of our own that others with this key share."""
        if key not in self._shared:
            self._shared[key] = self.constant(stem, array)
        return self._shared[key]

    def number(self, dtype: str, value: float) -> str:
        """A scalar constant, one per dtype and value."""
        if (dtype, value) not in self._scalars:
            stem = f"{dtype}_{value:g}".replace("-", "minus_").replace(".", "_")
            self._scalars[dtype, value] = self.constant(stem, np.asarray(value, dtype))
        return self._scalars[dtype, value]

    def bind(self, name: str, tensor: str) -> None:
        """Give a model output its own name."""
        if tensor != name:
            self.emit("Identity", [tensor], [name])

    def port(self, name: str) -> Port:
        """A model input or output as the model has it."""
        value = self.graph.values[name]
        return name, value.dtype, value.shape

    def to_bytes(self, *, opset: int, port: Callable[[str], Port], **more: Any) -> bytes:
        """Serialise, in an opset that the target's compiler reads.

        Args:
          more: arguments of `write_model` that only some formats have.

        Raises:
          UnsupportedExport: no file of such an opset says the same.
        """
        limits = self._limits
        if limits is None or limits[0] <= opset <= limits[1]:
            return self._written(opset=opset, port=port, **more)
        if more.get("external") is not None or more.get("into") is not None:
            raise UnsupportedExport(
                f"the target reads opsets {limits[0]} to {limits[1]}, this plan is written in {opset}, "
                "and a file with weights beside it is not converted",
                hint="export it without external data",
            )
        return within(self._written(opset=opset, port=port, **more), limits)

    def _guarded(self, opset: int) -> list[Node]:
        """The nodes with what keeps onnxruntime's CPU provider from computing something else."""
        nodes = guarded(
            with_own_weights(self.nodes, self.constants, self.graph.outputs, self.fresh),
            self.constants,
            self.graph.outputs,
            self.fresh,
            opset=opset,
            softmaxes=softmax_sizes(self.graph),
        )
        return kept_in_layout(nodes, self.graph, self.fresh)

    def _written(self, *, opset: int, port: Callable[[str], Port], **more: Any) -> bytes:
        used = {node.domain for node in self.nodes}
        versions = {domain: number for domain, number in self.graph.opsets.items() if domain in used - {""}}
        return write_model(
            name=self.graph.name,
            nodes=self._guarded(opset) if self._is_for_cpu else self.nodes,
            inputs=[port(name) for name in self.graph.inputs],
            outputs=[port(name) for name in self.graph.outputs],
            constants=self.constants,
            opset=opset,
            domains=versions,
            metadata={**self.graph.metadata, **self._origin},
            version=MADE_BY,
            **more,
        )
