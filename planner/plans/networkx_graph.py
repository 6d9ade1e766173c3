"""A plan as a networkx graph, for questions that no verb asks: paths, cuts, sums over parts of a model.

The only module that knows networkx. Nothing is decided here: every attribute is what the plan says.
"""

import networkx as nx

from planner.ir.borders import carried_pairs
from planner.ir.graph import BOUNDARY, port_address
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan, require_plan
from planner.plans.records import Rescale
from planner.plans.rescales import definitions, uses
from planner.plans.write_json import TypeTexts


def to_networkx(plan: Plan) -> nx.MultiDiGraph:
    """A plan as a `networkx.MultiDiGraph`: kernels are nodes, an edge is a value on its way to a consumer.

    Attributes are numbers, texts, None and tuples of them. Kernels come in the order they run, edges as
    kernels read. The graph has no cycle: `next_trip` of a kernel lists the values of a loop's next trip.
    Inputs of a kernel that are no ports (indices, shapes) have no edge.

    Nodes, all with a `kind`:
      `kernel`: by its name. `kernel` (`conv2d`); `row`, key into `plan.target.rows`, None in float;
        `is_float`, whether it runs in float; `reason`, why it does, else None; `accumulator_bits`, None where
        it has no sums; `trip_count`, how often it runs each time the model does; `scope`, path of the loop,
        branch or call it stands in, "" for the model's own; `next_trip`, the kernel that reads its result in
        a loop's next trip, else None.
      `input`, `output`: by their address in the words of `explain`, `@model.out[0]` and `@model.in[0]`.
        `value`, its name. One that is no float has no edges.
      `constant`: `@constant.NAME`. `value`, its name.

    Edges, keyed by the port that reads (`conv1.in[0]`, of a model output `@model.in[0]`):
      `value`: its name.
      `elements`: of the value; a dimension left open counts as 1.
      `from_port`: the port that writes; None of a constant.
      `from_type`, `to_type`: MLIR text of the type at either end: `!quant.uniform<...>`, or a float (`f32`).
        A constant is stored as its consumer requires.
      `is_float`: whether the consumer requires a float.
      `rescales`, `kinds`: ids (`y#0`) and kinds of the changes of type in between, in order; () for none. Two
        where a kernel yields another type than its value's fixed one, and the consumer requires a third.
      `cost`: of all those, in element-rescales. Consumers that require one type share a rescale, and each
        edge shows the whole: in sums count an id once.

    Raises:
      InputError: what it is instead of a plan.
    """
    require_plan(plan)
    graph = nx.MultiDiGraph(name=plan.graph.name)
    writers: dict[str, tuple[str, str | None]] = {}
    for i, name in enumerate(plan.graph.inputs):
        address = port_address(BOUNDARY, "out", i)
        graph.add_node(address, kind="input", value=name)
        writers[name] = address, address
    for name in plan.graph.constants:
        graph.add_node(f"@constant.{name}", kind="constant", value=name)
        writers[name] = f"@constant.{name}", None
    _add_kernels(graph, plan)
    for kernel in plan.kernels_in_order:
        writers |= {port.value: (kernel.name, port.address) for port in kernel.outputs if port.value}
    for i, name in enumerate(plan.graph.outputs):
        graph.add_node(port_address(BOUNDARY, "in", i), kind="output", value=name)
    _add_edges(graph, plan, writers)
    return graph


def _add_kernels(graph: nx.MultiDiGraph, plan: Plan) -> None:
    scopes = {region.name: region.scope for region in plan.graph.regions}
    next_trips = {end: begin for begin, end in carried_pairs(plan.graph)}
    for kernel in plan.kernels_in_order:
        graph.add_node(
            kernel.name,
            kind="kernel",
            kernel=kernel.kernel,
            row=kernel.row,
            reason=kernel.reason,
            is_float=kernel.row is None,
            accumulator_bits=kernel.accumulator_bits,
            trip_count=kernel.trip_count,
            scope=scopes[kernel.name],
            next_trip=next_trips.get(kernel.name),
        )


def _add_edges(graph: nx.MultiDiGraph, plan: Plan, writers: dict[str, tuple[str, str | None]]) -> None:
    made, texts = definitions(plan.graph, plan.kernels_in_order), TypeTexts()
    between: dict[tuple[str, int], list[Rescale]] = {}
    for rescale in plan.rescales:
        for consumer in rescale.consumers:
            between.setdefault(consumer, []).append(rescale)
    for name, users in uses(plan.graph, plan.kernels_in_order).items():
        writer, port = writers[name]
        value = plan.graph.values[name]
        for use in users:
            changes = between.get((use.kernel, use.index), [])
            reader = use.address if use.kernel == BOUNDARY else use.kernel
            graph.add_edge(
                writer,
                reader,
                key=use.address,
                value=name,
                elements=value.elements,
                from_port=port,
                from_type=texts.text(made.get(name, use.type)) or value.dtype,
                to_type=texts.text(use.type) or value.dtype,
                is_float=not isinstance(use.type, Uniform),
                rescales=tuple([change.id for change in changes]),
                kinds=tuple([change.kind for change in changes]),
                cost=sum([change.cost for change in changes], 0.0),
            )
