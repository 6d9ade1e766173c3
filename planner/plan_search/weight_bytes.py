"""Weight bytes: of options of equal work, those whose weights take fewer bytes, within the bounds on noise.

The program looks for the least work, and a table in float is read as fast as one in bytes.
"""

from collections.abc import Container

from planner.plan_search.edges import Chosen
from planner.plan_search.forecast import Net, forecast
from planner.plan_search.options import Noise, Option, Table


def with_fewer_bytes(table: Table, net: Net, chosen: Chosen, bounds: Noise) -> Chosen:
    """Return the choice with options that store less, at no more work and the same storages around them.

    Args:
      bounds: noise at each part of the outputs, at most. A share that is beyond already stays as it is.
    """
    noise, found = forecast(table, net, chosen).noise, {**chosen}
    for name, at in cheaper_options(table, chosen):
        now, other = table.kernels[name][found.get(name, 0)], table.kernels[name][at]
        after = tuple(n - a + b for n, a, b in zip(noise, now.noise, other.noise, strict=True))
        is_less = other.weight_bits < now.weight_bits
        if is_less and all(n <= bound for n, bound in zip(after, bounds, strict=True)):
            noise, found[name] = after, at
    return found


def cheaper_options(table: Table, chosen: Chosen) -> list[tuple[str, int]]:
    """Return options (kernel, place) that save bytes of weights at no more work, the most first."""
    constants = table.base.graph.constants
    found: list[tuple[int, str, int]] = []
    for name, options in table.kernels.items():
        now = options[chosen.get(name, 0)]
        for at, other in enumerate(options):
            saved = now.weight_bits - other.weight_bits
            if saved > 0 and other.work <= now.work and _around(other, constants) == _around(now, constants):
                found.append((-saved, name, at))
    return [(name, at) for _, name, at in sorted(found)]


def _around(option: Option, constants: Container[str]) -> dict[str, str]:
    return {name: store for name, store in option.stores.items() if name not in constants}
