"""The document of a target file, as pydantic models: shapes and words, not meaning.

Errors become problems with line, column and code in `documents`; `load` resolves names (of types, groups,
functions). The JSON Schema that editors read comes from these models (`jsonschema`). Source:
docs/targets/reference.md.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

Arithmetic: TypeAlias = Literal[
    "exact_even",
    "float32_spec",
    "float32_even",
    "tosa_single",
    "tosa_double",
    "gemmlowp",
    "power_of_two",
    "litert",
    "litert_16",
    "htp",
]
Number: TypeAlias = int | float | str
PortName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*[?*]?$")]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]
FloatName: TypeAlias = Literal["bf16", "f16", "f32"]


def _shape(value: Any) -> str:
    """The member of a union that a value is meant to be, by its YAML shape."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (list, tuple)):
        return "list"
    return "map" if isinstance(value, Mapping) else "text"


class Model(BaseModel):
    """Base: strict types, no unknown fields, frozen."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, populate_by_name=False)


class MultiplierModel(Model):
    """Integer multipliers of the device: value x multiplier / 2^shift, rounded once."""

    multiplier: Annotated[int, Field(ge=4, le=32)] = Field(
        description="Bits of the signed multiplier.", examples=[16]
    )
    rounding: Literal["half_up", "half_away", "half_even", "floor"] = Field(
        "half_up", description="Of the shifted product; floor cuts."
    )
    shift: Annotated[list[Annotated[int, Field(ge=0, le=62)]], Field(min_length=2, max_length=2)] = Field(
        [2, 62],
        description="Least and greatest shift to the right.",
        examples=[[1, 46]],
    )
    cut_from: Annotated[int, Field(ge=5, le=32)] | None = Field(
        None, description="Bits the factor is rounded to before its upper ones are taken.", examples=[32]
    )
    too_small: Literal["fewer_bits", "zero"] = Field(
        "fewer_bits", description="What a factor that wants a greater shift becomes."
    )


Requantize: TypeAlias = Annotated[
    Annotated[Arithmetic, Tag("text")] | Annotated[MultiplierModel, Tag("map")], Discriminator(_shape)
]


class TypeModel(Model):
    """A type that a port accepts: integer storage, and demands of the device on scale and zero point."""

    storage: str = Field(description="Integer format (i8, u4), float (bf16) or '*' for any.", examples=["i8"])
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Part of the storage in use, [qmin, qmax].", examples=[[-127, 127]]
    )
    granularity: Literal["tensor", "axis", "block"] = Field("tensor", description="One scale per what.")
    symmetric: bool = Field(default=False, description="Zero point 0.")
    power_of_two: bool = Field(default=False, description="Scales are powers of two.")
    scale_min: Number | None = Field(
        None,
        description="Smallest scale; of `power_of_two`, the least power from there.",
        examples=["1/65536"],
    )
    scale_max: Number | None = Field(
        None, description="Largest scale; of `power_of_two`, the greatest power up to there."
    )
    zero_point: int | None = Field(None, description="The only zero point, in stored units.", examples=[128])
    block_size: int | list[int] | None = Field(None, description="Block sizes, granularity block only.")
    short_block: bool = Field(
        default=False, description="The last block may be shorter where no block size divides."
    )
    sparsity: Annotated[str, Field(pattern=r"^[1-9]\d{0,2}:[1-9]\d{0,2}$")] | None = Field(
        None,
        description="Of so many consecutive weights that are summed at most so many are not 0: N:M.",
        examples=["2:4"],
    )
    scales: Literal["bf16", "e8m0", "f16", "f32", "f8E4M3FN"] = Field(
        "f32",
        description="The float that scales of blocks are stored in; e8m0 has powers of two alone, f8E4M3FN a "
        "factor for all beside it.",
    )
    weight_bits_effective: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Bits of a weight that the arithmetic can use without saturating inside.",
    )
    weight_pairs: int | None = Field(
        None,
        ge=2,
        le=1 << 32,
        description="The most that two neighbours in a sum of products may add up to, in steps: scales of "
        "weights grow until they do.",
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
    same_storage: Ports | None = None
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
    requires: Annotated[str, Field(min_length=1)] | None = None
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


class TableModel(Model):
    """A lookup table of the device, for a function of one tensor."""

    entries: Annotated[int, Field(ge=2, le=65536)] = Field(
        description="Entries, at equal distances.", examples=[256]
    )
    input: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="Reals of the first and last entry, which hold beyond; null is all that its storage has.",
        examples=[[-8, 8]],
    )
    interpolate: Annotated[int, Field(ge=0, le=15)] = Field(
        0, description="Bits of the place between two entries; 0 takes the nearest.", examples=[7]
    )


class DynamicModel(Model):
    """How the kernel quantizes its first input while it runs."""

    storage: str = Field(description="Integers of up to 16 bits.", examples=["u8"])
    per: Literal["tensor", "token"] = Field(
        "tensor",
        description="One scale per what; a token is the numbers along the last axis.",
        examples=["token"],
    )
    symmetric: bool = Field(default=False, description="Zero point 0; needed per token.", examples=[True])


class PartialSumsModel(Model):
    """Sums of a few products in a register of their own, which the accumulator adds up."""

    storage: str = Field(description="Storage of a partial sum.", examples=["i16"])
    products: Annotated[int, Field(ge=1)] = Field(
        description="How many products one has: no so many may leave its storage.", examples=[2]
    )


class AccumulatorModel(Model):
    """The accumulator of a row, in full."""

    storage: str = Field(description="Storage of the sum.", examples=["i24"])
    overflow: Literal["refuse", "saturate", "wrap"] = Field(
        "refuse",
        description="What becomes of sums of products that may not fit: the row is left, or the whole sum is "
        "saturated, or taken modulo 2^bits.",
    )
    partial: PartialSumsModel | None = Field(
        None, description="Partial sums on the way.", examples=[{"storage": "i16", "products": 2}]
    )


Price: TypeAlias = Annotated[int | float, Field(ge=0, le=1e9)]


class WorkModel(Model):
    """Work of a kernel, in the unit of `rescale.cost`: an element requantized."""

    mac: Price | None = Field(None, description="Per multiply-accumulate; null is bits_a x bits_w / 1024.")
    element: Price | None = Field(None, description="Per element read or written; null is bits / 32.")
    byte: Price | None = Field(None, description="Per byte of weights; null is 0.")


class RemoveModel(Model):
    """Inherited rows of the kernel, by a part of their signature."""

    storage: str = Field(description="Storage of any port.")


class RowModel(Model):
    """One row: a kernel, its signature, the rules between its ports."""

    kernel: Annotated[
        Annotated[Name, Tag("text")] | Annotated[GroupModel, Tag("map")], Discriminator(_shape)
    ] = Field(description="Logical kernel, or ONNX op that no fusion takes.", examples=["conv2d"])
    inputs: Signature | None = Field(
        None, alias="in", description="Input ports in order; 'b?' is optional, 'xs*' takes all that remain."
    )
    outputs: Signature | None = Field(
        None,
        alias="out",
        description="Output ports in order; float results of stored inputs serve where nothing stores them.",
    )
    axis: dict[PortName, int | str] = Field(
        default_factory=dict, description="Quantized axis per port: a role (out_channel) or a number."
    )
    rules: list[RuleModel] = Field(default_factory=list)
    when: dict[str, Any] = Field(default_factory=dict, description="Predicates that must hold.")
    requantize: Requantize | None = Field(None, description="Integer arithmetic of this row.")
    accumulator: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[AccumulatorModel, Tag("map")], Discriminator(_shape)
        ]
        | None
    ) = Field(
        None,
        description="Storage of the accumulator: a row whose sums of products may not fit is left.",
        examples=["i32"],
    )
    table: TableModel | None = Field(
        None,
        description="The function is looked up in a table.",
        examples=[{"entries": 64, "input": [-8, 8]}],
    )
    dynamic: DynamicModel | None = Field(
        None,
        description="The first input, f32 here, is quantized while the kernel runs, by its own range.",
        examples=[{"storage": "i8", "per": "token", "symmetric": True}],
    )
    computes: bool = Field(default=False, description="A same_scale row that does not merely move data.")
    float_: FloatName | None = Field(None, alias="float", description="Run this kernel in that float.")
    work: WorkModel | None = None
    runs_on: str | None = Field(
        None, description="Engine of this row, the first by default.", examples=["cpu"]
    )
    remove: Annotated[
        Annotated[bool, Tag("text")] | Annotated[RemoveModel, Tag("map")], Discriminator(_shape)
    ] = Field(
        default=False,
        description="Delete inherited rows that agree with the fields given, or those with a storage.",
    )


class FusionModel(Model):
    """Source ops that become one logical kernel."""

    kernel: Name
    pattern: Annotated[
        Annotated[Name, Tag("text")] | Annotated[Annotated[list[Name], Field(min_length=1)], Tag("list")],
        Discriminator(_shape),
    ] = Field(examples=["Relu?(Conv(x, w, b?))"])
    where: dict[str, Any] = Field(default_factory=dict)
    remove: bool = Field(default=False, description="Delete the inherited fusion of this pattern.")


class BlockModel(FusionModel):
    """Ops of a norm or an activation, recognised whole or not at all."""

    whole: bool = Field(
        default=True,
        description="Whether it is one kernel, in float, where rows serve neither it nor all of its ops. "
        "`false`: recognised only where the target has a row of that kernel.",
        examples=[False],
    )


class LegalizeModel(Model):
    """A coarse kernel, and the kernels of this target that a region of it becomes where no row serves it."""

    kernel: Name = Field(description="The coarse kernel.", examples=["attention"])
    into: Annotated[list[Name], Field(min_length=1)] = Field(
        description="Kernels of this target whose fusions its ops go through; other ops stand alone.",
        examples=[["matmul", "Softmax"]],
    )


EngineName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$")]


class EnginesModel(Model):
    """Engines of the device that share a model."""

    names: Annotated[list[EngineName], Field(min_length=2)] = Field(
        description="The preferred one first; kernels in float run on the last.", examples=[["npu", "cpu"]]
    )
    crossing: Price = Field(1.0, description="Price of an element that another engine reads.")
    one_way: bool = Field(
        default=False, description="What reads from a later engine runs there too, and never comes back."
    )


class DefaultsModel(Model):
    """Defaults of rows."""

    port: TypeRef = Field(default=None, description="What wildcard ports fall back to.")
    on_no_kernel: Literal["float", "error"] = "float"
    requantize: Requantize = "tosa_double"
    rescale_single_consumer: bool = False
    duplicate_constants: bool = True
    asked_widths: bool = Field(
        default=False,
        description="Whether a wildcard port that would get the type of `port` takes the width that the "
        "model asks for (`!quant.any<i4>`) instead, be it narrower; otherwise that is the least width.",
    )
    unsigned: bool = Field(
        default=False,
        description="Whether such a port has no sign where its zero point is 0 and its range has nothing "
        "below.",
    )
    islands: Literal["float", "integer"] = "integer"
    bias: Literal["i32", "i64", "float"] = "i32"
    when: dict[str, Any] = Field(
        default_factory=dict, description="Predicates of every row that has such ports."
    )
    work: WorkModel | None = Field(
        default=None, description="Work of every row, for the rates that it leaves out."
    )


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
    """Rescales between kernels: whether the device has them, and their price."""

    allowed: bool = True
    cost: RescaleCostModel = Field(default_factory=RescaleCostModel)


class CostsModel(Model):
    """The price of lost bits, and what rows are to leave of a value."""

    bit_price: Price = 2.0
    free_bits: Price = 0.5
    max_clip: Annotated[int | float, Field(ge=0, le=1)] = 0.01
    max_bits_lost: Price | None = None
    wanted_db: Annotated[int | float, Field(ge=0, le=200)] | None = None
    wanted_float: bool = False


Count: TypeAlias = Annotated[int, Field(ge=0)]


class ExpectTypeModel(Model):
    """Expectations of a test on a type."""

    storage: str | None = Field(None, description="Storage, with its range if narrower.", examples=["i8"])
    scale: Number | None = Field(None, description="Scale of every slice.", examples=["1/256"])
    zero_point: int | None = Field(None, description="Zero point of every slice.", examples=[-128])
    per: Literal["tensor", "axis", "block"] | None = Field(None, description="One scale per what.")


class ExpectModel(Model):
    """Expectations of a test on the plan; keys left out are not checked."""

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


Opset: TypeAlias = Annotated[int, Field(ge=7, le=99)]


class FilesModel(Model):
    """What files the device's compiler reads."""

    opset: Annotated[list[Opset], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="The least and the greatest version of ONNX's operators that a file may be written in.",
        examples=[[13, 17]],
    )
    layout: Literal["channels_first", "channels_last"] | None = Field(
        None,
        description="Where images have their channels; formats of the other layout are refused.",
        examples=["channels_last"],
    )
    formats: Annotated[list[Name], Field(max_length=8)] | None = Field(
        None,
        description="Formats that the device's tools read; of a single one, plans keep to what it can write.",
        examples=[["litert"]],
    )
    sizes: Literal["fixed"] | None = Field(
        None,
        description="Whether the compiler takes fixed sizes alone. Sizes in which all samples agree are "
        "then the model's own; a plan warns of what stays open.",
        examples=["fixed"],
    )
    runtime: Literal["onnxruntime"] | None = Field(
        None,
        description="The engine installed beside the planner that the device is: files are judged by what it "
        "computes on this machine, optimisations on. Without it they are judged as they are written.",
        examples=["onnxruntime"],
    )
    reader: Literal["any", "finn", "onnxruntime", "openvino", "qnn", "tensorrt"] | None = Field(
        None,
        description="The engine that ONNX files are written for. Files for onnxruntime's CPU provider, the "
        "default, have guards against its optimizations, and `onnx-qdq` clamps stored bytes there. Files for "
        "other engines have every operator between a DequantizeLinear and a QuantizeLinear. `qonnx` files "
        "for `finn` have a Relu in front of every unsigned Quant.",
        examples=["qnn"],
    )


