"""Edits: changed constraints on values and ports, in the words of an annotations file.

Source: design 09, "Annotations".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from planner.calibration.annotate import annotate
from planner.calibration.annotations import FORMAT
from planner.ir.graph import Graph

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
    """Values whose facts differ, and all values at kernels whose ports' facts do."""
    found = {
        name
        for name, value in after.values.items()
        if value is not before.values[name] and value.facts != before.values[name].facts
    }
    for old, new in zip(before.regions, after.regions, strict=True):
        if new is not old and (old.input_facts, old.output_facts) != (new.input_facts, new.output_facts):
            found.update(name for name in (*new.inputs, *new.outputs) if name)
    return frozenset(found)
