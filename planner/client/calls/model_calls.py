"""Models and their statistics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.client.calls.answers import Source, items_of, name_of, object_of, quoted
from planner.client.calls.files import upload
from planner.client.steps import Ask, Steps


def model(
    source: Source,
    external_data: Mapping[str, Source] | None = None,
    dims: Mapping[str, int] | None = None,
    *,
    name: str | None = None,
) -> Steps[dict[str, Any]]:
    """Upload a model (ONNX, annotated JSON or MLIR) and have it read; the record has its `digest`.

    Args:
      name: of the model; by default that of its file, as `planner.load_model` has it.
      external_data: the files it refers to, by the names it calls them.
      dims: sizes of dimensions that it leaves open, by name (`batch`) or place (`input[0]`).

    Raises:
      ModelError: its fault, and the place.
    """
    body: dict[str, Any] = {"blob": (yield from upload(source)), "external_data": []}
    for location, part in (external_data or {}).items():
        body["external_data"].append({"location": location, "blob": (yield from upload(part))})
    given = {"dims": dims and dict(dims), "name": name_of(source) if name is None else name}
    body |= {field: item for field, item in given.items() if item}
    return (yield from object_of(Ask("POST", "/v1/models", json=body)))


def models(
    *,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - as the service has it
    order: str | None = None,
) -> Steps[list[dict[str, Any]]]:
    """List the models, only those of a name or format where one is given; `order` as for `plans`."""
    return (yield from items_of("/v1/models", {"name": name, "format": format, "order": order}))


def get_model(digest: str) -> Steps[dict[str, Any]]:
    """Describe a model."""
    return (yield from object_of(Ask("GET", f"/v1/models/{quoted(digest)}")))


def delete_model(digest: str) -> Steps[None]:
    """Take the record of a model away; its plans stay, but cannot be edited."""
    yield Ask("DELETE", f"/v1/models/{quoted(digest)}")


def stats(document: Mapping[str, Any] | str | Path) -> Steps[dict[str, Any]]:
    """Store statistics, the document or a path; the record has their `digest`."""
    body = document
    if not isinstance(document, Mapping):
        body = {"blob": (yield from upload(Path(document)))}
    return (yield from object_of(Ask("POST", "/v1/stats", json=body)))


def get_stats(digest: str) -> Steps[dict[str, Any]]:
    """Fetch statistics, sent or made by `calibrate`: the document, `qplan.stats/2`."""
    return (yield from object_of(Ask("GET", f"/v1/stats/{quoted(digest)}")))


def list_stats(*, order: str | None = None) -> Steps[list[dict[str, Any]]]:
    """List the statistics: digests and sizes; `order` as for `plans`."""
    return (yield from items_of("/v1/stats", {"order": order}))


def delete_stats(digest: str) -> Steps[None]:
    """Take statistics away; plans made with them stay, but cannot be edited."""
    yield Ask("DELETE", f"/v1/stats/{quoted(digest)}")
