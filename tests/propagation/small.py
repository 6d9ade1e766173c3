"""Small annotated graphs from tables: values by name, kernels as (name, kernel, inputs, outputs)."""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.ir.types.typetext import parse_type
from planner.ir.validity import validate
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.chosen import Chosen, Request
from planner.target.load import load_target
from planner.target.records import Target

HEAD = """
apiVersion: planner/v1
kind: Target
id: small
version: 1.0.0
title: Small
mode: fixed
types:
  a8: {storage: i8}
  u8: {storage: u8}
  n8: {storage: i8, range: [-127, 127], symmetric: true}
  w8: {storage: i8, range: [-127, 127], granularity: axis, symmetric: true}
  a16: {storage: i16, symmetric: true}
  b32: {storage: i32, symmetric: true}
  p8: {storage: i8, power_of_two: true}
  z8: {storage: u8, zero_point: 128}
  s8: {storage: i8, scale_min: 0.1, scale_max: 0.5}
defaults: {port: a8}
kernels:
"""


def target_of(rows: str, **functions: object) -> Target:
    """A target with these rows, one YAML list item a line."""
    return load_target(
        HEAD + "\n".join(f"  {line}" for line in rows.strip().splitlines()), functions=functions
    )


def chosen(graph: Graph, target: Target, choices: Sequence[Choice]) -> Chosen:
    """Rows for a graph, nothing else asked for."""
    request = Request("minimal", target.costs, "", best_effort=False, bias_pins="error", depths={})
    return Chosen(graph, target, choices, request)


def graph_of(
    values: Mapping[str, str | np.ndarray],
    kernels: Sequence[tuple[str, str, str, str]],
    *,
    outputs: str,
    moves: Mapping[str, str] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """Make a graph.

    Args:
      values: a constant's numbers, or facts separated by " & "; `[lo, hi]` is a calibrated range.
      kernels: name, kernel, inputs and outputs separated by spaces (`-`: absent).
      outputs: model outputs; model inputs are what nothing writes.
      moves: kernel name -> ONNX type of the one op inside.
    """
    made = {}
    for name, facts in values.items():
        if isinstance(facts, np.ndarray):
            made[name] = Value(name, facts.shape)
            continue
        texts = [text.strip() for text in facts.split("&") if text.strip()]
        texts = [
            f"!quant.calibrated<f32<{text[1:-1].replace(', ', ':')}>>" if text[0] == "[" else text
            for text in texts
        ]
        shape = (shapes or {}).get(name, (4,))
        made[name] = Value(name, shape, "f32", tuple(parse_type(text) for text in texts))
    regions = []
    for name, kernel, ins, outs in kernels:
        sides = tuple(tuple("" if n == "-" else n for n in side.split()) for side in (ins, outs))
        op = (moves or {}).get(name)
        ops = (Op(f"{name}_op", op, *sides),) if op else ()
        regions.append(Region(name, kernel, *sides, ops=ops))
    written = {name for region in regions for name in region.outputs}
    constants = {n: Constant(data) for n, data in values.items() if isinstance(data, np.ndarray)}
    inputs = tuple(name for name in made if name not in written and name not in constants)
    return validate(Graph("small", made, (), inputs, tuple(outputs.split()), constants, tuple(regions)))
