"""Models of rows and fusions. Source: docs/targets/reference.md."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from planner.target.schema.rules import RuleModel
from planner.target.schema.types import (
    FloatName,
    Model,
    Name,
    Number,
    PortName,
    Requantize,
    Signature,
    shape_of,
)


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
    per: Literal["tensor", "token", "batch"] = Field(
        "tensor",
        description="Granularity of the scales: a token is the numbers along the last axis, a batch one "
        "entry of the first axis.",
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
        description="How sums of products that may not fit are treated: the row is rejected, or the whole "
        "sum is saturated, or taken modulo 2^bits.",
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
    mac_unsigned: Price | None = Field(
        None, description="Per multiply-accumulate with unsigned weights, or second operand; null is mac."
    )


class RemoveModel(Model):
    """Inherited rows of the kernel, by a part of their signature."""

    storage: str = Field(description="Storage of any port.")


class RowModel(Model):
    """One row: a kernel, its signature, the rules between its ports."""

    kernel: Annotated[
        Annotated[Name, Tag("text")] | Annotated[GroupModel, Tag("map")], Discriminator(shape_of)
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
            Annotated[str, Tag("text")] | Annotated[AccumulatorModel, Tag("map")], Discriminator(shape_of)
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
        Annotated[bool, Tag("text")] | Annotated[RemoveModel, Tag("map")], Discriminator(shape_of)
    ] = Field(
        default=False,
        description="Delete inherited rows that agree with the fields given, or those with a storage.",
    )


class FusionModel(Model):
    """Source ops that become one logical kernel."""

    kernel: Name
    pattern: Annotated[
        Annotated[Name, Tag("text")] | Annotated[Annotated[list[Name], Field(min_length=1)], Tag("list")],
        Discriminator(shape_of),
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
