"""Models of the types of ports and of multipliers, and what all models of a target file share.

Source: docs/targets/reference.md.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

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


def shape_of(value: Any) -> str:
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
        "fewer_bits", description="How a factor that needs a greater shift is represented."
    )


Requantize: TypeAlias = Annotated[
    Annotated[Arithmetic, Tag("text")] | Annotated[MultiplierModel, Tag("map")], Discriminator(shape_of)
]


class TypeModel(Model):
    """A type that a port accepts: integer storage, and demands of the device on scale and zero point."""

    storage: str = Field(description="Integer format (i8, u4), float (bf16) or '*' for any.", examples=["i8"])
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Part of the storage in use, [qmin, qmax].", examples=[[-127, 127]]
    )
    granularity: Literal["tensor", "axis", "block"] = Field(
        "tensor", description="Granularity of the scales."
    )
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
    Annotated[str | None, Tag("text")] | Annotated[TypeModel, Tag("map")], Discriminator(shape_of)
]
Signature: TypeAlias = dict[PortName, TypeRef]
