"""Edits: changed constraints on values and ports, in the words of an annotations file.

Source: docs/library.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from planner.calibration.annotate import annotate
from planner.calibration.annotations import FORMAT
from planner.ir.graph import Facts, Graph
from planner.ir.types.qtypes import Uniform

Edits: TypeAlias = Mapping[str, Any] | str | Path
"""`{"values": {name: type}, "ports": {address: type}, "remove": [name, ...]}`, or a file of annotations."""


def edited(graph: Graph, edits: Edits) -> Graph:
    """The graph with its facts changed; `format` may be left out of a mapping.

    Raises:
      AnnotationError: a name, port or type that is none here.
    """
    document = {"format": FORMAT, **edits} if isinstance(edits, Mapping) else edits
    return annotate(graph, annotations=document)


def changed_facts(before: Graph, after: Graph) -> frozenset[str]:
    """Values whose facts differ, in the digits of a scale even, and all at kernels whose ports' facts do."""
    found = {
        name
        for name, value in after.values.items()
        if value is not before.values[name] and _differ(value.facts, before.values[name].facts)
    }
    for old, new in zip(before.regions, after.regions, strict=True):
        sides = ((new.input_facts, old.input_facts), (new.output_facts, old.output_facts))
        if new is not old and any(len(now) != len(was) or any(map(_differ, now, was)) for now, was in sides):
            found.update(name for name in (*new.inputs, *new.outputs) if name)
    return frozenset(found)


def _differ(now: Facts, was: Facts) -> bool:
    """Whether facts differ; digits of scales that are one float32 do, since they are written again."""
    return now != was or any(
        isinstance(a, Uniform) and isinstance(b, Uniform) and a.written != b.written
        for a, b in zip(now, was, strict=True)
    )
