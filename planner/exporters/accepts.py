"""Accepts: what the plain ONNX formats can say, checked port by port before anything is written.

Source: ONNX QuantizeLinear and DequantizeLinear, opset 21, as onnxruntime runs them on the CPU.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from planner.errors import UnsupportedExport
from planner.ir.graph import BOUNDARY, Graph, port_address
from planner.ir.qtypes import FloatType, Uniform
from planner.plans.plan import Plan
from planner.plans.records import PortTyped
from planner.plans.rescales import pins

ACTIVATIONS: Final = "i8, u8, i16 or u16 (a narrower range such as i8<-8:7> too) per tensor or per axis"
CONSTANTS: Final = "i1..i16, u1..u16, or i32 and i64 with zero point 0, per tensor or per axis"


def refuse_unsupported(graph: Graph, plan: Plan, form: str) -> None:
    """Check that a format can say every type of a plan.

    Raises:
      UnsupportedExport: the first port it cannot, with its row and what would be accepted.
    """
    for address, row, value, kind in _typed_ports(plan):
        is_constant = value in graph.constants
        problem = _problem(kind, is_constant=is_constant)
        if problem:
            accepted = CONSTANTS if is_constant else ACTIVATIONS
            raise UnsupportedExport(
                f"{address} ({value!r}, {row}) is {_short(kind)}: {problem}; {form} accepts {accepted}",
                hint="annotate the value with one of these, or use a target whose rows do",
            )


def _typed_ports(plan: Plan) -> Iterator[tuple[str, str, str, PortTyped]]:
    for kernel in plan.kernels_in_order:
        row = "in float" if kernel.row is None else f"row {kernel.row}"
        for port in (*kernel.inputs, *kernel.outputs):
            if port.value and port.type is not None:
                yield port.address, row, port.value, port.type
    pinned = pins(plan.graph)
    for side, names in (("out", plan.graph.inputs), ("in", plan.graph.outputs)):
        for i, name in enumerate(names):
            if pinned.get(name) is not None:
                yield port_address(BOUNDARY, side, i), "pinned", name, pinned[name]


def _problem(kind: PortTyped, *, is_constant: bool) -> str:
    if isinstance(kind, FloatType):
        return "" if kind.name == "f32" else "a kernel in that float is nothing this format has"
    if not isinstance(kind, Uniform):
        return "it is no uniform type"
    if kind.storage.float_name:
        return "float storage"
    if kind.blocks:
        return "scales per block"
    if kind.expressed in ("f64", "f80") and any(float(np.float32(scale)) != scale for scale in kind.scales):
        return "scales that float32 does not hold"
    if not is_constant:
        return "" if kind.storage.bits in (8, 16) else f"{kind.storage.bits} bits"
    if kind.storage.bits > 16 and (not kind.storage.signed or any(kind.zero_points)):
        return "a zero point or no sign on more than 16 bits"
    return ""


def _short(kind: PortTyped) -> str:
    """The type's text, cut where it lists many scales."""
    text = str(kind)
    return text if len(text) <= 120 else f"{text[:117]}..."
