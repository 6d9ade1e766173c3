"""Why a row does not serve a kernel: a fact that a port cannot have, a predicate, a size no block divides.

Facts of activations that a rescale can meet refuse nothing. Of sparsity the numbers of the model decide: what
rounds to 0 besides only makes weights sparser. Source: docs/specification.md, section 4; NVIDIA,
"Accelerating Inference with Sparsity Using the Ampere Architecture" (2:4 along the summed dimension).
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from planner.ir.graph import Graph, Region
from planner.ir.mapped import let_go
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.types.axis_transport import moved_types
from planner.ir.types.fit import has_short_block
from planner.ir.types.qtypes import AnyType, Bipolar, FloatType, Storage, Uniform
from planner.ir.types.scales import holds_scales
from planner.ir.types.typetext import brief
from planner.ir.types.wanted import Wanted
from planner.propagation.selection.choice import (
    FLOATING,
    Choice,
    binding_facts,
    follows_factors,
    port_facts,
    shared_storage,
    sides_of,
)
from planner.propagation.selection.pinned_constants import restored
from planner.propagation.selection.wanted_rows import (
    wanted_bits,
)
from planner.propagation.selection.weight_axes import block_axes, block_size, channel_axis, linear_op
from planner.target.predicates import failing
from planner.target.records import PortPattern, PortType, Row

NOT_ASKED: Final = "it serves only kernels that are asked to run so"


def refused_by_facts(graph: Graph, choice: Choice) -> str | None:
    """The first port whose facts rule the row out."""
    region, sliced = choice.region, _hands_slices_on(graph, choice)
    for side, i, name, pattern in sides_of(choice):
        store = pattern.type.storage or shared_storage(choice, (side, i))
        own_facts = ((region.input_facts if side == "in" else region.output_facts) or ((),) * (i + 1))[i]
        constant = name in graph.constants
        if isinstance(store, FloatType):
            # A value's own pin is met by a quantize beside the port; the port's own can only be met by it.
            asked = next((fact for fact in own_facts if isinstance(fact, (Uniform, AnyType))), None)
            if asked is not None and not constant:
                return f"port {pattern.name} ({name!r}) wants {brief(asked)}, the row has {store}"
            continue
        follows = follows_factors(choice, pattern.name)
        for fact in binding_facts(graph, region, side, i):
            if isinstance(fact, FLOATING) and (constant or fact in own_facts):
                return f"port {pattern.name} ({name!r}) is to stay float ({fact})"
            if isinstance(fact, AnyType) and store is not None and store.range_bits < fact.bits:
                return f"port {pattern.name} ({name!r}) wants {fact}, the row has {store}"
            if (
                isinstance(fact, Bipolar)
                and constant
                and not (
                    holds_two_signs(pattern) and _takes_scales(pattern.type, [fact.scale]) and not follows
                )
            ):
                return f"port {pattern.name} ({name!r}) is {fact}, the row has {pattern.type}"
            if isinstance(fact, Uniform) and (constant or fact in own_facts):
                joined = store if pattern.type.is_wildcard and not constant else None
                why = _refused_pin(graph, choice, name, pattern, fact, sliced=sliced, joined=joined)
                if why is not None:
                    return f"port {pattern.name} ({name!r}) is pinned {why}"
    return None


def _refused_pin(
    graph: Graph,
    choice: Choice,
    name: str,
    pattern: PortPattern,
    fact: Uniform,
    *,
    sliced: bool,
    joined: Storage | None,
) -> str | None:
    """How a port is pinned so that it cannot be met; None where it can.

    Args:
      sliced: whether the kernel hands slices on as they are.
      joined: the storage of the ports that a wildcard is joined with.
    """
    constant, follows = name in graph.constants, follows_factors(choice, pattern.name)
    kind = restored(fact, pattern.type, graph.constants[name]) if constant and not follows else fact
    as_given = follows or (sliced and pattern.type.is_wildcard)
    if joined in (None, kind.storage) and accepts(pattern, kind, follows=as_given):
        if constant and not follows and _is_off_axis(graph, choice, name, pattern, kind):
            return f"along axis {kind.axis}, not the row's"
        return "to blocks of which the last is shorter" if _is_short(graph, name, pattern, kind) else None
    wanted = str(joined or pattern.type)
    if pattern.type.scales != "f32":
        wanted += f" with scales in {pattern.type.scales}"
    return f"to {brief(fact)}, the row has {wanted}"


def _hands_slices_on(graph: Graph, choice: Choice) -> bool:
    """Whether the ports of a mover are all pinned, to slices that its ops hand on as they are.

    A planned text has no numbers, those of a slice's ends neither: then it is as its pins say.
    """
    region, layout = choice.region, choice.layout
    if layout is None or not layout.joins_all or not (region.input_facts and region.output_facts):
        return False
    found: dict[str, Uniform] = {}
    for name, facts in zip(region.inputs, region.input_facts, strict=True):
        kind = next((fact for fact in facts if isinstance(fact, Uniform)), None)
        if kind is None or found.setdefault(name, kind) != kind:
            return False
    read = {name for op in region.ops for name in op.inputs if name in graph.constants}
    if any(graph.constants[name].array is None for name in read - found.keys()):
        return True
    for op in region.ops if any(not kind.is_per_tensor for kind in found.values()) else ():
        made = moved_types(op, found, graph)
        if made is None:
            return False
        found |= made
    made_here = zip(region.outputs, region.output_facts, strict=True)
    return bool(region.ops) and all(found.get(name) in facts for name, facts in made_here)


def _is_off_axis(graph: Graph, choice: Choice, name: str, pattern: PortPattern, kind: Uniform) -> bool:
    """Whether a weight has its scales along another axis than its row says, where that is known."""
    role = choice.row.axis.get(pattern.name, "out_channel") if choice.row is not None else 0
    if kind.axis is None or (role == "out_channel" and linear_op(choice.region.ops) is None):
        return False
    shape = graph.values[name].shape
    if isinstance(role, int) and role < 0 and shape is None:
        return False  # counted from an end that is not known
    axis = channel_axis(choice.region, graph) if not isinstance(role, int) else role
    return kind.axis != (axis + len(shape or ()) if axis < 0 else axis)


def holds_two_signs(pattern: PortPattern) -> bool:
    """Whether a port can store one bit as -1 and 1 with zero point 0."""
    store = pattern.type.storage
    free = pattern.type.granularity != "block" and not pattern.type.zero_point
    return isinstance(store, Storage) and free and store.qmin <= -1 and store.qmax >= 1


def refused_by_when(graph: Graph, choice: Choice, wanted: Wanted | None) -> str | None:
    """The first predicate of the row that does not hold; `wanted`: what was asked, where the row has it."""
    region, row = choice.region, choice.row
    if row is None or not row.when:
        return None
    if row.is_on_request and wanted is None:
        return NOT_ASKED
    bits = partial(_asked_bits, graph, choice, wanted)
    for port, least in row.when.get("min_bits", {}).items():
        if max(bits(port), default=0) < least:
            return f"port {port} needs a fact of at least {least} bits"
    return failing(
        row.when,
        ports=_by_name(choice, row),
        ops=ops_to_run(region),
        attributes=region.attributes,
        graph=graph,
        bits=bits,
        place=(row.source, f"when of {row.kernel}"),
    )


def refused_by_blocks(graph: Graph, choice: Choice, row: Row) -> str | None:
    """The first constant that no block size of its port divides."""
    for i in choice.layout.blocked if choice.layout is not None else ():
        name, pattern = choice.region.inputs[i], choice.inputs[i]
        pinned = any(isinstance(fact, Uniform) for fact in port_facts(graph, choice.region, "in", i))
        constant = name in graph.constants and not pinned
        if constant and block_size(graph, choice.region, row, pattern, name) is None:
            sizes = ", ".join(map(str, pattern.type.block_size))
            return f"port {pattern.name} ({name!r}) cannot be cut into blocks of {sizes}"
    return None


def _by_name(choice: Choice, row: Row) -> dict[str, str | tuple[str, ...]]:
    """The value at each port of the row, "" where it is absent, all of them at a variadic one."""
    tails = [pattern.name for pattern in (*row.inputs, *row.outputs) if pattern.variadic]
    found: dict[str, str | tuple[str, ...]] = dict.fromkeys(
        (pattern.name for pattern in (*row.inputs, *row.outputs)), ""
    )
    found |= {
        tail: tuple(name for _, _, name, pattern in sides_of(choice) if pattern.name == tail)
        for tail in tails
    }
    return found | {
        pattern.name: name for _, _, name, pattern in sides_of(choice) if pattern.name not in tails
    }


def _asked_bits(graph: Graph, choice: Choice, wanted: Wanted | None, port: str) -> Iterator[int]:
    """The bits that facts ask for at each value of a port; 0 where nothing is asked."""
    for side, i, _, pattern in sides_of(choice):
        if pattern.name != port:
            continue
        asked = [wanted_bits(wanted, (side, i)) if wanted is not None else 0]
        for fact in port_facts(graph, choice.region, side, i):
            if isinstance(fact, AnyType):
                asked.append(fact.bits)
            elif isinstance(fact, Bipolar):
                asked.append(1)
            elif isinstance(fact, Uniform):
                asked.append(fact.storage.bits)
        yield max(asked)


def accepts(pattern: PortPattern, pin: Uniform, *, follows: bool) -> bool:
    """Whether a port takes a type as it is; `follows`: it has as many scales as its factors."""
    spec = pattern.type
    if isinstance(spec.storage, Storage) and spec.storage != pin.storage:
        return False
    if not takes_parameters(spec, pin):
        return False
    if spec.granularity == "block" and not follows:
        sizes = {size for _, size in pin.blocks}
        return bool(sizes & {*spec.block_size}) and sizes <= {1, *spec.block_size}
    return follows or {"tensor": pin.is_per_tensor, "axis": not pin.blocks}[spec.granularity]


def _is_short(graph: Graph, name: str, pattern: PortPattern, kind: Uniform) -> bool:
    """Whether a type's last block is shorter than a port in blocks takes it."""
    spec = pattern.type
    is_whole = spec.granularity != "block" or spec.short_block
    return not is_whole and has_short_block(kind, graph.values[name].shape)


