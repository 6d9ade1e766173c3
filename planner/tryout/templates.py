"""Templates: the smallest sensible tensors for each op, and trees of ops from a fusion's pattern.

In: an op type or a pattern. Out: small Graphs of ops with random weights (seeded), the variants that rows
ask for among them: groups, strides, pads, constant and dynamic operands. Nothing here plans.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

from planner.ir.graph import Constant, Graph, Op, Value
from planner.target.patterns import Literal, Node, OpPattern, Variable, parse_pattern, variants
from planner.target.records import Target

Sizes: TypeAlias = tuple[int, ...]

OPSET: Final = 21
MOST_VARIANTS: Final = 12


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand: data of a shape, a weight of a shape (`constant`), or numbers that are no port."""

    shape: Sizes = ()
    constant: bool = False
    numbers: Any = None
    dtype: str = "f32"
    dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    """An op with operands that fit it, its attributes, and the shapes of its results."""

    operands: tuple[Operand, ...]
    results: tuple[Sizes, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


X: Final[Sizes] = (1, 4, 4, 4)


def _data(*shape: int) -> Operand:
    return Operand(shape)


def _weight(*shape: int) -> Operand:
    return Operand(shape, constant=True)


def _ints(*numbers: int) -> Operand:
    return Operand((len(numbers),), numbers=numbers, dtype="i64")


def _reals(*numbers: float) -> Operand:
    return Operand((len(numbers),), numbers=numbers)


def _scalar(number: float) -> Operand:
    return Operand((), numbers=number)


def _conv(kernel: int = 3, group: int = 1, dims: int = 2) -> Template:
    space, pads = (4,) * dims, (kernel // 2,) * 2 * dims
    return Template(
        (
            _data(1, 4, *space),
            _weight(8 if group < 4 else 4, 4 // group, *(kernel,) * dims),
            _weight(8 if group < 4 else 4),
        ),
        ((1, 8 if group < 4 else 4, *space),),
        {"group": group, "pads": pads},
    )


def _pool(**attributes: Any) -> Template:
    pads = attributes.get("pads", (0, 0, 0, 0))
    size = (4 + pads[0] + pads[2] - 2) // 2 + 1
    return Template(
        (_data(*X),), ((1, 4, size, size),), {"kernel_shape": (2, 2), "strides": (2, 2), **attributes}
    )


def _reduce() -> tuple[Template, ...]:
    return (Template((_data(*X), _ints(2, 3)), ((1, 4, 1, 1),), {"keepdims": 1}),)


def _same(*operands: Operand, **attributes: Any) -> tuple[Template, ...]:
    return (Template(operands or (_data(*X),), (X,), attributes),)


def _recurrent(gates: int, states: int = 1, *, peepholes: bool = False) -> Template:
    """A recurrent op over three steps with a bias and initial states, all of its results read."""
    size = 4
    state = (1, 1, size)
    weights = (_weight(1, gates * size, 4), _weight(1, gates * size, size), _weight(1, 2 * gates * size))
    peephole = (_weight(1, 3 * size),) if peepholes else ()
    operands = (_data(3, 1, 4), *weights, Operand(), *(states * (_data(*state),)), *peephole)
    return Template(operands, ((3, 1, 1, size), *(states * (state,))), {"hidden_size": size})


TEMPLATES: Final[Mapping[str, tuple[Template, ...]]] = {
    "ArgMax": (Template((_data(*X),), ((1, 1, 4, 4),), {"axis": 1}),),
    "ArgMin": (Template((_data(*X),), ((1, 1, 4, 4),), {"axis": 1}),),
    "AveragePool": (
        _pool(),
        _pool(count_include_pad=1),
        _pool(pads=(1, 1, 1, 1)),
        _pool(pads=(1, 1, 1, 1), count_include_pad=1),
    ),
    "Clip": _same(_data(*X), _scalar(0.0), _scalar(0.5)) + _same(_data(*X), _scalar(0.0), _scalar(6.0)),
    "Concat": (Template((_data(*X), _data(*X)), ((1, 8, 4, 4),), {"axis": 1}),),
    "Conv": (_conv(), _conv(group=4), _conv(group=2), _conv(dims=1), _conv(dims=3)),
    "ConvTranspose": (
        Template((_data(*X), _weight(4, 8, 3, 3), _weight(8)), ((1, 8, 6, 6),)),
        Template((_data(*X), _weight(4, 2, 3, 3), _weight(4)), ((1, 4, 6, 6),), {"group": 2}),
    ),
    "DepthToSpace": (Template((_data(*X),), ((1, 1, 8, 8),), {"blocksize": 2}),),
    "Expand": (Template((_data(1, 4, 1, 4), _ints(1, 4, 4, 4)), (X,)),),
    "Flatten": (Template((_data(*X),), ((1, 64),)),),
    "GRU": (_recurrent(3),),
    "Gather": (Template((_data(*X), _ints(0, 2)), ((1, 2, 4, 4),), {"axis": 1}),),
    "GatherElements": (
        Template(
            (_data(2, 3), Operand((2, 2), numbers=((0, 1), (1, 0)), dtype="i64")), ((2, 2),), {"axis": 1}
        ),
    ),
    "GatherND": (Template((_data(2, 3), Operand((2, 2), numbers=((0, 1), (1, 2)), dtype="i64")), ((2,),)),),
    "Gemm": (
        Template((_data(4, 8), _weight(8, 16), _weight(16)), ((4, 16),)),
        Template((_data(4, 8), _weight(16, 8), _weight(16)), ((4, 16),), {"transB": 1}),
    ),
    "GlobalAveragePool": (Template((_data(*X),), ((1, 4, 1, 1),)),),
    "GlobalMaxPool": (Template((_data(*X),), ((1, 4, 1, 1),)),),
    "InstanceNormalization": (Template((_data(*X), _weight(4), _weight(4)), (X,)),),
    "LSTM": (_recurrent(4, 2, peepholes=True), _recurrent(4, 2)),
    "LayerNormalization": (Template((_data(2, 8), _weight(8), _weight(8)), ((2, 8),)),),
    "LogSoftmax": _same(axis=1),
    "LpNormalization": _same(axis=1),
    "MatMul": (
        Template((_data(4, 8), _weight(8, 16)), ((4, 16),)),
        Template((_data(2, 4, 8), _weight(2, 8, 16)), ((2, 4, 16),)),
        Template((_data(2, 4, 8), Operand((2, 8, 16), dynamic=True)), ((2, 4, 16),)),
    ),
    "MaxPool": (_pool(),),
    "PRelu": _same(_data(*X), _weight(4, 1, 1)),
    "Pad": (Template((_data(*X), _ints(0, 0, 1, 1, 0, 0, 1, 1)), ((1, 4, 6, 6),)),),
    "RNN": (_recurrent(1),),
    "ReduceMax": _reduce(),
    "ReduceMean": _reduce(),
    "ReduceMin": _reduce(),
    "ReduceSum": _reduce(),
    "Reshape": (Template((_data(*X), _ints(1, 16, 4)), ((1, 16, 4),)),),
    "Resize": tuple(
        Template(
            (_data(*X), Operand(), _reals(1, 1, 2, 2)),
            ((1, 4, 8, 8),),
            {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        )
        for mode in ("nearest", "linear")
    ),
    "Slice": (Template((_data(*X), _ints(1), _ints(3), _ints(1)), ((1, 2, 4, 4),)),),
    "Softmax": _same(axis=1),
    "SpaceToDepth": (Template((_data(*X),), ((1, 16, 2, 2),), {"blocksize": 2}),),
    "Split": (Template((_data(*X), _ints(2, 2)), ((1, 2, 4, 4), (1, 2, 4, 4)), {"axis": 1}),),
    "Squeeze": (Template((_data(1, 4, 6), _ints(0)), ((4, 6),)),),
    "Tile": (Template((_data(2, 3), _ints(2, 1)), ((4, 3),)),),
    "TopK": (Template((_data(2, 8), _ints(3)), ((2, 3), (2, 3))),),
    "Transpose": (Template((_data(*X),), ((1, 4, 4, 4),), {"perm": (0, 2, 3, 1)}),),
    "Unsqueeze": (Template((_data(4, 6), _ints(0)), ((1, 4, 6),)),),
    "Where": (Template((Operand(X, numbers=True, dtype="bool"), _data(*X), _data(*X)), (X,)),),
}
"""Ops whose operands are more than tensors of one shape; others are taken to be elementwise."""

COMPARISONS: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
BINARY: Final = COMPARISONS | {"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"}
UNARY: Final = frozenset(
    {
        "Abs",
        "Ceil",
        "Celu",
        "Cos",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "Identity",
        "LeakyRelu",
        "Log",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Swish",
        "Tan",
        "Tanh",
    }
)
POSITIVE: Final = frozenset({"Div", "Log", "Mod", "Pow", "Reciprocal", "Sqrt"})
"""Ops that are not defined at all reals: their models are for inputs above zero."""

_DTYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "ArgMax": ("i64",),
    "ArgMin": ("i64",),
    "TopK": ("f32", "i64"),
    **dict.fromkeys(COMPARISONS, ("bool",)),
}
"""Element types of results that are not all float32."""


def small_models(target: Target, kernel: str, seed: int) -> Iterator[Graph]:
    """Small models, each of one kernel of a target: of each of its patterns, or of the op of its name."""
    patterns = [text for fusion in target.fusions if fusion.kernel == kernel for text in fusion.patterns]
    for text in patterns:
        for tree in variants(parse_pattern(text))[:MOST_VARIANTS]:
            yield from _of_tree(tree, seed)
    yield from _of_tree(OpPattern((kernel,), _arguments(kernel)), seed)


def _arguments(kernel: str) -> tuple[Node, ...]:
    return (Variable("a"), Variable("b")) if kernel in BINARY else (Variable("xs", variadic=True),)


@dataclass(slots=True)
class _Draft:
    """A model under construction; `constant_sides`: later operands of elementwise ops are constants."""

    rng: np.random.Generator
    constant_sides: bool
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)

    def constant(self, array: np.ndarray, dtype: str) -> str:
        """Add a constant and return its name."""
        name = f"c{len(self.constants)}"
        self.values[name] = Value(name, tuple(array.shape), dtype)
        self.constants[name] = Constant(array)
        return name

    def data(self, shape: Sizes) -> str:
        """Add a model input and return its name."""
        name = f"x{len(self.inputs)}"
        self.values[name] = Value(name, shape)
        self.inputs.append(name)
        return name

    def weight(self, shape: Sizes) -> str:
        """Add random weights and return their name."""
        return self.constant(self.rng.uniform(-0.5, 0.5, shape).astype(np.float32), "f32")


def _of_tree(tree: OpPattern, seed: int) -> Iterator[Graph]:
    innermost = _innermost(tree)
    for name in innermost.types:
        for template in TEMPLATES.get(name, (None,)):
            for optional, constants in product((True, False), (False, True)):
                draft = _Draft(np.random.default_rng(seed), constants)
                result = _build(tree, draft, template, innermost, with_optional=optional)
                if result is None:
                    continue
                outputs = (*(n for n in draft.ops[-1].outputs if draft.values[n].is_float),) or (result,)
                yield Graph(
                    name="kit",
                    values=draft.values,
                    ops=tuple(draft.ops),
                    inputs=tuple(draft.inputs),
                    outputs=outputs,
                    constants=draft.constants,
                    opsets={"": OPSET},
                )


def _innermost(tree: OpPattern) -> OpPattern:
    below = [arg for arg in tree.args if isinstance(arg, OpPattern)]
    return _innermost(below[0]) if below else tree


def _build(
    node: OpPattern, draft: _Draft, template: Template | None, innermost: OpPattern, *, with_optional: bool
) -> str | None:
    """Add the ops of a tree, the innermost first; the name of the result, None where it cannot be built."""
    kind = node.types[0]
    if node is innermost and template is not None:
        return _place(kind, node.args, draft, template, with_optional=with_optional)
    if kind in TEMPLATES and kind != "Clip":
        return None
    if kind not in BINARY | UNARY | {"Clip"}:
        return None
    shape = X
    operands: list[str] = []
    for arg in node.args:
        if isinstance(arg, OpPattern):
            built = _build(arg, draft, template, innermost, with_optional=with_optional)
            if built is None:
                return None
            operands.append(built)
            shape = tuple(int(dim) for dim in draft.values[built].shape or () if isinstance(dim, int))
    beside = bool(operands) and template is not None
    operands = _beside(node.args, operands, draft, shape, weights=beside)
    if kind == "Clip":
        operands += [draft.constant(np.asarray(bound, np.float32), "f32") for bound in (0.0, 6.0)]
    return _add(kind, tuple(operands), {}, (shape,), draft)


def _beside(
    args: tuple[Node, ...],
    built: list[str],
    draft: _Draft,
    shape: Sizes,
    *,
    weights: bool,
) -> list[str]:
    """The operands of an elementwise op in order: results of inner ops, variables and numbers."""
    found: list[str] = []
    inner = iter(built)
    for arg in args:
        if isinstance(arg, OpPattern):
            found.append(next(inner))
        elif isinstance(arg, Literal):
            found.append(draft.constant(np.asarray(arg.value, np.float32), "f32"))
        elif arg.name in draft.bound:
            found.append(draft.bound[arg.name])
        elif weights or (found and draft.constant_sides):
            found.append(draft.bound.setdefault(arg.name, draft.weight(shape[-1:])))
        else:
            found.append(draft.bound.setdefault(arg.name, draft.data(shape)))
    return found


def _place(
    kind: str, args: tuple[Node, ...], draft: _Draft, template: Template, *, with_optional: bool
) -> str | None:
    """Add the innermost op with its template's operands; the pattern's variables take those that are data."""
    names: list[str] = []
    waiting = [arg for arg in args if isinstance(arg, Variable)]
    optional = {arg.name for arg in waiting if arg.optional}
    tail = bool(waiting) and waiting[-1].variadic
    for operand in template.operands:
        if operand.numbers is not None:
            kinds = {"i64": np.int64, "bool": np.bool_, "f32": np.float32}
            array: np.ndarray = np.asarray(operand.numbers, kinds[operand.dtype])
            if operand.dtype == "bool":
                array = draft.rng.uniform(size=operand.shape) > 0.5
            names.append(draft.constant(array, operand.dtype))
            continue
        if not operand.shape:
            names.append("")
            continue
        variable = waiting.pop(0) if waiting and not (tail and len(waiting) == 1) else None
        if variable is None and not tail:
            return (
                None
                if not operand.constant
                else _add(kind, tuple(names), template.attributes, template.results, draft)
            )
        if variable is not None and variable.name in optional and not with_optional:
            break
        if variable is not None and variable.name in draft.bound:
            names.append(draft.bound[variable.name])
            continue
        name = draft.weight(operand.shape) if operand.constant else draft.data(operand.shape)
        if variable is not None:
            draft.bound[variable.name] = name
        names.append(name)
    return _add(kind, tuple(names), template.attributes, template.results, draft)


def _add(
    kind: str,
    operands: tuple[str, ...],
    attributes: Mapping[str, Any],
    shapes: tuple[Sizes, ...],
    draft: _Draft,
) -> str:
    names = tuple(f"y{len(draft.ops)}_{i}" if i else f"y{len(draft.ops)}" for i in range(len(shapes)))
    for i, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        draft.values[name] = Value(name, shape, _DTYPES.get(kind, ("f32",) * len(shapes))[i])
    draft.ops.append(
        Op(f"{kind.lower().rpartition('::')[2]}{len(draft.ops)}", kind, operands, names, attributes)
    )
    return names[0]
