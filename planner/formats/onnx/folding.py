"""Constant folding: values of constants alone are computed once, by onnxruntime or, if only moved, here.

Sizes are bounded: a small file must not unfold into a big model. `ConstantOfShape` becomes a view of
one number and takes no memory. Quantize and dequantize ops stay, and clips of stored integers: they say
something about types.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from planner.formats.onnx.dtypes import NUMPY, byte_size, dtype_of
from planner.formats.onnx.sessions import FAILURES, open_session, run_arrays, session_options
from planner.formats.onnx.write import op_node, write_model
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ir.roles import is_movement
from planner.ir.topology import reads
from planner.ops import defined, find_movements, of_form
from planner.ops.forms import Form
from planner.ops.operands import Operands
from planner.ops.steps import View, apply, is_filled

MAX_BYTES: Final = 64 << 20
MAX_GROWTH: Final = 8
FREE_BYTES: Final = 1 << 20
MAX_FILL_BYTES: Final = 1 << 30

_KEPT: Final = of_form(Form.BODY, Form.QUANTIZER, Form.RANDOM)
_STORED: Final = frozenset({"i8", "i16", "u8", "u16"})
_RUNNABLE: Final = frozenset(
    {"bool", "f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
)  # what onnxruntime takes as numpy arrays
_OF_SHAPES: Final = ("Shape", "Size")


def fold_constants(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """Replace every op that is known before running by its result; the same graph if there is none.

    Ops that write a model output stay, and so do ops whose result is of unknown shape or too big.

    Args:
      kept: names of ops that stay.
    """
    known = {name for name, constant in graph.constants.items() if constant.array is not None}
    arrays: dict[str, np.ndarray] = {}
    batch: list[Op] = []
    for op in graph.ops:
        is_asked = op.name in kept or any(out in graph.outputs for out in op.outputs)
        if is_asked or _is_constrained(op, graph):
            continue
        direct = _direct(op, graph, arrays)
        if direct is not None:
            arrays[op.outputs[0]] = direct
            known.add(op.outputs[0])
        elif _is_foldable(op, graph, known):
            batch.append(op)
            known.update(op.outputs)
    arrays |= _evaluate(batch, graph, arrays)
    if not arrays:
        return graph
    gone = {op.name for op in graph.ops if any(out in arrays for out in op.outputs)}
    types = {name: Value(name, array.shape, dtype_of(array)) for name, array in arrays.items()}
    return replace(
        graph,
        ops=tuple(op for op in graph.ops if op.name not in gone),
        values={**graph.values, **types},
        constants={**graph.constants, **{name: Constant(array) for name, array in arrays.items()}},
    )


def _is_constrained(op: Op, graph: Graph) -> bool:
    """Whether an operand or a result of an op has facts: folding would lose their rounding."""
    values = graph.values
    # Data movement takes no numbers from their operands, shapes not even those.
    names = op.outputs if is_movement(op) or op.type in _OF_SHAPES else (*op.inputs, *op.outputs)
    return any(name in values and values[name].facts for name in names)


def _direct(op: Op, graph: Graph, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Results that need no run: the shape of a static value, a fill, a cast between numbers."""
    if op.type in _OF_SHAPES:
        return _shape_result(op, graph)
    if op.type not in ("ConstantOfShape", "Cast") or not op.inputs:
        return None
    array = arrays.get(op.inputs[0])
    constant = graph.constants.get(op.inputs[0])
    if array is None and constant is not None:
        array = constant.array
    if array is None:
        return None
    return _fill(op, array) if op.type == "ConstantOfShape" else _cast(op, array, graph)


def _shape_result(op: Op, graph: Graph) -> np.ndarray | None:
    shape = graph.values[op.inputs[0]].shape
    if shape is None:
        return None
    part = shape if op.type == "Size" else shape[op.attributes.get("start", 0) : op.attributes.get("end")]
    if not all(isinstance(dim, int) for dim in part):
        return None
    dims = np.asarray(part, dtype=np.int64)
    return np.asarray(np.prod(dims, dtype=np.int64)) if op.type == "Size" else dims


def _fill(op: Op, shape: np.ndarray) -> np.ndarray | None:
    value = np.asarray(op.attributes.get("value", np.zeros(1, np.float32))).reshape(())
    dims = tuple(int(dim) for dim in shape.reshape(-1))
    total = value.dtype.itemsize
    for dim in dims:
        total *= dim
    return (
        np.broadcast_to(value, dims) if 0 <= total <= MAX_FILL_BYTES and min(dims, default=0) >= 0 else None
    )


