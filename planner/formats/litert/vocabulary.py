"""Vocabulary: LiteRT's operators, element types and activations beside ours, for reading and writing files.

An operator that maps one to one is a `Builtin` here, for import and export; the others have code there.

Source: TensorFlow Lite's schema, version 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from planner.ops import among
from planner.ops.forms import Form

Bounds: TypeAlias = tuple[float | None, float | None]

ELEMENTS: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "i16": "INT16",
    "i32": "INT32",
    "i4": "INT4",
    "i64": "INT64",
    "i8": "INT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "u8": "UINT8",
}
"""Our element types and the schema's."""

FUSED: Final[Mapping[int, Bounds]] = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Bounds in reals of the activations that operators have inside: RELU, RELU_N1_TO_1, RELU6."""


@dataclass(frozen=True, slots=True)
class Field:
    """An attribute of ours, and the field of an operator's options that says it.

    Attributes:
      default: of the attribute.
      words: ours beside theirs; none: one number is the other.
    """

    attribute: str
    name: str
    default: object
    words: Mapping[Any, Any] = field(default_factory=dict)

    def written(self, attributes: Mapping[str, Any]) -> Any:
        """The field's number."""
        ours = attributes.get(self.attribute, self.default)
        return self.words.get(ours, ours)

    def read(self, options: Any) -> Any:
        """The attribute's number."""
        theirs = getattr(options, self.name)()
        return next((ours for ours, word in self.words.items() if word == theirs), theirs)


@dataclass(frozen=True, slots=True)
class Builtin:
    """An operator that computes what one of our ops does; read and written by this alone.

    Attributes:
      table: of its options; "" for none.
      fields: attributes that its options say.
      only: attributes that it has with one number alone.
      fixed: fields of its options that have one number in what our op computes.
      written: fields that are written and change nothing that is read.
      fuses: whether it can have an activation inside.
    """

    operator: str
    table: str = ""
    fields: tuple[Field, ...] = ()
    only: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    written: Mapping[str, object] = field(default_factory=dict)
    fuses: bool = False

    def computes(self, attributes: Mapping[str, Any]) -> bool:
        """Whether it computes our op of these attributes."""
        return all(attributes.get(name, number) == number for name, number in self.only.items())

    def options(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Its options for our op of these attributes, but for an activation."""
        said = {one.name: one.written(attributes) for one in self.fields}
        return {**said, **self.fixed, **self.written}


_HALF_STEP: Final = {"PotScaleInt16": False}
"""16-bit sums are of any scale; by default the operators take powers of two."""

BUILTINS: Final[Mapping[str, Builtin]] = {
    "Abs": Builtin("ABS", "AbsOptions"),
    "Add": Builtin("ADD", "AddOptions", written=_HALF_STEP, fuses=True),
    "And": Builtin("LOGICAL_AND", "LogicalAndOptions"),
    "AveragePool": Builtin("AVERAGE_POOL_2D", "Pool2DOptions", fuses=True),
    "Ceil": Builtin("CEIL"),
    "Conv": Builtin("CONV_2D", "Conv2DOptions", fuses=True),
    "Cos": Builtin("COS", "CosOptions"),
    "DepthToSpace": Builtin(
        "DEPTH_TO_SPACE", "DepthToSpaceOptions", (Field("blocksize", "BlockSize", 1),), only={"mode": "DCR"}
    ),
    "Div": Builtin("DIV", "DivOptions", fuses=True),
    "Elu": Builtin("ELU", only={"alpha": 1.0}),
    "Equal": Builtin("EQUAL", "EqualOptions"),
    "Exp": Builtin("EXP", "ExpOptions"),
    "Floor": Builtin("FLOOR"),
    "Gelu": Builtin(
        "GELU", "GeluOptions", (Field("approximate", "Approximate", "none", {"none": False, "tanh": True}),)
    ),
    "Gemm": Builtin("FULLY_CONNECTED", "FullyConnectedOptions", fuses=True),
    "Greater": Builtin("GREATER", "GreaterOptions"),
    "GreaterOrEqual": Builtin("GREATER_EQUAL", "GreaterEqualOptions"),
    "HardSwish": Builtin("HARD_SWISH", "HardSwishOptions"),
    "LeakyRelu": Builtin("LEAKY_RELU", "LeakyReluOptions", (Field("alpha", "Alpha", 0.01),)),
    "Less": Builtin("LESS", "LessOptions"),
    "LessOrEqual": Builtin("LESS_EQUAL", "LessEqualOptions"),
    "Log": Builtin("LOG"),
    "LogSoftmax": Builtin("LOG_SOFTMAX", "LogSoftmaxOptions"),
    "LpNormalization": Builtin("L2_NORMALIZATION", "L2NormOptions", only={"p": 2}),
    "MatMul": Builtin("FULLY_CONNECTED", "FullyConnectedOptions", fuses=True),
    "Max": Builtin("MAXIMUM", "MaximumMinimumOptions"),
    "MaxPool": Builtin("MAX_POOL_2D", "Pool2DOptions"),
    "Min": Builtin("MINIMUM", "MaximumMinimumOptions"),
    "Mul": Builtin("MUL", "MulOptions", fuses=True),
    "Neg": Builtin("NEG", "NegOptions"),
    "Not": Builtin("LOGICAL_NOT", "LogicalNotOptions"),
    "Or": Builtin("LOGICAL_OR", "LogicalOrOptions"),
    "Pow": Builtin("POW", "PowOptions"),
    "ReduceMax": Builtin("REDUCE_MAX", "ReducerOptions"),
    "ReduceMean": Builtin("MEAN", "ReducerOptions"),
    "ReduceMin": Builtin("REDUCE_MIN", "ReducerOptions"),
    "ReduceSum": Builtin("SUM", "ReducerOptions"),
    "Round": Builtin("ROUND"),
    "Sigmoid": Builtin("LOGISTIC"),
    "Sin": Builtin("SIN"),
    "Softmax": Builtin("SOFTMAX", "SoftmaxOptions", fixed={"Beta": 1.0}),
    "SpaceToDepth": Builtin("SPACE_TO_DEPTH", "SpaceToDepthOptions", (Field("blocksize", "BlockSize", 1),)),
    "Sqrt": Builtin("SQRT"),
    "Sub": Builtin("SUB", "SubOptions", written=_HALF_STEP, fuses=True),
    "Tanh": Builtin("TANH"),
}
"""Ops that are one operator; windows and products have code for the rest of their options.

Depth to and from space is ordered by place and then channel, as DCR.
"""


UNARIES: Final = among(BUILTINS, Form.UNARY)
BINARIES: Final = among(BUILTINS, Form.BINARY, Form.LOGICAL, Form.PRODUCT, Form.SUM, Form.VARIADIC)
COMPARISONS: Final = among(BUILTINS, Form.COMPARISON)
ALONG: Final = among(BUILTINS, Form.ALONG)
REDUCTIONS: Final = among(BUILTINS, Form.REDUCTION)
BLOCKS: Final = among(BUILTINS, Form.BLOCKS)
POOLS: Final = {kind: BUILTINS[kind].operator for kind in ("AveragePool", "MaxPool")}
