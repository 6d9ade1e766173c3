"""Row selection: which row of the target's table serves each kernel, or why none does.

Rows are chosen by preference, not by price: `when`, None, Any and pinned constants rule rows out; among the
rest those that were asked of the kernel, of these those that can hold what facts say of ranges, of these
the one whose storages equal the most pins, then the one that takes the most of these at their scales and
zero points, then those that leave enough dB at the readers (`too_little`), then file order. The choice for
one kernel looks at no other kernel, so it cannot depend on a visiting order. Rows with float results are
the exception: they come last, and are preferred once it is known that nothing stores what they hand on
(`network.float_results`).
Source: design 01, section 4; design 11, section 7.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from planner.errors import Conflict
from planner.ir.asked import Asked, asked_of
from planner.ir.graph import Facts, Graph, Region
from planner.ir.roles import function_of_one, is_product_of_rows
from planner.ir.types.fit import has_short_block
from planner.ir.types.qtypes import AnyType, Bipolar, Calibrated, FloatType, NoneType, Storage, Uniform
from planner.ir.types.scales import holds_scales
from planner.ir.types.typetext import brief
from planner.ir.types.wanted import Wanted
from planner.ir.unknowns import reason_of_unknown
from planner.propagation.network.axis_transport import moved_types
from planner.propagation.selection.conflicts import Concession
from planner.propagation.selection.pinned_constants import restored
from planner.propagation.selection.reach import holds, known_range
from planner.propagation.selection.remedies import Left
from planner.propagation.selection.row_layout import Layout, Layouts, layouts_of, moves_alone
from planner.propagation.selection.sparsity import too_dense
from planner.propagation.selection.too_little import TOO_LITTLE, Short, shortfall
from planner.propagation.selection.wanted_rows import (
    ANNOTATED,
    asked_text,
    has_wanted,
    rows_told,
    wanted_bits,
)
from planner.propagation.selection.weight_axes import block_size, channel_axis, linear_op
from planner.target.borders import rows_for
from planner.target.predicates import failing
from planner.target.records import PortId, PortPattern, PortType, Row, Target

NO_RANGE = "no range"
NO_ROWS: Final = (
    "at run time it quantizes an activation as it lies, times a constant weight, with explicit pads; per "
    "token, of matrices"
)
NO_FUNCTION: Final = "its table serves functions of one tensor, number by number"
FLOATING: Final = (FloatType, NoneType)
"""Facts that keep a value in a float."""


class Choice(NamedTuple):
    """The row for one region with its signature spread over the actual ports; or the reason for none.

    With a row, `reason` is why no row serves that was asked for; `short` tells, by key, of rows that hold too
    little: those passed over, and this one where none holds enough.
    """

    region: Region
    row: Row | None = None
    layout: Layout | None = None
    reason: str = ""
    short: tuple[tuple[str, str], ...] = ()

    @property
    def inputs(self) -> tuple[PortPattern, ...]:
        """The row's entry for each input port; () without a row."""
        return self.layout.inputs if self.layout is not None else ()

    @property
    def outputs(self) -> tuple[PortPattern, ...]:
        """The row's entry for each output port; () without a row."""
        return self.layout.outputs if self.layout is not None else ()


def choose_rows(
    graph: Graph,
    regions: Iterable[Region],
    target: Target,
    left: Mapping[str, Mapping[str, Left]] | None = None,
    *,
    read_in_float: Collection[str] = (),
) -> list[Choice]:
    """Choose for each region, in order.

    Args:
      left: rows that kernels could not keep, by kernel and key.
      read_in_float: names of the regions whose results nothing stores.
    """
    layouts, bound, gone = layouts_of(target), frozenset(_bound(graph)), left or {}
    return [
        _choose(
            graph,
            region,
            target,
            layouts,
            gone.get(region.name, {}),
            plain=_is_plain(region, bound),
            asked=asked_of(graph, region),
            read_in_float=region.name in read_in_float,
        )
        for region in regions
    ]


