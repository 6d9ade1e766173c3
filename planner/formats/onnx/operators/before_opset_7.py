"""Before opset 7: ops of opset 1 to 6, rewritten to mean the same in opset 7.

Until opset 6 operands broadcast only where `broadcast` said so, from `axis` on; some operands were attributes
and some attributes floats or texts. In: ops as the file has them; out: a graph of opset 7, which
`onnx.opsets` takes on. Source: ONNX Changelog.md, opsets 1 to 7.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto, defs

from planner.errors import ModelError
from planner.formats.onnx.dtypes import dtype_of
from planner.formats.onnx.naming import unused
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.structure.subgraph_nodes import graph_of, op_types, subgraphs
from planner.ir.graph import Constant, Graph, Op, Value

OLDEST: Final = 1
SEVEN: Final = 7
_ELEMENTS: Final = frozenset(TensorProto.DataType.keys())
_MOST: Final = (1 << 31) - 1
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "INT": (int,),
    "FLOAT": (float, int),
    "STRING": (str,),
    "INTS": (int,),
    "FLOATS": (float, int),
    "STRINGS": (str,),
}
"""The Python types of an attribute, or of each item of a list, by its ONNX type."""


@dataclass(slots=True)
class _Scope:
    """The graph around an op, and what adapters add to it."""

    version: int
    graph: Graph
    taken: set[str]
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def constant(self, op: Op, part: str, array: np.ndarray) -> str:
        """Add a constant and give its name."""
        name = unused(f"{op.outputs[0]}/{part}", self.taken)
        self.constants[name] = array
        return name

    def array(self, name: str) -> np.ndarray | None:
        """The numbers of a constant of the file."""
        found = self.graph.constants.get(name)
        return None if found is None else found.array


Adapter: TypeAlias = Callable[[Op, _Scope], list[Op]]


def to_opset_7(graph: Graph) -> Graph:
    """Rewrite a graph of opset 1 to 6; any other as it is.

    Raises:
      ModelError: an op whose old meaning depends on what is not known.
    """
    version = graph.opsets.get("", SEVEN)
    if version >= SEVEN:
        return graph
    _refuse_bodies(graph)
    _refuse_forms(graph)
    scope = _Scope(version, graph, {*graph.values})
    done = _with(graph, [new for op in graph.ops for new in _adapted(op, scope, ADAPTERS)], scope)
    if not any(op.type in ALIGNED for op in done.ops):
        return done
    # Where operands align depends on ranks, and a result then has the shape of the first operand.
    stood_in = replace(
        done,
        ops=tuple(
            replace(op, type="Identity", inputs=op.inputs[:1], attributes={}) if op.type in ALIGNED else op
            for op in done.ops
        ),
    )
    typed = replace(done, values=infer(stood_in).values)
    scope = _Scope(version, typed, {*typed.values})
    aligned = _with(typed, [new for op in typed.ops for new in _adapted(op, scope, ALIGNED)], scope)
    # Shapes that the copies stood for are those of results; types are inferred anew.
    return replace(
        aligned, values={name: done.values.get(name, item) for name, item in aligned.values.items()}
    )


def _adapted(op: Op, scope: _Scope, adapters: Mapping[str, Adapter]) -> list[Op]:
    if "consumed_inputs" in op.attributes and "::" not in op.type:
        op = replace(op, attributes=_without(op, "consumed_inputs"))
    adapter = adapters.get(op.type)
    return [op] if adapter is None else adapter(op, scope)


def _with(graph: Graph, ops: list[Op], scope: _Scope) -> Graph:
    fresh = {out: Value(out, None, "") for op in ops for out in op.outputs if out and out not in graph.values}
    added = {name: Value(name, array.shape, dtype_of(array)) for name, array in scope.constants.items()}
    return replace(
        graph,
        ops=tuple(ops),
        values={**graph.values, **fresh, **added},
        constants={**graph.constants, **{name: Constant(array) for name, array in scope.constants.items()}},
        opsets={**graph.opsets, "": SEVEN},
    )


def _refuse_bodies(graph: Graph) -> None:
    for op in graph.ops:
        inner = {kind for body in subgraphs(op).values() for kind in op_types(graph_of(body))}
        changed = sorted(inner & (ADAPTERS.keys() | ALIGNED.keys()))
        if changed:
            raise ModelError(
                f"{op.type} at {op.name!r} has {', '.join(changed)} of opset {graph.opsets['']} in its body",
                hint="bodies are read from opset 7 on",
            )


@dataclass(frozen=True, slots=True)
class _Form:
    """Of an op in opsets 1 to 6: how many operands and results it has, and the types of its attributes."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: Mapping[str, frozenset[str]]


