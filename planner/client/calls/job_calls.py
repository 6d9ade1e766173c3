"""Work that runs models, as jobs, and jobs themselves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.client.calls.answers import AS_JOB, Source, items_of, made, name_of, object_of, quoted
from planner.client.calls.files import download, download_to, upload
from planner.client.steps import Ask, Steps


def export(
    model: str,
    plan: str,
    format: str,  # noqa: A002
    *,
    accuracy_level: int | None = None,
    as_job: bool = False,
) -> Steps[bytes]:
    """Write a plan, by key, of a model, by digest, in a format.

    Args:
      accuracy_level: of `onnx-matmulnbits` alone, 0 to 4; 1, float32, by default.
      as_job: for models that take longer than the server works within a request.

    Raises:
      UnsupportedExport: the format cannot say this plan.
    """
    body = _export(model, plan, format, accuracy_level)
    record = yield from made(Ask("POST", "/v1/exports", json=body, headers=AS_JOB if as_job else {}))
    return (yield from download(record["blob"]))


def export_to(
    model: str,
    plan: str,
    format: str,  # noqa: A002
    path: Path | str,
    *,
    accuracy_level: int | None = None,
    external_data: bool = False,
) -> Steps[tuple[Path, ...]]:
    """Write a plan, by key, of a model, by digest, into a file here, as a job.

    Args:
      path: of the file; what it refers to goes into its folder, under the name that it uses.
      accuracy_level: see `export`.
      external_data: weights in a file beside it, which models beyond 1.9 GB need.

    Returns:
      The files written, the model last.

    Raises:
      UnsupportedExport: the format cannot say this plan, or has no external data.
      InputError: a place that cannot be written.
    """
    body = _export(model, plan, format, accuracy_level) | {"external_data": external_data}
    record = yield from made(Ask("POST", "/v1/exports", json=body, headers=AS_JOB))
    goal = Path(path)
    beside = [(entry["blob"], goal.with_name(entry["location"])) for entry in record["external_data"]]
    for blob, place in (*beside, (record["blob"], goal)):
        yield from download_to(blob, place)
    return (*(place for _, place in beside), goal)


def _export(model: str, plan: str, form: str, level: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model, "plan": plan, "format": form}
    return body if level is None else body | {"accuracy_level": level}


def quantize(
    model: Source,
    samples: Source,
    *,
    target: str = "onnxruntime-cpu",
    format: str = "onnx-qdq",  # noqa: A002
    eval_samples: Source | None = None,
    effort: str = "normal",
    method: str = "minmax",
    annotations: Mapping[str, Any] | None = None,
    metric: str | None = None,
    output: str | None = None,
    dims: Mapping[str, int] | None = None,
    out: Path | str | None = None,
) -> Steps[dict[str, Any]]:
    """Quantize a model in one call: calibrate, plan, write the file and compare it with the float model.

    Args:
      model: a path or the bytes of a file, or the digest of a model that was read before.
      samples: one `.npz`, to calibrate with.
      eval_samples: held-out samples to evaluate with; by default `samples`.
      effort: where the verdict is not good, `normal` measures at most 16 more plans, `high` 48.
      metric, output: as `search` takes them.
      dims: sizes of dimensions that the model leaves open, as `model` takes them.
      out: a path to write the quantized file to.

    Returns:
      `verdict`, the digest of the quantized `file`, the key of its `plan`, digests of `model` and `stats`.
    """
    is_read = isinstance(model, str) and model.startswith("sha256:")
    body: dict[str, Any] = {"model": model if is_read else (yield from upload(model))}
    body |= {"samples": (yield from upload(samples)), "target": target, "format": format}
    if eval_samples is not None:
        body["eval_samples"] = yield from upload(eval_samples)
    name = "" if is_read else name_of(model)
    given = {"annotations": annotations, "metric": metric, "output": output, "dims": dims, "name": name}
    body |= {"effort": effort, "method": method} | {name: item for name, item in given.items() if item}
    record = yield from made(Ask("POST", "/v1/quantizations", json=body, headers=AS_JOB))
    if out is not None:
        yield from download_to(record["file"], Path(out))
    return record


def calibrate(
    model: str, samples: Source, *, method: str = "minmax", readers: int = 0
) -> Steps[dict[str, Any]]:
    """Run samples, one `.npz`, through a model; the record has `digest` of the statistics and `warnings`.

    Args:
      readers: number of samples on which the SQNR of rounding is measured at each consumer too.
    """
    body = {"model": model, "samples": (yield from upload(samples)), "method": method, "readers": readers}
    return (yield from made(Ask("POST", "/v1/calibrations", json=body, headers=AS_JOB)))


def compare(
    model: str,
    file: Source,
    samples: Source,
    *,
    values: bool = False,
    metrics: Sequence[str] = (),
    output: str | None = None,
    reference: str | None = None,
    stats: str | None = None,
    min_coverage: float | None = None,
) -> Steps[dict[str, Any]]:
    """Run a quantized file and its model side by side; `outputs` has SQNR (dB) by name.

    Args:
      values: compare inner values too; they are in the whole comparison, the record's `blob`.
      metrics: `top1`, `top5`, `cross_entropy`, which compare with the samples' `label` or `labels`.
      output: the output that labels are for; by default the only one.
      reference: of a model with quantizers of its own: `written`, the default, or `stripped` of them.
      stats: digest of those of calibration: `warnings` say what in the samples goes beyond them.
      min_coverage: least share of the multiply-adds that is quantized; `missed` names the shortfall.
    """
    given = {"file": (yield from upload(file)), "samples": (yield from upload(samples))}
    asked = {
        "metrics": list(metrics),
        "output": output,
        "reference": reference,
        "stats": stats,
        "min_coverage": min_coverage,
    }
    more = {name: item for name, item in asked.items() if item}
    more |= {} if min_coverage is None else {"min_coverage": min_coverage}
    body = {"model": model, "values": values, **given, **more}
    return (yield from made(Ask("POST", "/v1/comparisons", json=body, headers=AS_JOB)))


def measure(
    model: str,
    plan: str,
    samples: Source,
    *,
    format: str | None = None,  # noqa: A002 - as `export` has it
    metrics: Sequence[str] = (),
    output: str | None = None,
    reference: str | None = None,
    stats: str | None = None,
    min_coverage: float | None = None,
    held_out: bool | None = None,
) -> Steps[dict[str, Any]]:
    """Run a plan, written in a format, and its model side by side, and keep its quality with it.

    Args:
      plan: its key; `summary` and `report` of it have the quality from then on.
      format: of a file that something runs here, or `interpreter`, which runs the plan itself; by default
        `onnx-qdq`, or the interpreter where that cannot say the plan.
      metrics, output, reference, stats, min_coverage: as for `compare`.
      held_out: whether the samples are others than those of calibration, for those who read the report.

    Returns:
      Return the answer of `compare`, and `quality`: `text`, `grade`, `measured_on`.
    """
    body: dict[str, Any] = {"model": model, "plan": plan, "samples": (yield from upload(samples))}
    asked = {"format": format, "metrics": list(metrics), "output": output, "reference": reference}
    more = {name: item for name, item in asked.items() if item}
    others = {"stats": stats, "held_out": held_out, "min_coverage": min_coverage}
    known = {name: item for name, item in others.items() if item is not None}
    return (yield from made(Ask("POST", "/v1/comparisons", json=body | more | known, headers=AS_JOB)))


def losses(
    model: str,
    plan: str | Mapping[str, Any],
    samples: Source,
    *,
    output: str | None = None,
    limit: int | None = None,
) -> Steps[dict[str, Any]]:
    """Attribute the error of a plan: the noise of each kernel alone, and remedies.

    Args:
      plan: its key, or a plan itself, for a target that the server has.
      samples: one `.npz`; 8 samples name the culprits.
      output: the output to evaluate; by default the worst.
      limit: kernels whose noise is taken apart; 10 by default.

    Returns:
      The worst kernels and the remedies; the whole `qplan.losses/1`, with every value, is the `blob`.
    """
    body: dict[str, Any] = {"model": model, "plan": plan, "samples": (yield from upload(samples))}
    asked = {"output": output, "limit": limit}
    body |= {name: item for name, item in asked.items() if item is not None}
    return (yield from made(Ask("POST", "/v1/losses", json=body, headers=AS_JOB)))


def search(
    model: str | Mapping[str, Any],
    target: str,
    samples: Source,
    *,
    goal: str | Mapping[str, float | str] | None = None,
    effort: str | None = None,
    metric: str | None = None,
    output: str | None = None,
    stats: str | Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    trials: int | None = None,
    reference: str | None = None,
) -> Steps[dict[str, Any]]:
    """Find the plan of least work that reaches a goal, or the best within means.

    Args:
      model, target, stats, annotations: as `plan` takes them.
      samples: one `.npz`, with `label` or `labels` where a metric wants them.
      goal: `sqnr=30`, `metric=0.9`, `drop=1%` (least work); `work=0.5`, `weight_bits=4.5`, `coverage=0.9`
        (best quality).
      effort: in place of a goal, `normal` or `high`: plan, and search where that is not good, as `quantize`.
      metric: `top1`, `top5`, `cross_entropy`.
      output: the output that labels are for; by default the only one.
      trials: plans that are measured, at most; by default 40, or as many as the effort has; 0 with an effort:
        the best of what the same request measured before it was cancelled.
      reference: of a model with quantizers of its own: `written`, the default, or `stripped` of them.

    Returns:
      Whether the goal is `met`, the `trials` with the places of `best` and `front` in them, the key
      of the best `plan` and the `annotations` that make it; all that was found is the `blob`.
    """
    body: dict[str, Any] = {"model": model, "target": target}
    given: dict[str, Any] = {"metric": metric, "output": output, "stats": stats, "annotations": annotations}
    given |= {"goal": goal, "effort": effort, "trials": trials, "reference": reference}
    body |= {name: item for name, item in given.items() if item is not None}
    body["samples"] = yield from upload(samples)
    return (yield from made(Ask("POST", "/v1/searches", json=body, headers=AS_JOB)))


def jobs(
    *, state: str | None = None, kind: str | None = None, order: str | None = None
) -> Steps[list[dict[str, Any]]]:
    """List the jobs, the newest first, or the `oldest`."""
    return (yield from items_of("/v1/jobs", {"state": state, "kind": kind, "order": order}))


def delete_job(id: str) -> Steps[None]:  # noqa: A002 - as the service has it
    """Take a job that has ended away, with its events; what it made stays."""
    yield Ask("DELETE", f"/v1/jobs/{quoted(id)}")


def cancel(id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - as the service has it
    """Cancel a job; says how it stands now."""
    return (yield from object_of(Ask("POST", f"/v1/jobs/{quoted(id)}:cancel")))
