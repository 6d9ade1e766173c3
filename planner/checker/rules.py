"""Re-verify rules independently: the types of a kernel's ports obey the rules of its row.

Propagation computes types from rules; this only judges types that are there. `fn` rules are code that no
plan carries, so they are not judged. Source: docs/specification.md, section 4.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from planner.checker.kernel_ports import NEAR, Served, refuse
from planner.checker.moves import check_slices
from planner.checker.rows.predicates import broken_requirement
from planner.errors import PlannerError, RuleError
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.scales import F32_TINY
from planner.ir.types.typetext import brief
from planner.target.expressions import Ref, evaluate, parse_expression, parse_number
from planner.target.records import Rule

SMALL: Final = 1e-9
LARGE: Final = 1e9


def check_rules(served: Served) -> None:
    """Judge every rule of the row, then the classes that its same_scale rules make together."""
    for group in served.groups:
        _check_class(served, group)
    for rule in served.row.rules:
        judge = JUDGES.get(rule.kind)
        if judge is None:
            address = served.kernel.name
            refuse(address, f"rule {rule.kind!r} is unknown; accepted: {', '.join(JUDGES)}", served.row)
        judge(served, rule)


def _check_class(served: Served, group: tuple[int, ...]) -> None:
    """One scale and zero point, exactly; unsigned storage shifts the zero point by half its values."""
    typed = [(served.ports[i], kind) for i in group if isinstance(kind := served.ports[i].type, Uniform)]
    if all(kind.is_per_tensor and one_class(typed[0][1], kind) for _, kind in typed):
        return
    if any(not kind.is_per_tensor for _, kind in typed) and check_slices(served, group):
        return
    # Most members are right: the odd one is named, not the first that differs from the first.
    friends = [sum(one_class(kind, other) for _, other in typed) for _, kind in typed]
    leader, first = typed[friends.index(max(friends))]
    for port, kind in typed:
        if not one_class(first, kind):
            refuse(
                port.address,
                f"is {brief(kind)}, same_scale of {served.row.source} joins it to {leader.address} of "
                f"{brief(first)}; accepted: the same scale and zero point",
                served.row,
            )


def one_class(a: Uniform, b: Uniform) -> bool:
    """Whether two types have the same scales and, signedness apart, the same zero points."""
    if a is b:
        return True
    # u8 around 128 and i8 around 0 are the same reals: both count from the middle of their range.
    shift = _middle(b.storage) - _middle(a.storage)
    return (
        a.scales == b.scales
        and tuple(zero + shift for zero in a.zero_points) == b.zero_points
        and a.axis == b.axis
        and a.blocks == b.blocks
    )


def _middle(store: Storage) -> int:
    return 0 if store.signed or store.float_name else 1 << store.bits - 1


def _same_scale(served: Served, rule: Rule) -> None:
    """Judge nothing: classes are judged as a whole, as rules that overlap are one."""
    del served, rule


def _free(served: Served, rule: Rule) -> None:
    """Judge nothing: free scales, or code that the plan does not carry."""
    del served, rule


def _fixed_scale(served: Served, rule: Rule) -> None:
    scale, zero = _fixed(rule.args["scale"]), int(rule.args.get("zero_point", 0))
    for port in served.named(rule.args["port"]):
        kind = port.type
        if isinstance(kind, Uniform) and (kind.scales != (scale,) or kind.zero_points != (zero,)):
            refuse(
                port.address,
                f"is {brief(kind)}, fixed_scale at {rule.source} accepts "
                f"scale {scale!r} and zero point {zero}",
                served.row,
            )


@lru_cache(maxsize=1024)
def _fixed(number: float | str) -> float:
    return float(np.float32(float(parse_number(number))))


def _multiplier_accumulator(served: Served, rule: Rule) -> None:
    ports = served.named(rule.args["port"])
    factors = _factors(served, rule) if ports else None
    if factors is None:
        return
    product, axis = factors
    for port in ports:
        kind = port.type
        if not isinstance(kind, Uniform):
            continue
        problem = _bias_problem(kind, product, axis=axis)
        if problem:
            names = " x ".join(rule.args["of"])
            refuse(
                port.address,
                f"is {brief(kind)}, {problem}; multiplier_accumulator_scale at {rule.source} accepts the "
                f"product {names} with zero point 0",
                served.row,
            )


def _bias_problem(kind: Uniform, product: np.ndarray, *, axis: bool) -> str | None:
    if any(kind.zero_points):
        return f"its zero point is {next(filter(None, kind.zero_points))}"
    if len(kind.scales) != product.size or (kind.axis == 0) != axis or kind.blocks:
        wanted = f"{product.size} scales along axis 0" if axis else "one scale"
        return f"the product has {wanted}"
    # A product of tiny scales may be subnormal, which many kernels flush to zero.
    wanted = np.maximum(product, F32_TINY)
    scales = np.asarray(kind.scales)
    off = np.abs(scales - wanted) > NEAR * wanted
    if off.any():
        i = int(off.argmax())
        return f"scale {i} is {kind.scales[i]!r}, the product {float(wanted[i])!r}"
    return None


def _factors(served: Served, rule: Rule) -> tuple[np.ndarray, bool] | None:
    """Product of the factors' scales and whether one is per axis; None where a factor is float or absent."""
    product, axis = np.ones(1), False
    for name in rule.args["of"]:
        found = served.named(name)
        kind = found[0].type if found else None
        if not isinstance(kind, Uniform):
            return None
        if kind.blocks or (axis and kind.axis is not None and len(kind.scales) != product.size):
            refuse(found[0].address, f"is {brief(kind)}, which makes no product of scales", served.row)
        axis = axis or kind.axis is not None
        product = product * np.asarray(kind.scales)
    return product, axis