@lru_cache(maxsize=64)
def _form(kind: str) -> _Form:
    old = [
        schema
        for schema in defs.get_all_schemas_with_history()
        if schema.name == kind and not schema.domain and schema.since_version < SEVEN
    ]
    keys = {key for schema in old for key in schema.attributes}
    return _Form(
        (min(schema.min_input for schema in old), max(schema.max_input for schema in old)),
        (min(schema.min_output for schema in old), max(schema.max_output for schema in old)),
        {
            key: frozenset(str(s.attributes[key].type).rpartition(".")[2] for s in old if key in s.attributes)
            for key in sorted(keys)
        },
    )


def _refuse_forms(graph: Graph) -> None:
    """Refuse ops that no adapter can read: operands or results too few or many, attributes of other types."""
    for op in graph.ops:
        if op.type not in ADAPTERS and op.type not in ALIGNED:
            continue
        form = _form(op.type)
        for side, names, (least, most) in (("in", op.inputs, form.inputs), ("out", op.outputs, form.outputs)):
            lacking = next((i for i in range(least) if i >= len(names) or not names[i]), None)
            if lacking is None and len(names) <= most:
                continue
            count = (
                str(least) if least == most else f"{least} to {most}" if most < _MOST else f"{least} or more"
            )
            raise ModelError(
                f"{op.type} at {op.name!r}: port {op.name}.{side}[{most if lacking is None else lacking}] "
                + ("is one too many" if lacking is None else "is missing"),
                hint=f"accepted: {count} {'operands' if side == 'in' else 'results'}",
            )
        for key, given in op.attributes.items():
            kinds = form.attributes.get(key)
            if kinds is not None and not any(_is_of(kind, given) for kind in kinds):
                raise _attribute(op, key, given, " or ".join(_NAMES[kind] for kind in sorted(kinds)))


_NAMES: Final = {
    "INT": "an integer",
    "FLOAT": "a float",
    "STRING": "a text",
    "INTS": "a list of integers",
    "FLOATS": "a list of floats",
    "STRINGS": "a list of texts",
}


def _is_of(kind: str, given: object) -> bool:
    if kind.endswith("S"):
        return isinstance(given, tuple) and all(isinstance(item, _TYPES[kind]) for item in given)
    return isinstance(given, _TYPES[kind])


def _attribute(op: Op, key: str, given: object, accepted: str) -> ModelError:
    text = list(given) if isinstance(given, tuple) else given
    return ModelError(
        f"{op.type} at {op.name!r}: its attribute {key!r} is {text!r}", hint=f"accepted: {accepted}"
    )


def _wholes(op: Op, index: int, array: np.ndarray, bounds: tuple[int, int], *, one: bool) -> tuple[int, ...]:
    """The numbers of an operand, of any element type, as integers."""
    numbers = () if array.dtype.kind in "OSU" else tuple(array.reshape(-1).astype(np.float64).tolist())
    least, most = bounds
    is_whole = all(number.is_integer() and least <= number <= most for number in numbers)
    if array.dtype.kind in "OSU" or not is_whole or (one and len(numbers) != 1):
        what = "one whole number" if one else "whole numbers"
        raise ModelError(
            f"{op.type} at {op.name!r}: port {op.name}.in[{index}] is given {_short(array)}",
            hint=f"accepted: {what} of {least} to {most}",
        )
    return tuple(int(number) for number in numbers)