class Document(Model):
    """A target file."""

    model_config = ConfigDict(title="Target description, planner/v1")

    api_version: Literal["planner/v1"] = Field(alias="apiVersion")
    kind: Literal["Target"]
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]
    version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+([-+].*)?$")] = Field(examples=["1.0.0"])
    title: str = ""
    mode: Literal["fixed", "codegen"] = "fixed"
    extends: (
        Annotated[
            Annotated[Name, Tag("text")] | Annotated[Annotated[list[Name], Field(min_length=1)], Tag("list")],
            Discriminator(_shape),
        ]
        | None
    ) = None
    types: dict[str, TypeModel] = Field(default_factory=dict)
    defaults: DefaultsModel = Field(default_factory=DefaultsModel)
    rescale: RescaleModel = Field(default_factory=RescaleModel)
    costs: CostsModel = Field(default_factory=CostsModel)
    engines: EnginesModel | None = None
    files: FilesModel | None = None
    float_work: WorkModel | None = None
    work_unit: Annotated[str, Field(max_length=40)] = ""
    op_groups: dict[str, list[Name]] = Field(default_factory=dict)
    fusions: list[FusionModel] = Field(default_factory=list)
    parts: dict[str, Name | list[Name]] = Field(default_factory=dict)
    blocks: list[BlockModel] = Field(default_factory=list)
    legalize: list[LegalizeModel] = Field(default_factory=list)
    kernels: list[RowModel] = Field(default_factory=list)
    tests: list[CaseModel] = Field(default_factory=list)
