"""Re-verify the rows that a kernel is said to have left: at the types that the log names they cannot be kept.

Sums beyond an accumulator, biases beyond their storage, multipliers beyond a range or beyond what integers
express, ports without a type, an engine that data do not come back to. Source: docs/specification.md,
sections 4 and 6.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.checker.figures.sums import needed_bits, partial_bits
from planner.checker.kernel_ports import Served, parameter_problem, refuse
from planner.checker.numbers import Extent, extent_of
from planner.checker.rows.merit import merit_of
from planner.checker.rows.no_type import no_type
from planner.checker.rows.predicates import breaks_requirement
from planner.checker.rows.reading import read_row
from planner.checker.weights import own_type
from planner.errors import PlannerError
from planner.ir.types.qtypes import QType, Storage, Uniform
from planner.ir.types.typetext import parse_type
from planner.plans.records import Port, is_unwritable
from planner.target.borders import rows_for
from planner.target.expressions import parse_number
from planner.target.records import Engines, Row, Target

UNIFORM: Final = r"!quant\.uniform<(?:[^<>]|<[^<>]*>)*>"
SEEN: Final = re.compile(rf"\b(in|out)\[(\d+)\] ({UNIFORM})")
CAME: Final = re.compile(rf"\bin\[(\d+)\] {UNIFORM}, from ({UNIFORM})")
BEHIND: Final = re.compile(r"it lies behind '.*', which runs on ([\w.-]+)")
PARTIAL: Final = re.compile(r"sums of (\d+) products need (\d+) bits")
SUMS: Final = re.compile(r"its sums need (\d+) bits")
MULTIPLIER: Final = re.compile(r"the multiplier of channel (\d+) is ")
NARROW: Final = 16
BEYOND: Final = 2.0**29
"""The least factor that no multiplier of 32 bits and a shift of 2 or more stands for."""
OWN: Final = re.compile(r"(\d+)-bit multiplier.*, shift (\d+)\.\.(\d+)(, else 0)?")
"""The arithmetic of a row with multipliers of its own."""


def check_left(
    served: Served, target: Target, left: Mapping[str, str], behind: int = 0, formats: Sequence[str] = ()
) -> None:
    """Every row that a kernel is said to have left is one of its own, fits it, and cannot be kept.

    Args:
      served: the kernel beside any row.
      left: as for `check_choice`.
      behind: number of the latest engine on the way to the kernel.
      formats: that the plan was made for; what they cannot write, their exporters know.
    """
    known = {row.key: row for row in rows_for(target, served.kernel.kernel)}
    for key, why in left.items():
        row = known.get(key)
        if row is None or merit_of(served, row, target.costs) is None:
            refuse(served.kernel.name, f"is said to have left {key!r}, which is no row that fits it")
        if is_unwritable(why, formats):
            continue
        if not (_comes_back(row, target.engines, why, behind) or _cannot_be_kept(served, row, why)):
            refuse(
                served.kernel.name,
                f"is said to have left {row.source} as {why!r}, which is not so; accepted: what holds of it",
                row,
            )


def _comes_back(row: Row, engines: Engines, why: str, behind: int) -> bool:
    """Whether a row was left as data would come back to its engine from the one that is said."""
    said = BEHIND.match(why)
    if said is None or not engines.one_way or said.group(1) not in engines.names:
        return False
    return engines.names.index(engines.of(row)) < engines.names.index(said.group(1)) <= behind


def _cannot_be_kept(served: Served, row: Row, why: str) -> bool:
    """Whether what is said of a row holds at the types that are said of its ports."""
    reading = read_row(row, served.region)
    if isinstance(reading, str):
        return False
    try:
        kinds = {(side, int(at)): parse_type(text) for side, at, text in SEEN.findall(why)}
    except PlannerError:
        return False
    served = replace(served, reading=reading)
    untyped = no_type(served, why, kinds)
    if untyped is not None:
        return untyped
    other = _at_types(served, kinds)
    if other is None:
        return False
    for i, port in enumerate(other.ports):
        # Constants as their numbers, or pins, have them, where no need of the kernel cut them.
        told = ("in", i) in kinds
        if (
            port.value in other.graph.constants
            and reading.patterns[i].name not in reading.biases
            and not told
        ):
            own = own_type(other, i)
            ports = (*other.ports[:i], replace(port, type=own), *other.ports[i + 1 :])
            other = replace(other, ports=ports)
    said = PARTIAL.match(why)
    if said is not None:
        return _partial_sums_are_too_long(other, int(said.group(1)), int(said.group(2)))
    said = SUMS.match(why)
    if said is not None:
        return _sums_are_too_long(other, int(said.group(1)))
    said = MULTIPLIER.match(why)
    if said is not None:
        return _multiplier_is_outside(other, int(said.group(1)))
    if why.startswith("requires "):
        return any(
            rule.kind == "requires" and breaks_requirement(other, rule.args["holds"]) for rule in row.rules
        )
    if why.startswith("channel "):
        return _bias_is_too_long(other)
    return _is_too_far(other) or _came_from_too_far(other, why)


def _at_types(served: Served, kinds: Mapping[tuple[str, int], QType]) -> Served | None:
    """The kernel with ports of these types, of a bias its storage alone; None where one is not the row's."""
    ports = []
    for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
        read = len(served.kernel.inputs)
        seen = kinds.get(("in", i) if i < read else ("out", i - read))
        kind, store = seen if isinstance(seen, Uniform) else None, pattern.type.storage
        if kind is not None and isinstance(store, Storage) and kind.storage != store:
            return None
        if kind is not None and parameter_problem(kind, pattern.type):
            return None
        told = not port.value or port.value in served.graph.constants or kind is not None
        if not told and isinstance(store, Storage) and pattern.type.granularity == "tensor":
            return None
        if pattern.name in served.reading.biases and isinstance(store, Storage) and port.value:
            kind = Uniform(store, (1.0,), (0,))
        ports.append(replace(port, type=kind))
    return replace(served, ports=tuple(ports))