def wanted_of(graph: Graph, choice: Choice) -> Wanted | None:
    """The storages that were asked of a kernel, if its row has them."""
    asked = asked_of(graph, choice.region)
    if asked is None or choice.row is None or choice.layout is None or not asked.wanted.is_row:
        return None
    has = has_wanted(graph, choice.region, choice.row, choice.layout, asked.wanted)
    return asked.wanted if has else None


def refuse_unmet(graph: Graph, choices: Iterable[Choice], target: Target, *, settled: bool = True) -> None:
    """Refuse to plan where a kernel cannot run in float, or one that was named not by a row, as was asked.

    Args:
      settled: whether rows with float results, which are chosen last, have been.

    Raises:
      Conflict: its row has other storages, or it has none; or the target runs nothing in float.
    """
    for choice in choices if graph.wanted else ():
        region, asked = choice.region, asked_of(graph, choice.region)
        if asked is not None and asked.wanted.float and target.on_no_kernel == "error":
            raise Conflict(
                f"{region.name!r} is asked to run in float, and {target.id} runs no kernel in float",
                facts=(asked_text(region.name, asked), f"{target.file}: on_no_kernel: error"),
                hint=f"drop {asked.key!r} from what is asked of kernels",
                concession=Concession(wanted=((region.name, "float"),)),
            )
        if asked is None or not asked.by_name or not asked.wanted.is_row or wanted_of(graph, choice):
            continue
        results = (asked.wanted.result, *asked.wanted.outputs)
        if not settled and any(isinstance(store, FloatType) for store in results):
            continue
        raise Conflict(
            f"{region.name!r} is asked to run as {asked.wanted}, and no row of {region.kernel} serves so"
            + (f": {choice.reason}" if choice.reason else ""),
            facts=(asked_text(region.name, asked), f"kernel {region.name!r} is {region.kernel}"),
            hint=_follows(graph, region, target) or rows_told(target, region.kernel),
            concession=Concession(wanted=((region.name, str(asked.wanted)),)),
        )


def _follows(graph: Graph, region: Region, target: Target) -> str:
    """What to do about a kernel that moves data and is stored as its neighbours are."""
    results = [port for row in rows_for(target, region.kernel) for port in row.outputs]
    if not moves_alone(graph, region) or not all(port.type.is_wildcard for port in results):
        return ""
    names = " and ".join(map(repr, filter(None, region.inputs)))
    return f"it only moves data, in the storage of what is around it: ask the kernel that writes {names}"


def hand_on_floats(
    graph: Graph,
    choices: Sequence[Choice],
    target: Target,
    read_in_float: Collection[str],
    left: Mapping[str, Mapping[str, Left]],
) -> list[Choice]:
    """Choose again for regions whose results nothing stores: rows with float results are preferred.

    What runs in float does so still where none of these serves.
    """
    wanted = [choice.region for choice in choices if choice.region.name in read_in_float]
    found = choose_rows(graph, wanted, target, left, read_in_float=read_in_float)
    handing = {one.region.name: one for one in found if one.layout is not None and one.layout.hands_on_floats}
    return [handing.get(choice.region.name, choice) for choice in choices]


def refuse_floats(choices: Iterable[Choice], target: Target) -> None:
    """Refuse kernels without a row where the target does.

    Raises:
      Conflict: no row serves a kernel and the target says `on_no_kernel: error`.
    """
    for region, row, _, reason, _ in choices if target.on_no_kernel == "error" else ():
        if row is None and any((*region.inputs, *region.outputs)):
            raise Conflict(
                f"no row of {target.id} serves {region.kernel} at {region.name!r}: {reason}",
                facts=(f"kernel {region.name!r} is {region.kernel}", f"{target.file}: on_no_kernel: error"),
                concession=Concession(floats=(region.name,)),
                about=next(filter(None, (*region.inputs, *region.outputs)), ""),
            )


def _bound(graph: Graph) -> Iterable[str]:
    """Values with facts that can rule a row out or prefer one."""
    for name, value in graph.values.items():
        if value.facts and not all(isinstance(fact, Calibrated) for fact in value.facts):
            yield name


