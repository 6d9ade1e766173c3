"""Standard op: the one ONNX operator that the ops of a block spell out.

Exporters write Gelu, LayerNormalization and others as many small ops; a target's `blocks` name the kernel as
ONNX names the operator. If a row serves such a kernel, files and the interpreter run that operator: GELU of a
device is GELU in either spelling. Kernels in float keep their ops. Source: ONNX operators, opset 21.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from planner.ir.graph import Graph, Op, Region

Attributes: TypeAlias = Mapping[str, Any] | None
"""Of the operator; None where the ops are none of its kind."""
SPELLS: Final = "spells"
"""Attribute of a region that a block made: the standard operator that it is."""
_REDUCTIONS: Final = frozenset({"ReduceMax", "ReduceMean", "ReduceSum"})


def spelling_of(region: Region, graph: Graph) -> Mapping[str, Any]:
    """Return the attributes of a block's region: the operator that it spells out ("": none), and its own."""
    attributes_of = SPELLED.get(region.kernel)
    if attributes_of is None:
        return {}
    kinds = {graph.values[name].dtype for name in (*region.inputs[:1], *region.outputs)}
    attributes = attributes_of(region, graph) if len(region.outputs) == len(kinds) == 1 else None
    return {SPELLS: ""} if attributes is None else {SPELLS: region.kernel, **attributes}


def standard_op(region: Region) -> Op | None:
    """Return the operator that a region's ops spell out; None where they spell none."""
    if not region.attributes.get(SPELLS) or not region.ops:
        return None
    last, inputs = region.ops[-1], list(region.inputs)
    while inputs and not inputs[-1]:
        inputs.pop()
    attributes = {key: item for key, item in region.attributes.items() if key != SPELLS}
    return Op(last.name, region.kernel, tuple(inputs), last.outputs, attributes, scope=region.scope)


def ops_to_run(region: Region) -> tuple[Op, ...]:
    """Return the ops that a row serves: the standard operator where the region spells one, else its ops."""
    op = standard_op(region)
    return region.ops if op is None else (op,)


def misses_its_name(region: Region) -> bool:
    """Whether a block is no operator of its name, however near: a norm of other axes than the last."""
    return region.attributes.get(SPELLS) == ""


def _gelu(region: Region, _graph: Graph) -> Attributes:
    types = {op.type for op in region.ops}
    if not _is_of_one(region) or types.isdisjoint({"Erf", "Sigmoid", "Tanh"}):
        return None
    return {"approximate": "none" if "Erf" in types else "tanh"}


def _hard_swish(region: Region, _graph: Graph) -> Attributes:
    types = {op.type for op in region.ops}
    return {} if _is_of_one(region) and not types.isdisjoint({"Clip", "HardSigmoid", "Min"}) else None


def _softmax(region: Region, graph: Graph) -> Attributes:
    types = {op.type for op in region.ops}
    axes = _axes(region, graph)
    if not _is_of_one(region) or not {"Exp", "ReduceSum"} <= types or axes is None or len(axes) != 1:
        return None
    return {"axis": axes[0]}


def _layer_normalization(region: Region, graph: Graph) -> Attributes:
    axes, shape = _axes(region, graph), graph.values[region.inputs[0]].shape
    names = [name for name in region.inputs[1:] if name]
    if axes is None or shape is None or axes != (len(shape) - 1,) or not region.inputs[1:2] or not names:
        return None
    # The operator has a gain, of the sizes that it normalizes.
    if not region.inputs[1] or any(graph.values[name].shape != shape[-1:] for name in names):
        return None
    epsilon = _epsilon(region, graph)
    return None if epsilon is None else {"axis": -1, "epsilon": epsilon}


def _epsilon(region: Region, graph: Graph) -> float | None:
    """The number added before the root."""
    writers = {op.outputs[0]: op for op in region.ops}
    root = next((op for op in region.ops if op.type in ("Pow", "Sqrt") and _is_root(op, graph)), None)
    total = writers.get(root.inputs[0]) if root is not None else None
    while total is not None and total.type != "Add":
        total = writers.get(total.inputs[0])
    found = [graph.constants.get(name) for name in total.inputs] if total is not None else []
    arrays = [one.array for one in found if one is not None and one.array is not None and one.array.size]
    return float(arrays[0].reshape(-1)[0]) if len(arrays) == 1 else None


def _is_root(op: Op, graph: Graph) -> bool:
    if op.type == "Sqrt":
        return True
    exponent = graph.constants.get(op.inputs[1])
    if exponent is None or exponent.array is None or exponent.array.size != 1:
        return False
    return abs(float(exponent.array.reshape(-1)[0])) == 0.5


def _is_of_one(region: Region) -> bool:
    return sum(map(bool, region.inputs)) == 1


def _axes(region: Region, graph: Graph) -> tuple[int, ...] | None:
    """The axes of the first operand that all reductions are along; None where they differ or drop them."""
    shape = graph.values[region.inputs[0]].shape
    if shape is None:
        return None
    found: set[tuple[int, ...]] = set()
    for op in region.ops:
        if op.type not in _REDUCTIONS:
            continue
        constant = graph.constants.get(op.inputs[1]) if len(op.inputs) > 1 and op.inputs[1] else None
        if constant is None or constant.array is None:
            return None
        axes = tuple(sorted(int(axis) % len(shape) for axis in constant.array.reshape(-1)))
        found.add(axes)
        if not _keeps(op, shape, axes, region, graph):
            return None
    return found.pop() if len(found) == 1 else None


def _keeps(op: Op, shape: tuple[Any, ...], axes: tuple[int, ...], region: Region, graph: Graph) -> bool:
    """Whether a reduction keeps its axes, at once or by a view behind it: it broadcasts along them then."""
    if op.attributes.get("keepdims", 1):
        return True
    kept = tuple(1 if i in axes else size for i, size in enumerate(shape))
    name, seen = op.outputs[0], 0
    while seen < len(region.ops):
        if graph.values[name].shape in (kept, shape):
            return True
        seen += 1
        behind = [other for other in region.ops if name in other.inputs]
        if len({other.outputs[0] for other in behind}) == 0:
            return False
        name = behind[0].outputs[0]
    return False


SPELLED: Final[Mapping[str, Callable[[Region, Graph], Attributes]]] = {
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
    "LayerNormalization": _layer_normalization,
    "Softmax": _softmax,
}
"""Operators that blocks spell out, and how to read their attributes off the ops."""
