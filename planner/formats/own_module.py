"""Formats `mlir` and `mlir-casts`: the module that a model was read from, with the types of a plan in it.

As quantized element types of the values between kernels, or as casts around the ops. Source: MLIR
quantization RFC, "Export: materializing quantization".
"""

from typing import TYPE_CHECKING

from planner import plans
from planner.errors import ModelError, PlanFormatError, UnsupportedExport
from planner.ir.graph import Graph
from planner.plans.plan import Plan

if TYPE_CHECKING:
    from planner.formats.mlir.text.cast_module import Form


def write_own_types(graph: Graph, plan: Plan) -> bytes:
    """Write the model's own module, its values with quantized element types.

    Raises:
      UnsupportedExport: a model that was not read from a module of plain ops.
    """
    return _written(graph, plan, "mlir", "types")


def write_own_casts(graph: Graph, plan: Plan) -> bytes:
    """Write the model's own module with casts around its ops; raises as `write_own_types`."""
    return _written(graph, plan, "mlir-casts", "casts")


def _written(graph: Graph, plan: Plan, name: str, form: "Form") -> bytes:
    if not graph.module:
        raise UnsupportedExport(
            f"{name} puts the types of a plan into the MLIR module that the model was read from, and "
            f"{graph.name!r} was read from no module of plain ops",
            hint="give the module itself as the model; plan.mlir shows the types of any plan",
        )
    numbers = {name: held.array for name, held in graph.constants.items() if held.array is not None}
    try:
        return plans.cast_module(graph.module, plan, form, numbers).text.encode()
    except (ModelError, PlanFormatError) as error:
        raise UnsupportedExport(f"{name}: {error.message}", hint=error.hint) from None
