"""Tables: a Gather of a quantized table whose rows float ops read, as ops that every format has.

The rows that are read are gathered as they are stored, then dequantized; where each row of the table has a
scale of its own, the scales are gathered by the same indices. So an engine never dequantizes the whole table.
These are exactly the numbers of dequantizing first: `float32(stored - zero point) * scale`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np

from planner.constants.quantize import quantize_array
from planner.formats.common.values import Array, numbers_of
from planner.formats.onnx.dtypes import enum_of
from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.ir.mapped import let_go
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan

Attributes: TypeAlias = Mapping[str, Any]
NONE: Final[Attributes] = {}
WIDTH: Final = 8
"""Bits of the tables: bytes are what every format gathers and casts."""


def with_rows_apart(graph: Graph, plan: Plan) -> tuple[Graph, Plan]:
    """Return model and plan with such a Gather as float ops on a constant of integers."""
    draft, kernels, regions = _Draft(graph), list[KernelPlan](), dict[str, Region]()
    known = {region.name: region for region in plan.graph.regions}
    for kernel in plan.kernels_in_order:
        region = known[kernel.name]
        kind = _table_type(graph, region, kernel)
        if kind is None:
            kernels.append(kernel)
            continue
        ops, scales = draft.rows(region.ops[0], kind)
        regions[region.name] = replace(region, ops=ops, inputs=(scales,))
        read = replace(kernel.inputs[0], value=scales, type=None)
        kernels.append(replace(kernel, row=None, reason="", inputs=(read,)))
    if not regions:
        return graph, plan
    planned = replace(
        plan.graph,
        values={**plan.graph.values, **draft.values},
        constants={**plan.graph.constants, **draft.constants},
        regions=tuple(regions.get(region.name, region) for region in plan.graph.regions),
    )
    whole = replace(
        graph,
        values={**graph.values, **draft.values},
        constants={**graph.constants, **draft.constants},
    )
    return whole, replace(plan, graph=planned, kernels_in_order=tuple(kernels))


def _table_type(graph: Graph, region: Region, kernel: KernelPlan) -> Uniform | None:
    """The type of a table of bytes that a lone Gather reads rows of, as floats; None for all else."""
    op = region.ops[0] if len(region.ops) == 1 else None
    if op is None or op.type != "Gather" or op.inputs[0] not in graph.constants or op.captures:
        return None
    if not kernel.inputs:  # a table of integers, which no row types
        return None
    kind = kernel.inputs[0].type
    if not isinstance(kind, Uniform) or any(port.type is not None for port in kernel.outputs):
        return None
    rank = len(graph.values[op.inputs[0]].shape or ())
    is_plain = kind.storage.bits == WIDTH and not kind.storage.float_name and not kind.grid
    by_rows = kind.is_per_tensor or kind.axis == 0
    is_first = rank > 0 and op.attributes.get("axis", 0) % rank == 0
    return kind if is_plain and by_rows and is_first else None


@dataclass(slots=True)
class _Draft:
    """Values and constants in the making."""

    graph: Graph
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)

    def rows(self, op: Op, kind: Uniform) -> tuple[tuple[Op, ...], str]:
        """Return the ops that read rows in place of a Gather, and the name of the table's scales."""
        array, result = numbers_of(self.graph, op.inputs[0]), self.graph.values[op.outputs[0]]
        shift = 0 if kind.storage.signed else 1 << WIDTH - 1  # the same numbers in signed bytes
        ops = _Ops(self, op, array.ndim, is_by_row=not kind.is_per_tensor)
        stored = (quantize_array(array, kind).astype(np.int16) - shift).astype(np.int8)
        table = self.constant(f"{op.inputs[0]}_stored", stored, "i8")
        let_go(array)
        x = ops.add("Gather", (table, op.inputs[1]), self.like(result, "stored", "i8"), op.attributes)
        x = ops.add("Cast", (x,), self.like(result, "whole", "f32"), {"to": enum_of("f32")})
        centres = np.asarray(kind.zero_points, np.float32) - shift
        if centres.any():
            zeros = ops.parameters("zeros", centres)[1]
            x = ops.add("Sub", (x, zeros), self.like(result, "shifted", "f32"))
        scales, factors = ops.parameters("scales", np.asarray(kind.scales, np.float32))
        if result.dtype == "f32":
            ops.add("Mul", (x, factors), result.name)
        else:
            x = ops.add("Mul", (x, factors), self.like(result, "f32", "f32"))
            ops.add("Cast", (x,), result.name, {"to": enum_of(result.dtype)})
        return tuple(ops.found), scales

    def constant(self, stem: str, array: Array, dtype: str) -> str:
        """Add a constant, and return its name."""
        name = self._fresh(stem)
        self.constants[name] = Constant(array)
        self.values[name] = Value(name, array.shape, dtype)
        return name

    def like(self, value: Value, stem: str, dtype: str, ones: int = 0) -> str:
        """Add a value as another, of an element type and with so many last axes of one; return its name."""
        name = self._fresh(f"{value.name}_{stem}")
        kept = len(value.shape or value.seen or ()) - ones
        shape = None if value.shape is None else (*value.shape[:kept], *[1] * ones)
        seen = None if value.seen is None else (*value.seen[:kept], *[1] * ones)
        self.values[name] = Value(name, shape, dtype, seen=seen, varies=value.varies)
        return name

    def _fresh(self, stem: str) -> str:
        while stem in self.graph.values or stem in self.values:
            stem += "_"
        return stem


@dataclass(slots=True)
class _Ops:
    """The ops that stand for one Gather."""

    draft: _Draft
    gather: Op
    rank: int
    is_by_row: bool
    found: list[Op] = field(default_factory=list)

    def add(self, kind: str, inputs: tuple[str, ...], result: str, attributes: Attributes = NONE) -> str:
        """Add an op of one result, and return that."""
        name = self.gather.name if not self.found else f"{self.gather.name}_{len(self.found)}"
        op = replace(
            self.gather, name=name, type=kind, inputs=inputs, outputs=(result,), attributes=attributes
        )
        self.found.append(op)
        return result

    def parameters(self, stem: str, numbers: Array) -> tuple[str, str]:
        """Return the constant with parameters of all rows, and the value that has those of the rows read."""
        shape, draft = (-1, *[1] * (self.rank - 1)) if self.is_by_row else (), self.draft
        known = draft.constant(f"{self.gather.inputs[0]}_{stem}", numbers.reshape(shape), "f32")
        if not self.is_by_row:
            return known, known
        result = self.draft.graph.values[self.gather.outputs[0]]
        read = draft.like(result, stem, "f32", ones=self.rank - 1)
        self.add("Gather", (known, self.gather.inputs[1]), read, self.gather.attributes)
        return known, read
