"""Notebook: results as small HTML tables, which Jupyter shows in place of a repr (`_repr_html_`).

Names come from models, so every text is escaped. No style and no script: a notebook has its own.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

MOST: Final = 30
"""Rows of a table; the last line counts those left out."""


def html_of(title: str, *tables: str) -> str:
    """A line in bold, and tables below it."""
    return f"<div><p><b>{escape(title)}</b></p>{''.join(tables)}</div>"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table, or nothing where there are no rows; None is an empty cell."""
    cells = [["" if cell is None else escape(str(cell)) for cell in row] for row in rows]
    if not cells:
        return ""
    lines = [f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells[:MOST]]
    if len(cells) > MOST:
        lines.append(f'<tr><td colspan="{len(head)}">and {len(cells) - MOST} more</td></tr>')
    return f"<table>{''.join(lines)}</table>"
