"""The document of a target file, as pydantic models: shapes and words, not meaning.

`check_document` turns what is wrong into problems with line, column and code; what names refer to
(types, groups, functions) is `load`'s business. The JSON Schema that editors read comes from these
models (`jsonschema`). Source: design 04.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from planner.errors import Problem
from planner.target.yamltree import Node, locate, nearest, plain

Arithmetic: TypeAlias = Literal[
    "exact_even",
    "float32_spec",
    "float32_even",
    "tosa_single",
    "tosa_double",
    "gemmlowp",
    "power_of_two",
]
Number: TypeAlias = int | float | str
PortName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*[?*]?$")]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]
FloatName: TypeAlias = Literal["bf16", "f16", "f32"]


def _shape(value: Any) -> str:
    """Which member of a union a value is meant to be, by its YAML shape."""
    if isinstance(value, Mapping):
        return "map"
    return "list" if isinstance(value, list | tuple) else "text"


class Model(BaseModel):
    """Base: strict types, no unknown fields, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=False)


class TypeModel(Model):
    """What a port accepts: integer storage, and what the device asks of scale and zero point."""

    storage: str = Field(description="Integer format (i8, u4), float (bf16) or '*' for any.", examples=["i8"])
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Part of the storage in use, [qmin, qmax].", examples=[[-127, 127]]
    )
    granularity: Literal["tensor", "axis", "block"] = Field("tensor", description="One scale per what.")
    symmetric: bool = Field(default=False, description="Zero point 0.")
    power_of_two: bool = Field(default=False, description="Scales are powers of two.")
    scale_min: Number | None = Field(None, description="Smallest scale.", examples=["1/65536"])
    scale_max: Number | None = Field(None, description="Largest scale.")
    zero_point: int | None = Field(None, description="The only zero point, in stored units.", examples=[128])
    block_size: int | list[int] | None = Field(None, description="Block sizes, granularity block only.")
    weight_bits_effective: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Bits of a weight that the arithmetic can use without saturating inside.",
    )


TypeRef: TypeAlias = Annotated[
    Annotated[str | None, Tag("text")] | Annotated[TypeModel, Tag("map")], Discriminator(_shape)
]
Signature: TypeAlias = dict[PortName, TypeRef]


class SameScaleModel(Model):
    """The listed ports have one scale and zero point."""

    ports: list[PortName] = Field(min_length=1)
    prefer: Literal["hull", "widest", "first"] = "hull"
    direction: Literal["both", "from_inputs", "from_outputs"] = "both"


class FixedScaleModel(Model):
    """The port has this scale and zero point."""

    port: PortName
    scale: Number = Field(description="A number or a rational.", examples=["1/256"])
    zero_point: int = 0


class MultiplierScaleModel(Model):
    """Scales are free; the kernel multiplies by s(of[0]) * s(of[1]) ... / s(out)."""

    out: PortName
    of: list[PortName] = Field(min_length=1)
    range: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Multipliers the device can apply, [least, greatest]."
    )


class AccumulatorScaleModel(Model):
    """The port's scale is the product of the listed ports' scales, its zero point 0 (a bias)."""

    port: PortName
    of: list[PortName] = Field(min_length=1)


class FreeScaleModel(Model):
    """The ports' scales are free; the kernel rescales inside."""

    ports: list[PortName] = Field(default_factory=list)


class DeriveModel(Model):
    """The port's scale and zero point are computed from those of others."""

    port: PortName
    scale: Number = Field(description="An expression.", examples=["1 / sqrt(x.scale) * 2 ** -7"])
    zero_point: Number = 0


class FnModel(Model):
    """A function handed to load_target(functions=...)."""

    name: Name
    args: dict[str, Any] = Field(default_factory=dict)


Ports: TypeAlias = Annotated[list[PortName], Field(min_length=1)]


