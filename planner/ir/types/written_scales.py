"""Scales of a model as its texts gave them: `0.05`, where a plan computes with the float32 nearest to it.

Tools that read our texts compare scales as doubles, so a scale that the user wrote comes out with his digits
wherever it stands: at ports, rescales and casts. Nothing is computed with them here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from planner.ir.graph import Graph, once_per_graph
from planner.ir.types.qtypes import QType, Uniform, float_text

_UNIFORM: Final = re.compile(r"!quant\.uniform<\w+(?:<[^<>]*+>)?:f32[^<>]*+>")
_REAL: Final = re.compile(r"[0-9]++\.[0-9]++(?:e[-+]?[0-9]++)?")


@dataclass(frozen=True, slots=True)
class WrittenScales:
    """Scales as texts gave them, by expressed type and by the value of it that they are rounded to."""

    known: Mapping[tuple[str, float], float]

    def of(self, kind: Uniform) -> Uniform:
        """The type with the digits that its scales were written with."""
        if not self.known or kind.written:
            return kind
        found = tuple([self.known.get((kind.expressed, scale), scale) for scale in kind.scales])
        return kind if found == kind.scales else replace(kind, written=found)

    def in_text(self, text: str) -> str:
        """The text of a module with these digits in all its uniform types that express f32."""
        texts = {
            float_text(scale): float_text(real) for (kind, scale), real in self.known.items() if kind == "f32"
        }
        if not texts:
            return text
        return _UNIFORM.sub(lambda kind: _REAL.sub(lambda real: texts.get(real[0], real[0]), kind[0]), text)


@once_per_graph
def written_scales(graph: Graph) -> WrittenScales:
    """The scales in the facts of a model; of two texts of one float32 the shorter one."""
    known: dict[tuple[str, float], float] = {}
    for fact in _facts(graph):
        if isinstance(fact, Uniform) and fact.written:
            for scale, text in zip(fact.scales, fact.written, strict=True):
                key = (fact.expressed, scale)
                known[key] = min(known.get(key, text), text, key=lambda real: (len(float_text(real)), real))
    return WrittenScales(known)


def _facts(graph: Graph) -> Iterable[QType]:
    for body in (graph, *graph.functions.values()):
        for value in body.values.values():
            yield from value.facts
        for region in body.regions:
            for facts in (*region.input_facts, *region.output_facts):
                yield from facts
