"""Write: a planned model in an ONNX format: refuse, write region by region, bind the outputs.

A format is a record: what it takes, which stored tensors it clamps as they are, and what it does with one
region. Source: docs/formats.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import RuleError, UnsupportedExport
from planner.formats.common.blocks import blocks
from planner.formats.common.tables import with_rows_apart
from planner.formats.onnx.writer.float_blocks import write_border
from planner.formats.onnx.writer.integers.dynamic import write_dynamic
from planner.formats.onnx.writer.model_builder import ModelBuilder, Rescale
from planner.formats.onnx.writer.port_support import (
    Accepts,
    beyond,
    refuse_unsupported,
    short_text,
    typed_ports,
)
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.ir.types.scales import holds_scales
from planner.lowering.blocks import Block
from planner.plans.plan import Plan


@dataclass(frozen=True, slots=True)
class Form:
    """A format.

    Attributes:
      accepts: types it can say.
      integer_clamps: element types whose stored tensors it clamps as they are; others through float.
      write_block: writes one region.
      rescale: writes a rescale between two integer types, or says False; None: through float.
      clips_constants: whether a constant of a narrower range gets a Clip that says so.
      dynamic: whether it writes activations that are quantized at run time.
      in_pairs: whether files for other engines than onnxruntime's CPU provider clamp no stored tensors, since
        these engines read an operator with the pairs around it.
      needs: operators without any of which a file says nothing in this format; none: any will do.
    """

    accepts: Accepts
    integer_clamps: frozenset[np.dtype[Any]]
    write_block: Callable[[ModelBuilder, Block], None]
    clips_constants: bool = False
    rescale: Rescale | None = None
    needs: tuple[str, ...] = ()
    dynamic: bool = False
    in_pairs: bool = False


def write_form(
    graph: Graph,
    plan: Plan,
    form: Form,
    *,
    external: Path | None = None,
    into: Path | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> bytes:
    """Serialise a planned model; IR 10, opset 21 or 20 (`opsets`).

    Args:
      graph: the imported float model the plan was made from, with the numbers of its constants.
      plan: of that model.
      form: the format.
      external: a file to write the weights into, tensor by tensor; see `write_model`.
      into: a file for the whole model, likewise; then nothing is returned.
      progress: called with (kernels written, kernels in all).

    Raises:
      UnsupportedExport: a type or kernel the format cannot say, with port and row.
    """
    refuse_unsupported(graph, plan, form.accepts)
    graph, plan = with_rows_apart(graph, plan)
    is_apart = form.in_pairs and not plan.target.files.is_for_cpu_provider
    builder = ModelBuilder(
        graph,
        plan,
        integer_clamps=frozenset() if is_apart else form.integer_clamps,
        clips_constants=form.clips_constants,
        rescale=form.rescale,
    )
    for done, block in enumerate(blocks(plan, dynamic=form.dynamic), 1):
        builder.file.scope = block.region.scope
        try:
            if not (write_border(builder, block) or write_dynamic(builder, block)):
                form.write_block(builder, block)
        except RuleError as error:
            raise beyond(block.kernel, error) from error
        if progress is not None:
            progress(done, len(plan.graph.regions))
    builder.file.scope = ""
    if form.needs and all(node.op_type not in form.needs for node in builder.file.nodes):
        raise _lacking(plan, form)
    return builder.finish(external, into)


def _lacking(plan: Plan, form: Form) -> UnsupportedExport:
    """Make the refusal of a plan in which nothing is what a format is for."""
    floats = [kernel for kernel in plan.kernels_in_order if kernel.row is None]
    blocked = next(
        (
            (at, value, kind)
            for at, _, value, kind in typed_ports(plan)
            if isinstance(kind, Uniform) and kind.grid
        ),
        None,
    )
    served = len(plan.kernels_in_order) - len(floats)
    found = f"{served} kernels on rows of {plan.target.id}, {len(floats)} in float"
    told = "; no weight has a scale per block"
    if blocked is not None:
        address, value, kind = blocked
        told = f"; {address} is {short_text(kind)}"
        if plan.graph.values[value].dtype == "f16" and not holds_scales(kind.scales, "f16"):
            told += " in a model in float16, with scales that float16 does not hold"
    return UnsupportedExport(
        f"nothing in this plan becomes a {form.needs[0]}: {found}{told}; {form.accepts.form} accepts "
        f"{form.accepts.constants}",
        hint="plan for a target with weights in blocks (llm-w4), or export onnx-qdq",
    )
