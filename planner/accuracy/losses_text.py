"""Losses text: losses as lines of text and as JSON data.

Source: docs/accuracy.md.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from planner.accuracy.losses import KernelLoss, Losses, OutputLoss, ValueLoss

KERNEL_HEAD: Final = ("kernel", "kind", "share", "alone", "weights", "rounding", "clip")
NAMED: Final = 6
VALUE_HEAD: Final = ("value", "SQNR", "drop", "kernel", "")


def decibels(sqnr: float) -> str:
    """`38.5 dB`, or `exact`."""
    return "exact" if sqnr == math.inf else f"{sqnr:.1f} dB"


def sentence(losses: Losses) -> str:
    """The loss, and the kernel where it begins."""
    judged = losses.outputs[0]
    head = f"{judged.label}: {decibels(judged.sqnr)}"
    if not losses.begins:
        return f"{head}; no kernel makes any noise there"
    worst = losses.kernels[0]
    where = f"the loss begins at {losses.begins}"
    return f"{head}; {where}, the worst is {worst.name} with {worst.share:.0%} of the noise"


def output_text(output: OutputLoss) -> str:
    """An output with what was measured and what the kernels add up to."""
    return f"{output.label}: {decibels(output.sqnr)}, the kernels add up to {decibels(output.predicted)}"


def kernel_row(kernel: KernelLoss) -> tuple[str, ...]:
    """A row below `KERNEL_HEAD`; parts are shares of the kernel's own noise."""
    parts = kernel.parts
    whole = 0.0 if parts is None else parts.weights + parts.rounding + parts.clip
    shares = ("", "", "")
    if parts is not None and whole:
        shares = (
            f"{parts.weights / whole:.0%}",
            f"{parts.rounding / whole:.0%}",
            f"{parts.clip / whole:.0%}",
        )
    return kernel.name, kernel.kernel, f"{kernel.share:.1%}", decibels(kernel.sqnr), *shares


def worst_values(losses: Losses, limit: int) -> tuple[ValueLoss, ...]:
    """Values that are worse than what their kernels read, the widest drop first."""
    dropped = [value for value in losses.values if value.drop > 0]
    return tuple(sorted(dropped, key=lambda value: -value.drop)[:limit])


def value_row(value: ValueLoss) -> tuple[str, ...]:
    """A row below `VALUE_HEAD`."""
    mark = "in float: its operand lost it" if value.shows else ""
    return value.value, decibels(value.sqnr), f"{value.drop:.1f} dB", value.kernel, mark


def remedy_lines(losses: Losses) -> tuple[str, ...]:
    """The most effective remedies, a line each."""
    return tuple(
        f"{_listed(one.names)}: {one.what} gives {decibels(one.sqnr)}: {one.how}" for one in losses.remedies
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def losses_json(losses: Losses) -> dict[str, Any]:
    """Everything, as JSON data, which has no word for infinity: null, and `exact` says of an output which."""
    found = asdict(losses)
    for output, told in zip(losses.outputs, found["outputs"], strict=True):
        told |= {"label": output.label, "exact": output.sqnr == math.inf}
    document: dict[str, Any] = _plain(found)
    return {"format": "qplan.losses/1", "judged": losses.outputs[0].label, **document}


def _plain(item: Any) -> Any:
    if isinstance(item, float) and not math.isfinite(item):
        return None
    if isinstance(item, Mapping):
        return {name: _plain(value) for name, value in item.items()}
    return [_plain(value) for value in item] if isinstance(item, list | tuple) else item
