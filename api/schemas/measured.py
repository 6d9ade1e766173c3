"""Measured: answers of what runs models: statistics, comparisons, losses, searches, and verdicts on plans."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from .requests import Digest


class StatsRecord(BaseModel):
    """Stored statistics."""

    digest: Digest
    model: str
    method: str
    samples: int
    values: int


class CalibrationRecord(StatsRecord):
    """Statistics of a calibration, and warnings about its samples."""

    warnings: list[str]


class FigureRecord(BaseModel):
    """SQNR in dB, null where there is no error at all (`exact`) or only error; the largest error."""

    sqnr: float | None
    exact: bool
    max_error: float | None
    elements: int


class DecidedRecord(BaseModel):
    """Answers of a softmax or sigmoid, and the share (0 to 1) of them that changes or is expected to."""

    share: float
    answers: int


class QualityRecord(FigureRecord):
    """How an output compares, whole and by groups of slices that are alike in range, if it has any."""

    groups: dict[str, FigureRecord]
    decided: DecidedRecord | None = None


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
    work: float | None = Field(default=None, description="predicted, in the target's unit")
    float_work: float | None = Field(default=None, description="of the same kernels in float")
    bytes: int | None = Field(default=None, description="of the file, where its work is above float's")
    float_bytes: int | None = Field(default=None, description="of the float model; likewise")
    fallbacks: list[FallbackRecord]


class VerdictRecord(BaseModel):
    """A verdict: the worse of accuracy and coverage; accuracy is null where nothing was compared."""

    level: Literal["good", "fair", "poor"]
    reason: str
    keep_float: bool = Field(description="whether a quantized file has nothing to offer over the float model")
    accuracy: VerdictPart | None
    coverage: CoveragePart | None


class PlanQuality(BaseModel):
    """The quality of a plan, by the last comparison that named it: of its worst output, in words too."""

    format: str
    samples: Digest
    measured_on: str = Field(description="the samples and the reference, as text")
    text: str
    grade: Literal["good", "fair", "poor", "bad"] = Field(
        description="by accuracy and coverage, the worse; bad in records of earlier versions alone"
    )
    reason: str | None = Field(default=None, description="the figure that the grade follows from")
    keep_float: bool | None = Field(
        default=None, description="whether the file has nothing to offer over the float model"
    )
    accuracy: VerdictPart | None = None
    coverage: CoveragePart | None = None
    sqnr: float | None = Field(description="dB; null where it is exact or there is only error")
    metrics: dict[str, ScoreRecord]


class ComparisonRecord(BaseModel):
    """A comparison; the whole of it, inner values too, is the blob."""

    samples: int
    reference: Literal["float", "stripped", "written"]
    outputs: dict[str, QualityRecord]
    metrics: dict[str, ScoreRecord]
    warnings: list[str]
    missed: list[str] = Field(default_factory=list, description="shortfalls of the least coverage")
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
    """Noise powers of one kernel at the evaluated output, by their causes."""

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
    """One change of a plan, and the SQNR that it predicts for the evaluated output."""

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
    """A goal: its quantity and its bound, in per cent of the model's own metric if relative."""

    text: str
    kind: Literal["sqnr", "metric", "drop", "work", "weight_bits", "size", "coverage"]
    bound: float
    is_relative: bool


class TrialRecord(BaseModel):
    """A plan that was measured; SQNR in dB, null where there is no error at all (`exact`) or only error.

    `share` is its work as a part of the most expensive plan's; a metric counts so that larger is better;
    `asked` is the number of kernels that it asks something of; beside an `error` the figures mean nothing.
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

    The blob has all of it, with the requests and outputs of each trial.
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
    given_up: str = Field(default="", description="of an effort: the compromise of the best plan")
    plan: Digest
    blob: Digest
    link: str
