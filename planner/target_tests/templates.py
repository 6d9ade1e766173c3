"""Templates: the smallest sensible tensors for each op, in the variants that rows ask for.

Groups, strides, pads, states, constant and dynamic operands. Tables only; `small_models` makes the models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from planner.ops import OPERATORS, defined, of_form
from planner.ops.forms import Form

Sizes: TypeAlias = tuple[int, ...]


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


def _recurrent(gates: int, states: int = 1, *, peepholes: bool = False, bare: bool = False) -> Template:
    """A recurrent op over three steps, all of its results read; `bare`: without a bias and initial states."""
    size = 4
    state = (1, 1, size)
    weights = (_weight(1, gates * size, 4), _weight(1, gates * size, size), _weight(1, 2 * gates * size))
    peephole = (_weight(1, 3 * size),) if peepholes else ()
    rest = () if bare else (weights[2], Operand(), *(states * (_data(*state),)), *peephole)
    operands = (_data(3, 1, 4), *weights[:2], *rest)
    return Template(operands, ((3, 1, 1, size), *(states * (state,))), {"hidden_size": size})


TEMPLATES: Final[Mapping[str, tuple[Template, ...]]] = {
    "ArgMax": (
        Template((_data(*X),), ((1, 1, 4, 4),), {"axis": 1}),
        Template((_data(*X),), ((1, 4, 4),), {"axis": 1, "keepdims": 0}),
        Template((_data(2, 8),), ((2, 1),), {"axis": 1}),
    ),
    "ArgMin": (Template((_data(*X),), ((1, 1, 4, 4),), {"axis": 1}),),
    "AveragePool": (
        _pool(),
        _pool(count_include_pad=1),
        _pool(pads=(1, 1, 1, 1)),
        _pool(pads=(1, 1, 1, 1), count_include_pad=1),
        Template((_data(*X),), (X,), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ),
    "BatchNormalization": _same(_data(*X), *(_reals(0.5, 0.75, 1.0, 1.25) for _ in range(4))),
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
    "GRU": (_recurrent(3), _recurrent(3, bare=True)),
    "Gather": (
        Template((_data(*X), _ints(0, 2)), ((1, 2, 4, 4),), {"axis": 1}),
        Template((_weight(8, 128), _ints(0, 2)), ((2, 128),), {"axis": 0}),
        Template((_weight(1024, 16), Operand((2,), dtype="i64")), ((2, 16),), {"axis": 0}),
    ),
    "GatherElements": (
        Template(
            (_data(2, 3), Operand((2, 2), numbers=((0, 1), (1, 0)), dtype="i64")), ((2, 2),), {"axis": 1}
        ),
    ),
    "GatherND": (Template((_data(2, 3), Operand((2, 2), numbers=((0, 1), (1, 2)), dtype="i64")), ((2,),)),),
    "Gemm": (
        Template((_data(4, 8), _weight(8, 16), _weight(16)), ((4, 16),)),
        Template((_data(4, 8), _weight(16, 8), _weight(16)), ((4, 16),), {"transB": 1}),
        Template((_data(2, 128), _weight(128, 4), _weight(4)), ((2, 4),)),
        Template((_data(1, 8), _weight(8, 16), _weight(16)), ((1, 16),)),
    ),
    "GlobalAveragePool": (Template((_data(*X),), ((1, 4, 1, 1),)),),
    "GlobalMaxPool": (Template((_data(*X),), ((1, 4, 1, 1),)),),
    "InstanceNormalization": (Template((_data(*X), _weight(4), _weight(4)), (X,)),),
    "LSTM": (_recurrent(4, 2, peepholes=True), _recurrent(4, 2), _recurrent(4, 2, bare=True)),
    "LayerNormalization": (Template((_data(2, 8), _weight(8), _weight(8)), ((2, 8),)),),
    "LogSoftmax": _same(axis=1),
    "LpNormalization": _same(axis=1),
    "MatMul": (
        Template((_data(4, 8), _weight(8, 16)), ((4, 16),)),
        Template((_data(2, 4, 8), _weight(2, 8, 16)), ((2, 4, 16),)),
        Template((_data(2, 4, 8), Operand((2, 8, 16), dynamic=True)), ((2, 4, 16),)),
        Template((_data(2, 128), _weight(128, 4)), ((2, 4),)),
        Template((_data(1, 8), _weight(8, 16)), ((1, 16),)),
    ),
    "MaxPool": (_pool(),),
    "PRelu": _same(_data(*X), _weight(4, 1, 1)),
    "Pad": (Template((_data(*X), _ints(0, 0, 1, 1, 0, 0, 1, 1)), ((1, 4, 6, 6),)),),
    "RNN": (_recurrent(1), _recurrent(1, bare=True)),
    "ReduceMax": _reduce(),
    "ReduceMean": _reduce(),
    "ReduceMin": _reduce(),
    "ReduceSum": _reduce(),
    "Reshape": (Template((_data(*X), _ints(1, 16, 4)), ((1, 16, 4),)),),
    "Resize": tuple(
        Template((_data(*X), Operand(), _reals(1, 1, 2, 2)), ((1, 4, 8, 8),), {"mode": mode, **more})
        for mode, more in (
            ("nearest", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
            ("linear", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
            ("linear", {}),
        )
    ),
    "Slice": (Template((_data(*X), _ints(1), _ints(3), _ints(1)), ((1, 2, 4, 4),)),),
    "Softmax": (*_same(axis=1), Template((_data(1, 16),), ((1, 16),), {"axis": -1})),
    "SpaceToDepth": (Template((_data(*X),), ((1, 16, 2, 2),), {"blocksize": 2}),),
    "Split": (Template((_data(*X), _ints(2, 2)), ((1, 2, 4, 4), (1, 2, 4, 4)), {"axis": 1}),),
    "Squeeze": (Template((_data(1, 4, 6), _ints(0)), ((4, 6),)),),
    "Tile": (Template((_data(2, 3), _ints(2, 1)), ((4, 3),)),),
    "TopK": (Template((_data(2, 8), _ints(3)), ((2, 3), (2, 3))),),
    "Transpose": (Template((_data(*X),), ((1, 4, 4, 4),), {"perm": (0, 2, 3, 1)}),),
    "Unsqueeze": (Template((_data(4, 6), _ints(0)), ((1, 4, 6),)),),
    "Where": (
        Template((Operand(X, numbers=True, dtype="bool"), _data(*X), _data(*X)), (X,)),
        Template((Operand(X, dtype="bool"), _weight(*X), _weight(*X)), (X,)),
    ),
}
"""Ops whose operands are more than tensors of one shape; others are taken to be elementwise."""

COMPARISONS: Final = of_form(Form.COMPARISON)
BINARY: Final = of_form(Form.COMPARISON, Form.PRODUCT, Form.SUM, Form.VARIADIC) | {"Pow"}
UNARY: Final = frozenset(name for name in of_form(Form.UNARY, Form.VIEW) if defined(name).is_pointwise)
POSITIVE: Final = frozenset(name for name, one in OPERATORS.items() if one.is_singular)
"""Ops that are not defined at all reals: their models are for inputs above zero."""

DTYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "ArgMax": ("i64",),
    "ArgMin": ("i64",),
    "TopK": ("f32", "i64"),
    **dict.fromkeys(COMPARISONS, ("bool",)),
}
"""Element types of results that are not all float32."""
