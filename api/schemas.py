"""Schemas: bodies of requests and answers, for checking and for OpenAPI, with their examples.

The examples are real: tests send them. pydantic stays here.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.examples import ANNOTATED, BLOB, NO_DIGEST
from api.store import DIGEST

STRICT: Final = ConfigDict(extra="forbid")

Digest = Annotated[str, Field(pattern=DIGEST, description="sha256: and 64 hexadecimal digits")]


class PlanOptions(BaseModel):
    """How to plan: the strategy, and prices over the target's own."""

    model_config = STRICT
    strategy: Literal["minimal", "rfc"] = "minimal"
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


class ModelRequest(BaseModel):
    """A model to read, by the blob that holds it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"blob": BLOB}]})
    blob: Digest


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


class Boundary(BaseModel):
    """An input or output of a model; null is an unknown dimension or rank."""

    name: str
    dtype: str
    shape: list[int | str | None] | None


class ModelRecord(BaseModel):
    """What a model is; its digest is the planner's, of structure and numbers."""

    digest: Digest
    blob: Digest
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


class ProblemDocument(BaseModel):
    """Any failure (RFC 9457); further members depend on the type, see docs/problems.md."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