def _cast(op: Op, array: np.ndarray, graph: Graph) -> np.ndarray | None:
    wanted = graph.values[op.outputs[0]].dtype
    if not graph.values[op.outputs[0]].is_float or array.dtype.kind in "OSU" or array.nbytes > MAX_BYTES:
        return None
    return array.astype(NUMPY[wanted]) if wanted in NUMPY else None


def _is_foldable(op: Op, graph: Graph, known: set[str]) -> bool:
    if "::" in op.type or op.type in _KEPT or op.captures or not op.inputs:
        return False
    if op.type == "Clip" and graph.values[op.outputs[0]].dtype in _STORED:
        return False
    if not all(name in known for name in op.inputs if name):
        return False
    sizes = [_bytes(graph.values[out]) for out in op.outputs if out]
    if None in sizes or any(graph.values[name].dtype not in _RUNNABLE for name in op.inputs if name):
        return False
    given = sum(_bytes(graph.values[name]) or 0 for name in op.inputs if name)
    total = sum(size for size in sizes if size is not None)
    # A few bytes of file (Tile, Range, Expand) can ask for
    # gigabytes: growth is bounded, small results are free.
    return total <= FREE_BYTES or total <= min(MAX_BYTES, MAX_GROWTH * given)


def _bytes(value: Value) -> int | None:
    if value.shape is None or value.dtype not in _RUNNABLE:
        return None
    if not all(isinstance(dim, int) for dim in value.shape):
        return None
    return byte_size(value.dtype, value.elements)


def _evaluate(batch: Sequence[Op], graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run all ops at once; where onnxruntime refuses one of them, run each alone."""
    if not batch:
        return {}
    moved = _moved(batch, graph, arrays)
    if moved is not None:
        return moved
    try:
        return _run(batch, graph, arrays)
    except FAILURES:
        pass
    found: dict[str, np.ndarray] = {}
    for op in batch:
        # The batch failed as a whole: op by op, so that one
        # that onnxruntime refuses keeps back only its readers.
        have = {**arrays, **found}
        if not all(name in have or name in graph.constants for name in op.inputs if name):
            continue
        try:
            found |= _run([op], graph, have)
        except FAILURES:
            continue
    return found


def _moved(
    batch: Sequence[Op], graph: Graph, arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray] | None:
    """Results of ops that only move numbers, which needs no session; None where that is not all they are."""
    found: dict[str, np.ndarray] = {}
    for op in batch:
        array = _moved_array(op, graph, {**arrays, **found})
        if array is None:
            return None
        found[op.outputs[0]] = array
    return found


def _moved_array(op: Op, graph: Graph, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    wanted = graph.values[op.outputs[0]]
    if defined(op.type).indices is None or len(op.outputs) > 1:
        return None
    known = {name: _array(name, graph, arrays) for name in op.inputs if name}
    shapes = {**{name: array.shape for name, array in known.items()}, op.outputs[0]: wanted.shape}
    movements = find_movements(Operands(op, shapes.__getitem__, known.__getitem__))
    if movements is None or is_filled(movements[0]):
        return None
    try:
        array = apply(movements[0], [known[op.inputs[i]] for i in movements[0].operands])
    except ValueError:
        return None
    if array.shape != wanted.shape or dtype_of(array) != wanted.dtype:
        return None
    # A part must not keep the whole in memory.
    is_view = all(isinstance(step, View) for step in movements[0].steps)
    return array if is_view else np.array(array, order="C")


def _run(batch: Sequence[Op], graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    made = [out for op in batch for out in op.outputs if out]
    read = dict.fromkeys(name for op in batch for name in reads(op) if name not in made)
    feeds = {name: _array(name, graph, arrays) for name in read}
    data = write_model(
        name="constants",
        nodes=[op_node(op) for op in batch],
        inputs=[(name, dtype_of(array), array.shape) for name, array in feeds.items()],
        outputs=[(name, graph.values[name].dtype, None) for name in made],
        constants={},
        opset=graph.opsets[""],
    )
    session = open_session(data, _options())
    return dict(zip(made, run_arrays(session, made, feeds), strict=True))


def _array(name: str, graph: Graph, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    array = np.asarray(arrays[name] if name in arrays else graph.constants[name].array)
    return np.ascontiguousarray(array).reshape(array.shape)


def _options() -> Any:
    options = session_options()
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    return options
