"""Responses: bodies of answers, for OpenAPI; `requests` has the others. pydantic stays in these two."""

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.requests import Digest, ExternalData

JobKind: TypeAlias = Literal["plan", "export", "calibration", "comparison", "losses", "search"]
"""Grows with what can be asked for."""


class JobRecord(BaseModel):
    """A job; times are seconds since 1970, `result` as the route that asked for it says."""

    id: str
    kind: JobKind
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
    """What a model is; its digest is the planner's, of structure, numbers and text that is written back."""

    digest: Digest
    blob: Digest
    external_data: list[ExternalData] = Field(default_factory=list)
    dims: dict[str, int] = Field(default_factory=dict)
    bytes: int
    format: Literal["onnx", "json", "litert", "mlir"]
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


class CalibrationRecord(StatsRecord):
    """Statistics that were taken, and what is odd about the samples."""

    warnings: list[str]


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


class FigureRecord(BaseModel):
    """SQNR in dB, null where there is no error at all (`exact`) or only error; the largest error."""

    sqnr: float | None
    exact: bool
    max_error: float | None
    elements: int


class QualityRecord(FigureRecord):
    """How an output compares, whole and by groups of slices that are alike in range, if it has any."""

    groups: dict[str, FigureRecord]


class ScoreRecord(BaseModel):
    """A metric of the model and of the quantized file, on the same samples."""

    reference: float | None
    quantized: float | None
    larger_is_better: bool


class VerdictPart(BaseModel):
    """One side of a verdict."""

    level: Literal["good", "fair", "poor"]
    reason: str


class FallbackRecord(BaseModel):
    """Why kernels fall back to float, how many of which kind, and the one with most multiply-adds."""

    reason: str
    multiply_adds: int
    kernels: dict[str, int]
    kernel: str


class CoveragePart(VerdictPart):
    """How much of a model is quantized: kernels that compute with floats, and multiply-adds."""

    kernels: int
    on_device: int
    multiply_adds: int
    multiply_adds_on_device: int
    kernel_share: float
    multiply_add_share: float
    fallbacks: list[FallbackRecord]


class PlanQuality(BaseModel):
    """The quality of a plan, by the last comparison that named it: of its worst output, in words too."""

    format: str
    samples: Digest
    measured_on: str = Field(description="on which samples and against what, for people")
    text: str
    grade: Literal["good", "fair", "poor", "bad"] = Field(
        description="by accuracy and coverage, the worse; bad in records of earlier versions alone"
    )
    reason: str | None = Field(default=None, description="the figure that the grade follows from")
    accuracy: VerdictPart | None = None
    coverage: CoveragePart | None = None
    sqnr: float | None = Field(description="dB; null where it is exact or there is only error")
    metrics: dict[str, ScoreRecord]


class PlanRecord(BaseModel):
    """A stored plan; `model` and `stats` are null where the request brought them itself, or had none."""

    key: Digest
    bytes: int
    link: str
    model: str | None = None
    stats: str | None = None
    target: str | None = None
    edits: int | None = None
    version: str | None = None
    quality: PlanQuality | None = Field(default=None, description="by the last comparison that named it")


class PlanPage(BaseModel):
    """Some of the plans; `next` is the cursor of the following page."""

    items: list[PlanRecord]
    next: str | None


class ComparisonRecord(BaseModel):
    """A comparison; the whole of it, inner values too, is the blob."""

    samples: int
    reference: Literal["float", "stripped", "written"]
    outputs: dict[str, QualityRecord]
    metrics: dict[str, ScoreRecord]
    warnings: list[str]
    blob: Digest
    link: str
    quality: PlanQuality | None = Field(default=None, description="where a plan was compared")


class OutputLossRecord(BaseModel):
    """An output, or a group of its slices, of the whole quantized program; null dB is no noise (`exact`)."""

    output: str
    slices: str
    label: str
    sqnr: float | None
    exact: bool
    predicted: float | None


class PartsRecord(BaseModel):
    """Noise powers of one kernel at the judged output, by what makes them."""

    weights: float | None
    rounding: float | None
    clip: float | None


class KernelLossRecord(BaseModel):
    """The noise of one kernel, or of the rounding of an input, alone; null dB is no noise."""

    name: str
    kernel: str
    share: float | None
    sqnr: float | None
    noise: dict[str, float | None]
    parts: PartsRecord | None


class RemedyRecord(BaseModel):
    """One change of a plan, and the SQNR that it predicts for the judged output."""

    names: list[str]
    what: str
    sqnr: float | None
    how: str


class LossesRecord(BaseModel):
    """Losses of a plan, worst first, at most 100 outputs and kernels; all, and every value, is the blob."""

    format: Literal["qplan.losses/1"]
    model: str
    target: str
    samples: int
    judged: str
    begins: str
    outputs: list[OutputLossRecord]
    kernels: list[KernelLossRecord]
    remedies: list[RemedyRecord]
    warnings: list[str]
    blob: Digest
    link: str


