"""What the command says of itself: groups, examples that run, choices, completion, the schema of answers."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from planner.cli.app import TARGET_VERBS, VERBS, run
from planner.cli.help.groups import EXAMPLES, GROUPS, TARGET_EXAMPLES
from planner.cli.help.schema import answers_schema, schema_of
from planner.formats.table import EXPORTERS
from planner.target.load import target_ids
from tests.cli.conftest import DATA, DIGITS, MODEL

WITHOUT_JSON = {"help", "schema", "target schema"}
NEED_A_SERVICE = {"serve", "backup"}
"""Run by tests/api."""
EDITS = "format: qplan.annotations/1\nkernels: {head/gemm: float}\n"


def walk() -> Iterator[tuple[str, str]]:
    """Verbs and their examples, in the order of help."""
    for verbs in GROUPS.values():
        for verb in verbs:
            yield from ((verb, line) for line in EXAMPLES.get(verb, ()))
    for verb, lines in TARGET_EXAMPLES.items():
        yield from ((f"target {verb}", line) for line in lines)


RUNS = [(verb, line) for verb, line in walk() if verb not in NEED_A_SERVICE]


def answer(line: str, *more: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*shlex.split(line)[1:], *more])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, tuple[int, str, str]]:
    """Answers of every example, run in order in one folder, as JSON where there is such."""
    folder = tmp_path_factory.mktemp("walk")
    for name, source in (
        ("model.onnx", "digits.onnx"),
        ("samples.npz", "calibration.npz"),
        ("held-out.npz", "test.npz"),
    ):
        shutil.copy(DIGITS / source, folder / name)
    (folder / "edits.yaml").write_text(EDITS)
    with contextlib.chdir(folder):
        return {line: answer(line, *(() if verb in WITHOUT_JSON else ("--json",))) for verb, line in RUNS}


@pytest.mark.parametrize(("verb", "line"), RUNS)
def test_examples_run(answers, verb, line):
    code, out, err = answers[line]
    assert (code, [text for text in err.splitlines() if ": error:" in text]) == (0, [])
    if verb not in WITHOUT_JSON:
        jsonschema.Draft202012Validator(strict(schema_of(verb))).validate(json.loads(out))
    assert out


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that knows no further fields: what is printed and not described fails."""
    found = deepcopy(schema)
    waiting: list[Any] = [found]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("type") == "object" and "properties" in node:
                node.setdefault("additionalProperties", False)
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return found


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(answers_schema())


def test_every_verb_has_a_group_an_example_and_a_schema():
    grouped = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted(grouped) == sorted({*VERBS, "target"})
    assert set(EXAMPLES) == set(VERBS)
    assert set(TARGET_EXAMPLES) == set(TARGET_VERBS)
    described = set(answers_schema()["x-verbs"])
    assert described == {*VERBS, *(f"target {verb}" for verb in TARGET_VERBS)} - WITHOUT_JSON


