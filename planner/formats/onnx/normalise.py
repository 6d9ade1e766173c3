"""Normal form: small rewrites that leave fewer kinds of ops, each a pure pass over a Graph.

`normalise` runs them in order, with shape inference where something new became known. The numbers a
model computes stay the same up to float rounding.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.factors.plain import plain_factors
from planner.formats.onnx.affine import fold_affine
from planner.formats.onnx.dtypes import ENUMS, NAMES
from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.gemm import plain_gemms
from planner.formats.onnx.naming import rewritten, unused, use_counts
from planner.formats.onnx.operators.bounds import clip_at_numbers
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.structure.branches import inline_known_branches
from planner.formats.onnx.structure.recurrent import name_states, time_first
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import Constant, Graph, Op, Value
from planner.ops import of_form
from planner.ops.forms import Form

Pass: TypeAlias = Callable[[Graph], Graph]

_MAX_ROUNDS: Final = 16
_OF_ALL: Final = of_form(Form.VARIADIC) | {"Identity"}
_BLOCKS: Final = of_form(Form.BLOCKS)
_ROWS: Final = frozenset({"Hardmax", "LogSoftmax", "Softmax"})
_COPIES: Final = _OF_ALL | _BLOCKS | {"Cast", "Dropout"}


def normalise(graph: Graph) -> Graph:
    """Run every pass. In: ops of opset 21 in topological order; out: the same, fewer and plainer."""
    graph = infer(split_sums(fold_constants(drop_identities(drop_dead(graph)))))
    for _ in range(_MAX_ROUNDS):
        before = graph
        for rewrite in TO_FIXPOINT:
            graph = rewrite(graph)
        # A pass that changes nothing returns the same object, so identity tells the fixed point.
        if graph is before:
            break
        if not _is_static(graph):
            graph = infer(graph)
    for rewrite in ONCE:
        graph = rewrite(graph)
    return graph


def drop_identities(graph: Graph) -> Graph:
    """Remove copies: Identity, Dropout, casts to the same type, Max of one value, blocks of one element.

    Files of ours have a Max of one value and a DepthToSpace of such blocks as guards. Model outputs keep
    their names.
    """
    if all(op.type not in _COPIES for op in graph.ops):
        return graph
    counts = use_counts(graph)
    captured = {name for op in graph.ops for name in op.captures}
    written = {out for op in graph.ops for out in op.outputs}
    alias: dict[str, str] = {}

    def resolve(name: str) -> str:
        while name in alias:
            name = alias[name]
        return name

    kept = []
    for op in graph.ops:
        source = resolve(op.inputs[0]) if _is_identity(op, graph, counts) else ""
        out = op.outputs[0] if op.outputs else ""
        if not source or not out or out in captured or _is_typed(graph, source, out):
            kept.append(op)
        elif out not in graph.outputs:
            alias[out] = source
        # A model output keeps its name: here the op in front
        # takes that name over, if nothing else needs its own.
        elif source in written and source not in captured and source not in graph.outputs:
            alias[source] = out
        else:
            kept.append(op)
    if not alias:
        return graph
    return replace(graph, ops=tuple(_with_names(op, resolve) for op in kept))


def name_types(graph: Graph) -> Graph:
    """Turn CastLike into a Cast to the type of its second operand, where that is known."""
    if all(op.type != "CastLike" for op in graph.ops):
        return graph
    ops = tuple(_cast(op, graph) if op.type == "CastLike" else op for op in graph.ops)
    return graph if ops == graph.ops else replace(graph, ops=ops)


def cast_exponents(graph: Graph) -> Graph:
    """Give the exponent of a Pow of floats their own type: only ONNX has operands of two."""
    kinds = {name: value.dtype for name, value in graph.values.items()}
    mixed = [
        op
        for op in graph.ops
        if op.type == "Pow" and graph.values[op.inputs[0]].is_float and kinds[op.inputs[1]] != UNKNOWN
        if kinds[op.inputs[0]] in ENUMS and kinds[op.inputs[0]] != kinds[op.inputs[1]]
    ]
    if not mixed:
        return graph
    taken, values, casts = set(graph.values), dict(graph.values), dict[str, Op]()
    for op in mixed:
        base, exponent = op.inputs
        name = unused(f"{op.outputs[0]}/exponent", taken)
        casts[op.outputs[0]] = Op(
            name, "Cast", (exponent,), (name,), {"to": ENUMS[kinds[base]]}, scope=op.scope
        )
        values[name] = Value(name, graph.values[exponent].shape, kinds[base])
    ops: list[Op] = []
    for op in graph.ops:
        cast = casts.get(op.outputs[0]) if op.type == "Pow" else None
        ops += [op] if cast is None else [cast, replace(op, inputs=(op.inputs[0], cast.name))]
    return replace(graph, ops=tuple(ops), values=values)


def split_sums(graph: Graph) -> Graph:
    """Turn Sum of n values into n - 1 Adds (of one value: Identity), from left to right."""
    if all(op.type != "Sum" for op in graph.ops):
        return graph
    taken = set(graph.values)
    ops: list[Op] = []
    for op in graph.ops:
        ops.extend(_adds(op, taken) if op.type == "Sum" else [op])
    fresh = {
        out: Value(out, None, UNKNOWN) for op in ops for out in op.outputs if out and out not in graph.values
    }
    return replace(graph, ops=tuple(ops), values={**graph.values, **fresh})


def fold_gemm_factors(graph: Graph) -> Graph:
    """Multiply Gemm's alpha into a constant weight and beta into a constant bias."""
    if all(op.type != "Gemm" for op in graph.ops):
        return graph
    counts, taken = use_counts(graph), set(graph.values)
    constants, values = dict(graph.constants), dict(graph.values)
    ops = []
    for op in graph.ops:
        if op.type != "Gemm":
            ops.append(op)
            continue
        inputs, attributes = list(op.inputs), dict(op.attributes)
        for key, index in (("alpha", 1), ("beta", 2)):
            factor = attributes.get(key, 1.0)
            name = inputs[index] if index < len(inputs) else ""
            array = constants[name].array if name in constants else None
            if factor != 1.0 and array is not None:
                inputs[index] = rewritten(name, op, counts, taken)
                constants[inputs[index]] = Constant((array * np.float64(factor)).astype(array.dtype))
                values[inputs[index]] = replace(values[name], name=inputs[index])
            # A factor that could not be multiplied in (alpha with a computed weight) stays an attribute.
            if factor == 1.0 or not name or array is not None:
                attributes.pop(key, None)
        ops.append(replace(op, inputs=tuple(inputs), attributes=attributes))
    return replace(graph, ops=tuple(ops), constants=constants, values=values)


