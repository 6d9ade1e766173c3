"""Quantizers to facts: a quantized model as a float graph whose values carry the types it was quantized to.

Each quantizer goes; its value gets the type as a fact, a constant also the numbers on that grid. A quantizer
without a type stays as plain float ops, with the reason in the notes. So a model made for one device is
planned again for another. In: ops of opset 21, canonical dialect. Source: docs/qonnx.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from planner.errors import ModelError
from planner.formats.onnx.folding import fold_constants
from planner.formats.onnx.grids import is_common, most_of
from planner.formats.onnx.normalise import drop_identities
from planner.formats.onnx.quantized.dialect import ELEMENTWISE, FLOAT_QUANT, QUANT, TRUNC
from planner.formats.onnx.quantized.dynamic import plain_products
from planner.formats.onnx.quantized.expand import EXPANSIONS, expand, lift
from planner.formats.onnx.quantized.formulas import ROUNDINGS, Array, bipolar
from planner.formats.onnx.quantized.lowering import EVALUATORS, Draft, draft_of, evaluate, lower
from planner.formats.onnx.quantized.parameters import refuse_parameters
from planner.formats.onnx.quantized.quantizers import Found, Quantizer, find_quantizers
from planner.formats.onnx.quantized.types import type_of
from planner.formats.onnx.shapes import infer
from planner.ir.graph import HALVES, Facts, Graph, Op, Value
from planner.ir.types.qtypes import AnyType, Bipolar, QType, Storage, Uniform
from planner.ops import LINEAR, defined

QUANTIZED_OPS: Final = (
    ELEMENTWISE
    | EXPANSIONS.keys()
    | {
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QuantizeLinear",
    }
)
# ceil(x) is round(x + 0.5) and floor(x) is round(x - 0.5), except for integers, which become ties.
_BIASES: Final[Mapping[str, float]] = {"CEIL": 0.5, "FLOOR": -0.5}
_EVEN: Final = frozenset({"HALF_EVEN", "ROUND"})
_WIDEST_FACT: Final = 16


@dataclass(slots=True)
class _Work:
    """The graph being rewritten."""

    graph: Graph
    draft: Draft
    users: Mapping[str, Sequence[Op]]
    alias: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)
    seen: dict[tuple[str, QType], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def name(self, value: str) -> str:
        """The value that stands for one of the file's."""
        return self.alias.get(value, value)


def absorb(graph: Graph) -> Graph:
    """Turn quantization ops into facts; the same graph if it has none."""
    if not any(op.type in QUANTIZED_OPS for op in graph.ops):
        return graph
    # Scales come through Identity, Tile, Reshape, Expand of constants too.
    graph = fold_constants(infer(drop_identities(graph)))
    graph = lift(infer(expand(plain_products(graph))))
    refuse_parameters(graph)
    found = {item.last: item for item in find_quantizers(graph)}
    work = _Work(graph, draft_of(graph), _users(graph))
    for at, op in enumerate(graph.ops):
        item = found.get(at)
        if item is not None and _absorbed(work, item, op):
            continue
        if op.type == "Transpose" and _moved(work, op):
            continue
        work.draft.ops.append(replace(op, inputs=tuple(map(work.name, op.inputs))))
    done = _bounded(work)
    rest = [op for op in done.ops if op.type in ELEMENTWISE]
    reasons = [_left(op) for op in rest if not _has_reason(op, work.notes)]
    halves = sum(_is_half(op, done) for op in done.ops)
    if halves:
        reasons.append(f"{HALVES} ({halves} of them): export the model in float32, then quantize it")
    return infer(lower(replace(done, notes=(*graph.notes, *work.notes, *reasons))))


def _is_half(op: Op, graph: Graph) -> bool:
    """Whether an op is half of a pair on reals in float16."""
    real = {"DequantizeLinear": op.outputs[:1], "QuantizeLinear": op.inputs[:1]}.get(op.type, ())
    return any(graph.values[name].dtype == "f16" for name in real)