def takes_parameters(spec: PortType, pin: Uniform) -> bool:
    """Whether a port can have the scales and zero points of a type."""
    if spec.symmetric and any(pin.zero_points):
        return False
    if spec.zero_point is not None and any(zero != spec.zero_point for zero in pin.zero_points):
        return False
    return _takes_scales(spec, pin.scales)


def _takes_scales(spec: PortType, scales: Sequence[float]) -> bool:
    """Whether a port can have these scales."""
    if spec.power_of_two and any(math.frexp(scale)[0] != 0.5 for scale in scales):
        return False
    if spec.scales != "f32" and not holds_scales(scales, spec.scales):
        return False
    return min(scales) >= (spec.scale_min or 0.0) and max(scales) <= (spec.scale_max or math.inf)


def too_dense(graph: Graph, region: Region, row: Row, pattern: PortPattern, name: str) -> str | None:
    """Why a value is not as sparse as its port asks, None where it is.

    Groups are consecutive along the dimension that is summed (input channels of a convolution), one after the
    other from its start; the last may be shorter.
    """
    sparsity = pattern.type.sparsity
    if sparsity is None:
        return None
    few, many = sparsity
    asked = f"port {pattern.name} ({name!r}) is to be {few}:{many} sparse"
    constant = graph.constants.get(name)
    if constant is None or constant.array is None:
        return f"{asked}, and its numbers are not known"
    array = constant.array
    if not array.size:
        return None
    axis = 0 if array.ndim < 2 else block_axes(graph, region, row, pattern, array.ndim)[1]
    is_set = np.moveaxis(np.asarray(array != 0), axis, 0)
    let_go(array)
    counts = np.add.reduceat(is_set, np.arange(0, len(is_set), many), axis=0, dtype=np.int64)
    most = int(counts.max())
    return None if most <= few else f"{asked}, and {most} of {many} along axis {axis} are not 0"
