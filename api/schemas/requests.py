"""Requests: bodies of requests, for checking and for OpenAPI, with their examples.

The examples are real: tests send them. Answers are in `responses`, `planned` and `measured`; pydantic stays
in these.
"""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from planner.calibration.statistics import ACCEPTED, percentile_of
from planner.errors import StatsError
from planner.target.records import ExportFormat

from ..storage.digests import DIGEST
from .examples import ANNOTATED, ANNOTATED_TEXT, BLOB, EDITS, KERNEL, NO_DIGEST, TARGET

STRICT: Final = ConfigDict(extra="forbid")
MOST_TRIALS: Final = 200
LOCATION: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$"
"""A file in the model's folder or below, none that is hidden or goes up."""

METHODS: Final = ("minmax", "percentile", "mse", "entropy")
PERCENTILES: Final = r"^percentile:[0-9.]{1,20}(e[+-]?[0-9]{1,2})?(/[0-9]{1,20})?$"

Digest = Annotated[str, Field(pattern=DIGEST, description="sha256: and 64 hexadecimal digits")]


# JSON has these types: `true` is no number, `"5"` neither.
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Real = Annotated[float, Strict(), Field(allow_inf_nan=False)]


def _digest_or(what: str) -> WrapValidator:
    """Say what is accepted in one sentence, where a union has one for each of its types."""

    def validate(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
        try:
            return read(given)
        except ValidationError as error:
            text = "{given} is neither a digest, sha256: and 64 hexadecimal digits, nor {what}"
            shown = {"given": f"{given!r:.100}", "what": what}
            raise PydanticCustomError("digest_or_document", text, shown) from error

    return WrapValidator(validate)


Model = Annotated[Digest | dict[str, Any], _digest_or("an annotated model")]
Stats = Annotated[Digest | dict[str, Any], _digest_or("statistics")]
PlanOrKey = Annotated[Digest | dict[str, Any], _digest_or("a plan")]


def _method(text: str) -> str:
    """A calibration method, refused by the function that reads it where it is none."""
    try:
        percentile_of(text)
    except StatsError as error:
        raise PydanticCustomError("calibration_method", "{why}", {"why": str(error)}) from error
    return text


Method = Annotated[
    str,
    Field(max_length=60),
    AfterValidator(_method),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "enum": [*METHODS]}, {"type": "string", "pattern": PERCENTILES}]}
    ),
]


class PlanOptions(BaseModel):
    """Planning options: the strategy, constraints that may be dropped, and prices over the target's own."""

    model_config = STRICT
    strategy: Literal["minimal", "rfc"] = "minimal"
    best_effort: Flag = Field(
        default=False, description="give some constraints up where not all can hold, each with a warning"
    )
    bias_pins: Literal["error", "derive"] = Field(
        default="error", description="derive a fixed bias anew whose scale is not its factors' product"
    )
    formats: list[Annotated[str, Field(max_length=40)]] = Field(
        default_factory=list,
        max_length=8,
        description="formats to export in: kernels that one of them cannot write take another row, or float",
    )
    correct_biases: Flag = Field(
        default=False,
        description="take the mean error of integer weights out of biases, by the means that `stats` have",
    )
    costs: dict[str, Real | None] = Field(default_factory=dict, max_length=32)


class PlanRequest(BaseModel):
    """A model to plan, and its target."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"model": ANNOTATED, "target": "litert-int8"},
                {"model": NO_DIGEST, "target": "onnxruntime-cpu", "stats": NO_DIGEST},
            ]
        },
    )
    model: Model = Field(description="digest of a model, or an annotated model itself")
    target: str = Field(max_length=200, description="id or id@version of a target")
    stats: Stats | None = Field(None, description="digest of statistics, or qplan.stats/2")
    annotations: dict[str, Any] | None = Field(None, description="qplan.annotations/1")
    options: PlanOptions = PlanOptions()


class EditsRequest(BaseModel):
    """Changed constraints, in the words of an annotations file, and kernels to put back into float."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EDITS, {"restore": [KERNEL]}]})
    format: Literal["qplan.annotations/1"] = "qplan.annotations/1"
    values: dict[str, Any] = Field(default_factory=dict, description="types by name of a value, or glob")
    ports: dict[str, Any] = Field(default_factory=dict, description="types by address of a port")
    kernels: dict[str, Any] = Field(
        default_factory=dict,
        description="float, a storage, or storages of ports, by name of a kernel or op, or glob",
    )
    remove: list[str] = Field(default_factory=list, description="values, ports and kernels whose facts go")
    restore: list[str] = Field(default_factory=list, max_length=100, description="kernels to run in float")
    target: str | None = Field(default=None, max_length=100, description="shipped target to plan for instead")
    best_effort: Flag = Field(
        default=False, description="with `target`: drop constraints that cannot hold there, with a warning"
    )

    @model_validator(mode="after")
    def _names_a_target(self) -> Self:
        if self.best_effort and self.target is None:
            raise ValueError("best_effort needs a target; edits keep the options of the plan")
        return self


