"""Rules of a row about the types of its ports, as pure functions of one shape, `QuantFn`.

A rule sees views of the kernel's present ports and answers with the types it decides, by port id; ports
without a type yet are undecided. How classes are labelled and where rescales go is propagation's business.
`same_scale_groups` and `expand_ports` say the same about a row before there are types.
Source: MLIR quantization RFC, "Target Constraints"; docs/specification.md, section 4.
"""

import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from planner.errors import QTypeError, RuleError
from planner.ir.types.held_pins import Storages
from planner.ir.types.qtypes import Storage, Uniform, round_scales, uniform
from planner.target.expressions import GREATEST, Ref, evaluate, parse_expression, parse_number, references
from planner.target.records import PortId, PortPattern, PortType, PortView, QuantFn, Row, Rule, Target

Views = tuple[PortView, ...]
Args = Mapping[str, Any]


def rule_function(rule: Rule, target: Target) -> QuantFn:
    """The function that a rule of `target` stands for; call it with `rule.args`.

    Raises:
      RuleError: an `fn` that was not handed to `load_target`, or a kind that is none of `RULES`.
    """
    if rule.kind != "fn":
        if rule.kind not in RULES:
            raise RuleError(f"{rule.source}: unknown rule {rule.kind!r}; known: {', '.join(RULES)}, fn")
        return RULES[rule.kind]
    name = rule.args["name"]
    if name not in target.functions:
        raise RuleError(
            f"{rule.source}: function {name!r} was not handed to load_target(functions=...)",
            hint=f"known: {', '.join(sorted(target.functions)) or 'none'}",
        )
    function = target.functions[name]

    def call(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
        try:
            answer = function(inputs, outputs, args["args"])
        except Exception as error:
            raise _failed(name, function, error) from error
        if not isinstance(answer, Mapping):
            raise RuleError(
                f"function {name!r} answers {answer!r:.80}", hint="a mapping of port ids to types"
            )
        return answer

    return call


def _failed(name: str, function: object, error: Exception) -> RuleError:
    """The error of a function that was handed over, with the line of its file."""
    frames = traceback.extract_tb(error.__traceback__)
    file = getattr(getattr(function, "__code__", None), "co_filename", frames[-1].filename)
    # The deepest frame in the user's file, as an error may surface inside of numpy.
    frame = next((item for item in reversed(frames) if item.filename == file), frames[-1])
    return RuleError(
        f"function {name!r}: {type(error).__name__}: {' '.join(str(error).split())} "
        f"({PurePath(frame.filename).name}:{frame.lineno})",
        hint="the type of a port that is not decided yet is None",
    )


def same_scale(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Give the listed ports one scale and zero point.

    Nothing while no listed port is decided, or while decided ones disagree and nothing says whom to
    prefer: choosing among labels is propagation's part.

    Args:
      inputs, outputs: views of the kernel's present ports.
      args: `ports`; `direction` (`both`, `from_inputs`, `from_outputs`: who is followed); `prefer`
        (`first` or `widest` settle a disagreement, `hull` leaves it).

    Returns:
      The types of the ports that change, each in its own storage.

    Raises:
      RuleError: the common zero point does not fit a port's storage.

    Source: RFC "same_scale".
    """
    ports = [view for name in args["ports"] for view in (*inputs, *outputs) if view.name == name]
    side = {"from_inputs": ("in",), "from_outputs": ("out",)}.get(
        args.get("direction", "both"), ("in", "out")
    )
    decided = [view.type for view in ports if view.type is not None and view.id[0] in side]
    # Without a leader the choice is among labels with prices, which a local rule cannot see.
    leader = _leader(decided, args.get("prefer", "hull"))
    if leader is None:
        return {}
    answer: dict[PortId, Uniform] = {}
    for view in ports:
        if view.spec.storage is not None and not isinstance(view.spec.storage, Storage):
            continue
        store = leader.storage if view.spec.storage is None else view.spec.storage
        wanted = in_storage(leader, store)
        if wanted is None:
            raise RuleError(
                f"same_scale: port {view.name!r} of storage {store} cannot hold the zero point of {leader}"
            )
        if wanted != view.type:
            answer[view.id] = wanted
    return answer


def _leader(decided: list[Uniform], prefer: str) -> Uniform | None:
    if not decided:
        return None
    first = decided[0]
    # Types that differ in signedness alone agree: i8 around 0 and u8 around 128 are the same reals.
    if prefer == "first" or all(in_storage(other, first.storage) == first for other in decided[1:]):
        return first
    return max(decided, key=lambda kind: kind.hi - kind.lo) if prefer == "widest" else None


def fixed_scale(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Give the port the scale and zero point that the kernel is built for (softmax i8: 1/256, -128).

    Args:
      inputs, outputs: views of the kernel's present ports.
      args: `port`; `scale`, a number or rational; `zero_point`, stored units.

    Raises:
      RuleError: the zero point lies outside the port's storage.

    Source: RFC "fixed_scale"; LiteRT quantization spec.
    """
    scale = _number(args["scale"])
    return {
        view.id: _type(store, float(scale), int(args.get("zero_point", 0)), f"fixed_scale of {view.name!r}")
        for view, store in _stored(inputs, outputs, args["port"])
    }


def free_scale(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Leave every port's scale free: the kernel rescales inside (add). Decides nothing."""
    del inputs, outputs, args
    return {}


def multiplier_scale(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Leave every port's scale free and check the multiplier that the kernel applies to its result.

    The kernel multiplies (conv, matmul, mul), so stored results are scaled by the product of the factors'
    scales over the output's, one multiplier per output channel.

    Args:
      inputs, outputs: views of the kernel's present ports.
      args: `out`; `of`, the factors; `range`, least and greatest multiplier of the device, if it has any.

    Returns:
      Nothing: scales are never inferred from each other here.

    Raises:
      RuleError: a multiplier outside the range.

    Source: RFC "multiplier_scale".
    """
    limits, multipliers = args.get("range"), multipliers_of(inputs, outputs, args)
    if limits is None or multipliers is None:
        return {}
    low, high = multiplier_range(args)
    # Judged per output channel, as a per-axis weight gives each channel a multiplier of its own.
    outside = np.flatnonzero((multipliers < low) | (multipliers > high))
    if outside.size:
        channel = int(outside[0])
        raise RuleError(
            f"multiplier_scale: the multiplier {float(multipliers[channel])!r} of channel {channel} lies "
            f"outside {limits[0]} to {limits[1]} of this row"
        )
    return {}


def multiplier_range(args: Args) -> tuple[float, float]:
    """Least and greatest multiplier of a `multiplier_scale` rule's `range`."""
    low, high = (float(_number(limit)) for limit in args["range"])
    return low, high


def multipliers_of(inputs: Views, outputs: Views, args: Args) -> np.ndarray | None:
    """The multipliers of a `multiplier_scale` rule, one or per channel; None while a scale is undecided."""
    product = _product(_factors(inputs, outputs, args["of"]))
    results = _named(inputs, outputs, args["out"])
    if product is None or not results or results[0].type is None:
        return None
    return np.asarray(product[0] / np.asarray(results[0].type.scales))


def multiplier_accumulator_scale(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Give the accumulator port the product of the listed ports' scales.

    A bias is added to products of the inputs before they are rescaled, so it has to live on their grid:
    scale = the product (in float64, rounded once to float32), zero point 0, per axis where a factor is.

    Args:
      inputs, outputs: views after rescale, so a conv behind a rescale gets the rescaled scale.
      args: `port`, the accumulator; `of`, the factors.

    Returns:
      The accumulator's type (per axis: axis 0 of the bias, shape (C_out,)); nothing while a factor is
      undecided, where the port is absent, or where it is float.

    Raises:
      RuleError: a factor is per block, or two are per axis with different numbers of slices.

    Source: RFC "multiplier_accumulator_scale"; LiteRT quantization spec, bias.
    """
    product = _product(_factors(inputs, outputs, args["of"]))
    if product is None:
        return {}
    scales, per_axis = product
    return {
        view.id: uniform(store, scales.tolist(), 0, axis=0 if per_axis else None)
        for view, store in _stored(inputs, outputs, args["port"])
    }


def derive(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Compute the port's scale and zero point by expressions over other ports' parameters.

    Args:
      inputs, outputs: views of the kernel's present ports.
      args: `port`; `scale` and `zero_point`, numbers or expressions (`1 / sqrt(x.scale) * 2 ** -7`).

    Returns:
      The port's per-tensor type; nothing while a port it asks is undecided.

    Raises:
      RuleError: a port it asks is not per tensor, or the result is no scale or zero point.

    Source: docs/targets/rules.md.
    """
    expressions = [parse_expression(str(args.get(key, 0))) for key in ("scale", "zero_point")]
    known = {view.name: view.type for view in (*inputs, *outputs)}
    asked = {ref.port for expression in expressions for ref in references(expression)}
    if any(known.get(name) is None for name in asked):
        return {}
    types = {name: kind for name in asked if (kind := known[name]) is not None}
    said = f"derive of {args['port']!r} by scale '{args['scale']}'"
    said += f" and zero point '{args['zero_point']}'" if args.get("zero_point") else ""
    try:
        scale, zero_point = (evaluate(expression, _lookup(types)) for expression in expressions)
    except RuleError as error:
        raise RuleError(f"{said}: {error.message}") from error
    if not all(-GREATEST <= number <= GREATEST for number in (scale, zero_point)):
        raise RuleError(f"{said}: scale or zero point is beyond a double")
    return {
        view.id: _type(store, float(scale), round(zero_point), said)
        for view, store in _stored(inputs, outputs, args["port"])
    }


def _lookup(types: Mapping[str, Uniform]) -> Callable[[Ref], Fraction]:
    def look(ref: Ref) -> Fraction:
        kind = types[ref.port]
        if not kind.is_per_tensor:
            raise RuleError(f"{ref} of the type {kind}, which is not per tensor")
        parameters: dict[str, float] = {
            "scale": kind.scale,
            "zero_point": kind.zero_point,
            "qmin": kind.storage.qmin,
            "qmax": kind.storage.qmax,
        }
        if ref.attribute not in parameters or ref.index is not None:
            raise RuleError(f"{ref} is none of {', '.join(f'{ref.port}.{p}' for p in parameters)}")
        return Fraction(parameters[ref.attribute])

    return look


def requires(inputs: Views, outputs: Views, args: Args) -> Mapping[PortId, Uniform]:
    """Require a condition of the ports' scales and zero points. Decides nothing.

    A kernel whose types do not meet it once they are known leaves the row, as one does whose sums do not fit
    an accumulator (`propagation.parameters.fit`).

    Args:
      inputs, outputs: views of the kernel's present ports.
      args: `holds`, a condition: `max(a.scale, b.scale) >= 1/256`.
    """
    del inputs, outputs, args
    return {}


RULES: Final[Mapping[str, QuantFn]] = {
    "derive": derive,
    "fixed_scale": fixed_scale,
    "free_scale": free_scale,
    "multiplier_accumulator_scale": multiplier_accumulator_scale,
    "multiplier_scale": multiplier_scale,
    "requires": requires,
    "same_scale": same_scale,
    "same_storage": free_scale,  # storages are found before there are types (`storage_groups`)
}
"""The shorthands of docs/specification.md, section 4, by name; `fn` is `rule_function`'s."""


def in_storage(kind: Uniform, store: Storage) -> Uniform | None:
    """The same reals in another storage: signedness shifts the zero points, a narrow range keeps them.

    Returns:
      The type; None where a zero point does not fit the storage.
    """
    # (q + shift) - (z + shift) is q - z: the reals stay, whatever the sign of the storage.
    shift = store.offset - kind.storage.offset
    zeros = tuple(zero_point + shift for zero_point in kind.zero_points)
    if any(not store.qmin <= zero_point <= store.qmax for zero_point in zeros):
        return None
    return Uniform(store, kind.scales, zeros, kind.expressed, kind.axis, kind.blocks, kind.grid)


def _named(inputs: Views, outputs: Views, name: str) -> list[PortView]:
    return [view for view in (*inputs, *outputs) if view.name == name]


def _stored(inputs: Views, outputs: Views, name: str) -> Iterator[tuple[PortView, Storage]]:
    """Ports of that name that hold integers."""
    for view in _named(inputs, outputs, name):
        if isinstance(view.spec.storage, Storage):
            yield view, view.spec.storage


def _factors(inputs: Views, outputs: Views, names: tuple[str, ...]) -> list[Uniform | None]:
    found = [_named(inputs, outputs, name) for name in names]
    return [views[0].type if views else None for views in found]


def _product(factors: list[Uniform | None]) -> tuple[np.ndarray, bool] | None:
    """Products of scales in float64, one or per slice, and whether they are per axis."""
    product = np.ones(1)
    slices: set[int] = set()
    for kind in factors:
        if kind is None:
            return None
        if kind.blocks:
            raise RuleError(f"a product of scales with the per-block type {str(kind)[:80]} is no bias type")
        slices |= {len(kind.scales)} if kind.axis is not None else set()
        if len(slices) > 1:
            counts = " and ".join(str(count) for count in sorted(slices))
            raise RuleError(f"two factors are per axis along different axes: {counts} scales")
        # In float64, where two float32 factors are exact, and rounded once when the type is built.
        product = product * np.asarray(kind.scales)
    return product, bool(slices)


def _type(store: Storage, scale: float, zero_point: int, what: str) -> Uniform:
    try:
        return Uniform(store, round_scales([scale], "f32"), (zero_point,))
    except QTypeError as error:
        raise RuleError(f"{what}: {error.message}") from error


@lru_cache(maxsize=1024)
def _number(value: float | str) -> Fraction:
    return parse_number(value)


def expand_ports(patterns: tuple[PortPattern, ...], names: tuple[str, ...]) -> tuple[PortPattern, ...] | None:
    """Match a side of a signature to actual ports.

    Args:
      patterns: the row's `inputs` or `outputs`.
      names: value names of the kernel's ports on that side, "" for an absent one.

    Returns:
      The pattern of each port, as many as `names` (an absent one has its optional pattern); None where
      the row takes other ports: too many or too few, or a required one absent.
    """
    tail = patterns[-1] if patterns and patterns[-1].variadic else None
    fixed = patterns[:-1] if tail else patterns
    if len(names) > len(fixed) and tail is None:
        return None
    matched = (*fixed[: len(names)], *([tail] * (len(names) - len(fixed)) if tail else ()))
    for pattern, name in zip(matched, names, strict=True):
        if not name and not pattern.optional and not pattern.variadic:
            return None
    if any(not pattern.optional for pattern in fixed[len(names) :]):
        return None
    return matched


def port_ids(row: Row, n_in: int, n_out: int) -> Mapping[str, tuple[PortId, ...]]:
    """Ids of the ports that each of the row's names stands for, variadic tails spread out."""
    return dict(_ids("in", row.inputs, n_in)) | dict(_ids("out", row.outputs, n_out))


def _ids(
    side: Any, patterns: tuple[PortPattern, ...], count: int
) -> Iterator[tuple[str, tuple[PortId, ...]]]:
    for i, pattern in enumerate(patterns):
        last = count if pattern.variadic else min(i + 1, count)
        yield pattern.name, tuple((side, k) for k in range(i, last))


def same_scale_groups(row: Row, n_in: int, n_out: int) -> tuple[tuple[PortId, ...], ...]:
    """Ports that the row's same_scale rules join, for a kernel with `n_in` inputs and `n_out` outputs.

    Groups are disjoint (rules that share a port are one group), of two ports or more, inputs first.
    """
    return _groups(row, n_in, n_out, ("same_scale",))


def storage_groups(row: Row, n_in: int, n_out: int) -> tuple[tuple[PortId, ...], ...]:
    """Ports that have one storage, by same_scale or by same_storage, likewise."""
    return _groups(row, n_in, n_out, ("same_scale", "same_storage"))


def named_storages(rows: Mapping[str, tuple[Row, ...]], default: PortType) -> Storages:
    """Bits, sign and float of the storages that activations have, as results name them; None: any.

    A device has any where a kernel that computes may give any: what only moves data gives what it reads.
    Other storages of operands (weights of 4 bits, sums) never hold data between kernels.
    """
    named = {default.storage}
    for row in itertools.chain.from_iterable(rows.values()):
        ports = (*row.inputs, *row.outputs)
        groups = same_scale_groups(row, len(row.inputs), len(row.outputs))
        if any(port.type.storage is None for port in row.outputs) and [len(g) for g in groups] != [
            len(ports)
        ]:
            return None
        named |= {port.type.storage for port in row.outputs}
    return frozenset(
        (store.bits, store.signed, store.float_name) for store in named if isinstance(store, Storage)
    )


def _groups(row: Row, n_in: int, n_out: int, kinds: tuple[str, ...]) -> tuple[tuple[PortId, ...], ...]:
    ids = port_ids(row, n_in, n_out)
    groups: list[set[PortId]] = []
    for rule in row.rules:
        if rule.kind not in kinds:
            continue
        joined = {port for name in rule.args["ports"] for port in ids.get(name, ())}
        for group in [group for group in groups if group & joined]:
            joined |= group
            groups.remove(group)
        groups.append(joined)
    return tuple(sorted(tuple(sorted(group)) for group in groups if len(group) > 1))
