"""Probes: the kernels that onnxruntime may have, how each is spelled, and the row that says it.

A probe is one kernel of a target with the storages its ports could have; `spell` writes the tiny model that
uses it with one choice of them. Loading and running is `probe`. Source: ONNX operator schemas, and
those of onnxruntime's contrib domain.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from planner.formats.onnx.write import Node, write_model
from planner.ops import of_form
from planner.ops.forms import Form

Storages: TypeAlias = tuple[str, ...]
Spell: TypeAlias = Callable[[Storages], Sequence[bytes]]

MICROSOFT: Final = "com.microsoft"
STORAGES: Final = ("u8", "i8", "u16", "i16")
FLOAT: Final = "f32"
_KINDS: Final = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16}
_STORED: Final = tuple(np.dtype(kind) for kind in _KINDS.values())
_X: Final = (1, 4, 6, 6)


@dataclass(frozen=True, slots=True)
class Probe:
    """One kernel, and the choices to try for the storages of its ports.

    Attributes:
      kernel: its name in the target.
      operator: its name in the file.
      choices: storages to try, one per port in `row`'s order, the preferred first.
      spell: writes the tiny models of one choice; all of them must run.
      row: text of the row, `{0}` .. for the types of the ports.
      same: text of the single row that stands for all choices of one storage if every one runs.
    """

    kernel: str
    operator: str
    choices: tuple[Storages, ...]
    spell: Spell
    row: str
    same: str = ""


@dataclass(slots=True)
class _Sheet:
    """Nodes and constants of one tiny model, whose inputs are constants too."""

    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def stored(self, kind: str, *shape: int) -> str:
        """A tensor of stored integers over a small range."""
        name = f"t{len(self.constants)}"
        count = int(np.prod(shape))
        self.constants[name] = (np.arange(count) % 7).reshape(shape).astype(_KINDS[kind])
        return name

    def put(self, array: Any) -> str:
        """Any constant."""
        name = f"t{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def parameters(self, kind: str, slices: int = 0) -> tuple[str, str]:
        """Scale and zero point: scalars, or one per slice."""
        shape = (slices,) if slices else ()
        return self.put(np.full(shape, 0.05, np.float32)), self.put(np.zeros(shape, _KINDS[kind]))

    def triple(self, kind: str, *shape: int, slices: int = 0) -> tuple[str, str, str]:
        """Tensor, scale, zero point."""
        return (self.stored(kind, *shape), *self.parameters(kind, slices))

    def model(
        self, operator: str, inputs: Sequence[str], kind: str, count: int = 1, **attributes: Any
    ) -> bytes:
        """The model of one operator; its first operand is the model's input."""
        domain, _, name = operator.rpartition("::")
        outputs = tuple(f"y{i}" for i in range(count))
        node = Node(name, tuple(inputs), outputs, "probed", domain, attributes)
        data = {key for key, array in self.constants.items() if array.dtype in _STORED and array.size > 1}
        first = next(key for key in inputs if key in data)
        given = self.constants.pop(first)
        return write_model(
            name="probe",
            nodes=[node],
            inputs=[(first, _name_of(given), given.shape)],
            outputs=[(out, kind if i == 0 else "i64", None) for i, out in enumerate(outputs)],
            constants=self.constants,
        )


def _name_of(array: np.ndarray) -> str:
    return next(name for name, kind in _KINDS.items() if array.dtype == kind)