def _users(graph: Graph) -> Mapping[str, Sequence[Op]]:
    users: dict[str, list[Op]] = {}
    for op in graph.ops:
        for name in {*op.inputs, *op.captures}:
            users.setdefault(name, []).append(op)
    return users


def _absorbed(work: _Work, found: Found, op: Op) -> bool:
    """Take a quantizer out of the graph, if a type can state it."""
    shape = work.graph.values[found.result].shape
    if found.data is None and shape is None:
        shape = work.graph.values[found.source].shape
    is_constant = found.data is not None or work.draft.array(work.name(found.source)) is not None
    if is_constant and found.data is not None:
        shape = found.data.shape
    quantizer = found.quantizer
    try:
        kind = type_of(quantizer, shape)
        bias = 0.0 if is_constant else _bias_of(quantizer)
    except ModelError as error:
        work.notes.append(f"{op.type.rpartition('::')[2]} at {op.name!r} falls back to float: {error}")
        return False
    if is_constant:
        return _constant(work, found, kind, op)
    if isinstance(kind, Bipolar):
        # One bit is no approximation of its input: the sign stays, the type says what it gives.
        work.facts[found.result] = (kind,)
        return False
    source = work.name(found.source)
    if bias:
        shift = np.asarray(quantizer.scale * np.float32(bias), np.float32)
        number = work.draft.constant(f"{found.result}/rounding_bias", shift)
        source = work.draft.emit(op, "Add", source, number)
    _pin(work, op, source, found.result, kind)
    return True


def _bias_of(quantizer: Quantizer) -> float:
    """The addend, in steps, with which rounding half to even rounds as the quantizer does.

    Raises:
      ModelError: no number does.
    """
    mode = quantizer.rounding
    if mode in _EVEN:
        return 0.0
    if mode in _BIASES:
        return _BIASES[mode]
    # They differ from half to even at exact ties only, which no type tells apart.
    if mode in ("HALF_DOWN", "HALF_UP"):
        return 0.0
    # Without negative results, away from zero is up and towards zero is down.
    if float(quantizer.low.min()) >= 0 and mode in ("DOWN", "ROUND_TO_ZERO", "UP"):
        return 0.5 if mode == "UP" else -0.5
    raise ModelError(f"no type rounds by {mode} on both sides of zero")


def _pin(work: _Work, op: Op, source: str, result: str, kind: QType) -> None:
    """Let consumers of `result` read the source under this type."""
    graph, shared = work.graph, work.seen.get((source, kind))
    if shared is None:
        # The source bears the type itself if this quantizer is all that reads it; else a copy does, so that
        # other readers keep the float.
        is_free = (
            source not in graph.inputs
            and source not in graph.outputs
            and source not in work.facts
            and not graph.values.get(source, Value(source)).facts
            and len(work.users.get(source, ())) <= 1
        )
        shared = source if is_free else ""
        if not shared and result not in graph.outputs:
            work.draft.emit(op, "Identity", source, out=result)
            shared = result
        elif not shared:
            shared = work.draft.emit(op, "Identity", source)
        work.facts[shared] = (kind,)
        work.seen[source, kind] = shared
    if result in graph.outputs:
        work.draft.emit(op, "Identity", shared, out=result)
    elif result != shared:
        work.alias[result] = shared


def _constant(work: _Work, found: Found, kind: QType, op: Op) -> bool:
    quantizer = found.quantizer
    if found.result in work.graph.outputs:
        return False
    if found.data is not None:
        zero = quantizer.zero_point.astype(np.float32)
        wide = np.float64 if found.data.dtype == np.int32 else np.float32
        shifted = np.asarray(found.data.astype(wide)) - zero
        with np.errstate(over="ignore"):
            array = (shifted * quantizer.scale).astype(np.float32)
        if not np.isfinite(array).all():
            raise ModelError(f"constant {found.result!r} has numbers beyond float32 on its grid, {kind}")
        if work.graph.values[found.result].dtype == "f16":
            array = array.astype(np.float16)
    else:
        names = [work.name(name) for name in op.inputs]
        x = np.asarray(work.draft.array(work.name(found.source)))
        if op.type in EVALUATORS:
            array = evaluate(op, [np.asarray(work.draft.array(name)) for name in names])
        else:
            array = _on_grid(x, quantizer)
    work.draft.set_constant(found.result, array)
    if found.data is not None and op.type == "DequantizeLinear" and op.attributes.get("block_size"):
        kind = _in_blocks(kind, quantizer.scale, array.shape, op)
    facts = _constant_facts(work, found, kind, array)
    if facts:
        work.facts[found.result] = facts
    return True


