"""Border rows: the borders of loops and branches, which every target has without listing them.

Handing a value into a body, out of it, or from one of several branches moves data and computes nothing, so
one row each serves any storage with one scale at all ports, in the arithmetic of rows that name none.
Source: docs/specification.md, section 5; tests/cases, case 40.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final

from planner.ir.structure import BEGIN, END, JOIN
from planner.target.records import PortPattern, PortType, Row, Rule, Target


def _row(kernel: str, line: int, *, variadic: bool = False) -> Row:
    source = f"borders:{line}"
    rule = Rule("same_scale", {"ports": ("x", "y")}, source)
    x = PortPattern("x", PortType(), variadic=variadic)
    return Row(kernel, (x,), (PortPattern("y", PortType()),), (rule,), source=source)


_ROWS: Final[Mapping[str, tuple[Row, ...]]] = {
    BEGIN: (_row(BEGIN, 1),),
    END: (_row(END, 2),),
    JOIN: (_row(JOIN, 3, variadic=True),),
}


def rows_for(target: Target, kernel: str) -> tuple[Row, ...]:
    """The rows that may serve a kernel, in order of preference."""
    return target.rows.get(kernel, ()) or border_rows(target.requantize).get(kernel, ())


@cache
def border_rows(arithmetic: str) -> Mapping[str, tuple[Row, ...]]:
    """The rows of borders, by kernel, in an arithmetic."""
    return {
        kernel: tuple(replace(row, requantize=arithmetic) for row in rows) for kernel, rows in _ROWS.items()
    }
