"""The API as a page: every operation of the OpenAPI document with its parameters, examples and answers.

Made of the document that `GET /openapi.json` gives, without scripts. Source: OpenAPI 3.1.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from fastapi import FastAPI

from planner.report.markup import Markup, element, join

from .files import PREFIX, version

_LINKS: Final = (
    ("Home", "/"),
    ("Plans", "/plans"),
    ("Jobs", "/jobs"),
    ("Targets", "/targets"),
    ("API", "/docs"),
)
_BINARY: Final = "application/octet-stream"


@cache
def reference_page(app: FastAPI) -> bytes:
    """The page, as HTML."""
    document = app.openapi()
    groups: dict[str, list[Markup]] = {}
    index: dict[str, list[Markup]] = {}
    for path, method, operation in _operations(document):
        tag = operation.get("tags", ["server"])[0]
        groups.setdefault(tag, []).append(_operation(document, path, method, operation))
        name = operation["operationId"]
        link = element("a", f"{method.upper()} {path}", href=f"#{name}")
        index.setdefault(tag, []).append(element("li", link))
    contents = [
        join(element("p", element("strong", tag)), element("ul", *links)) for tag, links in index.items()
    ]
    body = [
        element("h1", "The API"),
        element("p", document["info"]["description"]),
        element(
            "p", "Every failure is application/problem+json. The same as a document: ",
            element("a", "openapi.json", href="/openapi.json"), ".",
        ),
        element("nav", *contents, class_="contents", aria_label="operations"),
        *(join(element("h2", tag), *parts) for tag, parts in groups.items()),
    ]  # fmt: skip
    top = element("nav", *(element("a", text, href=link) for text, link in _LINKS), aria_label="pages")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", "API · quant-planner"),
        Markup(f'<link rel="stylesheet" href="{PREFIX}{version()}/page.css">'),
    )
    banner = element("header", element("a", "quant-planner", href="/", class_="brand"), top, class_="top")
    whole = element("html", head, element("body", banner, element("main", *body)), lang="en")
    return f"<!doctype html>\n{whole}\n".encode()


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, entries in document["paths"].items():
        for method, operation in entries.items():
            yield path, method, operation


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> Markup:
    parameters = operation.get("parameters", [])
    rows = [
        element(
            "tr",
            element("td", element("code", one["name"])),
            element("td", one["in"]),
            element("td", one.get("description", "")),
        )
        for one in parameters
    ]
    answers = ", ".join(
        f"{status} {answer.get('description', '')}" for status, answer in operation["responses"].items()
    )
    head = element("h3", element("code", f"{method.upper()} {path}"), id=operation["operationId"])
    body = _body(document, operation)
    titles = element("thead", element("tr", *(element("th", text) for text in ("parameter", "in", "what"))))
    table = element("table", titles, element("tbody", *rows))
    return element(
        "section",
        head,
        element("p", operation.get("description", "")),
        *((element("div", table, class_="wide", tabindex="0"),) if rows else ()),
        element("pre", _command(path, method, parameters, body), tabindex="0"),
        element("p", f"Answers: {answers}", class_="quiet"),
    )


def _body(document: Mapping[str, Any], operation: Mapping[str, Any]) -> tuple[str, str] | None:
    """The media type of a body, and an example of it."""
    content = operation.get("requestBody", {}).get("content", {})
    for media, entry in content.items():
        schema = entry.get("schema", {})
        named = schema.get("$ref", "").rpartition("/")[2]
        schema = document["components"]["schemas"].get(named, schema)
        example = entry.get("example", next(iter(schema.get("examples", [])), {}))
        return media, example if isinstance(example, str) else json.dumps(example)
    return None


def _command(
    path: str, method: str, parameters: list[Mapping[str, Any]], body: tuple[str, str] | None
) -> str:
    """The operation as curl's command, `$URL` being the server."""
    asked: list[str] = []
    for one in parameters:
        example = next(iter(one.get("examples", one.get("schema", {}).get("examples", []))), None)
        text = f"{{{one['name']}}}" if example is None else str(example)
        if one["in"] == "path":
            path = path.replace(f"{{{one['name']}}}", text)
        elif one["in"] == "query" and one.get("required"):
            asked.append(f"{one['name']}={text}")
    query = f"?{'&'.join(asked)}" if asked else ""
    verb = {"get": "", "head": " --head"}.get(method, f" -X {method.upper()}")
    lines = [f'curl{verb} "$URL{path}{query}"']
    if body is not None and body[0] == _BINARY:
        lines += [f"-H 'Content-Type: {_BINARY}'", "--data-binary @FILE"]
    elif body is not None:
        lines += [f"-H 'Content-Type: {body[0]}'", f"--data-binary '{body[1]}'"]
    return " \\\n  ".join(lines)