def join_rows(graph: Graph) -> Graph:
    """Undo a Flatten around an op along the last axis where the row is that axis alone.

    So are softmaxes of before opset 13 read, whose shapes no file has to say (`opsets`): with the rank known,
    `Reshape(Softmax(Flatten(x, axis=a)), Shape(x))` is Softmax on axis a if that is the last. A file's own
    chain may take its Softmax along the other axis of the two, flatten behind the last, or fix types between.
    """
    if all(op.type not in _ROWS for op in graph.ops):
        return graph
    writer = {out: op for op in graph.ops for out in op.outputs if out}
    counts = use_counts(graph)
    made: dict[str, Op] = {}
    for back in graph.ops:
        along = writer.get(back.inputs[0]) if back.type == "Reshape" else None
        if along is None or along.type not in _ROWS or counts[along.outputs[0]] != 1:
            continue
        flat, sizes = writer.get(along.inputs[0]), writer.get(back.inputs[1])
        if flat is None or flat.type != "Flatten" or sizes is None or sizes.type != "Shape":
            continue
        shape = graph.values[flat.inputs[0]].shape
        is_whole = not sizes.attributes and sizes.inputs[0] == flat.inputs[0]
        is_row = along.attributes.get("axis", -1) in (-1, 1)
        is_typed = any(graph.values[name].facts for name in (*flat.outputs, *along.outputs))
        if not is_whole or not is_row or is_typed or not shape:
            continue
        if flat.attributes.get("axis", 1) not in (-1, len(shape) - 1):
            continue
        made[back.outputs[0]] = replace(
            along, inputs=flat.inputs, outputs=back.outputs, attributes={"axis": len(shape) - 1}
        )
    if not made:
        return graph
    ops = tuple([made.get(op.outputs[0], op) if op.outputs else op for op in graph.ops])
    return drop_dead(replace(graph, ops=ops))


def fill_pads(graph: Graph) -> Graph:
    """Write out the pads of every axis where a Pad lists some: onnxruntime's optimiser loses count there."""
    taken = set(graph.values)
    added: dict[str, np.ndarray] = {}
    ops = []
    for op in graph.ops:
        pads = _all_pads(op, graph)
        if pads is not None:
            name = unused(f"{op.outputs[0]}/pads", taken)
            added[name] = pads
            inputs = (op.inputs[0], name, *op.inputs[2:3])
            op = replace(op, inputs=inputs if inputs[-1] else inputs[:-1])  # noqa: PLW2901 - the same op
        ops.append(op)
    if not added:
        return graph
    values = {name: Value(name, pads.shape, "i64") for name, pads in added.items()}
    return replace(
        graph,
        ops=tuple(ops),
        values={**graph.values, **values},
        constants={**graph.constants, **{name: Constant(pads) for name, pads in added.items()}},
    )


