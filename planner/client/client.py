"""The client: a method for each route. Failures come as the planner's own errors where there is one.

Plans are dictionaries as in plan files; `planner.plan_from_json(json.dumps(plan))` makes a `Plan` of one.
Nothing here plans or reads models. Source: design 06; docs/problems.md.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote

import httpx

from planner.errors import (
    AnnotationError,
    Conflict,
    InputError,
    ModelError,
    PlanInvalid,
    PlannerError,
    Problem,
    QTypeError,
    RuleError,
    StatsError,
    TargetError,
    UnknownName,
    UnsupportedExport,
)

URL: Final = "http://127.0.0.1:8000"
CHUNK: Final = 1 << 20
_PREFIX: Final = "urn:qplan:problem:"


class ServiceError(PlannerError):
    """An answer that is a failure of a type no error class stands for, or no answer.

    Attributes:
      problem: the problem document; empty where nothing was understood.
    """

    def __init__(self, message: str, *, problem: Mapping[str, Any] | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problem = dict(problem or {})


class Client:
    """A connection to a server; close it, or use it in a `with` block.

    Args:
      url: where the server is.
      token: bearer token, where the server wants one.
      timeout: seconds to wait for one answer.
    """

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 120.0) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # An environment's proxy must not see models.
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def server(self) -> dict[str, Any]:
        """Versions, limits and formats of the server."""
        return self._json("GET", "/v1/server")

    def targets(self) -> list[dict[str, Any]]:
        """List the targets."""
        found: list[dict[str, Any]] = self._send("GET", "/v1/targets").json()
        return found

    def target(self, name: str) -> dict[str, Any]:
        """Show a target by `id` or `id@version`."""
        return self._json("GET", f"/v1/targets/{_quoted(name)}")

    def lint(self, text: str) -> list[dict[str, Any]]:
        """Say what is odd in a target description.

        Raises:
          TargetError: what is wrong, with lines and columns.
        """
        headers = {"Content-Type": "application/yaml"}
        report = self._json("POST", "/v1/targets:lint", content=text.encode(), headers=headers)
        found: list[dict[str, Any]] = report["findings"]
        return found

    def upload(self, source: bytes | str | Path) -> str:
        """Store bytes, or a file, unless the server has them; returns their digest."""
        digest = _digest(source)
        path = f"/v1/blobs/{digest}"
        if self._http.head(path).status_code != httpx.codes.OK:
            headers = {"Content-Type": "application/octet-stream"}
            content = source if isinstance(source, bytes) else _chunks(source)
            self._send("PUT", path, content=content, headers=headers)
        return digest

    def download(self, digest: str) -> bytes:
        """Fetch a blob."""
        return self._send("GET", f"/v1/blobs/{_quoted(digest)}").content

    def model(self, source: bytes | str | Path) -> dict[str, Any]:
        """Upload a model (ONNX, annotated JSON or MLIR) and have it read; the record has its `digest`.

        Raises:
          ModelError: what is wrong with it, and where.
        """
        return self._json("POST", "/v1/models", json={"blob": self.upload(source)})

    def stats(self, document: Mapping[str, Any] | str | Path) -> dict[str, Any]:
        """Store statistics, the document or a path; the record has their `digest`."""
        body = document if isinstance(document, Mapping) else json.loads(Path(document).read_bytes())
        return self._json("POST", "/v1/stats", json=body)

    def plan(
        self,
        model: str | Mapping[str, Any],
        target: str,
        *,
        stats: str | Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        strategy: Literal["minimal", "rfc"] = "minimal",
        **costs: float | None,
    ) -> dict[str, Any]:
        """Plan a model for a target.

        Args:
          model: the digest of a read model, or an annotated model itself.
          target: `id` or `id@version`.
          stats: the digest of stored statistics, or the document.
          costs: prices over the target's own.

        Raises:
          Conflict: constraints that cannot all hold; `.facts` is a small set of them.
        """
        body: dict[str, Any] = {"model": model, "target": target}
        body["options"] = {"strategy": strategy, "costs": costs}
        given = {"stats": stats, "annotations": annotations}
        body |= {name: item for name, item in given.items() if item is not None}
        return self._json("POST", "/v1/plans", json=body)

    def get_plan(self, key: str) -> dict[str, Any]:
        """Fetch a plan that was made before."""
        return self._json("GET", f"/v1/plans/{_quoted(key)}")

    def explain(self, key: str, address: str) -> str:
        """Say why a port (`conv1.in[0]`), value, kernel or rescale of a plan is as it is."""
        found = self._json("GET", f"/v1/plans/{_quoted(key)}/explain", params={"port": address})
        return "\n".join(found["lines"])

    def export(self, model: str, plan: str, format: str) -> bytes:  # noqa: A002 - as planner.export
        """Write a plan, by key, of a model, by digest, in a format.

        Raises:
          UnsupportedExport: the format cannot say this plan.
        """
        record = self._json("POST", "/v1/exports", json={"model": model, "plan": plan, "format": format})
        return self.download(record["blob"])

    def _json(self, method: str, path: str, **request: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._send(method, path, **request).json()
        return found

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            raise ServiceError(f"no answer from {self._http.base_url}: {error}") from error
        if answer.is_success:
            return answer
        raise _failure(answer)


def _failure(answer: httpx.Response) -> PlannerError:
    try:
        problem: dict[str, Any] = answer.json()
        name, detail = problem["type"].removeprefix(_PREFIX), problem["detail"]
    except (ValueError, KeyError, AttributeError, TypeError):
        return ServiceError(f"the server answered {answer.status_code} {answer.reason_phrase}")
    hint = problem.get("hint") or _nearest(problem.get("nearest", ()))
    if name == "conflict":
        return Conflict(detail, facts=tuple(problem.get("facts", ())), hint=hint)
    if name == "plan-invalid":
        return PlanInvalid(detail, port=problem.get("port", ""), row=problem.get("row", ""))
    if name == "target-invalid":
        errors = [Problem(file="text", **entry) for entry in problem.get("errors", ())]
        return TargetError(detail, errors=errors, hint=hint)
    if name in _ERRORS:
        return _ERRORS[name](detail, hint=hint)
    return ServiceError(f"{problem['title']}: {detail}", problem=problem, hint=hint)


def _nearest(names: Any) -> str:
    return f"did you mean {' or '.join(repr(name) for name in names)}?" if names else ""


def _digest(source: bytes | str | Path) -> str:
    if isinstance(source, bytes):
        return f"sha256:{hashlib.sha256(source).hexdigest()}"
    try:
        with Path(source).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r}: {error.strerror}") from error


def _chunks(path: str | Path) -> Iterator[bytes]:
    with Path(path).open("rb") as file:
        while part := file.read(CHUNK):
            yield part


def _quoted(name: str) -> str:
    return quote(name, safe=":@")


_ERRORS: Final[Mapping[str, type[PlannerError]]] = {
    "annotation-invalid": AnnotationError,
    "input-invalid": InputError,
    "model-invalid": ModelError,
    "rule-invalid": RuleError,
    "stats-invalid": StatsError,
    "type-invalid": QTypeError,
    "unknown-name": UnknownName,
    "unsupported-export": UnsupportedExport,
}
