"""Losses in a report: the outputs, the noise of each kernel alone, where it gets worse, what would help.

Words and figures are `accuracy.losses_text`'s. Source: docs/accuracy.md.
"""

from typing import Final

from planner.accuracy.losses import Losses
from planner.accuracy.losses_text import (
    KERNEL_HEAD,
    VALUE_HEAD,
    decibels,
    kernel_row,
    remedy_lines,
    sentence,
    value_row,
    worst_values,
)
from planner.errors import quantity
from planner.report.markup import Markup, element, join, table
from planner.report.plan_charts import losses_chart

ROWS: Final = 50
"""Rows of each table, worst first; `qplan losses --json` has all."""


def losses_part(losses: Losses) -> Markup:
    """The body of the section."""
    outputs: list[tuple[object, ...]] = [
        (one.label, decibels(one.sqnr), decibels(one.predicted)) for one in losses.outputs
    ]
    helps = [element("li", line) for line in remedy_lines(losses)]
    return join(
        element("p", f"{sentence(losses)}."),
        losses_chart(losses),
        table(("output", "SQNR", "kernels added up"), outputs),
        element("h3", f"Noise of each kernel alone ({quantity(losses.samples, 'sample')})"),
        table(KERNEL_HEAD, list(map(kernel_row, losses.kernels[:ROWS]))),
        element("h3", "Where the whole program gets worse"),
        table(VALUE_HEAD, list(map(value_row, worst_values(losses, ROWS)))),
        *((element("h3", "Most effective remedies, predicted"), element("ul", *helps)) if helps else ()),
    )