def _in_blocks(kind: QType, scale: Array, shape: tuple[int, ...], op: Op) -> QType:
    """A float storage in the blocks of its operator, also where all scales along an axis are alike.

    Numbers of a fixed type have to stay, and rows in blocks take no other type. Integers require their width
    alone.
    """
    if not isinstance(kind, Uniform) or not kind.storage.float_name or kind.blocks:
        return kind
    axis, size = op.attributes.get("axis", 1) % len(shape), op.attributes["block_size"]
    grid = np.broadcast_to(scale, shape)[
        tuple(slice(None, None, size if i == axis else 1) for i in range(len(shape)))
    ]
    blocks = tuple((i, size if i == axis else 1) for i in range(len(shape)))
    scales = tuple(grid.astype(np.float64).reshape(-1).tolist())
    return Uniform(kind.storage, scales, (0,) * len(scales), kind.expressed, None, blocks, grid.shape)


def _on_grid(x: Array, quantizer: Quantizer) -> Array:
    """A float constant after QuantizeLinear, Clip and DequantizeLinear."""
    if quantizer.is_bipolar:
        return bipolar(x, quantizer.scale)
    v = x / quantizer.scale
    steps = np.rint(v) + quantizer.zero_point
    if not quantizer.rounds_first:
        steps = ROUNDINGS[quantizer.rounding](v + quantizer.zero_point)
    q = np.clip(steps, quantizer.low, quantizer.high)
    return np.asarray((q - quantizer.zero_point) * quantizer.scale, np.float32)


def _constant_facts(work: _Work, found: Found, kind: QType, array: Array) -> Facts:
    """A weight gets a fixed type where most devices have such grids, and a table where it lies in blocks.

    Other constants require the width alone. A constant of a fixed type rules out every row that cannot say
    its numbers at its scale.
    """
    if isinstance(kind, Bipolar):
        return (kind,) if _readers_of_weight(work, found.result) else ()
    if not isinstance(kind, Uniform) or _is_setting(work, found.result):
        return ()
    kind = _tight(kind, array)
    if array.dtype == np.float16 and kind.expressed == "f32":
        kind = replace(kind, expressed="f16")
    readers = _readers_of_weight(work, found.result)
    store = kind.storage
    is_usual = kind.is_per_tensor or (not kind.blocks and readers <= {"Conv", "ConvTranspose"})
    if readers and (store.float_name or kind.blocks or (is_usual and _is_common(kind, array))):
        return (kind,)
    if kind.blocks and {user.type for user in work.users.get(found.result, ())} == {"Gather"}:
        return (kind,)
    if store.range_bits <= _WIDEST_FACT and not store.float_name:
        # A grid that few devices have: the numbers are kept where the row holds them.
        is_said = readers and not kind.blocks and not kind.ranges
        return (AnyType(store, kind.expressed, kind) if is_said else AnyType(store),)
    return ()


def _is_setting(work: _Work, name: str) -> bool:
    """Whether all that reads a constant takes it as a bound or the like, of which only the number counts."""
    places = [(op, i) for op in work.users.get(name, ()) for i, read in enumerate(op.inputs) if read == name]
    return bool(places) and all(i in defined(op.type).parameters for op, i in places)