class ExternalData(BaseModel):
    """A file beside an ONNX model, under the name that the model calls it by."""

    model_config = STRICT
    location: str = Field(pattern=LOCATION, max_length=200)
    blob: Digest


class ModelRequest(BaseModel):
    """A model to read, by the blob that holds it, and by those that hold its external data."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"blob": BLOB}]})
    blob: Digest
    name: str = Field(
        default="",
        max_length=300,
        description="name of the model, such as that of its file; else its own",
    )
    external_data: list[ExternalData] = Field(default_factory=list, max_length=1000)
    dims: dict[Annotated[str, Field(max_length=1000)], Annotated[Whole, Field(ge=1, lt=1 << 31)]] = Field(
        default_factory=dict,
        max_length=100,
        description="sizes of dimensions that the model leaves open, by name (batch) or place (input[0])",
    )

    @field_validator("external_data")
    @classmethod
    def _lie_apart(cls, given: list[ExternalData]) -> list[ExternalData]:
        """No two files at one place, none inside another, none where the model itself is put."""
        places = ["model.onnx", *(entry.location for entry in given)]
        inside = {place[: match.start()] for place in places for match in re.finditer("/", place)}
        if len(set(places)) < len(places) or not inside.isdisjoint(places):
            raise ValueError("two files at one place, or one that is called model.onnx")
        return given


class ExportRequest(BaseModel):
    """A plan to write, with the model it was made of."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": NO_DIGEST, "plan": NO_DIGEST, "format": "onnx-qdq"}]},
    )
    model: Digest
    plan: Digest
    format: ExportFormat = Field(description="a format of docs/formats.md")
    accuracy_level: Whole | None = Field(
        None,
        ge=0,
        le=4,
        description="of onnx-matmulnbits alone: 0 the engine's choice, 1 float32, ... 4 int8",
    )
    external_data: Flag = Field(
        default=False,
        description="weights in a blob of their own, which the model calls by its name: for more than 1.9 GB",
    )


class CalibrationRequest(BaseModel):
    """Samples to run through a model."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"model": NO_DIGEST, "samples": NO_DIGEST}]}
    )
    model: Digest
    samples: Digest = Field(description="a blob: one .npz of arrays by input name")
    method: Method = Field("minmax", description=ACCEPTED)
    readers: Whole = Field(
        0,
        ge=0,
        le=1000,
        description="number of samples on which the SQNR of rounding is measured at each consumer too",
    )


class ComparisonRequest(BaseModel):
    """A quantized ONNX file to run beside its model, or a plan to be written as one."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"model": NO_DIGEST, "file": NO_DIGEST, "samples": NO_DIGEST},
                {"model": NO_DIGEST, "plan": NO_DIGEST, "samples": NO_DIGEST},
            ]
        },
    )
    model: Digest
    file: Digest | None = Field(default=None, description="a blob, of an export")
    plan: Digest | None = Field(
        default=None, description="in place of a file, key of a plan, which keeps the figures"
    )
    format: ExportFormat | Literal["interpreter"] | None = Field(
        default=None,
        description="format of the file that runs; interpreter runs the plan itself; by default onnx-qdq, or "
        "the interpreter if that format cannot express the plan",
    )
    held_out: Flag | None = Field(
        default=None, description="whether the samples are others than those of calibration, for who reads it"
    )
    samples: Digest = Field(
        description="a blob: one .npz of arrays by input name; metrics compare with `label` or `labels`"
    )
    values: Flag = Field(default=False, description="compare inner values too")
    metrics: list[Literal["sqnr", "top1", "top5", "cross_entropy"]] = Field(
        default=["sqnr"], max_length=4, description="all but sqnr, which is always there, need labels"
    )
    output: str | None = Field(
        default=None, max_length=1000, description="the output that labels are for; by default the only one"
    )
    reference: Literal["written", "stripped"] = Field(
        default="written", description="a model with quantizers of its own as it is, or without them"
    )
    min_coverage: Annotated[float, Field(strict=True, ge=0, le=1)] | None = Field(
        default=None,
        description="least share of the multiply-adds that is quantized; `missed` names the shortfall",
    )
    stats: Digest | None = Field(
        default=None, description="those of calibration; warnings name samples beyond them"
    )

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.file is None) == (self.plan is None):
            raise ValueError("either a file or a plan is compared")
        return self