def _is_plain(region: Region, bound: frozenset[str]) -> bool:
    """Whether no fact has a say in the row of this kernel: the first that takes its ports serves."""
    return (
        not region.input_facts
        and not region.output_facts
        and bound.isdisjoint(region.inputs)
        and bound.isdisjoint(region.outputs)
    )


def in_float(choice: Choice, reason: str) -> Choice:
    """The same region without a row."""
    return Choice(choice.region, reason=reason)


def port_facts(graph: Graph, region: Region, side: str, index: int) -> Facts:
    """Constraints that meet one port: its value's, and its own."""
    names, own = (
        (region.inputs, region.input_facts) if side == "in" else (region.outputs, region.output_facts)
    )
    facts = graph.values[names[index]].facts if names[index] else ()
    return (*facts, *(own[index] if own else ()))


def _binding(graph: Graph, region: Region, side: str, index: int) -> Facts:
    """Constraints that say which row a port asks for: of a constant that is pinned there, the port's own."""
    facts = port_facts(graph, region, side, index)
    names, own = (
        (region.inputs, region.input_facts) if side == "in" else (region.outputs, region.output_facts)
    )
    pinned = bool(own) and names[index] in graph.constants and any(isinstance(f, Uniform) for f in own[index])
    return own[index] if pinned else facts


def _choose(
    graph: Graph,
    region: Region,
    target: Target,
    layouts: Layouts,
    left: Mapping[str, Left],
    *,
    plain: bool,
    asked: Asked | None,
    read_in_float: bool,
) -> Choice:
    if not any((*region.inputs, *region.outputs)):
        return Choice(region, reason=reason_of_unknown(graph, region.ops) or "no float operands")
    if asked is not None and asked.wanted.float:
        return in_float(Choice(region), ANNOTATED)
    rows = rows_for(target, region.kernel)
    if not rows:
        return in_float(
            Choice(region), region.reason or f"{target.id} has no row for kernel {region.kernel!r}"
        )
    refusals: list[str] = []
    missed: list[str] = []
    fit: list[_Fit] = []
    floats = read_in_float and any(row.hands_on_floats for row in rows)
    for row in rows:
        layout = layouts.of(row, region)
        if layout is None:
            ports = f"{sum(map(bool, region.inputs))} inputs and {len(region.outputs)} outputs"
            refusals.append(f"{row.source} takes other ports than these {ports}")
            continue
        wanted = asked.wanted if asked and has_wanted(graph, region, row, layout, asked.wanted) else None
        choice = Choice(region, row, layout)
        refusal = left[layout.key].why if layout.key in left else None
        refusal = refusal or (None if plain else _refused_by_facts(graph, choice))
        refusal = refusal or _refused_by_when(graph, choice, wanted)
        refusal = refusal or (_refused_by_blocks(graph, choice, row) if layout.blocked else None)
        dense = (
            too_dense(graph, region, row, layout.inputs[i], region.inputs[i])
            for i in (layout.sparse if refusal is None else ())
        )
        refusal = refusal or next(filter(None, dense), None)
        if refusal is None and row.table is not None and not function_of_one(region.ops, graph):
            refusal = NO_FUNCTION
        by = row.dynamic if refusal is None else None
        if by is not None and not is_product_of_rows(region.ops, graph, per_token=by.per_token):
            refusal = NO_ROWS
        if refusal:
            refusals.append(f"{row.source}: {refusal}")
            missed += refusals[-1:] if wanted else []
            continue
        held = not layout.bounded or _holds_ranges(graph, choice, layout, target.costs.max_clip)
        serves = read_in_float or not layout.hands_on_floats
        short = _shortfall(graph, choice, target.costs.wanted_db)
        first = plain and held and serves and not floats and (asked is None or wanted) and short is None
        if first and not fit:
            return choice
        rank = (serves, wanted is not None, held, *_pins_met(graph, choice))
        fit.append(_Fit(rank, short, serves and layout.hands_on_floats, choice))
        if first:
            break
    if not fit:
        return in_float(Choice(region), "; ".join(refusals))
    best = max(fit, key=_Fit.merit)  # of equal ones the first
    is_free = plain and asked is None and target.on_no_kernel == "float"
    if best.short and target.costs.wanted_float and is_free:
        whys = (f"{one.choice.row.source}: {one.short.why}" for one in fit if one.short and one.choice.row)
        return in_float(Choice(region), TOO_LITTLE + "; ".join(whys))
    chosen = best.choice._replace(short=tuple(_passed_over(fit, best)))
    return chosen._replace(reason="; ".join(missed)) if missed and not best.rank[1] else chosen