def _short(array: np.ndarray) -> str:
    first = ", ".join(str(item) for item in array.reshape(-1)[:4].tolist())
    return first if array.ndim == 0 else f"[{first}{', ...' if array.size > 4 else ''}]"


def _without(op: Op, *keys: str) -> dict[str, Any]:
    return {key: item for key, item in op.attributes.items() if key not in keys}


def _drop(*keys: str) -> Adapter:
    return lambda op, _: [replace(op, attributes=_without(op, *keys))]


def _batch_normalization(op: Op, _scope: _Scope) -> list[Op]:
    if not op.attributes.get("is_test", 0) and len([out for out in op.outputs if out]) > 1:
        raise ModelError(
            f"BatchNormalization at {op.name!r} has is_test=0 and gives the statistics of its batch",
            hint="export the model for inference (is_test=1)",
        )
    return [replace(op, attributes=_without(op, "is_test"))]


def _cast(op: Op, _scope: _Scope) -> list[Op]:
    to = op.attributes.get("to")
    if not isinstance(to, str):
        return [op]
    if to.upper() not in _ELEMENTS:
        raise ModelError(
            f"Cast at {op.name!r}: its attribute 'to' is {to!r}", hint="accepted: FLOAT, INT64, ..."
        )
    return [replace(op, attributes={"to": int(TensorProto.DataType.Value(to.upper()))})]


def _concat(op: Op, scope: _Scope) -> list[Op]:
    return [replace(op, attributes={"axis": 1, **op.attributes})] if scope.version < 4 else [op]


def _norm(op: Op, scope: _Scope) -> list[Op]:
    """The order of the norm was a float."""
    order = float(op.attributes.get("p", 2.0))
    if scope.version > 1:
        return [op]
    if not order.is_integer() or not 0 < order <= _MOST:
        raise _attribute(op, "p", order, f"whole numbers of 1 to {_MOST}")
    return [replace(op, attributes={**op.attributes, "p": int(order)})]


def _pad(op: Op, _scope: _Scope) -> list[Op]:
    if "paddings" not in op.attributes:
        return [op]
    return [replace(op, attributes={**_without(op, "paddings"), "pads": op.attributes["paddings"]})]


def _reshape(op: Op, scope: _Scope) -> list[Op]:
    if len(op.inputs) > 1 or "shape" not in op.attributes:
        return [op]
    shape = scope.constant(op, "shape", np.asarray(op.attributes["shape"], np.int64))
    return [replace(op, inputs=(*op.inputs, shape), attributes={})]


def _selu(op: Op, scope: _Scope) -> list[Op]:
    """The constants had fewer digits."""
    before = {"alpha": 1.6732, "gamma": 1.0507} if scope.version < 6 else {}
    return [replace(op, attributes={**before, **op.attributes})]


def _split(op: Op, scope: _Scope) -> list[Op]:
    """Sizes could be an operand of the tensor's own element type."""
    if len(op.inputs) < 2 or not op.inputs[1]:
        return [replace(op, attributes={"axis": 0, **op.attributes})]
    sizes = scope.array(op.inputs[1])
    if sizes is None:
        raise ModelError(
            f"Split at {op.name!r} computes its sizes", hint="accepted: sizes that are constants"
        )
    split = _wholes(op, 1, sizes, (0, _MOST), one=False)
    return [replace(op, inputs=op.inputs[:1], attributes={"axis": 0, **op.attributes, "split": split})]


