"""Re-verify the choice of a row independently: no other row that fits a kernel is to be preferred.

Most pins met, then first in the file. Needs the target and the model's numbers. Source: design 01, section 4.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.checker.kernel_ports import (
    Served,
    axis_of,
    holds_signs,
    linear_op,
    own_facts,
    parameter_problem,
    refuse,
)
from planner.checker.pins import bearable
from planner.checker.predicates import broken_predicate
from planner.checker.row_reading import read_row
from planner.ir.graph import Constant
from planner.ir.types.qtypes import AnyType, Bipolar, FloatType, NoneType, QType, Storage, Uniform
from planner.target.borders import rows_for
from planner.target.records import PortPattern, Row, Target


def check_choice(served: Served, target: Target, binding: frozenset[str]) -> None:
    """No other row of the target that fits meets more pins, or as many and stands earlier.

    Args:
      binding: values with facts that a port can break.
    """
    rows = rows_for(target, served.kernel.kernel)
    region = served.region
    free = not region.input_facts and not region.output_facts
    free = free and binding.isdisjoint(port.value for port in served.ports)
    # Without facts no row meets a pin, so the first that fits wins, and the first of all needs no search.
    if not rows or (rows[0] == served.row and free):
        return
    best: tuple[int, Row] | None = None
    for row in rows:
        met = _pins_met(served, row)
        # Strictly more: at equal counts the earlier row stays, which makes the order of the file a tie break.
        if met is not None and (best is None or met > best[0]):
            best = met, row
    if best is not None and best[1] != served.row:
        why = f"fits and meets {best[0]} pins" if best[0] else "fits and comes first"
        refuse(
            served.kernel.name,
            f"is served by {served.row.source}, {best[1].source} {why}; accepted: {best[1].key}",
            served.row,
        )


def _pins_met(served: Served, row: Row) -> int | None:
    """The number of pins whose storage is the row's at their port; None where the row does not fit."""
    region = served.region
    reading = read_row(row, region)
    if isinstance(reading, str):
        return None
    other = replace(served, reading=reading)
    met = 0
    for pattern, fact, constant, own, name in _facts(other):
        store = FloatType(row.float) if row.float else pattern.type.storage
        met += isinstance(fact, Uniform) and (store is None or fact.storage == store)
        met += isinstance(fact, FloatType) and fact == store
        follows = pattern.name in reading.biases
        numbers = served.numbers.get(name, Constant()) if constant else None
        if not isinstance(store, FloatType) and not _bears(pattern, fact, numbers, own=own, follows=follows):
            return None
    if any(_cannot_be_cut(other, i) for i in range(len(region.inputs))):
        return None
    return None if broken_predicate(other) else met


def _cannot_be_cut(served: Served, position: int) -> bool:
    """Whether no block of a port's type divides the summed dimension of a free constant."""
    port, pattern = served.ports[position], served.patterns[position]
    shape = served.graph.values[port.value].shape if port.value else None
    if pattern.type.granularity != "block" or port.value not in served.graph.constants or served.pinned(port):
        return False
    if shape is None or len(shape) < 2:
        return True
    channel = axis_of(served, port, pattern) or 0
    op = linear_op(served.region)
    # The two axes of a product: one counts output channels, the other is summed and cut into blocks.
    pair = (len(shape) - 2, len(shape) - 1) if op is not None and op.type == "MatMul" else (0, 1)
    size = shape[pair[0] if channel == pair[1] else pair[1]]
    return not isinstance(size, int) or all(size % block for block in pattern.type.block_size)


def _facts(served: Served) -> Iterator[tuple[PortPattern, QType, bool, bool, str]]:
    """Each fact at a port, whether the port is a constant, whether the fact is the port's own; the value.

    A pin of a port has the say over the one of the constant there.
    """
    for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
        if port.value:
            constant = port.value in served.graph.constants
            own = own_facts(served.region, i)
            pinned = constant and any(isinstance(fact, Uniform) for fact in own)
            for fact in own if pinned else (*served.graph.values[port.value].facts, *own):
                yield pattern, fact, constant, fact in own, port.value


def _bears(pattern: PortPattern, fact: QType, numbers: Constant | None, *, own: bool, follows: bool) -> bool:
    """Whether a port of this sort can have that fact; facts that a rescale can meet count as met.

    Args:
      numbers: of a constant.
      follows: whether the port takes its scales from its factors, as a bias does.
    """
    spec, store, constant = pattern.type, pattern.type.storage, numbers is not None
    if isinstance(fact, NoneType | FloatType):
        # An activation can be dequantized in front of the port; a constant, or the port itself, cannot.
        return not (constant or own)
    if isinstance(fact, AnyType):
        return not isinstance(store, Storage) or store.range_bits >= fact.bits
    if isinstance(fact, Bipolar) and constant:
        return holds_signs(spec) and not follows
    if not isinstance(fact, Uniform) or not constant:
        return True
    kind = bearable(fact, spec, numbers) if numbers is not None and not follows else fact
    if kind is None or (isinstance(store, Storage) and kind.storage != store):
        return False
    if parameter_problem(kind, spec):
        return False
    if follows:
        return True
    if spec.granularity == "tensor":
        return fact.is_per_tensor
    return bool(fact.blocks) == (spec.granularity == "block")
