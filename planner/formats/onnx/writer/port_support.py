"""Port support: which port types each format can say, checked port by port before anything is written.

Source: ONNX QuantizeLinear, Clip and DequantizeLinear, opset 21, as onnxruntime runs them on the CPU.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.errors import RuleError, UnsupportedExport
from planner.ir.graph import BOUNDARY, Graph, port_address
from planner.ir.types.qtypes import FloatType, Uniform
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, PortTyped
from planner.plans.rescales import pins

ACTIVATIONS: Final = "i8, u8, i16 or u16 (a narrower range such as i8<-8:7> too) per tensor or per axis"
CONSTANTS: Final = "i1..i16, u1..u16, or i32 and i64 with zero point 0, per tensor or per axis"
ANY_ACTIVATIONS: Final = "i1..i16 or u1..u16, with any storage range, per tensor, or per axis in 8 or 16 bits"
LOW_BIT_ACTIVATIONS: Final = "i1..i8 or u1..u8, with any storage range, per tensor or per axis"


ONNX_STORAGES: Final = ("f4E2M1FN", "f8E4M3FN", "f8E5M2")
"""Floats that ONNX's DequantizeLinear reads; those of 6 bits came with opset 28, which nothing here reads.

Of constants alone: onnxruntime 1.31 refuses a Clip in front of a QuantizeLinear to 8-bit floats, and makes a
QLinearConv of pairs in 4-bit ones, which it then refuses.
"""
FLOATS: Final = f"or {', '.join(ONNX_STORAGES)}"


@dataclass(frozen=True, slots=True)
class Accepts:
    """The port types that a format can say.

    Attributes:
      form: its name.
      bits: widths of activations.
      activations, constants: the same in words, for refusals.
      blocks: whether constants may have a scale per block.
      floats: storages of constants that are floats.
    """

    form: str
    bits: Container[int] = frozenset({8, 16})
    activations: str = ACTIVATIONS
    constants: str = CONSTANTS
    blocks: bool = False
    floats: Container[str] = frozenset()


LOW_BITS: Final = range(1, 9)
ANY_BITS: Final = range(1, 17)


def refuse_unsupported(graph: Graph, plan: Plan, accepts: Accepts) -> None:
    """Check that a format can say every type of a plan.

    Raises:
      UnsupportedExport: the first port it cannot, with its row and what would be accepted.
    """
    for address, row, value, kind in typed_ports(plan):
        is_constant = value in graph.constants
        problem = _problem(kind, accepts, is_constant=is_constant)
        if problem:
            accepted = accepts.constants if is_constant else accepts.activations
            raise refusal(address, row, value, kind, f"{problem}; {accepts.form} accepts {accepted}")


def refusal(address: str, row: str, value: str, kind: PortTyped, problem: str) -> UnsupportedExport:
    """Make the refusal of a port."""
    return UnsupportedExport(
        f"{address} ({value!r}, {row}) is {short_text(kind)}: {problem}",
        hint="annotate the value with one of these, or use a target whose rows do",
    )


def beyond(kernel: KernelPlan, error: RuleError) -> UnsupportedExport:
    """Make the refusal of what the arithmetic of a kernel's row cannot do: no format can say it."""
    port = next((port.address for port in (*kernel.outputs, *kernel.inputs) if port.value), kernel.name)
    return UnsupportedExport(f"{port} (row {kernel.row}): {error.message}", hint=error.hint)


def typed_ports(plan: Plan) -> Iterator[tuple[str, str, str, PortTyped]]:
    """Address, row, value and type of every port that has a type, the model's fixed boundary last.

    A fixed type of a float storage within the model may be no port's: that value is stored in it all the
    same.
    """
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
    for name, kind in pinned.items():
        if isinstance(kind, Uniform) and kind.storage.float_name and name not in plan.graph.constants:
            yield name, "pinned", name, kind


def pinned_results(plan: Plan) -> Iterator[tuple[str, str, str, PortTyped]]:
    """Address, row, value and type of every result that is stored in a fixed type and not in its port's."""
    pinned = plan.held_pins
    for kernel in plan.kernels_in_order:
        for port in kernel.outputs:
            kind = pinned.get(port.value) if port.value else None
            if port.value and kind is not None and kind != port.type:
                yield port.address, "pinned", port.value, kind


def common_problem(kind: PortTyped, floats: Container[str] = frozenset()) -> str:
    """The reason why no format of ONNX operators can say a type; "" if there is none.

    Args:
      floats: storages of floats that this one can.
    """
    if isinstance(kind, FloatType):
        return "" if kind.name == "f32" else "a kernel in that float is nothing this format has"
    if not isinstance(kind, Uniform):
        return "it is no uniform type"
    if kind.storage.float_name and kind.storage.float_name not in floats:
        return "float storage"
    if kind.expressed in ("f64", "f80") and any(float(np.float32(scale)) != scale for scale in kind.scales):
        return "scales that float32 does not hold"
    return ""


def _problem(kind: PortTyped, accepts: Accepts, *, is_constant: bool) -> str:
    problem = common_problem(kind, accepts.floats if is_constant else ())
    if problem or not isinstance(kind, Uniform):
        return problem
    if kind.grid and not (accepts.blocks and is_constant):
        return "scales per block"
    if not is_constant:
        if kind.ranges:
            return "a storage range per slice"
        return "" if kind.storage.bits in accepts.bits else f"{kind.storage.bits} bits"
    if kind.storage.bits > 16 and (not kind.storage.signed or any(kind.zero_points)):
        return "a zero point or no sign on more than 16 bits"
    return ""


def short_text(kind: PortTyped) -> str:
    """The type's text, cut where it lists many scales."""
    text = str(kind)
    return text if len(text) <= 120 else f"{text[:117]}..."
