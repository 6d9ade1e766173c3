"""Requests: bodies of requests, for checking and for OpenAPI, with their examples.

The examples are real: tests send them. Answers are in `responses`; pydantic stays in these two.
"""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from api.schemas.examples import ANNOTATED, ANNOTATED_TEXT, BLOB, EDITS, KERNEL, NO_DIGEST
from api.storage.digests import DIGEST

STRICT: Final = ConfigDict(extra="forbid")
LOCATION: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$"
"""A file in the model's folder or below, none that is hidden or goes up."""

METHOD: Final = r"^(minmax|percentile(:[0-9.e+/-]{1,30})?)$"
ExportFormat = Literal[
    "finn",
    "hls4ml",
    "onnx-integer",
    "onnx-matmulnbits",
    "onnx-qcdq",
    "onnx-qdq",
    "onnx-qoperator",
    "onnx-qoperator-clip",
    "qonnx",
    "stablehlo",
    "stablehlo-int",
    "tosa",
]
"""Keys of `EXPORTERS`, which the server does not load: they bring onnx with them."""

Digest = Annotated[str, Field(pattern=DIGEST, description="sha256: and 64 hexadecimal digits")]


class PlanOptions(BaseModel):
    """How to plan: the strategy, what gives way where not all can hold, and prices over the target's own."""

    model_config = STRICT
    strategy: Literal["minimal", "rfc"] = "minimal"
    best_effort: bool = Field(
        default=False, description="give some constraints up where not all can hold, each with a warning"
    )
    bias_pins: Literal["error", "derive"] = Field(
        default="error", description="derive a pinned bias anew whose scale is not its factors' product"
    )
    costs: dict[str, Annotated[float, Field(allow_inf_nan=False)] | None] = Field(
        default_factory=dict, max_length=32
    )


class PlanRequest(BaseModel):
    """What to plan, and for what."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"model": ANNOTATED, "target": "litert-int8"},
                {"model": NO_DIGEST, "target": "onnxruntime-cpu", "stats": NO_DIGEST},
            ]
        },
    )
    model: Digest | dict[str, Any] = Field(description="digest of a model, or an annotated model itself")
    target: str = Field(max_length=200, description="id or id@version of a target")
    stats: Digest | dict[str, Any] | None = Field(None, description="digest of statistics, or qplan.stats/2")
    annotations: dict[str, Any] | None = Field(None, description="qplan.annotations/1")
    options: PlanOptions = PlanOptions()


class EditsRequest(BaseModel):
    """Changed constraints, in the words of an annotations file, and kernels to put back into float."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [EDITS, {"restore": [KERNEL]}]})
    format: Literal["qplan.annotations/1"] = "qplan.annotations/1"
    values: dict[str, Any] = Field(default_factory=dict, description="types by name of a value, or glob")
    ports: dict[str, Any] = Field(default_factory=dict, description="types by address of a port")
    remove: list[str] = Field(default_factory=list, description="values and ports whose facts go")
    restore: list[str] = Field(default_factory=list, max_length=100, description="kernels to run in float")
    target: str | None = Field(default=None, max_length=100, description="shipped target to plan for instead")
    best_effort: bool = Field(
        default=False, description="with `target`: give up what cannot hold there, with a warning"
    )

    @model_validator(mode="after")
    def _names_a_target(self) -> Self:
        if self.best_effort and self.target is None:
            raise ValueError("best_effort goes with a target; edits keep to what the plan was made with")
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
    external_data: list[ExternalData] = Field(default_factory=list, max_length=1000)

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


class CalibrationRequest(BaseModel):
    """Samples to run through a model."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"model": NO_DIGEST, "samples": NO_DIGEST}]}
    )
    model: Digest
    samples: Digest = Field(description="a blob: one .npz of arrays by input name")
    method: str = Field(
        "minmax", max_length=40, pattern=METHOD, description="minmax, percentile, percentile:99.9"
    )


class ComparisonRequest(BaseModel):
    """A quantized ONNX file to run beside its model."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": NO_DIGEST, "file": NO_DIGEST, "samples": NO_DIGEST}]},
    )
    model: Digest
    file: Digest = Field(description="a blob, of an export")
    samples: Digest = Field(
        description="a blob: one .npz of arrays by input name; label or labels is what metrics judge by"
    )
    values: bool = Field(default=False, description="compare inner values too")
    metrics: list[Literal["sqnr", "top1", "top5", "cross_entropy"]] = Field(
        default=["sqnr"], max_length=4, description="all but sqnr, which is always there, need labels"
    )
    output: str | None = Field(
        default=None, max_length=1000, description="the output that labels are for; by default the only one"
    )
    reference: Literal["written", "stripped"] = Field(
        default="written", description="a model with quantizers of its own as it is, or without them"
    )


class UploadRequest(BaseModel):
    """A file that will come in parts."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"digest": BLOB, "bytes": len(ANNOTATED_TEXT)}]}
    )
    digest: Digest
    bytes: int = Field(ge=1, lt=1 << 50)
