"""The model of a target file.

Errors become problems with line, column and code in `documents`; `load` resolves names (of types, groups,
functions). The JSON Schema that editors read comes from these models (`jsonschema`). Source:
docs/targets/reference.md.
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag

from planner.target.schema.rows import BlockModel, FusionModel, LegalizeModel, Price, RowModel, WorkModel
from planner.target.schema.types import Model, Name, Number, Requantize, TypeModel, TypeRef, shape_of

EngineName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$")]


class EnginesModel(Model):
    """Engines of the device that share a model."""

    names: Annotated[list[EngineName], Field(min_length=2)] = Field(
        description="The preferred one first; kernels in float run on the last.", examples=[["npu", "cpu"]]
    )
    crossing: Price = Field(1.0, description="Price of an element that another engine reads.")
    one_way: bool = Field(
        default=False,
        description="Whether consumers of a later engine's values run there too, without a way back.",
    )


class DefaultsModel(Model):
    """Defaults of rows."""

    port: TypeRef = Field(default=None, description="Type of wildcard ports that nothing else decides.")
    on_no_kernel: Literal["float", "error"] = "float"
    requantize: Requantize = "tosa_double"
    rescale_single_consumer: bool = False
    duplicate_constants: bool = True
    asked_widths: bool = Field(
        default=False,
        description="Whether a wildcard port that would get the type of `port` takes the width that the "
        "model requests (`!quant.any<i4>`) instead, be it narrower; otherwise that is the least width.",
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
    per: Literal["tensor", "axis", "block"] | None = Field(None, description="Granularity of the scales.")


class ExpectModel(Model):
    """Expectations of a test on the plan; keys left out are not checked."""

    kernels: dict[str, Count] | None = Field(
        None, description="How many kernels run by a row, by kernel.", examples=[{"concat": 1, "MaxPool": 2}]
    )
    floats: dict[str, Count] | None = Field(
        None, description="How many kernels run in float, by kernel; {} is none.", examples=[{"Erf": 1}]
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
            Discriminator(shape_of),
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
                Annotated[str, Tag("text")] | Annotated[ExpectTypeModel, Tag("map")], Discriminator(shape_of)
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

    name: Name = Field(description="The expectation, as a sentence.")
    model: str = Field(
        description="A line per value: 'y = Op(x, w) [axis=1] : f32[1,8] {-1, 1}'.",
        examples=["y = Softmax(x) : f32[1,8] {0, 1}\n"],
    )
    expect: ExpectModel = Field(description="Expected properties of the plan.")


Opset: TypeAlias = Annotated[int, Field(ge=7, le=99)]


class FilesModel(Model):
    """Files that the device's compiler reads."""

    opset: Annotated[list[Opset], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="The least and the greatest version of ONNX's operators in files (by default 20 or 21, "
        "or the model's need). Export refuses types and operators that the version lacks, and external "
        "weights.",
        examples=[[13, 17]],
    )
    layout: Literal["channels_first", "channels_last"] | None = Field(
        None,
        description="Position of the channels of images; formats of the other layout are refused.",
        examples=["channels_last"],
    )
    formats: Annotated[list[Name], Field(max_length=8)] | None = Field(
        None,
        description="Formats that the device's tools read. A kernel that one of them cannot write takes the "
        "next row, a smaller fusion or float. `formats=` and `-f` override it.",
        examples=[["litert"]],
    )
    sizes: Literal["fixed"] | None = Field(
        None,
        description="Whether the compiler takes fixed sizes alone. Sizes in which all samples agree are "
        "then the model's own; a plan warns of open sizes, with their `--dim`.",
        examples=["fixed"],
    )
    runtime: Literal["onnxruntime"] | None = Field(
        None,
        description="The installed engine that evaluates the files, with its optimizations. Without it, "
        "files are evaluated without optimizations.",
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
            Discriminator(shape_of),
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
