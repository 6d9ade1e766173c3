"""Before opset 7: ops of opset 1 to 6, rewritten to mean the same in opset 7.

Until opset 6 operands broadcast only where `broadcast` said so, from `axis` on; some operands were attributes
and some attributes floats or texts. In: ops as the file has them; out: a graph of opset 7, which
`onnx.opsets` takes on. Source: ONNX Changelog.md, opsets 1 to 7.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import TensorProto

from planner.errors import ModelError
from planner.ir.graph import Constant, Graph, Op, Value
from planner.onnx.dtypes import dtype_of
from planner.onnx.naming import unused
from planner.onnx.shapes import infer
from planner.onnx.structure.subgraph_nodes import graph_of, op_types, subgraphs

OLDEST: Final = 1
SEVEN: Final = 7
_ELEMENTS: Final = frozenset(TensorProto.DataType.keys())


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
    if not order.is_integer():
        raise ModelError(
            f"{op.type} at {op.name!r}: its attribute 'p' is {order:g}", hint="accepted: whole numbers"
        )
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
    split = tuple(int(size) for size in sizes.reshape(-1))
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
    repeats[int(axis.item())] = int(tiles.item())
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
    behind = len(first) - axis % max(len(first), 1) - len(second)
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