class LossesRequest(BaseModel):
    """A plan whose losses are measured, kernel by kernel."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": NO_DIGEST, "plan": NO_DIGEST, "samples": NO_DIGEST}]},
    )
    model: Digest
    plan: PlanOrKey = Field(description="key of a plan, or a qplan.plan/1 of a known target")
    samples: Digest = Field(description="a blob: one .npz of arrays by input name; 8 name the culprits")
    output: str | None = Field(
        default=None, max_length=1000, description="the output to evaluate; by default the worst"
    )
    limit: Whole = Field(default=10, ge=0, le=100, description="kernels whose noise is taken apart")


class SearchRequest(BaseModel):
    """A model to plan, its target, and the quality or price to reach."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"model": NO_DIGEST, "target": "litert-int8", "samples": NO_DIGEST, "goal": "sqnr=20"},
                {"model": NO_DIGEST, "target": "litert-int8", "samples": NO_DIGEST, "effort": "normal"},
            ]
        },
    )
    model: Model = Field(description="digest of a model, or an annotated model itself")
    target: str = Field(max_length=200, description="id or id@version of a target")
    stats: Stats | None = Field(None, description="digest of statistics, or qplan.stats/2")
    annotations: dict[str, Any] | None = Field(None, description="qplan.annotations/1")
    samples: Digest = Field(
        description="a blob: one .npz of arrays by input name; a metric compares with `label` or `labels`"
    )
    goal: (
        Annotated[str, Field(max_length=100)]
        | Annotated[
            dict[str, Annotated[float, Field(strict=True)] | Annotated[str, Field(max_length=40)]],
            Field(min_length=1, max_length=1),
        ]
        | None
    ) = Field(
        default=None,
        description="sqnr=30, metric=0.9, drop=1%, work=0.5, weight_bits=4.5, size=25MB, coverage=0.9; "
        "or one such pair",
    )
    effort: Literal["quick", "normal", "high"] | None = Field(
        default=None,
        description="in place of a goal: plan, and where that is not good, measure at most 16 (normal) or 48 "
        "(high) plans in search of a better one; quick measures the plan alone",
    )
    metric: Literal["sqnr", "top1", "top5", "cross_entropy"] | None = Field(
        default=None,
        description="the measure of quality; without one, or as sqnr, the SQNR of the worst output",
    )
    output: str | None = Field(
        default=None, max_length=1000, description="the output that labels are for; by default the only one"
    )
    trials: Whole = Field(
        default=40,
        ge=0,
        le=MOST_TRIALS,
        description="plans that are measured, at most; with an effort, its own number is the default, and 0 "
        "gives the best of the plans that the same request measured before it was cancelled",
    )
    reference: Literal["written", "stripped"] = Field(
        default="written", description="a model with quantizers of its own as it is, or without them"
    )

    @model_validator(mode="after")
    def _says_what_for(self) -> Self:
        if (self.goal is None) == (self.effort is None):
            raise ValueError("accepted: either a goal or an effort")
        return self

    @field_validator("trials")
    @classmethod
    def _measures_something(cls, given: int, others: ValidationInfo) -> int:
        if not given and others.data.get("effort") is None:
            raise ValueError("no trials at all go with an effort; with a goal, 1 or more")
        return given

    @field_validator("metric")
    @classmethod
    def _is_no_other(cls, given: str | None) -> str | None:
        """SQNR is measured anyway."""
        return None if given == "sqnr" else given


class TargetSource(BaseModel):
    """A target description, for clients that send JSON alone."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"source": TARGET}]})
    source: Annotated[str, Strict()] = Field(description="YAML, as it stands in a file")


class UploadRequest(BaseModel):
    """A file that will come in parts."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"digest": BLOB, "bytes": len(ANNOTATED_TEXT)}]}
    )
    digest: Digest
    bytes: Whole = Field(ge=1, lt=1 << 50)