FAILURES = {
    "no such file": (["plan", "none.onnx", "-t", "tosa-int8", "-o", "out"], "ModelError", 2),
    "no such target": (["plan", MODEL, "-t", "tosa", "-o", "out"], "UnknownName", 2),
    "no target": (["plan", MODEL, "-o", "out"], "UsageError", 2),
    "no such verb": (["plam"], "UsageError", 2),
    "a conflict": (
        [
            "plan",
            MODEL,
            "-t",
            "teaching-npu",
            "--data",
            DATA,
            "-o",
            "out",
            "--annotations",
            "both.yaml",
        ],
        "Conflict",
        1,
    ),
    "a target": (["target", "show", "broken.yaml"], "TargetError", 2),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_documents_too(name, qplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("apiVersion: qplan/1\nkind: Target\nid: [\n")
    (tmp_path / "both.yaml").write_text(
        "format: qplan.annotations/1\nkernels: {head/gemm: i32}\n",
    )
    line, kind, code = FAILURES[name]
    given = qplan(*line, "--json")
    assert given.code == code
    assert given.json["error"]["kind"] == kind
    assert given.json["error"]["exit_code"] == code
    # As it reads without --json, too.
    assert given.err.startswith("qplan: error: ")
    whole = {"$ref": "#/$defs/failure", "$defs": answers_schema()["$defs"]}
    jsonschema.Draft202012Validator(strict(whole)).validate(given.json)


def test_json_behind_two_dashes_is_no_option(qplan):
    assert qplan("show", "--", "--json").out == ""


def test_a_bug_is_a_document_too(qplan, monkeypatch):
    def fail(_):
        raise ZeroDivisionError("1 / 0")

    monkeypatch.setattr("planner.cli.plans.read_plan", fail)
    assert qplan("show", "out", "--json").json == {
        "error": {"kind": "Bug", "message": "1 / 0", "exit_code": 70}
    }


@pytest.mark.parametrize(
    "line",
    [["-h"], ["--help"], ["help"], []],
)
def test_help_lists_the_groups(line, qplan):
    out = qplan(*line).out
    assert [group for group in GROUPS if f" {group} " not in out] == []
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", out)


@pytest.mark.parametrize("line", [["plan", "-h"], ["plan", "--help"], ["help", "plan"]])
def test_help_on_a_verb_has_its_options_and_an_example(line, qplan):
    given = qplan(*line)
    assert given.code == 0
    assert "--eval-data" in given.out
    assert "--quiet" in given.out
    assert "qplan plan model.onnx -t onnxruntime-cpu" in given.out


def test_help_on_a_verb_of_targets(qplan):
    assert "qplan target lint my-npu.yaml" in qplan("help", "target", "lint").out


def test_help_on_no_verb(qplan):
    given = qplan("help", "plam")
    assert (given.code, given.out) == (2, "")
    assert "No such command 'plam'" in given.err


MISSING = {
    "a target": (["plan", MODEL, "-o", "out"], target_ids()),
    "a target's name": (["plan", MODEL, "-o", "out", "-t"], target_ids()),
    "a format": (["export", "out", "-o", "file"], tuple(EXPORTERS)),
    "a format's name": (["export", "out", "-o", "file", "--format"], tuple(EXPORTERS)),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_choice_lists_what_there_is(name, qplan):
    line, known = MISSING[name]
    given = qplan(*line)
    assert (given.code, given.out) == (2, "")
    head, what, *rows = given.err.splitlines()
    assert head.startswith("qplan: error: ")
    assert what.endswith(":")
    assert [row.split()[0] for row in rows] == sorted(known)


@pytest.mark.parametrize(
    ("line", "verb", "example"),
    [
        (["plan", MODEL, "-t", "tosa-int8"], "plan", EXAMPLES["plan"][0]),
        (["losses", "out"], "losses", EXAMPLES["losses"][0]),
        (["losses", "out", "--dat", "x"], "losses", EXAMPLES["losses"][0]),
        (["target", "coverage"], "target coverage", TARGET_EXAMPLES["coverage"][0]),
    ],
)
def test_other_missing_options_give_a_line_of_the_verb(line, verb, example, qplan):
    (said,) = qplan(*line).err.splitlines()
    assert said.endswith(f" (for example: {example}; qplan help {verb} lists the options)")


def completed(*words: str) -> list[str]:
    """What a shell offers behind a line of words, the last of them unfinished."""
    environment = {
        **os.environ,
        "_QPLAN_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    line = [sys.executable, "-c", "from planner.cli.app import main; main()"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("qplan", "quan"), ["quantize"]),
        (("qplan", "plan", "m.onnx", "--target", "tos"), ["tosa-int8"]),
        (("qplan", "quantize", "m.onnx", "-f", "onnx-qop"), ["onnx-qoperator", "onnx-qoperator-clip"]),
        (("qplan", "target", "show", "lit"), ["litert-int8"]),
        (("qplan", "plan", "--eval"), ["--eval-data"]),
    ],
)
def test_a_shell_completes(words, offered):
    assert completed(*words) == offered


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/qplan.sh"),
        ("zsh", ".zfunc/_qplan"),
        ("fish", ".config/fish/completions/qplan.fish"),
    ],
)
def test_completion_installs_itself_on_request(tmp_path, shell, file):
    """Into the home of who asks, and only then."""
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "SHELL": f"/bin/{shell}",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    line = [sys.executable, "-c", "from planner.cli.app import main; main()", "--install-completion", shell]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "_QPLAN_COMPLETE" in (tmp_path / file).read_text()


def test_quiet_prints_errors_and_documents_alone(qplan, planned, tmp_path):
    done = qplan("quantize", MODEL, "--data", DATA, "-o", tmp_path / "out", "--quiet")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / "out" / "onnx-qdq.onnx").is_file()
    assert qplan("show", planned, "-q").out == ""
    assert qplan("show", planned, "-q", "--json").json["key"]
    assert qplan("show", tmp_path / "none", "-q").err.startswith("qplan: error: ")


def test_progress_is_told_where_it_is_asked_for(qplan, tmp_path):
    line = ("quantize", MODEL, "--data", DATA, "-o", tmp_path / "out")
    told = re.sub(r"\d+\.\d s", "N s", qplan(*line, "--progress").err)
    steps = [text for text in told.splitlines() if ": warning:" not in text]
    assert steps == [
        "qplan: calibrating",
        "qplan: calibrating: 128 of 128, N s",
        "qplan: correcting biases",
        "qplan: planning",
        "qplan: planning: 15 of 15, N s",
        "qplan: checking",
        "qplan: checking: 15 of 15, N s",
        "qplan: exporting onnx-qdq",
        "qplan: comparing onnx-qdq",
        "qplan: comparing onnx-qdq: 128 of 128, N s",
    ]
    assert "calibrating" not in qplan(*line).err
    checked = qplan("check", tmp_path / "out", "--progress").err
    assert re.sub(r"\d+\.\d s", "N s", checked).splitlines()[-1] == "qplan: checking: 15 of 15, N s"


def test_progress_tells_the_time_left(capsys, monkeypatch):
    """A line every two seconds, and the rest by what the steps took so far."""
    from planner.cli import console

    clock = iter([100.0, 101.0, 103.0, 104.0, 110.0])
    # The name in this module, not the clock of the process: servers of other tests read that one.
    monkeypatch.setattr(console, "monotonic", lambda: next(clock))
    with console.spoken(console.Manner(progress=True)), console.progress("measuring") as bar:
        bar(1, 10)
        bar(3, 10)
        bar(4, None)
        bar(10, 10)
    assert capsys.readouterr().err.splitlines() == [
        "qplan: measuring",
        "qplan: measuring: 3 of 10, about 7 s left",
        "qplan: measuring: 10 of 10, 10.0 s",
    ]
