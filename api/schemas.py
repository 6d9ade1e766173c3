"""Schemas: bodies of requests and answers, for checking and for OpenAPI, with their examples.

The examples are real: tests send them. pydantic stays here.
"""

import re
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from api.examples import ANNOTATED, ANNOTATED_TEXT, BLOB, EDITS, KERNEL, NO_DIGEST
from api.store import DIGEST

STRICT: Final = ConfigDict(extra="forbid")
LOCATION: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$"
"""A file in the model's folder or below, none that is hidden or goes up."""

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
    stats: Digest | dict[str, Any] | None = Field(None, description="digest of statistics, or qplan.stats/1")
    annotations: dict[str, Any] | None = Field(None, description="qplan.annotations/1")
    options: PlanOptions = PlanOptions()


def read_plan_request(text: bytes) -> PlanRequest | None:
    """Read a plan request; None where anything is wrong with it."""
    try:
        return PlanRequest.model_validate_json(text)
    except ValidationError:
        return None


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
    format: str = Field(
        max_length=100, description="a format of docs/formats.md: onnx-qdq, onnx-integer, qonnx, ..."
    )


class CalibrationRequest(BaseModel):
    """Samples to run through a model."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"model": NO_DIGEST, "samples": NO_DIGEST}]}
    )
    model: Digest
    samples: Digest = Field(description="a blob: one .npz of arrays by input name")
    method: str = Field("minmax", max_length=40, description="minmax, percentile, percentile:99.9")


class ComparisonRequest(BaseModel):
    """A quantized ONNX file to run beside its model."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": NO_DIGEST, "file": NO_DIGEST, "samples": NO_DIGEST}]},
    )
    model: Digest
    file: Digest = Field(description="a blob, of an export")
    samples: Digest = Field(description="a blob: one .npz of arrays by input name")
    values: bool = Field(default=False, description="compare inner values too")


class JobRecord(BaseModel):
    """A job; times are seconds since 1970, `result` as the route that asked for it says."""

    id: str
    kind: Literal["plan", "export", "calibration", "comparison"]
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: dict[str, Any] | None
    attempt: int
    created: float
    started: float | None
    finished: float | None
    link: str
    result: dict[str, Any] | None
    problem: dict[str, Any] | None


class JobPage(BaseModel):
    """Some of the jobs, the latest first; `next` is the cursor of the following page."""

    items: list[JobRecord]
    next: str | None


class Boundary(BaseModel):
    """An input or output of a model; null is an unknown dimension or rank."""

    name: str
    dtype: str
    shape: list[int | str | None] | None


class ModelRecord(BaseModel):
    """What a model is; its digest is the planner's, of structure and numbers."""

    digest: Digest
    blob: Digest
    external_data: list[ExternalData] = Field(default_factory=list)
    bytes: int
    format: Literal["onnx", "json", "mlir"]
    name: str
    kernels: int
    ops: int
    values: int
    parameters: int
    inputs: list[Boundary]
    outputs: list[Boundary]
    notes: list[str]


class ModelPage(BaseModel):
    """Some of the models; `next` is the cursor of the following page."""

    items: list[ModelRecord]
    next: str | None


class StatsRecord(BaseModel):
    """Stored statistics."""

    digest: Digest
    model: str
    method: str
    samples: int
    values: int


class BlobRecord(BaseModel):
    """A stored blob."""

    digest: Digest
    bytes: int


class UploadRequest(BaseModel):
    """A file that will come in parts."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"digest": BLOB, "bytes": len(ANNOTATED_TEXT)}]}
    )
    digest: Digest
    bytes: int = Field(ge=1, lt=1 << 50)


class UploadRecord(BaseModel):
    """An upload as it stands; `expires` is seconds since 1970."""

    id: str
    digest: Digest
    bytes: int
    offset: int
    expires: int
    link: str


class QualityRecord(BaseModel):
    """How an output compares; SQNR in dB, null where there is no error at all (`exact`) or only error."""

    sqnr: float | None
    exact: bool
    max_error: float | None
    elements: int


class ComparisonRecord(BaseModel):
    """A comparison; the whole of it, inner values too, is the blob."""

    samples: int
    outputs: dict[str, QualityRecord]
    blob: Digest
    link: str


class ExportRecord(BaseModel):
    """A written file, kept as a blob."""

    blob: Digest
    format: str
    link: str
    bytes: int


class TargetRecord(BaseModel):
    """A target the server has."""

    id: str
    version: str
    title: str
    mode: str
    digest: Digest


class Explanation(BaseModel):
    """Why a port, value, kernel or rescale is as it is."""

    plan: Digest
    address: str
    lines: list[str]


class PortRecord(BaseModel):
    """A port of a plan; a type of null is float, and the rule is the one that decided last."""

    address: str
    kernel: str
    side: Literal["in", "out"]
    value: str
    type: str | None
    rule: str | None


class PortPage(BaseModel):
    """Some of the ports of a plan, in plan order; `next` is the cursor of the following page."""

    plan: Digest
    items: list[PortRecord]
    next: str | None


class Suggestion(BaseModel):
    """Edits that remove a rescale; pairs are (before, after) of the whole plan."""

    edits: dict[str, Any]
    text: str
    cut: float
    price: tuple[float, float]
    rescales: tuple[int, int]
    worst_bits_lost: tuple[float, float]


class Suggestions(BaseModel):
    """Verified edits, smallest first, and the same in words."""

    plan: Digest
    rescale: str
    suggestions: list[Suggestion]
    lines: list[str]


class Tradeoff(BaseModel):
    """One point of a front; `max_bits_lost` as an option gives it."""

    max_bits_lost: float | None
    rescaled_elements: int
    rescales: int
    worst_bits_lost: float
    types: dict[str, str]
    chosen: bool


class Tradeoffs(BaseModel):
    """The front of a component, fewest rescaled elements first, and the same in words."""

    plan: Digest
    component: str
    tradeoffs: list[Tradeoff]
    lines: list[str]


class Change(BaseModel):
    """Something that differs between two plans; empty is on one side only."""

    at: str
    before: str
    after: str
    why: str


class Difference(BaseModel):
    """What differs between two plans, and the same in words."""

    before: Digest
    after: Digest
    same: bool
    format: Literal["qplan.diff/1"]
    kernels: list[Change]
    ports: list[Change]
    rescales: list[Change]
    totals: dict[str, tuple[float, float]]
    lines: list[str]


class Finding(BaseModel):
    """Something odd in a target description."""

    file: str
    line: int
    column: int
    code: str
    severity: Literal["error", "warning"]
    message: str


class LintReport(BaseModel):
    """A target description that loads, and what is odd in it."""

    id: str
    version: str
    digest: Digest
    findings: list[Finding]


class Health(BaseModel):
    """A server that answers."""

    status: Literal["ok"] = "ok"


class ServerRecord(BaseModel):
    """Versions, limits and file formats of this server."""

    version: str
    limits: dict[str, int]
    formats: list[str]
    schemas: list[str]


class ProblemDocument(BaseModel):
    """Any failure (RFC 9457); further members depend on the type, see docs/problems.md."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