class RuleModel(Model):
    """One rule: exactly one of these keys."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    same_scale: (
        Annotated[
            Annotated[Ports, Tag("list")] | Annotated[SameScaleModel, Tag("map")], Discriminator(_shape)
        ]
        | None
    ) = None
    fixed_scale: FixedScaleModel | None = None
    multiplier_scale: MultiplierScaleModel | None = None
    free_scale: (
        Annotated[
            Annotated[list[PortName], Tag("list")] | Annotated[FreeScaleModel, Tag("map")],
            Discriminator(_shape),
        ]
        | None
    ) = None
    multiplier_accumulator_scale: AccumulatorScaleModel | None = None
    derive: DeriveModel | None = None
    fn: (
        Annotated[Annotated[Name, Tag("text")] | Annotated[FnModel, Tag("map")], Discriminator(_shape)] | None
    ) = None

    @model_validator(mode="after")
    def _one(self) -> "RuleModel":
        if len(self.model_fields_set) != 1 or getattr(self, self.kind) is None:
            known = ", ".join(type(self).model_fields)
            raise PydanticCustomError("one_rule", "a rule has exactly one of {known}", {"known": known})
        return self

    @property
    def kind(self) -> str:
        """The key that is set."""
        return next(iter(self.model_fields_set), "fn")


class GroupModel(Model):
    """All ops of a group of `op_groups`, one row each."""

    group: Name


class RowModel(Model):
    """One row: a kernel, its signature, the rules between its ports."""

    kernel: Annotated[
        Annotated[Name, Tag("text")] | Annotated[GroupModel, Tag("map")], Discriminator(_shape)
    ] = Field(description="Logical kernel, or ONNX op that no fusion takes.", examples=["conv2d"])
    inputs: Signature | None = Field(
        None, alias="in", description="Input ports in order; 'b?' is optional, 'xs*' takes all that remain."
    )
    outputs: Signature | None = Field(None, alias="out", description="Output ports in order.")
    axis: dict[PortName, int | str] = Field(
        default_factory=dict, description="Quantized axis per port: a role (out_channel) or a number."
    )
    rules: list[RuleModel] = Field(default_factory=list)
    when: dict[str, Any] = Field(default_factory=dict, description="Predicates that must hold.")
    requantize: Arithmetic | None = Field(None, description="Integer arithmetic of this row.")
    accumulator: str | None = Field(None, description="Storage of the accumulator.", examples=["i32"])
    computes: bool = Field(default=False, description="A same_scale row that does not merely move data.")
    float_: FloatName | None = Field(None, alias="float", description="Run this kernel in that float.")
    remove: bool = Field(default=False, description="Delete the inherited row of this signature.")


class FusionModel(Model):
    """Source ops that become one logical kernel."""

    kernel: Name
    pattern: Annotated[
        Annotated[Name, Tag("text")] | Annotated[Annotated[list[Name], Field(min_length=1)], Tag("list")],
        Discriminator(_shape),
    ] = Field(examples=["Relu?(Conv(x, w, b?))"])
    where: dict[str, Any] = Field(default_factory=dict)
    remove: bool = Field(default=False, description="Delete the inherited fusion of this pattern.")


class LegalizeModel(Model):
    """A coarse kernel, and the kernels of this target that a region of it becomes where no row serves it."""

    kernel: Name = Field(description="The coarse kernel.", examples=["attention"])
    into: Annotated[list[Name], Field(min_length=1)] = Field(
        description="Kernels of this target whose fusions its ops go through; other ops stand alone.",
        examples=[["matmul", "Softmax"]],
    )


class DefaultsModel(Model):
    """What rows that do not say otherwise get."""

    port: TypeRef = Field(default=None, description="What wildcard ports fall back to.")
    on_no_kernel: Literal["float", "error"] = "float"
    requantize: Arithmetic = "tosa_double"
    rescale_single_consumer: bool = False
    duplicate_constants: bool = True
    bias: Literal["i32", "i64", "float"] = "i32"


Price: TypeAlias = Annotated[int | float, Field(ge=0, le=1e9)]


class RescaleCostModel(Model):
    """Price per element of each kind of rescale."""

    requantize: Price = 1.0
    zero_point: Price = 0.25
    clamp: Price = 0.1
    widen: Price = 0.5
    narrow: Price = 0.5
    quantize: Price = 1.0
    dequantize: Price = 1.0


class RescaleModel(Model):
    """Whether the device rescales between kernels, and at what price."""

    allowed: bool = True
    cost: RescaleCostModel = Field(default_factory=RescaleCostModel)


class CostsModel(Model):
    """The price of lost bits."""

    bit_price: Price = 2.0
    free_bits: Price = 0.5
    max_clip: Annotated[int | float, Field(ge=0, le=1)] = 0.01
    max_bits_lost: Price | None = None


Count: TypeAlias = Annotated[int, Field(ge=0)]


class ExpectTypeModel(Model):
    """What a test asks of a type."""

    storage: str | None = Field(None, description="Storage, with its range if narrower.", examples=["i8"])
    scale: Number | None = Field(None, description="Scale of every slice.", examples=["1/256"])
    zero_point: int | None = Field(None, description="Zero point of every slice.", examples=[-128])
    per: Literal["tensor", "axis", "block"] | None = Field(None, description="One scale per what.")


class ExpectModel(Model):
    """What a test asks of the plan; what is left out is not asked."""

    kernels: dict[str, Count] | None = Field(
        None, description="How many kernels run by a row, by kernel.", examples=[{"concat": 1, "MaxPool": 2}]
    )
    floats: dict[str, Count] | None = Field(
        None, description="How many kernels run in float, by kernel; {} asks for none.", examples=[{"Erf": 1}]
    )
    reasons: dict[str, str] | None = Field(
        None,
        description="Part of the reason why a kernel, by its name, runs in float.",
        examples=[{"y": "group"}],
    )
    rescales: (
        Annotated[
            Annotated[Count, Tag("text")]
            | Annotated[
                dict[
                    Literal["requantize", "zero_point", "clamp", "widen", "narrow", "quantize", "dequantize"],
                    Count,
                ],
                Tag("map"),
            ],
            Discriminator(_shape),
        ]
        | None
    ) = Field(
        None,
        description="How many rescales, quantize and dequantize left out; or how many of each kind.",
        examples=[0, {"requantize": 1}],
    )
    same_scale: list[list[str]] | None = Field(
        None, description="Values or ports that share scale and zero point.", examples=[[["a", "b", "y"]]]
    )
    types: (
        dict[
            str,
            Annotated[
                Annotated[str, Tag("text")] | Annotated[ExpectTypeModel, Tag("map")], Discriminator(_shape)
            ],
        ]
        | None
    ) = Field(
        None,
        description="Type of a value or port: a storage, a whole type, float, or fields of it.",
        examples=[{"y": {"storage": "i8", "scale": "1/256"}, "y.in[1]": "i8<-127:127>", "z": "float"}],
    )
    fully_quantized: bool | None = Field(None, description="Whether every port holds integers.")
    error: str | None = Field(None, description="Part of the conflict that planning must end with.")


class CaseModel(Model):
    """A test: a model in the small text form, and what its plan must be."""

    name: Name = Field(description="A sentence that says what must hold.")
    model: str = Field(
        description="A line per value: 'y = Op(x, w) [axis=1] : f32[1,8] {-1, 1}'.",
        examples=["y = Softmax(x) : f32[1,8] {0, 1}\n"],
    )
    expect: ExpectModel = Field(description="What the plan must be.")


class Document(Model):
    """A target file."""

    model_config = ConfigDict(title="Target description, planner/v1")

    api_version: Literal["planner/v1"] = Field(alias="apiVersion")
    kind: Literal["Target"]
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+([-+].*)?$")] = Field(examples=["1.0.0"])
    title: str = ""
    mode: Literal["fixed", "codegen"] = "fixed"
    extends: Name | None = None
    types: dict[str, TypeModel] = Field(default_factory=dict)
    defaults: DefaultsModel = Field(default_factory=DefaultsModel)
    rescale: RescaleModel = Field(default_factory=RescaleModel)
    costs: CostsModel = Field(default_factory=CostsModel)
    op_groups: dict[str, list[Name]] = Field(default_factory=dict)
    fusions: list[FusionModel] = Field(default_factory=list)
    legalize: list[LegalizeModel] = Field(default_factory=list)
    kernels: list[RowModel] = Field(default_factory=list)
    tests: list[CaseModel] = Field(default_factory=list)


_EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "text is expected here",
    "int_type": "a whole number is expected here",
    "float_type": "a number is expected here",
    "bool_type": "true or false is expected here",
    "list_type": "a list is expected here",
    "tuple_type": "a list is expected here",
    "dict_type": "a mapping is expected here",
    "model_type": "a mapping is expected here",
    "model_attributes_type": "a mapping is expected here",
}
_TAGS: Final[Mapping[str, str]] = {"text": "text", "list": "a list", "map": "a mapping"}


def check_document(root: Node) -> Document | tuple[Problem, ...]:
    """Read the document, or list everything wrong with its shape, each problem once, by position."""
    try:
        return Document.model_validate(plain(root))
    except ValidationError as error:
        problems = {_problem(root, detail) for detail in error.errors(include_url=False)}
    places = {(p.line, p.column) for p in problems if p.code != "T010"}
    kept = [p for p in problems if p.code != "T010" or (p.line, p.column) not in places]
    return tuple(sorted(kept, key=lambda p: (p.line, p.column, p.code, p.message)))


def _problem(root: Node, detail: ErrorDetails) -> Problem:
    path, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        node, text = locate(root, path[:-1])
        key = str(path[-1])
        return node.problem(
            "T012", f"unknown field {key!r}{nearest(key, _fields(path[:-1]))}", _join(text, key), key=key
        )
    if path and path[-1] == "[key]":
        node, text = locate(root, path[:-2])
        key = str(path[-2])
        return node.problem(
            "T014", f"{key!r} is no port name: letters, digits, '_', then '?' or '*'", text, key=key
        )
    node, text = locate(root, path)
    if kind == "missing":
        return node.problem("T011", f"field {str(path[-1])!r} is missing", text)
    if kind == "literal_error":
        known = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        hint = nearest(str(node.data), known)
        return node.problem("T013", f"{_shown(node)} is none of {', '.join(known)}{hint}", text)
    if kind == "one_rule":
        return node.problem("T014", str(detail["msg"]), text)
    if kind == "union_tag_invalid":
        wanted = " or ".join(word for tag, word in _TAGS.items() if f"'{tag}'" in context["expected_tags"])
        return node.problem("T010", f"{wanted} is expected here, not {_shown(node)}", text)
    if kind == "too_short":
        return node.problem("T014", f"{context['min_length']} or more entries are expected here", text)
    if kind in _EXPECTED:
        return node.problem("T010", f"{_EXPECTED[kind]}, not {_shown(node)}", text)
    return node.problem("T014", f"{_shown(node)}: {_lower(detail['msg'])}", text)


def _join(text: str, key: str) -> str:
    return f"{text}.{key}" if text else key


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(node: Node) -> str:
    if isinstance(node.data, Mapping):
        return "a mapping"
    if isinstance(node.data, tuple):
        return "a list"
    words = {None: "nothing", True: "true", False: "false"}
    if node.data is None or isinstance(node.data, bool):
        return words[node.data]
    text = repr(node.data)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields(path: Sequence[str | int]) -> list[str]:
    """Field names of the model that `path` (a pydantic location) leads to."""
    found: Any = Document
    for step in path:
        found = _step(found, step)
    model = next((m for m in _members(found) if isinstance(m, type) and issubclass(m, BaseModel)), None)
    return [f.alias or name for name, f in model.model_fields.items()] if model else []


def _step(found: Any, step: str | int) -> Any:
    for member in _members(found):
        origin = get_origin(member)
        if isinstance(step, int) and origin is list:
            return get_args(member)[0]
        if isinstance(step, str) and origin is dict:
            return get_args(member)[1]
        if isinstance(step, str) and isinstance(member, type) and issubclass(member, BaseModel):
            for name, item in member.model_fields.items():
                if (item.alias or name) == step:
                    return item.annotation
    return found


def _members(annotation: Any) -> list[Any]:
    """Flatten unions and annotations to plain types."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [annotation]
