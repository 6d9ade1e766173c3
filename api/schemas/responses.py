"""Responses: bodies of answers, for OpenAPI; `planned` has those about plans, `measured` those of runs."""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from .requests import Digest, ExternalData

JobKind: TypeAlias = Literal[
    "plan", "export", "calibration", "comparison", "losses", "search", "quantization"
]
"""Grows with the kinds of requests."""
ModelFormat: TypeAlias = Literal["onnx", "json", "litert", "mlir"]


class JobRecord(BaseModel):
    """A job; times are seconds since 1970, `result` as its route says."""

    id: str
    kind: JobKind
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: dict[str, Any] | None
    attempt: int
    created: float
    started: float | None
    finished: float | None
    link: str
    request_id: str | None = Field(default=None, description="of the request that made the job")
    result: dict[str, Any] | None
    problem: dict[str, Any] | None


class JobPage(BaseModel):
    """Some of the jobs, in the requested order; `next` is the cursor of the following page."""

    items: list[JobRecord]
    next: str | None


class Boundary(BaseModel):
    """An input or output of a model; null is an unknown dimension or rank."""

    name: str
    dtype: str
    shape: list[int | str | None] | None


class ModelRecord(BaseModel):
    """A model; its digest is the planner's, of structure, numbers and text that is written back."""

    digest: Digest
    blob: Digest
    external_data: list[ExternalData] = Field(default_factory=list)
    dims: dict[str, int] = Field(default_factory=dict)
    bytes: int
    format: ModelFormat
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


class BlobRecord(BaseModel):
    """A stored blob."""

    digest: Digest
    bytes: int


class FilePage(BaseModel):
    """Some of the files of a kind; `next` is the cursor of the following page."""

    items: list[BlobRecord]
    next: str | None


class UploadRecord(BaseModel):
    """An upload as it stands; `expires` is seconds since 1970."""

    id: str
    digest: Digest
    bytes: int
    offset: int
    expires: int
    link: str


class UploadPage(BaseModel):
    """Some of the uploads, the earliest first; `next` is the cursor of the following page."""

    items: list[UploadRecord]
    next: str | None


class ExportRecord(BaseModel):
    """A written file, kept as a blob, and the files that it refers to by name."""

    blob: Digest
    format: str
    link: str
    bytes: int
    external_data: list[ExternalData] = Field(default_factory=list)
    warnings: list[str] = Field(
        default_factory=list,
        description="open sizes that a format of fixed sizes takes for 1, a format the device does not read",
    )


class TargetRecord(BaseModel):
    """A target the server has."""

    id: str
    version: str
    title: str
    mode: str
    digest: Digest
    shipped: bool = Field(default=False, description="it comes with the server and stays")


class TargetPort(BaseModel):
    """A port of a row; missing fields have their defaults."""

    model_config = ConfigDict(extra="allow")
    name: str
    type: dict[str, Any] = Field(description="`storage`, and other constraints of the type")


class TargetRow(BaseModel):
    """One way in which a device runs a kernel, in the words of a description."""

    model_config = ConfigDict(extra="allow")
    kernel: str
    inputs: list[TargetPort] = Field(alias="in")
    outputs: list[TargetPort] = Field(alias="out")
    source: str | None = Field(default=None, description="file and line")


class TargetDescription(BaseModel):
    """A target: prices, fusions, rows by kernel; docs/targets explains them."""

    model_config = ConfigDict(extra="allow")
    id: str
    version: str
    title: str
    mode: str
    file: str
    digest: Digest
    defaults: dict[str, Any]
    rescale_allowed: bool
    costs: dict[str, float | bool | None]
    float_work: dict[str, float]
    work_unit: str
    engines: dict[str, Any]
    files: dict[str, Any]
    fusions: list[dict[str, Any]]
    kernels: dict[str, list[TargetRow]]
    tests: list[str] = Field(description="names of its tests")


class TestOutcome(BaseModel):
    """A test of a target description, and its findings."""

    name: str
    source: str
    ok: bool
    problems: list[str]


class TestReport(BaseModel):
    """The tests of a target description."""

    id: str
    ok: bool
    tests: list[TestOutcome]


class Finding(BaseModel):
    """A finding in a target description: an error or a warning."""

    file: str
    line: int
    column: int
    code: str
    severity: Literal["error", "warning"]
    message: str


class LintReport(BaseModel):
    """A target description that loads, with its warnings."""

    id: str
    version: str
    digest: Digest
    findings: list[Finding]


class Health(BaseModel):
    """A server that answers."""

    status: Literal["ok"] = "ok"


class ServerRecord(BaseModel):
    """Versions, limits and file formats of this server, and the rights of the caller."""

    version: str
    limits: dict[str, int]
    formats: list[str]
    schemas: list[str]
    exports: list[str]
    deprecated: dict[str, str] = Field(description="deprecated names that still work, and their replacements")
    token: str | None = Field(description="name of the caller's token; null on a server without tokens")
    tenant: str = Field(description="whose things the caller sees: `default` unless the token names another")
    scopes: list[str]


class ProblemDocument(BaseModel):
    """Any failure (RFC 9457); further members depend on the type, see docs/problems.md."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
