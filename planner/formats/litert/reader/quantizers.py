"""Quantizers: a graph whose values have types as the same graph with QuantizeLinear and DequantizeLinear.

So a LiteRT file is run, counted and converted as any quantized ONNX file is: not in the runtime's integer
arithmetic, but on its grids. Source: ONNX QuantizeLinear.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from planner.ir.dtypes import NUMPY
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.types.qtypes import Uniform

_CONTAINERS: Final = frozenset({"i16", "i4", "i8", "u16", "u8"})


@dataclass
class _Work:
    """The parts of the graph that have been written."""

    values: dict[str, Value]
    constants: dict[str, Constant]
    ops: list[Op] = field(default_factory=list)

    def value(self, base: str, like: Value, dtype: str) -> str:
        name = base
        while name in self.values:
            name += "'"
        self.values[name] = replace(like, name=name, dtype=dtype, facts=())
        return name

    def constant(self, base: str, array: np.ndarray, dtype: str) -> str:
        name = self.value(base, Value(base, array.shape), dtype)
        self.constants[name] = Constant(array)
        return name

    def cast(self, operator: str, source: str, result: str, kind: Uniform) -> None:
        """Add one of the two ops between reals and stored integers."""
        dtype = _container(kind)
        scales, zeros = np.asarray(kind.scales, np.float32), np.asarray(kind.zero_points)
        if kind.axis is None:
            scales, zeros = scales.reshape(()), zeros.reshape(())
        names = [
            self.constant(f"{result}/scale", scales, "f32"),
            self.constant(f"{result}/zero_point", zeros.astype(NUMPY[dtype]), dtype),
        ]
        attributes = {} if kind.axis is None else {"axis": kind.axis}
        self.ops.append(Op(f"{result}/{operator}", operator, (source, *names), (result,), attributes))


def with_quantizers(graph: Graph, *, stored: bool = False) -> Graph:
    """The graph with a pair of quantizers behind every value that has a type, and no types.

    Args:
      stored: whether inputs and outputs with a type are stored integers.
    """
    values = {name: replace(value, facts=()) for name, value in graph.values.items()}
    work = _Work(values, dict(graph.constants))
    kinds = {name: kind for name in graph.values if (kind := _kind(graph, name)) is not None}
    renamed: dict[str, str] = {}
    for name in graph.constants.keys() & kinds.keys():
        _store(work, graph, name, kinds[name])
    for name in [name for name in graph.inputs if name in kinds]:
        renamed[name] = work.value(f"{name}/seen", graph.values[name], "f32")
        _pair(work, name, renamed[name], kinds[name], is_stored=stored)
    for op in graph.ops:
        inputs = tuple([renamed.get(name, name) for name in op.inputs])
        made = {
            name: work.value(f"{name}/real", graph.values[name], "f32")
            for name in op.outputs
            if name in kinds
        }
        outputs = tuple([made.get(name, name) for name in op.outputs])
        work.ops.append(replace(op, inputs=inputs, outputs=outputs))
        for name, real in made.items():
            if stored and name in graph.outputs:
                renamed[name] = work.value(f"{name}/seen", graph.values[name], "f32")
                _out(work, real, name, renamed[name], kinds[name])
            else:
                _between(work, real, name, kinds[name])
    return replace(graph, values=work.values, constants=work.constants, ops=tuple(work.ops))


def _kind(graph: Graph, name: str) -> Uniform | None:
    found = next((fact for fact in graph.values[name].facts if isinstance(fact, Uniform)), None)
    return found if found is not None and _container(found) in _CONTAINERS else None


def _container(kind: Uniform) -> str:
    sign = "i" if kind.storage.signed else "u"
    width = next((bits for bits in (4, 8, 16, 32) if kind.storage.bits <= bits), 64)
    return f"{sign}{width}"


def _store(work: _Work, graph: Graph, name: str, kind: Uniform) -> None:
    """A constant as stored integers behind DequantizeLinear."""
    array = graph.constants[name].array
    assert array is not None  # noqa: S101 - a file's constants have numbers
    along = [-1 if axis == kind.axis else 1 for axis in range(array.ndim)]
    shape = along if kind.axis is not None else ()
    scales, zeros = (
        np.asarray(numbers, np.float64).reshape(shape) for numbers in (kind.scales, kind.zero_points)
    )
    integers = np.rint(array.astype(np.float64) / scales) + zeros
    dtype = _container(kind)
    source = work.constant(f"{name}/stored", integers.astype(np.int32).astype(NUMPY[dtype]), dtype)
    del work.constants[name]
    work.cast("DequantizeLinear", source, name, kind)


def _between(work: _Work, source: str, result: str, kind: Uniform) -> None:
    integers = work.value(f"{result}/stored", work.values[source], _container(kind))
    work.cast("QuantizeLinear", source, integers, kind)
    work.cast("DequantizeLinear", integers, result, kind)


def _pair(work: _Work, name: str, result: str, kind: Uniform, *, is_stored: bool) -> None:
    """Write the ops that an input goes through."""
    if not is_stored:
        _between(work, name, result, kind)
        return
    work.values[name] = replace(work.values[name], dtype=_container(kind))
    work.cast("DequantizeLinear", name, result, kind)


def _out(work: _Work, real: str, name: str, seen: str, kind: Uniform) -> None:
    """An output as stored integers, and the reals that other ops read."""
    work.values[name] = replace(work.values[name], dtype=_container(kind))
    work.cast("QuantizeLinear", real, name, kind)
    work.cast("DequantizeLinear", name, seen, kind)
