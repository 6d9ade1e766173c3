"""Re-verify rows that a kernel left as one of its ports has no type in them.

A rule derives none from the types beside it, or a constant has numbers of both signs where the row's zero
point is an end of its storage. Source: docs/specification.md, section 4.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from planner.checker.kernel_ports import Served, parameter_problem
from planner.checker.rules import derived
from planner.checker.weights import ends_of, observed, usable
from planner.ir.types.qtypes import QType, Storage, Uniform
from planner.target.records import PortId, Rule

ONE_SIDED: Final = re.compile(r".*\.in\[(\d+)\] has no type: around zero point ")
DERIVED: Final = re.compile(r"derive of '([^']*)' by ")


def no_type(served: Served, why: str, seen: Mapping[PortId, QType]) -> bool | None:
    """Whether a row was left rightly for want of a type; None where it was left for something else.

    Args:
      served: the kernel beside that row.
      seen: types that are said of its ports.
    """
    one_sided, derives = ONE_SIDED.match(why), DERIVED.match(why)
    if one_sided is not None:
        return _has_both_signs(served, int(one_sided.group(1)))
    if derives is None:
        return None
    other = _at(served, seen)
    rules = [rule for rule in served.row.rules if rule.kind == "derive" and rule.args["port"] == derives[1]]
    return other is not None and any(_derives_none(other, rule) for rule in rules)


def _has_both_signs(served: Served, i: int) -> bool:
    """Whether a constant has numbers beyond the end of its storage that is its zero point."""
    if i >= len(served.kernel.inputs) or served.ports[i].value not in served.graph.constants:
        return False
    port, spec = served.ports[i], served.patterns[i].type
    if not isinstance(spec.storage, Storage):
        return False
    store, zero = usable(spec.storage, spec), spec.zero_point
    if zero is None and spec.granularity == "axis" and not store.signed:
        zero = 1 << store.bits - 1
    if zero not in (store.qmin, store.qmax):
        return False
    constant, range_ = served.numbers.get(port.value), observed(served, port)
    if range_ is not None:
        low, high = range_.lo, range_.hi
    elif constant is None:
        return True  # a plan beside no model: only the model could tell
    elif constant.array is None:
        low, high = min(constant.lo, default=0.0), max(constant.hi, default=0.0)
    else:
        ends = ends_of(constant, None)
        low, high = (0.0, 0.0) if ends is None else (float(ends[0][0]), float(ends[1][0]))
    return low < 0 if zero == store.qmin else high > 0


def _at(served: Served, seen: Mapping[PortId, QType]) -> Served | None:
    """The kernel with these types and no others; None where the row does not accept one."""
    ports, read = [], len(served.kernel.inputs)
    for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
        kind = seen.get(("in", i) if i < read else ("out", i - read))
        store = pattern.type.storage
        if not isinstance(kind, Uniform):
            ports.append(replace(port, type=None))
            continue
        if (isinstance(store, Storage) and kind.storage != store) or parameter_problem(kind, pattern.type):
            return None
        ports.append(replace(port, type=kind))
    return replace(served, ports=tuple(ports))


def _derives_none(served: Served, rule: Rule) -> bool:
    answer = derived(served, rule)
    if isinstance(answer, str):
        return True
    scale, zero = answer
    stores = [served.patterns[i].type.storage for i in served.reading.places[rule.args["port"]]]
    held = [isinstance(store, Storage) and store.qmin <= zero <= store.qmax for store in stores]
    return not (math.isfinite(scale) and all(held))
