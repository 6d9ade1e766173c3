"""Opsets: which version of the ONNX operator set a planned model is written in.

21, or 20 where onnxruntime 1.31 could not load 21 with its optimiser on: in opset 21 it carries a
DequantizeLinear of i8 over a Reshape it meets or makes (MatMul and Add of rank 3) with a fixed output type
(its pull request 28144), then turns i8 into u8 and refuses its own graph. For what is written here the two
sets differ in 16-bit types and GroupNormalization alone. Source: onnxruntime's optimiser, probed.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from planner.ir.graph import Region
from planner.ir.types.qtypes import Uniform
from planner.onnx.write import OPSET
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan, PortTyped
from planner.plans.rescales import definitions, pins

OLDER_OPSET: Final = 20


def choose_opset(plan: Plan) -> int:
    """The opset of a file: 20 where a float kernel, or a MatMul with an Add, reads a stored i8 value.

    A model that needs a newer one than 21 keeps its own.
    """
    own = plan.graph.opsets.get("", OPSET)
    if own > OPSET:
        return own
    bases = {**definitions(plan.graph, plan.kernels_in_order), **pins(plan.graph)}
    regions = {region.name: region for region in plan.graph.regions}
    is_fragile = any(
        _is_signed_byte(kind)
        for kernel in plan.kernels_in_order
        if _meets_reshape(kernel, regions[kernel.name])
        for kind in _read_kinds(plan, kernel, bases)
    )
    return OLDER_OPSET if is_fragile and not _needs_newer(plan, bases) else OPSET


def _read_kinds(plan: Plan, kernel: KernelPlan, bases: dict[str, PortTyped]) -> Iterator[PortTyped]:
    for port in kernel.inputs:
        if port.value and port.value not in plan.graph.constants:
            yield port.type if port.type is not None else bases.get(port.value)


def _meets_reshape(kernel: KernelPlan, region: Region) -> bool:
    if not any(isinstance(port.type, Uniform) for port in kernel.outputs):
        return True
    return {"MatMul", "Add"} <= {op.type for op in region.ops}


def _is_signed_byte(kind: PortTyped) -> bool:
    return isinstance(kind, Uniform) and kind.storage.signed and kind.storage.bits <= 8


def _needs_newer(plan: Plan, bases: Mapping[str, PortTyped]) -> bool:
    """Whether something is stored in words, by a port or by a pin alone, or an op is of opset 21."""
    kinds = [port.type for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    kinds += bases.values()
    has_words = any(isinstance(kind, Uniform) and 8 < kind.storage.bits <= 16 for kind in kinds)
    return has_words or any(op.type == "GroupNormalization" for op in plan.graph.all_ops())