def _conv(s: Storages) -> list[bytes]:
    """1, 2 and 3 spatial axes, depthwise, with and without bias; a scale per output channel."""
    models = []
    for dims, group, biased in ((1, 1, True), (2, 1, True), (2, 4, True), (2, 1, False), (3, 2, True)):
        sheet, outs = _Sheet(), 8 if group < 4 else 4
        x = sheet.triple(s[0], 1, 4, *(5,) * dims)
        w = sheet.triple(s[1], outs, 4 // group, *(3,) * dims, slices=outs)
        bias = (sheet.put(np.ones(outs, np.int32)),) if biased else ()
        inputs = (*x, *w, *sheet.parameters(s[2]), *bias)
        models.append(sheet.model("QLinearConv", inputs, s[2], group=group))
    return models


def _gemm(s: Storages) -> list[bytes]:
    models = []
    for biased in (True, False):
        sheet = _Sheet()
        a, b = sheet.triple(s[0], 4, 8), sheet.triple(s[1], 8, 6, slices=6)
        bias = sheet.put(np.ones(6, np.int32)) if biased else ""
        result = () if s[2] == FLOAT else sheet.parameters(s[2])
        inputs = (*a, *b, *((bias,) if bias or result else ()), *result)
        models.append(sheet.model(f"{MICROSOFT}::QGemm", inputs, s[2]))
    return models


def _matmul(rank: int, *, columns: bool) -> Spell:
    def spell(s: Storages) -> list[bytes]:
        sheet = _Sheet()
        batch = (2,) * (rank - 2)
        a = sheet.triple(s[0], 2, 4, 8)
        b = sheet.triple(s[1], *batch, 8, 6, slices=6 if columns else 0)
        return [sheet.model("QLinearMatMul", (*a, *b, *sheet.parameters(s[2])), s[2])]

    return spell


def _matmul_to_float(rank: int, *, columns: bool) -> Spell:
    def spell(s: Storages) -> list[bytes]:
        sheet = _Sheet()
        a = sheet.triple(s[0], *(2,) * (rank - 2), 4, 8)
        b = sheet.triple(s[1], *(2,) * (rank - 2), 8, 6, slices=6 if columns else 0)
        operands = [name for pair in zip(a, b, strict=True) for name in pair]
        return [sheet.model(f"{MICROSOFT}::MatMulIntegerToFloat", operands, s[2])]

    return spell


def _binary(operator: str) -> Spell:
    def spell(s: Storages) -> list[bytes]:
        models = []
        for shape in (_X, (4, 1, 1)):
            sheet = _Sheet()
            inputs = (*sheet.triple(s[0], *_X), *sheet.triple(s[1], *shape), *sheet.parameters(s[2]))
            models.append(sheet.model(f"{MICROSOFT}::{operator}", inputs, s[2]))
        return models

    return spell


def _where(s: Storages) -> list[bytes]:
    sheet = _Sheet()
    a, b = sheet.triple(s[0], *_X), sheet.triple(s[1], *_X)
    condition = sheet.put(np.arange(144).reshape(_X) % 2 == 0)
    model = sheet.model(f"{MICROSOFT}::QLinearWhere", (condition, *a, *b, *sheet.parameters(s[2])), s[2])
    return [model]


def _concat(s: Storages) -> list[bytes]:
    sheet = _Sheet()
    y = sheet.parameters(s[1])
    return [
        sheet.model(
            f"{MICROSOFT}::QLinearConcat",
            (*y, *sheet.triple(s[0], *_X), *sheet.triple(s[0], *_X)),
            s[1],
            axis=1,
        )
    ]


def _unary(operator: str, **attributes: Any) -> Spell:
    def spell(s: Storages) -> list[bytes]:
        sheet = _Sheet()
        inputs = (*sheet.triple(s[0], *_X), *sheet.parameters(s[1]))
        return [sheet.model(f"{MICROSOFT}::{operator}", inputs, s[1], **attributes)]

    return spell


def _plain(operator: str, *operands: Any, count: int = 1, kind: str = "", **attributes: Any) -> Spell:
    """The op itself on stored integers, as exporters write data movement; `operands` follow the data."""

    def spell(s: Storages) -> list[bytes]:
        sheet = _Sheet()
        data = sheet.stored(s[0], *_X)
        more = [sheet.put(item) for item in _made(operands, s[0])]
        return [sheet.model(operator, (data, *more), kind or s[0], count, **attributes)]

    return spell


def _made(operands: Sequence[Any], kind: str) -> list[Any]:
    """Operands of the data's storage where they say so, else 64-bit integers or reals."""
    made: list[Any] = []
    for operand in operands:
        if isinstance(operand, _Like):
            made.append(np.full(operand.shape, operand.number, _KINDS[kind]))
        else:
            array = np.asarray(operand)
            made.append(array.astype(np.int64) if array.dtype.kind == "i" else array.astype(np.float32))
    return made


@dataclass(frozen=True, slots=True)
class _Like:
    """A constant of the data's own storage."""

    number: int
    shape: tuple[int, ...] = ()


def _pairs(storages: Sequence[str]) -> tuple[Storages, ...]:
    """Pairs of x and y, alike first."""
    alike = [(a, a) for a in storages]
    return (*alike, *((a, b) for a in storages for b in storages if a != b))


def _triples(weights: Sequence[str]) -> tuple[Storages, ...]:
    """Triples of x, w and y, alike activations first."""
    return tuple((x, w, y) for x, y in _pairs(STORAGES) for w in weights)


def _to_float(weights: Sequence[str]) -> tuple[Storages, ...]:
    """Triples of x, w and a float result."""
    return tuple((x, w, FLOAT) for x in STORAGES for w in weights)


def _equal(count: int) -> tuple[Storages, ...]:
    return tuple((a,) * count for a in STORAGES)


_LINEAR: Final = (
    "in: {{x: {0}, w: {1}, b?: b32}}, out: {{y: {2}}}, axis: {{w: out_channel}}, accumulator: i32, "
    "rules: [{{multiplier_accumulator_scale: {{port: b, of: [x, w]}}}}, "
    "{{multiplier_scale: {{out: y, of: [x, w]}}}}]"
)
_MATMUL: Final = (
    "in: {{x: {0}, w: {1}}}, out: {{y: {2}}}, %s, accumulator: i32, "
    "rules: [{{multiplier_scale: {{out: y, of: [x, w]}}}}]"
)
_LINEAR_TO_FLOAT: Final = (
    "in: {{x: {0}, w: {1}, b?: b32}}, out: {{y: {2}}}, axis: {{w: out_channel}}, accumulator: i32, "
    "rules: [{{multiplier_accumulator_scale: {{port: b, of: [x, w]}}}}]"
)
_MATMUL_TO_FLOAT: Final = "in: {{x: {0}, w: {1}}}, out: {{y: {2}}}, %s, accumulator: i32"
_MOVING: Final = "in: {{x: {0}}}, out: {{y: {0}}}, rules: [{{same_scale: [x, y]}}]"
_ANY: Final = 'in: {x: "*"}, out: {y: "*"}, rules: [{same_scale: [x, y]}]'
_FREE: Final = "in: {{x: {0}}}, out: {{y: {1}}}, rules: [{{free_scale: [x, y]}}]"
_BOTH: Final = "in: {{a: {0}, b: {1}}}, out: {{y: {2}}}, rules: [{{free_scale: [a, b, y]}}]"
_MANY: Final = "in: {{xs*: {0}}}, out: {{y: {1}}}, rules: [{{same_scale: [xs, y]}}]"


def _moving(kernel: str, *operands: Any, operator: str = "", **attributes: Any) -> Probe:
    name = operator or kernel
    spell = _plain(name, *operands, **attributes)
    return Probe(kernel, name, tuple((a,) for a in STORAGES), spell, _MOVING, _ANY)


def _triples_alike() -> tuple[Storages, ...]:
    mixed = (("u8", "i8", "u8"), ("i8", "u8", "i8"), ("u8", "u8", "i8"), ("i8", "i8", "u8"))
    return (*_equal(3), *mixed)


# QLinearSoftmax multiplies by floor(1 / scale): the float32 just below 1/255 makes that 255, and 1.0 exact to
# a step (1/256 would cut a certain class to 0.996, the float32 above it to 254 steps).
_SOFTMAX: Final = (
    "in: {{x: {0}}}, out: {{y: {1}}}, "
    "rules: [{{fixed_scale: {{port: y, scale: 0.003921568393707275, zero_point: {least}}}}}]"
)

PROBES: Final[tuple[Probe, ...]] = (
    Probe("conv", "QLinearConv", _triples(("i8c", "u8c")), _conv, _LINEAR),
    Probe("gemm", "com.microsoft::QGemm", _triples(("i8c", "u8c")), _gemm, _LINEAR),
    Probe("gemm", "com.microsoft::QGemm", _to_float(("i8c", "u8c")), _gemm, _LINEAR_TO_FLOAT),
    Probe(
        "matmul",
        "QLinearMatMul",
        _triples(("i8c",)),
        _matmul(2, columns=True),
        _MATMUL % "axis: {{w: out_channel}}, when: {{w: constant, w.rank: 2}}",
    ),
    Probe(
        "matmul",
        "QLinearMatMul",
        _triples(("i8t", "u8")),
        _matmul(3, columns=False),
        _MATMUL % "when: {{w: constant}}",
    ),
    Probe(
        "matmul",
        "QLinearMatMul",
        _triples_alike(),
        _matmul(3, columns=False),
        _MATMUL % "when: {{w: dynamic}}",
    ),
    Probe(
        "matmul",
        "com.microsoft::MatMulIntegerToFloat",
        _to_float(("i8c",)),
        _matmul_to_float(2, columns=True),
        _MATMUL_TO_FLOAT % "axis: {{w: out_channel}}, when: {{w: constant, w.rank: 2}}",
    ),
    Probe(
        "matmul",
        "com.microsoft::MatMulIntegerToFloat",
        _to_float(("i8t", "u8")),
        _matmul_to_float(3, columns=False),
        _MATMUL_TO_FLOAT % "when: {{w: constant}}",
    ),
    Probe(
        "matmul",
        "com.microsoft::MatMulIntegerToFloat",
        (("u8", "u8", FLOAT), ("i8", "i8", FLOAT), ("u8", "i8", FLOAT), ("i8", "u8", FLOAT)),
        _matmul_to_float(3, columns=False),
        _MATMUL_TO_FLOAT % "when: {{w: dynamic}}",
    ),
    Probe("add", "com.microsoft::QLinearAdd", _triples_alike(), _binary("QLinearAdd"), _BOTH),
    Probe(
        "Mul",
        "com.microsoft::QLinearMul",
        _triples_alike(),
        _binary("QLinearMul"),
        "in: {{a: {0}, b: {1}}}, out: {{y: {2}}}, rules: [{{multiplier_scale: {{out: y, of: [a, b]}}}}]",
    ),
    Probe("Where", "com.microsoft::QLinearWhere", _triples_alike(), _where, _BOTH),
    Probe("Concat", "com.microsoft::QLinearConcat", _pairs(STORAGES), _concat, _MANY),
    Probe(
        "AveragePool",
        "com.microsoft::QLinearAveragePool",
        _pairs(STORAGES),
        _unary("QLinearAveragePool", kernel_shape=(2, 2)),
        _FREE,
    ),
    Probe(
        "GlobalAveragePool",
        "com.microsoft::QLinearGlobalAveragePool",
        _pairs(STORAGES),
        _unary("QLinearGlobalAveragePool", channels_last=0),
        _FREE,
    ),
    Probe(
        "LeakyRelu",
        "com.microsoft::QLinearLeakyRelu",
        _pairs(STORAGES),
        _unary("QLinearLeakyRelu", alpha=0.1),
        _FREE,
    ),
    Probe(
        "Sigmoid",
        "com.microsoft::QLinearSigmoid",
        _pairs(STORAGES),
        _unary("QLinearSigmoid"),
        "in: {{x: {0}}}, out: {{y: {1}}}",
    ),
    Probe(
        "Softmax",
        "com.microsoft::QLinearSoftmax",
        _pairs(STORAGES),
        _unary("QLinearSoftmax", axis=1, opset=13),
        _SOFTMAX,
    ),
    _moving("Reshape", (1, 24, 6)),
    _moving("Flatten"),
    _moving("Squeeze", (0,)),
    _moving("Unsqueeze", (0,)),
    _moving("Transpose", perm=(0, 2, 3, 1)),
    _moving("Slice", (1,), (3,), (1,)),
    _moving("Gather", (0, 2), axis=1),
    _moving("GatherElements", np.zeros((1, 4, 6, 6), int)),
    _moving("GatherND", ((0, 1), (0, 3))),
    _moving("Expand", (2, 4, 6, 6)),
    _moving("Tile", (1, 2, 1, 1)),
    _moving("Identity"),
    Probe(
        "Split",
        "Split",
        tuple((a,) for a in STORAGES),
        _plain("Split", axis=1, num_outputs=2),
        "in: {{x: {0}}}, out: {{ys*: {0}}}, rules: [{{same_scale: [x, ys]}}]",
        'in: {x: "*"}, out: {ys*: "*"}, rules: [{same_scale: [x, ys]}]',
    ),
    _moving("MaxPool", kernel_shape=(2, 2)),
    _moving("GlobalMaxPool", (2, 3), operator="ReduceMax"),
    _moving("ReduceMax", (2, 3)),
    _moving("ReduceMin", (2, 3)),
    _moving("Pad", (0, 0, 1, 1, 0, 0, 1, 1)),
    *(_moving(kind, blocksize=2) for kind in sorted(of_form(Form.BLOCKS))),
    _moving("Relu", _Like(1), operator="Max"),
    _moving("Clip", _Like(1), _Like(5)),
    Probe("Max", "Max", tuple((a, a) for a in STORAGES), _plain("Max", _Like(3)), _MANY),
    Probe("Min", "Min", tuple((a, a) for a in STORAGES), _plain("Min", _Like(3)), _MANY),
    Probe("TopK", "TopK", tuple((a,) for a in STORAGES), _plain("TopK", (3,), count=2), _MOVING),
    Probe(
        "ArgMax",
        "ArgMax",
        tuple((a,) for a in STORAGES),
        _plain("ArgMax", kind="i64", axis=1),
        "in: {{x: {0}}}, out: {{}}",
    ),
    Probe(
        "Resize",
        "Resize",
        tuple((a,) for a in STORAGES),
        _plain("Resize", np.zeros(0, np.float32), (1.0, 1.0, 2.0, 2.0), mode="nearest"),
        "in: {{x: {0}}}, out: {{y: {0}}}, when: {{Resize.mode: nearest}}, rules: [{{same_scale: [x, y]}}]",
    ),
)
"""Probes, in the order of the rows."""

TYPES: Final[Mapping[str, str]] = {
    "u8": "{storage: u8}",
    "i8": "{storage: i8}",
    "u16": "{storage: u16}",
    "i16": "{storage: i16}",
    "i8c": "{storage: i8, range: [-127, 127], granularity: axis, symmetric: true}",
    "u8c": "{storage: u8, granularity: axis}",
    "i8t": "{storage: i8, range: [-127, 127], symmetric: true}",
    "b32": "{storage: i32, symmetric: true}",
    "f32": "{storage: f32}",
}
"""Port types by name; a weight is `c` per channel or `t` per tensor, signed ones around zero."""


def storage_of(name: str) -> str:
    """The storage that a port type's name begins with: `i8` of `i8c`."""
    return name.rstrip("ct")