def drop_dead(graph: Graph) -> Graph:
    """Remove ops that reach no model output, and constants and values that nothing reads."""
    needed = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if needed.intersection(op.outputs):
            needed.update(op.inputs, op.captures)
            kept.append(op)
    kept.reverse()
    named = needed.union(graph.inputs, *(op.outputs for op in kept))
    return replace(
        graph,
        ops=tuple(kept),
        constants={name: constant for name, constant in graph.constants.items() if name in needed},
        values={name: value for name, value in graph.values.items() if name in named},
    )


def name_apart(graph: Graph) -> Graph:
    """Make op names unique; the first keeps its name."""
    taken: set[str] = set()
    named = ((op, unused(op.name, taken)) for op in graph.ops)
    return replace(graph, ops=tuple(op if op.name == name else replace(op, name=name) for op, name in named))


def _is_static(graph: Graph) -> bool:
    shapes = (value.shape for value in graph.values.values() if value.dtype != UNKNOWN)
    if any(value.dtype == UNKNOWN for value in graph.values.values()):
        return False
    return all(shape is not None and all(isinstance(dim, int) for dim in shape) for shape in shapes)


def _is_identity(op: Op, graph: Graph, counts: dict[str, int]) -> bool:
    if op.type in _OF_ALL:
        return len(op.inputs) == 1
    if op.type in _BLOCKS:
        return op.attributes.get("blocksize") == 1
    if op.type == "Cast":
        source = graph.values[op.inputs[0]].dtype
        return source != UNKNOWN and source == NAMES.get(op.attributes.get("to", 0))
    if op.type != "Dropout" or any(out and counts[out] for out in op.outputs[1:]):
        return False
    training = op.inputs[2] if len(op.inputs) > 2 else ""
    constant = graph.constants.get(training)
    return not training or (constant is not None and constant.array is not None and not constant.array.any())


def _is_typed(graph: Graph, source: str, out: str) -> bool:
    """Whether the two sides of a copy have different constraints."""
    # Where types differ, the copy is the place at which a rescale can stand.
    return graph.values[source].facts != graph.values[out].facts


def _all_pads(op: Op, graph: Graph) -> np.ndarray | None:
    """The pads of a Pad with axes, both sides of every axis; None where there are no axes or not known."""
    if op.type != "Pad" or len(op.inputs) < 4 or not op.inputs[3]:
        return None
    shape = graph.values[op.inputs[0]].shape
    pads, axes = (graph.constants.get(op.inputs[i]) for i in (1, 3))
    if shape is None or pads is None or axes is None or pads.array is None or axes.array is None:
        return None
    # Operand `axes` came with opset 18; readers of pads see the form of opset 11, all begins, then all ends.
    both = np.zeros((2, len(shape)), np.int64)
    both[:, axes.array.reshape(-1)] = pads.array.reshape(2, -1)
    return both.reshape(-1)


def _with_names(op: Op, resolve: Callable[[str], str]) -> Op:
    inputs, outputs = tuple(map(resolve, op.inputs)), tuple(map(resolve, op.outputs))
    if (inputs, outputs) == (op.inputs, op.outputs):
        return op
    return replace(op, inputs=inputs, outputs=outputs)


def _cast(op: Op, graph: Graph) -> Op:
    to = ENUMS.get(graph.values[op.inputs[1]].dtype)
    if to is None:
        return op
    return replace(op, type="Cast", inputs=op.inputs[:1], attributes={**op.attributes, "to": to})


def _adds(op: Op, taken: set[str]) -> list[Op]:
    if len(op.inputs) == 1:
        return [replace(op, type="Identity", attributes={})]
    ops = []
    left = op.inputs[0]
    for i, right in enumerate(op.inputs[1:-1]):
        out = unused(f"{op.outputs[0]}/partial_{i}", taken)
        ops.append(Op(f"{op.name}/partial_{i}", "Add", (left, right), (out,), scope=op.scope))
        left = out
    return [*ops, Op(op.name, "Add", (left, op.inputs[-1]), op.outputs, scope=op.scope)]


TO_FIXPOINT: Final[tuple[Pass, ...]] = (
    fold_constants,
    inline_known_branches,
    name_types,
    cast_exponents,
    drop_identities,
    join_rows,
    time_first,
    name_states,
)
ONCE: Final[tuple[Pass, ...]] = (
    fold_gemm_factors,
    plain_gemms,
    fill_pads,
    fold_affine,
    plain_factors,
    clip_at_numbers,
    drop_dead,
    name_apart,
)
