"""Nodes of an exported PyTorch program: which one computes each value of a plan, and which a kernel is.

PyTorch's exporter renames values, and passes fold nodes away, so names say nothing. A result is the first
node of its operator's kind and shape that is computed of its kernel's inputs.
Source: `torch.onnx`, `torch.fx`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch.fx import Graph as Program
from torch.fx import GraphModule, Node

from planner.errors import InputError
from planner.ir.graph import Graph, Region
from planner.ir.roles import is_movement
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target_exchange.aten import onnx_of

HINT: Final = "give PyTorch the program that load_model read: torch.export.export(...).module()"


@dataclass(frozen=True, slots=True)
class Kernel:
    """The nodes of a kernel.

    Attributes:
      inside: that compute, in order.
      values: node of each value that the kernel reads or makes.
    """

    plan: KernelPlan
    inside: tuple[Node, ...]
    values: Mapping[str, Node]


def kernels_of(plan: Plan, program: Program) -> Iterator[Kernel]:
    """Yield the nodes of every kernel in plan order.

    Raises:
      InputError: a kernel that the program does not have.
    """
    order = {node: i for i, node in enumerate(program.nodes)}
    values = dict(_inputs(plan, program))
    taken = set(values.values())
    regions = {region.name: region for region in plan.graph.regions}
    for kernel in plan.kernels_in_order:
        constants = plan.graph.constants
        reads = [port.value for port in kernel.inputs if port.value and port.value not in constants]
        starts = {values[name] for name in reads}
        made = [port.value for port in kernel.outputs if port.value]
        for name in made:
            free = _reached(starts, order, taken)
            values[name] = _result(plan.graph, regions[kernel.name], name, starts, free)
            taken.add(values[name])
        inside = _between(starts, [values[name] for name in made], order)
        taken.update(inside)
        yield Kernel(kernel, inside, {name: values[name] for name in (*reads, *made)})


def _inputs(plan: Plan, program: Program) -> Iterator[tuple[str, Node]]:
    """The placeholders of the model's inputs, in order."""
    nodes = [node for node in program.nodes if node.op == "placeholder"]
    if len(nodes) != len(plan.graph.inputs):
        raise InputError(
            f"the program has {len(nodes)} inputs, the plan's model {len(plan.graph.inputs)}", hint=HINT
        )
    return zip(plan.graph.inputs, nodes, strict=True)


def _reached(starts: set[Node], order: Mapping[Node, int], taken: set[Node]) -> list[Node]:
    """The nodes that see some others alone, and that belong to no kernel yet."""
    found: dict[Node, None] = {}
    for node in order:
        sources = {one for one in node.all_input_nodes if one.op != "get_attr"}
        if node.op == "call_function" and node not in taken and sources and sources <= starts | found.keys():
            found[node] = None
    return [*found]


def _result(graph: Graph, region: Region, name: str, starts: set[Node], free: list[Node]) -> Node:
    """The node that makes a value: of all that see its kernel's inputs alone, the first of its operator.

    A kernel that only moves data and has no node, such as a Reshape to the same shape, is its input's.
    """
    fitting = [node for node in free if _fits(node, graph.values[name].shape) and _starts_of(node, starts)]
    maker = next(op.type for op in reversed(region.ops) if name in op.outputs or op is region.ops[-1])
    same = [node for node in fitting if onnx_of(str(node.target)) == maker]
    if same:
        return _with_norm(same[0])
    if fitting:
        return fitting[0]
    (first, *others) = starts or {None}
    if first is not None and not others and all(is_movement(op, graph) for op in region.ops):
        return first
    told = f"{region.kernel} at {region.name!r} with the result {name!r}"
    raise InputError(f"the program has no node for {told}", hint=HINT)


def _fits(node: Node, shape: Any) -> bool:
    """Whether the sizes of a node are those of a value, where both are known."""
    sizes = getattr(node.meta.get("val"), "shape", None)
    if sizes is None or shape is None:
        return sizes is not None or not isinstance(node.meta.get("val"), tuple)
    pairs = zip(sizes, shape, strict=False)
    return len(sizes) == len(shape) and all(
        a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int)
    )


def _starts_of(node: Node, starts: set[Node]) -> bool:
    """Whether a node is computed of all of the nodes `starts`."""
    waiting, seen = [node], set[Node]()
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                if source not in starts:
                    waiting.append(source)
    return starts <= seen


def _with_norm(node: Node) -> Node:
    """A node, or the BatchNorm behind it that the import has folded into it."""
    users = [*node.users]
    is_folded = len(users) == 1 and onnx_of(str(users[0].target)) == "BatchNormalization"
    return users[0] if is_folded else node


def _between(starts: set[Node], results: list[Node], order: Mapping[Node, int]) -> tuple[Node, ...]:
    """The nodes that compute results from others, in order."""
    waiting = [node for node in results if node not in starts]
    found = set(waiting)
    while waiting:
        for source in waiting.pop().all_input_nodes:
            if source.op == "call_function" and source not in starts and source not in found:
                found.add(source)
                waiting.append(source)
    return tuple(sorted(found, key=order.__getitem__))


def attribute(model: GraphModule, target: str) -> Any:
    """A parameter or buffer of a program, by its path."""
    found: Any = model
    for name in target.split("."):
        found = getattr(found, name)
    return found
