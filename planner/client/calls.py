"""Calls: one function for each operation of the service, as steps; methods of `Client` and `AsyncClient`.

Plans are dictionaries as in plan files; `planner.plan_from_json(json.dumps(plan))` makes a `Plan` of one.
Nothing here plans or reads models. Source: design 06.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from planner.client.failures import ServiceError, failure_of
from planner.client.steps import Ask, Do, Pause, Steps
from planner.errors import InputError, expect

PART: Final = 16 << 20
"""Bytes of a part; longer files go in several."""
TRIES: Final = 4
"""Times that a part is sent before we give up."""
FIRST_LOOK: Final = 0.05
LAST_LOOK: Final = 2.0
_ENDED: Final = ("done", "failed", "cancelled")
_OCTETS: Final = {"Content-Type": "application/octet-stream"}
_YAML: Final = {"Content-Type": "application/yaml"}
_AS_JOB: Final = {"Prefer": "wait=30"}

Source = bytes | str | Path


def server() -> Steps[dict[str, Any]]:
    """Versions, limits and formats of the server."""
    return (yield from _object(Ask("GET", "/v1/server")))


def targets() -> Steps[list[dict[str, Any]]]:
    """List the targets."""
    found: list[dict[str, Any]] = []
    ask: Ask | None = Ask("GET", "/v1/targets")
    while ask is not None:
        answer = yield ask
        found += answer.json()
        ask = Ask("GET", answer.links["next"]["url"]) if "next" in answer.links else None
    return found


def target(name: str) -> Steps[dict[str, Any]]:
    """Show a target by `id` or `id@version`."""
    return (yield from _object(Ask("GET", f"/v1/targets/{_quoted(name)}")))


def target_source(name: str) -> Steps[str]:
    """The YAML of a target, as it was written."""
    answer = yield Ask("GET", f"/v1/targets/{_quoted(name)}/source")
    return str(answer.text)


def put_target(name: str, text: str) -> Steps[dict[str, Any]]:
    """Keep a target description under its `id@version`; the report has its `digest` and `findings`.

    Raises:
      TargetError: every fault, with line and column.
      ServiceError: another one is kept under that name already.
    """
    path = f"/v1/targets/{_quoted(name)}"
    return (yield from _object(Ask("PUT", path, content=text.encode(), headers=_YAML)))


def lint(text: str) -> Steps[list[dict[str, Any]]]:
    """List the findings of lint on a target description.

    Raises:
      TargetError: every fault, with line and column.
    """
    report = yield from _object(Ask("POST", "/v1/targets:lint", content=text.encode(), headers=_YAML))
    found: list[dict[str, Any]] = report["findings"]
    return found


def test_target(text: str) -> Steps[dict[str, Any]]:
    """Run the tests of a target description; one that fails is a part of the report.

    Raises:
      TargetError: every fault, with line and column.
    """
    return (yield from _object(Ask("POST", "/v1/targets:test", content=text.encode(), headers=_YAML)))


def schema(name: str) -> Steps[dict[str, Any]]:
    """The JSON Schema of a file format: `annotated`, `annotations`, `plan`, `stats`, `target`."""
    return (yield from _object(Ask("GET", f"/v1/schemas/{_quoted(name)}")))


def upload(source: Source) -> Steps[str]:
    """Store bytes, or a file, unless the server has them; returns their digest.

    A long file goes in parts, and goes on where it stood when the connection breaks.
    """
    digest, size = yield Do(partial(_digest, source))
    path = f"/v1/blobs/{digest}"
    if (yield Ask("HEAD", path, also=(404,))).status_code == 200:
        return str(digest)
    if size <= PART:
        content = yield Do(partial(_read, source, 0))
        yield Ask("PUT", path, content=content, headers=_OCTETS)
    else:
        yield from _upload_in_parts(source, digest, size)
    return str(digest)


def _upload_in_parts(source: Source, digest: str, size: int) -> Steps[None]:
    begun = yield from _object(Ask("POST", "/v1/uploads", json={"digest": digest, "bytes": size}))
    link, offset, failed = begun["link"], begun["offset"], 0
    while offset < size:
        content = yield Do(partial(_read, source, offset))
        try:
            headers = _OCTETS | {"Upload-Offset": str(offset)}
            answer = yield Ask("PATCH", link, content=content, headers=headers, also=(409,))
        except ServiceError as error:
            failed += 1
            if error.problem or failed == TRIES:
                raise
            yield Pause(FIRST_LOOK * 4**failed)
            answer = None
        if answer is not None and answer.status_code == 204:
            offset, failed = int(answer.headers["upload-offset"]), 0
        else:
            offset = (yield from _object(Ask("GET", link)))["offset"]


def download(digest: str) -> Steps[bytes]:
    """Fetch a blob."""
    content: bytes = (yield Ask("GET", f"/v1/blobs/{_quoted(digest)}")).content
    return content


def model(source: Source, external_data: Mapping[str, Source] | None = None) -> Steps[dict[str, Any]]:
    """Upload a model (ONNX, annotated JSON or MLIR) and have it read; the record has its `digest`.

    Args:
      external_data: the files it refers to, by the names it calls them.

    Raises:
      ModelError: its fault, and the place.
    """
    body: dict[str, Any] = {"blob": (yield from upload(source)), "external_data": []}
    for location, part in (external_data or {}).items():
        body["external_data"].append({"location": location, "blob": (yield from upload(part))})
    return (yield from _object(Ask("POST", "/v1/models", json=body)))


def models() -> Steps[list[dict[str, Any]]]:
    """List the models."""
    return (yield from _items("/v1/models", {}))


def get_model(digest: str) -> Steps[dict[str, Any]]:
    """Describe a model."""
    return (yield from _object(Ask("GET", f"/v1/models/{_quoted(digest)}")))


def delete_model(digest: str) -> Steps[None]:
    """Take the record of a model away; its plans stay, but cannot be edited."""
    yield Ask("DELETE", f"/v1/models/{_quoted(digest)}")


def stats(document: Mapping[str, Any] | str | Path) -> Steps[dict[str, Any]]:
    """Store statistics, the document or a path; the record has their `digest`."""
    body = document
    if not isinstance(document, Mapping):
        body = {"blob": (yield from upload(Path(document)))}
    return (yield from _object(Ask("POST", "/v1/stats", json=body)))


def get_stats(digest: str) -> Steps[dict[str, Any]]:
    """Fetch statistics, sent or made by `calibrate`: the document, `qplan.stats/2`."""
    return (yield from _object(Ask("GET", f"/v1/stats/{_quoted(digest)}")))


def list_stats() -> Steps[list[dict[str, Any]]]:
    """List the statistics: digests and sizes."""
    return (yield from _items("/v1/stats", {}))


def delete_stats(digest: str) -> Steps[None]:
    """Take statistics away; plans made with them stay, but cannot be edited."""
    yield Ask("DELETE", f"/v1/stats/{_quoted(digest)}")


def blobs() -> Steps[list[dict[str, Any]]]:
    """List the blobs: digests and sizes."""
    return (yield from _items("/v1/blobs", {}))


def delete_blob(digest: str) -> Steps[None]:
    """Take a blob away; models that lie in it stay as records."""
    yield Ask("DELETE", f"/v1/blobs/{_quoted(digest)}")


def plans() -> Steps[list[dict[str, Any]]]:
    """List the plans: keys, sizes, targets and models."""
    return (yield from _items("/v1/plans", {}))


def delete_plan(key: str) -> Steps[None]:
    """Take a plan away; the same request makes it again."""
    yield Ask("DELETE", f"/v1/plans/{_quoted(key)}")


def plan(
    model: str | Mapping[str, Any],
    target: str,
    *,
    stats: str | Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    strategy: Literal["minimal", "rfc"] = "minimal",
    best_effort: bool = False,
    bias_pins: Literal["error", "derive"] = "error",
    as_job: bool = False,
    **costs: float | None,
) -> Steps[dict[str, Any]]:
    """Plan a model for a target.

    Args:
      model: the digest of a read model, or an annotated model itself.
      target: `id` or `id@version`.
      stats: the digest of stored statistics, or the document.
      best_effort: give some constraints up where not all can hold, each with a warning.
      bias_pins: policy for a bias pinned to another scale than its factors' product.
      as_job: for models that take longer than the server plans within a request.
      costs: prices over the target's own.

    Raises:
      Conflict: constraints that cannot all hold; `.facts` is a small set of them.
    """
    options = {"strategy": strategy, "best_effort": best_effort, "bias_pins": bias_pins, "costs": costs}
    body: dict[str, Any] = {"model": model, "target": target, "options": options}
    given = {"stats": stats, "annotations": annotations}
    body |= {name: item for name, item in given.items() if item is not None}
    answer = yield Ask("POST", "/v1/plans", json=body, headers=_AS_JOB if as_job else {})
    if answer.status_code == 202:
        made = yield from wait(answer.json()["id"])
        return (yield from get_plan(made["plan"]))
    return dict(answer.json())


def get_plan(key: str) -> Steps[dict[str, Any]]:
    """Fetch a plan that was made before."""
    return (yield from _object(Ask("GET", f"/v1/plans/{_quoted(key)}")))


def summary(key: str) -> Steps[dict[str, Any]]:
    """The totals of a plan, and why kernels run in float."""
    return (yield from _object(Ask("GET", f"/v1/plans/{_quoted(key)}/summary")))


def view(key: str, before: str | None = None) -> Steps[dict[str, Any]]:
    """What the page draws of a plan (`qplan.view/1`), beside the plan `before` where one is named."""
    params = {} if before is None else {"before": before}
    return (yield from _object(Ask("GET", f"/v1/plans/{_quoted(key)}/view", params=params)))


def ports(key: str) -> Steps[list[dict[str, Any]]]:
    """List the ports of a plan with their types, in plan order."""
    return (yield from _items(f"/v1/plans/{_quoted(key)}/ports", {"limit": "1000"}))


def explain(key: str, address: str) -> Steps[str]:
    """Say why a port (`conv1.in[0]`), value, kernel or rescale of a plan is as it is."""
    found = yield from _object(Ask("GET", f"/v1/plans/{_quoted(key)}/explain", params={"port": address}))
    return "\n".join(found["lines"])


def replan(
    key: str,
    *,
    values: Mapping[str, Any] | None = None,
    ports: Mapping[str, Any] | None = None,
    remove: tuple[str, ...] | list[str] = (),
    restore: tuple[str, ...] | list[str] = (),
    target: str | None = None,
    best_effort: bool = False,
) -> Steps[dict[str, Any]]:
    """Plan again with changed constraints, or for another target.

    Args:
      values, ports: types by name of a value or glob, by address of a port.
      remove: values and ports whose facts go.
      restore: kernels to run in float.
      target: a shipped one to plan for instead; what it takes apart keeps the types of its ports.
      best_effort: with `target`, give up what cannot hold there, each with a warning.
    """
    body: dict[str, Any] = {"values": values or {}, "ports": ports or {}}
    body |= {"remove": list(remove), "restore": list(restore), "target": target}
    body |= {"best_effort": True} if best_effort else {}
    return (yield from _object(Ask("POST", f"/v1/plans/{_quoted(key)}:replan", json=body)))


def suggest(key: str, rescale: str) -> Steps[dict[str, Any]]:
    """Find edits that remove a rescale (`y#0`): `suggestions` with their `edits`, and `lines` to read."""
    path = f"/v1/plans/{_quoted(key)}/suggest"
    return (yield from _object(Ask("GET", path, params={"rescale": rescale})))


def pareto(key: str, component: str) -> Steps[dict[str, Any]]:
    """List the trade-offs around a value or rescale: `tradeoffs`, and `lines` to read."""
    path = f"/v1/plans/{_quoted(key)}/pareto"
    return (yield from _object(Ask("GET", path, params={"component": component})))


def diff(before: str, after: str) -> Steps[dict[str, Any]]:
    """Compare two plans, by key, kernel by kernel: `totals`, changes with reasons, and `lines` to read."""
    path = f"/v1/plans/{_quoted(before)}/diff"
    return (yield from _object(Ask("GET", path, params={"against": after})))


def report(key: str, *, before: str | None = None) -> Steps[str]:
    """The report of a plan: one HTML file that needs nothing else; marks changes since `before`."""
    params = {} if before is None else {"before": before}
    text: str = (yield Ask("GET", f"/v1/plans/{_quoted(key)}/report", params=params)).text
    return text


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
    body: dict[str, Any] = {"model": model, "plan": plan, "format": format}
    body |= {} if accuracy_level is None else {"accuracy_level": accuracy_level}
    headers = _AS_JOB if as_job else {}
    record = yield from _made(Ask("POST", "/v1/exports", json=body, headers=headers))
    return (yield from download(record["blob"]))


def calibrate(
    model: str, samples: Source, *, method: str = "minmax", readers: int = 0
) -> Steps[dict[str, Any]]:
    """Run samples, one `.npz`, through a model; the record has `digest` of the statistics and `warnings`.

    Args:
      readers: of so many samples, the first, measure too what rounding each value leaves at its readers.
    """
    body = {"model": model, "samples": (yield from upload(samples)), "method": method, "readers": readers}
    return (yield from _made(Ask("POST", "/v1/calibrations", json=body, headers=_AS_JOB)))


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
) -> Steps[dict[str, Any]]:
    """Run a quantized file and its model side by side; `outputs` has SQNR (dB) by name.

    Args:
      values: compare inner values too; they are in the whole comparison, the record's `blob`.
      metrics: `top1`, `top5`, `cross_entropy`, judged by the samples' `label` or `labels`.
      output: the output that labels are for; by default the only one.
      reference: of a model with quantizers of its own: `written`, the default, or `stripped` of them.
      stats: digest of those of calibration: `warnings` say what in the samples goes beyond them.
    """
    given = {"file": (yield from upload(file)), "samples": (yield from upload(samples))}
    asked = {"metrics": list(metrics), "output": output, "reference": reference, "stats": stats}
    more = {name: item for name, item in asked.items() if item}
    body = {"model": model, "values": values, **given, **more}
    return (yield from _made(Ask("POST", "/v1/comparisons", json=body, headers=_AS_JOB)))


def losses(
    model: str,
    plan: str | Mapping[str, Any],
    samples: Source,
    *,
    output: str | None = None,
    limit: int | None = None,
) -> Steps[dict[str, Any]]:
    """Say where a plan loses the numbers of its model: noise of each kernel alone, and what would help.

    Args:
      plan: its key, or a plan itself, for a target that the server has.
      samples: one `.npz`; 8 samples name the culprits.
      output: the output to judge by; by default the worst.
      limit: kernels whose noise is taken apart; 10 by default.

    Returns:
      The worst kernels and the remedies; the whole `qplan.losses/1`, with every value, is the `blob`.
    """
    body: dict[str, Any] = {"model": model, "plan": plan, "samples": (yield from upload(samples))}
    asked = {"output": output, "limit": limit}
    body |= {name: item for name, item in asked.items() if item is not None}
    return (yield from _made(Ask("POST", "/v1/losses", json=body, headers=_AS_JOB)))


def search(
    model: str | Mapping[str, Any],
    target: str,
    samples: Source,
    *,
    goal: str | Mapping[str, float | str],
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
      goal: `sqnr=30`, `metric=0.9`, `drop=1%` (least work); `work=0.5`, `weight_bits=4.5` (best quality).
      metric: `top1`, `top5`, `cross_entropy`.
      output: the output that labels are for; by default the only one.
      trials: plans that are measured, at most; the server's default is 40.
      reference: of a model with quantizers of its own: `written`, the default, or `stripped` of them.

    Returns:
      Whether the goal is `met`, the `trials` with the places of `best` and `front` in them, the key
      of the best `plan` and the `annotations` that make it; all that was found is the `blob`.
    """
    body: dict[str, Any] = {"model": model, "target": target, "goal": goal}
    given: dict[str, Any] = {"metric": metric, "output": output, "stats": stats, "annotations": annotations}
    given |= {"trials": trials, "reference": reference}
    body |= {name: item for name, item in given.items() if item is not None}
    body["samples"] = yield from upload(samples)
    return (yield from _made(Ask("POST", "/v1/searches", json=body, headers=_AS_JOB)))


