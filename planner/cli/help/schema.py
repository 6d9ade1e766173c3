"""Schema: the JSON of `--json` as a JSON Schema, answers and failures, and the verb that prints it.

`answers.schema.json` is written by hand and held against what every verb prints by a test. Fields may be
added to an answer; none goes away or changes its meaning.
"""

import json as jsonlib
from importlib import resources
from typing import Annotated, Any

import typer

from planner.cli.console import write_text
from planner.errors import Conflict, PlanInvalid, PlannerError, TargetError, unknown_name


def schema(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[VERB]", help="A verb: plan, or target lint.")
    ] = None,
) -> None:
    """Print the JSON Schema of the answers of `--json`: of one verb, or of all."""
    whole = answers_schema()
    if words:
        whole = schema_of(" ".join(words))
    write_text(jsonlib.dumps(whole, indent=1, ensure_ascii=False) + "\n")


def answers_schema() -> dict[str, Any]:
    """The schema of all answers: `$defs` has one entry a verb, `error`, and the records they share."""
    text = resources.files("planner.cli.help").joinpath("answers.schema.json").read_text(encoding="utf-8")
    document: dict[str, Any] = jsonlib.loads(text)
    return document


def schema_of(verb: str) -> dict[str, Any]:
    """The schema of one verb's answers: its own, or a failure.

    Raises:
      UnknownName: no such verb, or one that answers with no JSON.
    """
    whole = answers_schema()
    verbs = whole["x-verbs"]
    if verb not in verbs:
        raise unknown_name("verb with a schema", verb, verbs)
    answers = [{"$ref": f"#/$defs/{verbs[verb]}"}, {"$ref": "#/$defs/failure"}]
    head = {key: whole[key] for key in ("$schema", "$id")}
    return {**head, "title": f"qplan {verb} --json", "anyOf": answers, "$defs": whole["$defs"]}


def failure_json(error: Exception, code: int) -> dict[str, Any]:
    """A failure as JSON data; what went wrong is in `error`, which no other answer has."""
    kind = type(error).__name__
    if not isinstance(error, PlannerError):
        kind = "UsageError" if isinstance(error, typer.TyperException) else "Bug"
    message = error.message if isinstance(error, PlannerError) else str(error)
    told: dict[str, Any] = {"kind": kind, "message": message, "exit_code": code}
    if isinstance(error, PlannerError) and error.hint:
        told["hint"] = error.hint
    if isinstance(error, Conflict):
        told["facts"] = list(error.facts)
    if isinstance(error, PlanInvalid):
        told |= {"port": error.port, "row": error.row}
    if isinstance(error, TargetError):
        fields = ("file", "line", "column", "code", "message", "quote")
        told["problems"] = [{name: getattr(problem, name) for name in fields} for problem in error.errors]
    return {"error": told}
