"""Parts: types whose numbers are some of another type's, stored in fewer bits or in a part of its range."""

from dataclasses import replace

from planner.ir.types.qtypes import Uniform


def cut_to(kind: Uniform, pinned: Uniform) -> Uniform | None:
    """A type with the integers alone that stand for a pin's numbers; None where it has not all of them."""
    store, pin = kind.storage, pinned.storage
    plain = kind.is_per_tensor and pinned.is_per_tensor and not (store.float_name or pin.float_name)
    same = plain and (kind.scale, kind.expressed) == (pinned.scale, pinned.expressed)
    if not same or pin.bits >= store.bits:
        return None
    shift = kind.zero_point - pinned.zero_point
    low, high = pin.qmin + shift, pin.qmax + shift
    if low < store.qmin or high > store.qmax:
        return None
    return replace(kind, storage=replace(store, qmin=low, qmax=high))
