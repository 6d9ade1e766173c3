"""Lint of rows laid over a base: what the author limits and the base takes all the same.

A check of `lint.CHECKS`; it yields `file:line` and a message.
"""

from planner.target.lint.rows import Found
from planner.target.records import Row, Target


def limit_without_effect(target: Target) -> Found:
    """L043: a row with `when` in front of an inherited one of its storages without, which takes the rest."""
    for rows in target.rows.values():
        for i, row in enumerate(rows):
            if not row.when or _file(row) != target.file:
                continue
            wide = next((other for other in rows[i + 1 :] if _takes_the_rest(other, row)), None)
            if wide is not None:
                message = (
                    f"what `when` of this row of {row.kernel} refuses, {wide.source} takes, which is "
                    "inherited: remove that, or give it this signature"
                )
                yield row.source, message


def _takes_the_rest(inherited: Row, row: Row) -> bool:
    return not inherited.when and _file(inherited) != _file(row) and _storages(inherited) == _storages(row)


def _storages(row: Row) -> list[tuple[str, bool]]:
    return [(str(port.type.storage), port.variadic) for port in (*row.inputs, *row.outputs)]


def _file(row: Row) -> str:
    return row.source.rpartition(":")[0]
