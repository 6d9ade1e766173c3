"""Small graphs from one line per op: `y = Conv(x, w, ) group=2`; uppercase names are constants."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Shape, Value
from planner.ir.types.qtypes import storage
from planner.target.records import Costs, Fusion, PortType, Target

_LINE = re.compile(r"(?P<out>[\w, ]+) = (?P<type>[\w.:]+)\((?P<args>[^)]*)\)(?P<rest>.*)")


def graph_of(
    text: str,
    *,
    outputs: Sequence[str],
    shapes: Mapping[str, Shape] | None = None,
    dtypes: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    captures: Mapping[str, tuple[str, ...]] | None = None,
) -> Graph:
    """Make a graph; an op is named after its first result, what nothing writes is an input or a constant."""
    ops = []
    for line in text.strip().splitlines():
        match = _LINE.fullmatch(line.strip())
        assert match, line
        args = [arg.strip() for arg in match["args"].split(",")] if match["args"].strip() else []
        out = tuple(name.strip() for name in match["out"].split(","))
        pairs = (word.split("=") for word in match["rest"].split())
        attributes = {key: ast.literal_eval(value) for key, value in pairs}
        held = (captures or {}).get(f"{out[0]}_op", ())
        ops.append(Op(f"{out[0]}_op", match["type"], tuple(args), out, attributes, held))
    written = {name for op in ops for name in op.outputs}
    read = dict.fromkeys(name for op in ops for name in (*op.inputs, *op.captures) if name)
    data = {
        name: Constant(np.asarray((constants or {}).get(name, 0.0), np.float32))
        for name in read
        if name.isupper()
    }
    values = {
        name: Value(name, (shapes or {}).get(name), (dtypes or {}).get(name, "f32"))
        for name in dict.fromkeys([*read, *(n for op in ops for n in op.outputs)])
    }
    inputs = tuple(name for name in read if name not in written and name not in data)
    return Graph("small", values, tuple(ops), inputs, tuple(outputs), data)


def target_of(*fusions: Fusion) -> Target:
    """Make a target that has nothing but fusions."""
    return Target(
        id="toy",
        version="1.0.0",
        title="",
        mode="fixed",
        file="toy.yaml",
        rows={},
        fusions=fusions,
        costs=Costs(),
        default_port=PortType(storage("i8")),
    )
