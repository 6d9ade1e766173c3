"""The server, its targets and its schemas."""

from typing import Any, Final

from planner.client.calls.answers import object_of, quoted
from planner.client.steps import Ask, Steps

_YAML: Final = {"Content-Type": "application/yaml"}


def server() -> Steps[dict[str, Any]]:
    """Versions, limits and formats of the server."""
    return (yield from object_of(Ask("GET", "/v1/server")))


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
    return (yield from object_of(Ask("GET", f"/v1/targets/{quoted(name)}")))


def target_source(name: str) -> Steps[str]:
    """The YAML of a target, as it was written."""
    answer = yield Ask("GET", f"/v1/targets/{quoted(name)}/source")
    return str(answer.text)


def put_target(name: str, text: str) -> Steps[dict[str, Any]]:
    """Keep a target description under its `id@version`; the report has its `digest` and `findings`.

    Raises:
      TargetError: every fault, with line and column.
      ServiceError: another one is kept under that name already.
    """
    path = f"/v1/targets/{quoted(name)}"
    return (yield from object_of(Ask("PUT", path, content=text.encode(), headers=_YAML)))


def delete_target(name: str) -> Steps[None]:
    """Take a target that was put away, by `id@version`; its plans stay, but cannot be edited."""
    yield Ask("DELETE", f"/v1/targets/{quoted(name)}")


def lint(text: str) -> Steps[list[dict[str, Any]]]:
    """List the findings of lint on a target description.

    Raises:
      TargetError: every fault, with line and column.
    """
    report = yield from object_of(Ask("POST", "/v1/targets:lint", content=text.encode(), headers=_YAML))
    found: list[dict[str, Any]] = report["findings"]
    return found


def test_target(text: str) -> Steps[dict[str, Any]]:
    """Run the tests of a target description; one that fails is a part of the report.

    Raises:
      TargetError: every fault, with line and column.
    """
    return (yield from object_of(Ask("POST", "/v1/targets:test", content=text.encode(), headers=_YAML)))


def schema(name: str) -> Steps[dict[str, Any]]:
    """The JSON Schema of a file format: `annotated`, `annotations`, `plan`, `stats`, `target`."""
    return (yield from object_of(Ask("GET", f"/v1/schemas/{quoted(name)}")))