def _tile(op: Op, scope: _Scope) -> list[Op]:
    """Before opset 6 it repeated along one axis."""
    if len(op.inputs) < 3:
        return [op]
    tiles, axis = (scope.array(name) for name in op.inputs[1:3])
    shape = scope.graph.values[op.inputs[0]].shape
    if tiles is None or axis is None or shape is None:
        raise ModelError(
            f"Tile at {op.name!r} repeats along an axis that is not known", hint="accepted: constants"
        )
    repeats = np.ones(len(shape), np.int64)
    (count,) = _wholes(op, 1, tiles, (0, _MOST), one=True)
    (at,) = _wholes(op, 2, axis, (-len(shape), len(shape) - 1), one=True)
    repeats[at] = count
    return [replace(op, inputs=(op.inputs[0], scope.constant(op, "repeats", repeats)))]


def _upsample(op: Op, _scope: _Scope) -> list[Op]:
    if "scales" in op.attributes:
        return [op]
    scales = (1.0, 1.0, op.attributes.get("height_scale", 1.0), op.attributes.get("width_scale", 1.0))
    return [replace(op, attributes={**_without(op, "height_scale", "width_scale"), "scales": scales})]


def _broadcast(op: Op, scope: _Scope) -> list[Op]:
    """The second operand lies from `axis` on against the first; without, their last axes meet."""
    axis, plain = op.attributes.get("axis"), replace(op, attributes=_without(op, "axis", "broadcast"))
    if axis is None or not op.attributes.get("broadcast", 0):
        return [plain]
    first, second = (scope.graph.values[name].shape for name in op.inputs)
    if first is None or second is None:
        raise ModelError(
            f"{op.type} at {op.name!r} broadcasts from axis {axis} on operands of unknown ranks",
            hint="give its operands shapes",
        )
    if not -len(first) <= axis <= len(first):
        raise _attribute(op, "axis", axis, f"{-len(first)} to {len(first)}, of {len(first)} dimensions")
    behind = len(first) - (axis + len(first) if axis < 0 else axis) - len(second)
    if behind < 0:
        raise ModelError(
            f"{op.type} at {op.name!r}: {len(second)} dimensions from axis {axis} on are more than the first "
            f"operand's {len(first)}"
        )
    return _stretched(op, plain, scope, behind)


def _prelu(op: Op, scope: _Scope) -> list[Op]:
    """A slope for each channel, which are axis 1, was a vector."""
    first, slope = (scope.graph.values[name].shape for name in op.inputs)
    if slope is None or len(slope) != 1 or slope[0] == 1:
        return [op]
    if first is None:
        raise ModelError(
            f"PRelu at {op.name!r} has a slope per channel, and the rank of {op.inputs[0]!r} is not known",
            hint=f"give {op.inputs[0]!r} a shape",
        )
    return _stretched(op, op, scope, max(len(first) - 2, 0))


def _stretched(op: Op, plain: Op, scope: _Scope, behind: int) -> list[Op]:
    """The op on its second operand with axes of size 1 behind its own."""
    if not behind:
        return [plain]
    rank = len(scope.graph.values[op.inputs[1]].shape or ())
    wide = unused(f"{op.outputs[0]}/stretched", scope.taken)
    axes = tuple(range(rank, rank + behind))
    return [
        Op(f"{op.name}/stretch", "Unsqueeze", op.inputs[1:2], (wide,), {"axes": axes}, scope=op.scope),
        replace(plain, inputs=(op.inputs[0], wide)),
    ]


ADAPTERS: Final[Mapping[str, Adapter]] = {
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "Concat": _concat,
    "Dropout": _drop("is_test"),
    "GRU": _drop("output_sequence"),
    "Gemm": _drop("broadcast"),
    "GlobalLpPool": _norm,
    "LSTM": _drop("output_sequence"),
    "LpPool": _norm,
    "Pad": _pad,
    "RNN": _drop("output_sequence"),
    "Reshape": _reshape,
    "Selu": _selu,
    "Split": _split,
    "Tile": _tile,
    "Upsample": _upsample,
}
"""Adapters that need no rank."""

ALIGNED: Final[Mapping[str, Adapter]] = {
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), _broadcast
    ),
    "PRelu": _prelu,
}
"""Adapters of ops whose second operand aligns with the first."""