class GoalRecord(BaseModel):
    """A goal: what it bounds, and by what; per cent of the model's own metric where it is relative."""

    text: str
    kind: Literal["sqnr", "metric", "drop", "work", "weight_bits", "size", "coverage"]
    bound: float
    is_relative: bool


class TrialRecord(BaseModel):
    """A plan that was measured; SQNR in dB, null where there is no error at all (`exact`) or only error.

    `share` is its work as a part of the dearest plan's; a metric counts so that larger is better; `asked` is
    the number of kernels that it asks something of; where there is an `error` the figures mean nothing.
    """

    origin: str
    work: float | None
    share: float | None
    weight_bits: float | None
    size: int = Field(description="bytes of the weights")
    predicted: float | None
    sqnr: float | None
    exact: bool
    metric: float | None
    reference: float | None
    error: str
    asked: int


class SearchRecord(BaseModel):
    """A search; the best plan is `plan`, as `annotations` make it; `best` and `front` are places in `trials`.

    The whole of it, with what each trial asks of kernels and its outputs, is the blob.
    """

    format: Literal["qplan.search-result/1"]
    goal: GoalRecord
    met: bool
    sentence: str
    unit: str
    dearest: float | None
    bound: float | None
    gap: float | None
    best: int
    front: list[int]
    trials: list[TrialRecord]
    annotations: dict[str, Any]
    plan: Digest
    blob: Digest
    link: str


class ExportRecord(BaseModel):
    """A written file, kept as a blob, and the files that it refers to by name."""

    blob: Digest
    format: str
    link: str
    bytes: int
    external_data: list[ExternalData] = Field(default_factory=list)
    warnings: list[str] = Field(
        default_factory=list, description="open sizes that a format of fixed sizes takes for 1"
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
    """A port of a row; what is not said is as it is by default."""

    model_config = ConfigDict(extra="allow")
    name: str
    type: dict[str, Any] = Field(description="`storage`, and what else is asked of the type")


class TargetRow(BaseModel):
    """One way in which a device runs a kernel, in the words of a description."""

    model_config = ConfigDict(extra="allow")
    kernel: str
    inputs: list[TargetPort] = Field(alias="in")
    outputs: list[TargetPort] = Field(alias="out")
    source: str | None = Field(default=None, description="file and line")


class TargetDescription(BaseModel):
    """A target: prices, fusions, rows by kernel; docs/targets says what each means."""

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


class PlanView(BaseModel):
    """The drawing of a plan: columns in place of records, texts by their places in `texts`."""

    model_config = ConfigDict(extra="allow")
    format: Literal["qplan.view/1"]
    kinds: list[str] = Field(description="what `nodes.kind` counts in")
    nodes: dict[str, list[Any]]
    groups: dict[str, list[Any]]
    order: list[int]
    ports: dict[str, list[Any]]
    edges: dict[str, list[Any]]
    rescales: dict[str, list[Any]]
    values: dict[str, list[Any]]
    steps: dict[str, list[Any]]
    texts: list[str]
    changes: dict[str, Any] | None
    before: dict[str, Any] | None = Field(description="the drawing of the plan before, where one is named")
    page: dict[str, Any]


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
    cut_at: str
    lost: float
    lost_at: str
    decibels: float
    price: tuple[float, float]
    rescales: tuple[int, int]
    worst_bits_lost: tuple[float, float]
    excused: tuple[float, float] = Field(description="of the prices, the part that facts excuse")


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


class Preview(BaseModel):
    """What edits would change in a plan, without reasons: at most 1,000 of each kind; in words too."""

    plan: Digest
    same: bool
    touched: list[str] = Field(description="kernels at which something changes, readers of rescales too")
    kernels: list[Change]
    ports: list[Change]
    rescales: list[Change]
    totals: dict[str, tuple[float, float]]
    lines: list[str]


class PlanSummary(BaseModel):
    """Totals of a plan; `reasons` says why kernels run in float, and how many of them for each reason."""

    plan: Digest
    model: str
    target: str
    kernels: int
    integer: int
    rescales: int
    casts: int
    cost: float
    excused: float = Field(
        description="price of bits that facts force consumers to lose; with the cost, what plans compare by"
    )
    optimal: bool
    work: float
    work_unit: str
    weight_bytes: tuple[float, float] = Field(description="of the model, and as planned")
    reasons: dict[str, int]
    warnings: list[str]
    quality: PlanQuality | None = Field(default=None, description="null where nobody compared it yet")


class TestOutcome(BaseModel):
    """A test of a target description, and what it found wrong."""

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
    """Versions, limits and file formats of this server, and what the caller may do."""

    version: str
    limits: dict[str, int]
    formats: list[str]
    schemas: list[str]
    exports: list[str]
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