class _Fit(NamedTuple):
    """A row that fits a kernel.

    `rank`: whether it can serve, was asked for, holds what facts say of ranges, how many pins it meets, and
    how many of them as they are.
    """

    rank: tuple[bool, bool, bool, int, int]
    short: Short | None
    hands_on_floats: bool
    choice: Choice

    def merit(self) -> tuple[tuple[bool, bool, bool, int, int], float, bool]:
        """What makes it the row to be preferred."""
        return self.rank, math.inf if self.short is None else self.short.db, self.hands_on_floats


def _passed_over(fit: Sequence[_Fit], best: _Fit) -> Iterable[tuple[str, str]]:
    """Key and shortfall of rows that would be preferred to the best, held they enough, and of that one."""
    place = fit.index(best)
    for k, one in enumerate(fit):
        is_before = one.rank > best.rank or (one.rank == best.rank and k <= place)
        if one.short and one.choice.layout and is_before and one.hands_on_floats == best.hands_on_floats:
            yield one.choice.layout.key, one.short.why


def _shortfall(graph: Graph, choice: Choice, wanted: float | None) -> Short | None:
    """What rounding at a row's ports leaves, where it is less than wanted."""
    if wanted is None:
        return None
    region = choice.region
    ports = (
        (name, port_facts(graph, region, side, i), pattern.type.storage or _shared_storage(choice, (side, i)))
        for side, i, name, pattern in _sides(choice)
        if name not in graph.constants
    )
    return shortfall(graph, ports, wanted)


def _sides(choice: Choice) -> Iterable[tuple[Literal["in", "out"], int, str, PortPattern]]:
    region = choice.region
    for i, (name, pattern) in enumerate(zip(region.inputs, choice.inputs, strict=True)):
        if name:
            yield "in", i, name, pattern
    for i, (name, pattern) in enumerate(zip(region.outputs, choice.outputs, strict=True)):
        if name:
            yield "out", i, name, pattern


def _refused_by_facts(graph: Graph, choice: Choice) -> str | None:
    """The first port whose facts rule the row out."""
    region, sliced = choice.region, _hands_slices_on(graph, choice)
    for side, i, name, pattern in _sides(choice):
        store = pattern.type.storage or _shared_storage(choice, (side, i))
        if isinstance(store, FloatType):
            continue
        own_facts = (region.input_facts if side == "in" else region.output_facts) or ((),) * (i + 1)
        constant = name in graph.constants
        follows = follows_factors(choice, pattern.name)
        for fact in _binding(graph, region, side, i):
            if isinstance(fact, FLOATING) and (constant or fact in own_facts[i]):
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
            if isinstance(fact, Uniform) and (constant or fact in own_facts[i]):
                kind = (
                    restored(fact, pattern.type, graph.constants[name]) if constant and not follows else fact
                )
                if accepts(pattern, kind, follows=follows or (sliced and pattern.type.is_wildcard)):
                    if constant and not follows and _is_off_axis(graph, choice, name, pattern, kind):
                        return (
                            f"port {pattern.name} ({name!r}) is pinned along axis {kind.axis}, not the row's"
                        )
                    if _is_short(graph, name, pattern, kind):
                        return (
                            f"port {pattern.name} ({name!r}) is pinned to blocks of which the last is shorter"
                        )
                    continue
                wanted = str(pattern.type)
                if pattern.type.scales != "f32" and isinstance(kind, Uniform):
                    wanted += f" with scales in {pattern.type.scales}"
                return f"port {pattern.name} ({name!r}) is pinned to {brief(fact)}, the row has {wanted}"
    return None


