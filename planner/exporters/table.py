"""Table: the formats a plan can be written in, by their names on the command line."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from planner.exporters.qdq import write_qdq
from planner.exporters.qoperator import write_qoperator
from planner.ir.graph import Graph
from planner.plans.plan import Plan

Exporter: TypeAlias = Callable[[Graph, Plan], bytes]

EXPORTERS: Final[Mapping[str, Exporter]] = {
    "onnx-qdq": write_qdq,
    "onnx-qoperator": write_qoperator,
}