def _sums_are_too_long(served: Served, claimed: int) -> bool:
    """Whether sums need the bits that are claimed, but for one that rounding decides, and have fewer."""
    extents: dict[int, Extent] = {}
    ports = tuple(_with_product(served, i) for i in range(len(served.ports)))
    served = replace(served, ports=ports)
    for i, port in enumerate(ports):
        if port.value in served.graph.constants and isinstance(port.type, Uniform):
            extent = extent_of(served, i, port.type, served.numbers[port.value])
            extents |= {} if extent is None else {i: extent}
    needed, room = needed_bits(served, extents), served.row.accumulator
    # Weights per block and sizes that are not known cannot be told again.
    return room is not None and claimed > room.bits and (needed is None or claimed <= needed + 1)


def _partial_sums_are_too_long(served: Served, products: int, claimed: int) -> bool:
    """Whether sums of so many products need the bits that are claimed, and their storage has fewer."""
    partial = served.row.partial
    if partial is None or partial.products != products or claimed <= partial.storage.bits:
        return False
    needed = partial_bits(served, products)
    return needed is None or claimed <= needed + 1


def _with_product(served: Served, i: int) -> Port:
    """A port, a bias with the product of its factors' scales."""
    port, pattern = served.ports[i], served.patterns[i]
    rule = next((r for r in served.row.rules if r.args.get("port") == pattern.name), None)
    if rule is None or not isinstance(port.type, Uniform) or pattern.name not in served.reading.biases:
        return port
    product = _product(served, rule.args["of"])
    if product is None:
        return port
    scales, zeros = tuple(product.astype(np.float32).astype(float).tolist()), (0,) * product.size
    return replace(port, type=Uniform(port.type.storage, scales, zeros, axis=0 if product.size > 1 else None))


def _product(served: Served, names: tuple[str, ...]) -> np.ndarray | None:
    """The product of the scales of ports, one or per channel; None where one has none or one per block."""
    product = np.ones(1)
    for name in names:
        for port in served.named(name):
            if not isinstance(port.type, Uniform) or port.type.blocks:
                return None
            product = product * np.asarray(port.type.scales)
    return product


def _multiplier_is_outside(served: Served, channel: int) -> bool:
    """Whether a range of the row leaves the multiplier of a channel out, but for rounding."""
    for rule in served.row.rules:
        made = [port.type for port in served.named(str(rule.args.get("out")))]
        if rule.kind != "multiplier_scale" or rule.args.get("range") is None or not made:
            continue
        product = _product(served, rule.args["of"])
        if product is None or not isinstance(made[0], Uniform):
            return True
        low, high = (float(parse_number(limit)) for limit in rule.args["range"])
        multipliers = product / np.asarray(made[0].scales)
        if channel < multipliers.size and not low * 1.001 < multipliers[channel] < high * 0.999:
            return True
    return False


def _bias_is_too_long(served: Served) -> bool:
    """Whether a bias has a channel beyond its storage."""
    for i, port in enumerate(served.ports):
        kind, numbers = _with_product(served, i).type, served.numbers.get(port.value)
        if served.patterns[i].name not in served.reading.biases or numbers is None or numbers.array is None:
            continue
        if isinstance(kind, Uniform) and numbers.array.size:
            steps = np.abs(numbers.array.reshape(-1).astype(np.float64)) / np.asarray(kind.scales)
            if steps.max() > kind.storage.qmax * 0.999:
                return True
    return False


def _came_from_too_far(served: Served, why: str) -> bool:
    """Whether a rescale in front of the kernel is beyond multiples of the port's type."""
    for at, text in CAME.findall(why):
        came, kind = parse_type(text), served.ports[int(at)].type
        if not (isinstance(came, Uniform) and isinstance(kind, Uniform)):
            continue
        if _is_off(served.row, max(came.scales) / min(kind.scales)):
            return True
    return False


def _is_off(row: Row, factor: float) -> bool:
    """Whether a factor is, but for rounding, beyond the multipliers of a row, or all of it shifted out."""
    own = OWN.fullmatch(row.requantize)
    if own is None:
        return factor >= BEYOND * 0.999
    bits, least, most = map(int, own.groups()[:3])
    shortest = 2.0 ** (bits - 2 - most if own[4] else -most)
    return factor >= 2.0 ** (bits - 1 - least) * 0.999 or factor < shortest * 1.001


def _is_too_far(served: Served) -> bool:
    """Whether the coarsest operand, or the product of those multiplied, is beyond multiples of the result."""
    rules = [rule for rule in served.row.rules if rule.kind == "multiplier_scale"]
    factors = {name for rule in rules for name in rule.args["of"]}
    coarsest, finest, product = 0.0, np.inf, 1.0 if factors else 0.0
    for i, port in enumerate(served.ports):
        kind = port.type
        if not isinstance(kind, Uniform) or kind.storage.bits > NARROW:
            continue
        if i >= len(served.kernel.inputs):
            finest = min(finest, *kind.scales)
        elif served.patterns[i].name in factors:
            product *= max(kind.scales)
        else:
            coarsest = max(coarsest, *kind.scales)
    return bool(finest < np.inf and _is_off(served.row, max(coarsest, product) / finest))
