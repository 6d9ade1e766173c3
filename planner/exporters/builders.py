"""Builders: what writes a planned model in each format; its bytes are made only where they have to be."""

from collections.abc import Callable, Mapping
from typing import Final

from planner.exporters.litert.write import build_litert
from planner.exporters.table import EXPORTERS
from planner.ir.graph import Graph
from planner.plans.plan import Plan

BUILDERS: Final[Mapping[str, Callable[[Graph, Plan], object]]] = {**EXPORTERS, "litert": build_litert}