def jobs(*, state: str | None = None, kind: str | None = None) -> Steps[list[dict[str, Any]]]:
    """List the jobs, the latest first."""
    given = {"state": state, "kind": kind}
    return (yield from _items("/v1/jobs", {name: text for name, text in given.items() if text}))


def job(id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - as the service has it
    """The state of a job, and its result."""
    return (yield from _object(Ask("GET", f"/v1/jobs/{_quoted(id)}")))


def cancel(id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - as the service has it
    """Cancel a job; says how it stands now."""
    return (yield from _object(Ask("POST", f"/v1/jobs/{_quoted(id)}:cancel")))


def wait(id: str) -> Steps[dict[str, Any]]:  # noqa: A002 - as the service has it
    """Wait for a job to end; returns its result.

    Raises:
      PlannerError: its failure.
      ServiceError: it was cancelled.
    """
    pause = FIRST_LOOK
    while (found := (yield from job(id)))["state"] not in _ENDED:
        yield Pause(pause)
        pause = min(2 * pause, LAST_LOOK)
    if found["state"] == "failed":
        raise failure_of(found["problem"])
    if found["state"] == "cancelled":
        raise ServiceError(f"job {id} was cancelled")
    return dict(found["result"])


def _made(ask: Ask) -> Steps[dict[str, Any]]:
    answer = yield ask
    if answer.status_code == 202:
        return (yield from wait(answer.json()["id"]))
    return dict(answer.json())


def _object(ask: Ask) -> Steps[dict[str, Any]]:
    return dict((yield ask).json())


def _items(path: str, params: Mapping[str, str]) -> Steps[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (yield Ask("GET", path, params={**params, **({"cursor": cursor} if cursor else {})})).json()
        found += page["items"]
        cursor = page["next"]
    return found


def _digest(source: Source) -> tuple[str, int]:
    expect(source, (bytes, str, Path), "a path or the bytes of a file are uploaded")
    if isinstance(source, bytes):
        return f"sha256:{hashlib.sha256(source).hexdigest()}", len(source)
    try:
        with Path(source).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", file.tell()
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r}: {error.strerror}") from error


def _read(source: Source, offset: int) -> bytes:
    if isinstance(source, bytes):
        return source[offset : offset + PART]
    with Path(source).open("rb") as file:
        file.seek(offset)
        return file.read(PART)


def _quoted(name: str) -> str:
    return quote(name, safe=":@")