def _shared_storage(choice: Choice, side: PortId) -> Storage | None:
    """What a wildcard port is stored in because the row says so of a port that has its storage."""
    layout = choice.layout
    if layout is None:
        return None
    group = next((group for group in layout.alike if side in group), ())
    stores = (spec.storage for other, spec in layout.specs if other in group)
    return next((store for store in stores if isinstance(store, Storage)), None)


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


def _refused_by_when(graph: Graph, choice: Choice, wanted: Wanted | None) -> str | None:
    """The first predicate of the row that does not hold; `wanted`: what was asked, where the row has it."""
    region, row = choice.region, choice.row
    if row is None or not row.when:
        return None
    least = row.when.get("min_bits")
    if least:
        short = _short_of_bits(graph, choice, least, wanted)
        if short:
            return short
    return failing(
        {key: wanted for key, wanted in row.when.items() if key != "min_bits"},
        ports=_by_name(choice, row),
        ops=region.ops,
        attributes=region.attributes,
        graph=graph,
    )


def _refused_by_blocks(graph: Graph, choice: Choice, row: Row) -> str | None:
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
        tail: tuple(name for _, _, name, pattern in _sides(choice) if pattern.name == tail) for tail in tails
    }
    return found | {pattern.name: name for _, _, name, pattern in _sides(choice) if pattern.name not in tails}


def _short_of_bits(
    graph: Graph, choice: Choice, least: Mapping[str, int], wanted: Wanted | None
) -> str | None:
    for port, bits in least.items():
        mine = [(side, i) for side, i, _, pattern in _sides(choice) if pattern.name == port]
        counted = [wanted_bits(wanted, side) for side in mine] if wanted is not None else []
        asked = [
            fact.bits if isinstance(fact, AnyType) else fact.storage.bits
            for side, i in mine
            for fact in port_facts(graph, choice.region, side, i)
            if isinstance(fact, (AnyType, Uniform))
        ]
        if max((*asked, *counted), default=0) < bits:
            return f"port {port} needs a fact of at least {bits} bits"
    return None


def follows_factors(choice: Choice, name: str) -> bool:
    """Whether a port has as many scales as its factors, whatever its own type says (a bias)."""
    rules = choice.row.rules if choice.row is not None else ()
    return any(rule.kind == "multiplier_accumulator_scale" and rule.args["port"] == name for rule in rules)


def accepts(pattern: PortPattern, pin: Uniform, *, follows: bool) -> bool:
    """Whether a port takes a type as it is; `follows`: it has as many scales as its factors."""
    spec = pattern.type
    if isinstance(spec.storage, Storage) and spec.storage != pin.storage:
        return False
    if not _takes_parameters(spec, pin):
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


def _takes_parameters(spec: PortType, pin: Uniform) -> bool:
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


def _holds_ranges(graph: Graph, choice: Choice, layout: Layout, max_clip: float) -> bool:
    """Whether ports that cannot hold every range hold what facts say of theirs."""
    region = choice.region
    for side, i, name, pattern in _sides(choice):
        store, extent = pattern.type.storage, known_range(graph, name)
        if extent is None or not isinstance(store, Storage) or (side, i) not in layout.bounded:
            continue
        if side == "in" and region.ops and region.ops[0].type == "Relu" and name in region.ops[0].inputs:
            extent = max(extent[0], 0.0), max(extent[1], 0.0)  # it keeps nothing below 0
        if not holds(pattern.type, store, extent, max_clip):
            return False
    return True


def _pins_met(graph: Graph, choice: Choice) -> tuple[int, int]:
    """Pins whose storage the row has there, or a wider range of it, and how many it takes as they are.

    A wildcard takes its value's storage.
    """
    met = as_they_are = 0
    for side, i, _, pattern in _sides(choice):
        for fact in _binding(graph, choice.region, side, i):
            store = pattern.type.storage
            inside = store is None or (
                isinstance(store, Storage) and isinstance(fact, Uniform) and fact.storage.lies_in(store)
            )
            if isinstance(fact, Uniform) and inside:
                met += 1
                as_they_are += _takes_parameters(pattern.type, fact)
            met += isinstance(fact, FloatType) and fact == store
    return met, as_they_are
