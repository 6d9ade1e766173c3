"""Greedy: kernels raised to one level one after another, those first that save most noise for their work.

Most tools do this; here it is where the program starts from, so that a proposal is never more expensive.
Source: docs/search.md.
"""

from collections.abc import Mapping

from planner.plan_search.edges import Chosen
from planner.plan_search.forecast import Forecast, Net, forecast
from planner.plan_search.options import Noise, Table


def raised(table: Table, level: str) -> Mapping[str, int]:
    """The option of a level, by kernels that have one."""
    return {
        name: at
        for name, options in table.kernels.items()
        for at, option in enumerate(options)
        if at and level in option.levels
    }


def greedy(table: Table, net: Net, bounds: Noise, *, weight_bits: float) -> tuple[Chosen, Forecast] | None:
    """The cheapest of the levels' greedy choices that keep within the bounds; None where none does.

    Args:
      bounds: noise at each part of the outputs, at most.
      weight_bits: mean bits of numbers in constants, at most.
    """
    found: list[tuple[float, str, Chosen, Forecast]] = []
    for level in table.levels:
        first = _first_within(table, net, raised(table, level), bounds, weight_bits)
        if first is not None:
            found.append((first[1].work, level, *first))
    best = min(found, key=lambda one: one[:2], default=None)
    return None if best is None else best[2:]


def _first_within(
    table: Table, net: Net, options: Mapping[str, int], bounds: Noise, weight_bits: float
) -> tuple[Chosen, Forecast] | None:
    """The fewest kernels in order that will do, by bisection."""
    order = sorted(options, key=lambda name: (-_worth(table, name, options[name], bounds), name))

    def told(count: int) -> tuple[Chosen, Forecast]:
        chosen = {name: options[name] for name in order[:count]}
        return chosen, forecast(table, net, chosen)

    def is_within(found: Forecast) -> bool:
        quiet = all(noise <= bound for noise, bound in zip(found.noise, bounds, strict=True))
        return quiet and found.weight_bits <= weight_bits

    low, high = 0, len(order)
    if not is_within(told(high)[1]):
        return None
    while low < high:
        middle = (low + high) // 2
        if is_within(told(middle)[1]):
            high = middle
        else:
            low = middle + 1
    return told(high)


def _worth(table: Table, name: str, at: int, bounds: Noise) -> float:
    """Noise saved, as a share of what is allowed, for the work that it takes."""
    before, after = table.kernels[name][0], table.kernels[name][at]
    saved = max(
        ((a - b) / bound for a, b, bound in zip(before.noise, after.noise, bounds, strict=True) if bound),
        default=0.0,
    )
    added = after.work - before.work
    return saved / added if added > 0 else saved * 1e300 if saved > 0 else 0.0
