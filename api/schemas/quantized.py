"""Quantized: the request for a whole quantization, as JSON and as a form, and its answer."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.target.records import ExportFormat

from ..intake.files_in_bodies import FORM
from ..intake.files_in_bodies import Field as FormField
from .examples import NO_DIGEST
from .measured import PlanQuality, VerdictRecord
from .requests import Digest, Method, Whole

Dims = dict[Annotated[str, Field(max_length=1000)], Annotated[Whole, Field(ge=1, lt=1 << 31)]]


class QuantizationRequest(BaseModel):
    """A model to quantize for a target, and samples."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"model": NO_DIGEST, "samples": NO_DIGEST, "target": "litert-int8"}]},
    )
    model: Digest = Field(description="digest of a model, or of the blob that holds one")
    samples: Digest = Field(description="a blob: one .npz of arrays by input name, to calibrate with")
    eval_samples: Digest | None = Field(
        default=None, description="a blob of held-out samples to evaluate with; by default `samples`"
    )
    target: str = Field(default="onnxruntime-cpu", max_length=200, description="id or id@version of a target")
    format: ExportFormat = Field(default="onnx-qdq", description="a format of docs/formats.md")
    effort: Literal["quick", "normal", "high"] = Field(
        default="normal",
        description="where the verdict is not good, measure at most 16 (normal) or 48 (high) more plans",
    )
    method: Method = Field(default="minmax", description="of calibration")
    annotations: dict[str, Any] | None = Field(default=None, description="qplan.annotations/1")
    metric: Literal["sqnr", "top1", "top5", "cross_entropy"] | None = Field(
        default=None,
        description="decides between plans; all but sqnr need `label` or `labels` in the samples",
    )
    output: str | None = Field(
        default=None, max_length=1000, description="the output that labels are for; by default the only one"
    )
    dims: Dims = Field(
        default_factory=dict,
        max_length=100,
        description="sizes of open dimensions, by name (batch) or place (input[0]), of a blob",
    )
    name: str = Field(
        default="",
        max_length=300,
        description="name of a blob's model; in a form by default that of its file",
    )


FORM_FIELDS: Final[dict[str, FormField]] = {
    "model": "file",
    "samples": "file",
    "eval_samples": "file",
    "target": "text",
    "format": "text",
    "effort": "text",
    "method": "text",
    "annotations": "json",
    "metric": "text",
    "output": "text",
    "dims": "json",
    "name": "text",
}
"""How the fields of a request stand in a form."""

_FILE: Final = {"type": "string", "format": "binary"}


def _field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field of the form, from that of the request."""
    kind = FORM_FIELDS[name]
    if kind == "text":
        return {**next(iter(schema.get("anyOf", [schema])), schema), "title": schema["title"]}
    return {**(_FILE if kind == "file" else {"type": "string"}), "title": schema["title"]}


_PROPERTIES: Final = QuantizationRequest.model_json_schema()["properties"]
QUANTIZATION_FORM: Final[dict[str, Any]] = {
    "title": "QuantizationForm",
    "description": "A QuantizationRequest with its files; annotations and dims are JSON texts.",
    "type": "object",
    "properties": {name: _field(name, _PROPERTIES[name]) for name in FORM_FIELDS},
    "required": ["model", "samples"],
}
FORM_BODY: Final = {"requestBody": {"content": {FORM: {"schema": QUANTIZATION_FORM}}}}


class QuantizationRecord(BaseModel):
    """A quantized file, its plan, and the verdict on them; the file is the blob behind `link`."""

    file: Digest
    format: str
    bytes: int
    link: str
    model: Digest
    stats: Digest
    plan: Digest
    report: str = Field(description="address of the report")
    verdict: VerdictRecord
    quality: PlanQuality
    trials: int = Field(description="plans measured in search of a better one")
    given_up: str = Field(description="the compromise of a search's plan; empty without a search")
    warnings: list[str]
