"""Models of the rules of a row. Source: docs/targets/reference.md."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from planner.target.schema.types import Model, Name, Number, PortName, shape_of


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
            Annotated[Ports, Tag("list")] | Annotated[SameScaleModel, Tag("map")], Discriminator(shape_of)
        ]
        | None
    ) = None
    same_storage: Ports | None = None
    fixed_scale: FixedScaleModel | None = None
    multiplier_scale: MultiplierScaleModel | None = None
    free_scale: (
        Annotated[
            Annotated[list[PortName], Tag("list")] | Annotated[FreeScaleModel, Tag("map")],
            Discriminator(shape_of),
        ]
        | None
    ) = None
    multiplier_accumulator_scale: AccumulatorScaleModel | None = None
    derive: DeriveModel | None = None
    requires: Annotated[str, Field(min_length=1)] | None = None
    fn: (
        Annotated[Annotated[Name, Tag("text")] | Annotated[FnModel, Tag("map")], Discriminator(shape_of)]
        | None
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