def _is_common(kind: Uniform, array: Array) -> bool:
    """`is_common` of a type; of one with zero points, of the integers of its constant less these."""
    if not any(kind.zero_points):
        return is_common(kind.storage)
    shape = [-1 if i == kind.axis else 1 for i in range(array.ndim)]
    steps = np.rint(array.astype(np.float32) / np.asarray(kind.scales, np.float32).reshape(shape))
    return not kind.storage.float_name and float(np.abs(steps).max(initial=0)) <= most_of(kind.storage)


def _readers_of_weight(work: _Work, name: str) -> set[str]:
    """Types of the linear ops that read a constant as their weight, through transposes."""
    found: set[str] = set()
    for user in work.users.get(name, ()):
        if user.type == "Transpose":
            found |= _readers_of_weight(work, user.outputs[0])
        elif user.type == "MatMul" or (user.type in LINEAR and user.inputs[1:2] == (name,)):
            found.add(user.type)
    return found


def _tight(kind: Uniform, array: Array) -> Uniform:
    """A type without its lowest number where no weight has it, so that it lies evenly around zero."""
    store = kind.storage
    if (
        store.float_name
        or kind.ranges
        or any(kind.zero_points)
        or store.qmin != -store.qmax - 1
        or store.qmax < 1
    ):
        return kind
    if kind.blocks:
        return kind
    # A weight that never uses -128 fits rows that ask for -127 to 127, so the unused end is given up.
    others = tuple(axis for axis in range(array.ndim) if axis != kind.axis)
    least = np.min(array, axis=others, initial=0.0)
    if np.min(least / np.asarray(kind.scales)) < store.qmin + 0.5:
        return kind
    return replace(kind, storage=Storage(store.bits, store.signed, -store.qmax, store.qmax))


def _moved(work: _Work, op: Op) -> bool:
    """Transpose a constant that has a type, its axis with it."""
    source = work.name(op.inputs[0])
    facts, array = work.facts.get(source), work.draft.constants.get(source)
    if facts is None or array is None or op.outputs[0] in work.graph.outputs:
        return False
    perm = tuple(op.attributes.get("perm", range(array.ndim)[::-1]))
    work.draft.set_constant(op.outputs[0], np.ascontiguousarray(array.transpose(perm)))
    work.facts[op.outputs[0]] = tuple(_permuted(fact, perm) for fact in facts)
    return True


def _permuted(fact: QType, perm: Sequence[int]) -> QType:
    if isinstance(fact, AnyType) and fact.trained is not None:
        trained = _permuted(fact.trained, perm)
        return replace(fact, trained=trained) if isinstance(trained, Uniform) else fact
    if not isinstance(fact, Uniform):
        return fact
    if fact.axis is not None:
        return replace(fact, axis=perm.index(fact.axis))
    if not fact.blocks:
        return fact
    # Scales of blocks are listed row-major over the grid, which turns with the tensor.
    order = np.arange(len(fact.scales)).reshape(fact.grid).transpose(perm).reshape(-1).tolist()
    return replace(
        fact,
        scales=tuple(fact.scales[i] for i in order),
        zero_points=tuple(fact.zero_points[i] for i in order),
        ranges=tuple(fact.ranges[i] for i in order) if fact.ranges else (),
        blocks=tuple(sorted((perm.index(axis), size) for axis, size in fact.blocks)),
        grid=tuple(fact.grid[axis] for axis in perm),
    )


def _bounded(work: _Work) -> Graph:
    """The graph with its facts."""
    done = work.draft.finish()
    values = dict(done.values)
    for name, facts in work.facts.items():
        values[name] = replace(values[name], facts=facts)
    return replace(done, values=values)


def _has_reason(op: Op, notes: Sequence[str]) -> bool:
    return any(f"at {op.name!r} falls back to float" in note for note in notes)


def _left(op: Op) -> str:
    kind = op.type.rpartition("::")[2]
    if op.type == QUANT:
        return f"{kind} at {op.name!r} falls back to float: the model computes its scale, zero point or width"
    if op.type in (FLOAT_QUANT, TRUNC):
        return f"{kind} at {op.name!r} falls back to float: no type says what it does"
    return f"{kind} at {op.name!r} stays as the float ops that compute it"