def _is_ordinary(served: Served, rule: Rule, result: Uniform) -> bool:
    """Whether scales are of a common size, at most one per axis: every multiplier is finite and positive."""
    sliced = 0
    for name in (*rule.args["of"], rule.args["out"]):
        for port in served.named(name):
            kind = port.type
            if not isinstance(kind, Uniform) or kind.blocks:
                return False
            scales = kind.scales
            if len(scales) > 1:
                sliced += 1
                scales = min(scales), max(scales)
            if scales[0] <= SMALL or scales[-1] >= LARGE:
                return False
    return sliced < 2 and len(result.scales) == 1


def _multiplier(served: Served, rule: Rule) -> None:
    limits = rule.args.get("range")
    results = served.named(rule.args["out"])
    if not results or not isinstance(results[0].type, Uniform):
        return
    kind = results[0].type
    # Within 1e-9 to 1e9 no multiplier overflows or vanishes in float64: the common case needs no arrays.
    if limits is None and _is_ordinary(served, rule, kind):
        return
    factors = _factors(served, rule)
    if factors is None:
        return
    scales = np.asarray(kind.scales)
    if 1 < scales.size != factors[0].size > 1:
        refuse(
            results[0].address, f"is {brief(kind)}, its factors have {factors[0].size} channels", served.row
        )
    low, high = (0.0, math.inf) if limits is None else tuple(float(parse_number(limit)) for limit in limits)
    multipliers = factors[0] / scales
    # Negated as a whole so that NaN, which fails every comparison, is refused.
    off = np.flatnonzero(~((multipliers > 0) & (multipliers >= low) & (multipliers <= high)))
    if off.size or not np.all(np.isfinite(multipliers)):
        channel = int(off[0]) if off.size else 0
        refuse(
            results[0].address,
            f"is {brief(kind)}, so channel {channel} is multiplied by {float(multipliers[channel])!r}; "
            f"multiplier_scale at {rule.source} accepts {low!r} to {high!r}",
            served.row,
        )


def derived(served: Served, rule: Rule) -> tuple[float, int] | str:
    """Scale and zero point that a `derive` rule makes of the types of the kernel's ports; else why it cannot.

    Scales are float32 in every export: infinity is beyond it, and what is less than its least is that.
    """
    types: dict[str, Uniform] = {}
    for port, entry in zip(served.ports, served.patterns, strict=True):
        if isinstance(port.type, Uniform):
            types[entry.name] = port.type

    def look(ref: Ref) -> Fraction:
        kind = types[ref.port]
        if not kind.is_per_tensor or ref.index is not None:
            raise RuleError(f"{ref} of {brief(kind)}")
        known = {
            "scale": kind.scale,
            "zero_point": kind.zero_point,
            "qmin": kind.storage.qmin,
            "qmax": kind.storage.qmax,
        }
        # Exact rationals, so that rounding happens once, at the end.
        return Fraction(known[ref.attribute])

    try:
        scale = float(evaluate(parse_expression(str(rule.args["scale"])), look))
        zero = round(evaluate(parse_expression(str(rule.args.get("zero_point", 0))), look))
    except (PlannerError, KeyError, OverflowError) as error:
        return str(error)
    if not scale > 0:
        return f"scale {scale!r}"
    with np.errstate(over="ignore"):
        return max(float(np.float32(scale)), F32_TINY), zero


def _derive(served: Served, rule: Rule) -> None:
    for port in served.named(rule.args["port"]):
        kind = port.type
        if not isinstance(kind, Uniform):
            continue
        answer = derived(served, rule)
        if isinstance(answer, str):
            refuse(
                port.address, f"is {brief(kind)}, derive at {rule.source} has no answer: {answer}", served.row
            )
        scale, zero = answer
        near = kind.is_per_tensor and math.isclose(kind.scale, scale, rel_tol=NEAR)
        if not near or kind.zero_points != (zero,):
            refuse(
                port.address,
                f"is {brief(kind)}, derive at {rule.source} accepts scale {scale!r} and zero point {zero}",
                served.row,
            )


def _requires(served: Served, rule: Rule) -> None:
    broken = broken_requirement(served, rule.args["holds"])
    if broken:
        refuse(served.kernel.name, f"requires at {rule.source} accepts {broken}", served.row)


JUDGES: Final[Mapping[str, Callable[[Served, Rule], None]]] = {
    "derive": _derive,
    "fixed_scale": _fixed_scale,
    "fn": _free,
    "free_scale": _free,
    "multiplier_accumulator_scale": _multiplier_accumulator,
    "multiplier_scale": _multiplier,
    "requires": _requires,
    "same_scale": _same_scale,
    "same_storage": _free,
}
"""The judge of each kind of rule."""
