"""The child: one process for one job on untrusted input, `python -m api.child`.

Reads one line of JSON (task, arguments, limits) from standard input, puts limits on itself, works, answers
one line of JSON; big results go into files. Its parent is `jobs.child_process`. Nothing here stores.
"""

import errno
import gc
import json
import os
import re
import resource
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.calibration.statistics import Statistics, calibration_digest
from planner.calibration.statsjson import read_statistics
from planner.cli.files import model_format
from planner.errors import InputError, ModelError, PlannerError
from planner.foreign_files import refuse_foreign
from planner.formats.litert.reader.scan import scan_litert
from planner.formats.stablehlo.identifier import is_serialized
from planner.formats.stablehlo.reader.serialized import serialized_text
from planner.ir.graph import Graph, source_digest
from planner.pipeline import annotate, check, export_whole, load_model, open_sizes, unread_format
from planner.plans.explain import explain
from planner.plans.plan import Plan, Planned
from planner.plans.read_json import plan_from_json
from planner.plans.write_json import json_parts
from planner.report.html import write_report
from planner.report.view import view_json
from planner.target.lint.findings import lint
from planner.target.load import load_target
from planner.target.records import QuantFn, Target
from planner.target.show import target_to_json
from planner.target_tests.cases import run_cases
from planner.weight_conditioning.biases import correct_biases

from .intake.confine import confine, peak_memory
from .intake.own_files import own_files
from .intake.scan import scan_json
from .intake.scan_onnx import scan_onnx
from .intake.scan_text import scan_mlir, scan_yaml
from .intake.size_limits import check_sizes
from .jobs.quality import comparisons_of
from .jobs.search_task import search_model, search_of
from .jobs.task_names import HOLD, WEIGHTS
from .jobs.tasks import (
    add_readers,
    calibrate_model,
    compare_file,
    count_samples,
    measure_losses,
    merge_statistics,
)
from .planning.plan_answers import READERS, WHAT_IF, part, preview, tradeoffs_of
from .planning.plugins import load_functions
from .planning.provenance import make_plan, with_corrections
from .problems import DISK_FULL, Problem, Refused, as_arguments, disk_full, problem_of
from .server.logs import frames
from .storage.digests import value_names_digest

MAX_VALUES: Final = 20_000_000
MAX_LINE: Final = 4 << 20
MOST_LISTED: Final = 100
MODEL_FILE: Final = "model.onnx"
"""Name of a model's file in a folder with its external data."""

Arguments = Mapping[str, Any]


def read_model(job: Arguments) -> dict[str, Any]:
    """Read a model and say what it is: digest, format, counts, inputs and outputs; its values by name."""
    kind, graph = _model(job)
    Path(job["out"]).write_text(json.dumps(list(graph.values)), encoding="utf-8")
    digests = {"digest": source_digest(graph), "key": value_names_digest(calibration_digest(graph))}
    return {**digests, "format": kind, **_summary(graph)}


def read_stats(job: Arguments) -> dict[str, Any]:
    """Read statistics and write them in their one layout."""
    data = _scanned(Path(job["stats"]).read_bytes())
    stats = read_statistics(data)
    Path(job["out"]).write_text(stats.to_json(), encoding="utf-8")
    return {
        "model": stats.model,
        "method": stats.method,
        "samples": stats.samples,
        "values": len(stats.values),
    }


def write_plan(job: Arguments) -> dict[str, Any]:
    """Plan a model, make the edits, and write the plan."""
    planned = _planned(job)
    check(planned, planned.annotated, planned.whole_target)
    with Path(job["out"]).open("w", encoding="utf-8") as file:
        file.writelines(json_parts(planned))
    return {"key": planned.key}


def answer_what_if(job: Arguments) -> dict[str, Any]:
    """Make a plan again and ask what if."""
    Path(job["out"]).write_bytes(WHAT_IF[job["verb"]](_planned(job), job["arguments"]))
    return {}


def answer_from_plans(job: Arguments) -> dict[str, Any]:
    """Answer a question from stored plans.

    Args:
      job: beside them `quality` and `stats`, files about the first plan, or null; `tradeoffs`, files by
        address, and `search`, a file or null.
    """
    plans = [plan_from_json(Path(path).read_bytes()) for path in job["plans"]]
    quality = json.loads(Path(job["quality"]).read_bytes()) if job["quality"] else None
    given = {
        **job["arguments"],
        "quality": quality,
        "stats": _statistics(job),
        "tradeoffs": {at: tradeoffs_of(Path(path).read_bytes()) for at, path in job["tradeoffs"].items()},
        "search": search_of(_scanned(Path(job["search"]).read_bytes())) if job["search"] else None,
    }
    Path(job["out"]).write_bytes(_READERS[job["verb"]](plans, given))
    return {}


def explain_plan(job: Arguments) -> dict[str, Any]:
    """Explain one address of a stored plan."""
    return {"text": explain(plan_from_json(Path(job["plan"]).read_bytes()), job["address"])}


def write_part(job: Arguments) -> dict[str, Any]:
    """Write the part of a stored plan at a JSON pointer."""
    Path(job["out"]).write_bytes(part(Path(job["plan"]).read_bytes(), job["pointer"]))
    return {}


def export_plan(job: Arguments) -> dict[str, Any]:
    """Write a planned model in a format."""
    graph = _corrected(_model(job)[1], job)
    plan, level = plan_from_json(Path(job["plan"]).read_bytes()), job.get("accuracy_level")
    out = Path(job["out"])
    # The model calls its weights by the name of their file, so they are written under it, and moved then.
    apart = out.parent / WEIGHTS if "weights" in job else None
    size = export_whole(graph, plan, job["format"], out, accuracy_level=level, external=apart)
    if apart is not None:
        apart.open("ab").close()
        apart.rename(job["weights"])
    warnings = (*open_sizes(graph, plan, job["format"]), *unread_format(plan, job["format"]))
    return {"bytes": size, "warnings": list(warnings)}


def lint_target(job: Arguments) -> dict[str, Any]:
    """Load a target description and return its lint findings."""
    data = Path(job["text"]).read_bytes()
    scan_yaml(data, job["name"])
    target = load_target(_text(data) + "\n", functions=job["functions"], trusted=False, name=job["name"])
    findings = [asdict(finding) for finding in lint(target)[:MOST_LISTED]]
    about = {name: getattr(target, name) for name in ("id", "version", "title", "mode", "digest")}
    return {**about, "findings": findings}


def try_target(job: Arguments) -> dict[str, Any]:
    """Run the tests of a target description."""
    data = Path(job["text"]).read_bytes()
    scan_yaml(data, job["name"])
    target = load_target(_text(data) + "\n", functions=job["functions"], trusted=False, name=job["name"])
    found = run_cases(target)
    tests = [
        {"name": one.name, "source": one.source, "ok": one.ok, "problems": list(one.problems)}
        for one in found
    ]
    return {"id": target.id, "ok": all(one.ok for one in found), "tests": tests}


def show_target(job: Arguments) -> dict[str, Any]:
    """Write the document of a target."""
    shown = target_to_json(_target(job["target"], job["functions"]))
    Path(job["out"]).write_text(json.dumps(shown), encoding="utf-8")
    return {}


def search_plans(job: Arguments) -> dict[str, Any]:
    """Search for the plan of least work that reaches a goal."""
    _, graph = _model(job)
    target = _target(job["target"], job["functions"])
    stats = _statistics(job)
    model = annotate(graph, stats=stats, annotations=job["annotations"], target=target)
    correct = None
    if job["options"].get("correct_biases", False) and stats is not None:
        correct = partial(correct_biases, target=target, stats=stats)
    return search_model(model, target, job, correct)


TASKS: Final[Mapping[str, Callable[[Arguments], dict[str, Any]]]] = {
    "calibrate": lambda job: calibrate_model(_model(job)[1], job),
    "compare": lambda job: _with_corrected(compare_file, job),
    "count": lambda job: count_samples(_model(job)[1], job),
    "explain": explain_plan,
    "export": export_plan,
    "lint": lint_target,
    "test": try_target,
    "losses": lambda job: _with_corrected(
        partial(measure_losses, _target(job["target"], job["functions"])), job
    ),
    "merge": merge_statistics,
    "model": read_model,
    "part": write_part,
    "plan": write_plan,
    "read": answer_from_plans,
    "readers": lambda job: add_readers(_model(job)[1], job),
    "search": search_plans,
    "stats": read_stats,
    "study": answer_what_if,
    "target": show_target,
}


def _report(plans: Sequence[Plan], given: Arguments) -> bytes:
    return _written(plans, given)


def _live(plans: Sequence[Plan], given: Arguments) -> bytes:
    return _written(plans, given, live=True)


def _written(plans: Sequence[Plan], given: Arguments, *, live: bool = False) -> bytes:
    parts = {name: given[name] for name in ("stats", "tradeoffs", "search")}
    before = plans[1] if plans[1:] else None
    return write_report(
        plans[0], comparisons_of(given["quality"]), before=before, live=live, **parts
    ).encode()


def _view(plans: Sequence[Plan], _: Arguments) -> bytes:
    return view_json(plans[0], plans[1] if plans[1:] else None, live=True).encode()


_READERS: Final = {**READERS, "live": _live, "report": _report, "view": _view}


def main() -> None:
    """Do one job and end; without a job, because the parent is gone, just end."""
    answer = os.dup(1)
    os.dup2(2, 1)
    line = sys.stdin.buffer.readline(MAX_LINE)
    if not line:
        return
    job = json.loads(line)
    functions = load_functions(job["limits"].get("functions", ()))
    job |= _place_model(job) | {"functions": functions, "tell": partial(_tell, answer)}
    os.nice(job["limits"]["nice"])  # which `_confine` forbids
    # The thread after `_confine`, to be confined too; before `_limit`, which may leave no memory for it.
    _confine(job["limits"])
    if job["task"] == HOLD:
        _limit(job["limits"])
        _hold(job, answer)
        os._exit(0)
    threading.Thread(target=_watch, daemon=True).start()
    _limit(job["limits"])
    _reply(answer, job, partial(TASKS[job["task"]], job))
    os._exit(0)


def _hold(job: Arguments, answer: int) -> None:
    """Make a plan and hold it; then say, line by line, what edits would change, until nobody asks."""
    held: list[Planned] = []

    def make() -> dict[str, Any]:
        held.append(_planned(job))
        gc.collect()
        gc.freeze()  # what is held stays: looking through it would take longer than planning
        return {}

    _reply(answer, job, make, end=b"\n")
    while held and (line := sys.stdin.buffer.readline(MAX_LINE)):
        _reply(answer, job, partial(preview, held[0], json.loads(line)), end=b"\n")


def _reply(answer: int, job: Arguments, work: Callable[[], dict[str, Any]], end: bytes = b"") -> None:
    """Work, and write the result or problem."""
    done = _done(work)
    done = _without_paths(done, job) if "problem" in done else done
    reply = json.dumps({**done, "peak": peak_memory()}).encode() + end
    while reply:
        reply = reply[os.write(answer, reply) :]


def _watch() -> None:
    """End when the parent does: the pipe to it has nothing more to say but that."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _tell(answer: int, done: int, total: int | None, phase: str = "") -> None:
    """Write a line of progress; `phase` is what is counted, where that changes while the work goes on."""
    progress = {"done": done, "total": total, **({"phase": phase} if phase else {})}
    os.write(answer, json.dumps({"progress": progress}).encode() + b"\n")


def _done(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"result": work()}
    except Refused as error:
        return _refusal(error.problem)
    except PlannerError as error:
        return _refusal(problem_of(error))
    except MemoryError:
        return _refusal(Problem("out-of-memory", "the work for this input exceeds the memory limit"))
    except RecursionError:
        return _refusal(Problem("model-invalid", "the input is nested too deep to read"))
    except OSError as error:
        if error.errno in DISK_FULL:
            return _refusal(disk_full())
        if error.errno in (errno.ENOMEM, errno.EFBIG):
            return _refusal(Problem("out-of-memory", f"the work for this input: {error.strerror}"))
        is_refused = error.errno in (errno.EPERM, errno.EACCES)
        return _crash(error, "made a system call that the sandbox refuses" if is_refused else "failed")
    except Exception as error:  # noqa: BLE001 - the edge of the process: whatever it is becomes one line
        return _crash(error)


def _refusal(problem: Problem) -> dict[str, Any]:
    return {"problem": as_arguments(problem)}


def _crash(error: Exception, how: str = "failed") -> dict[str, Any]:
    problem = Problem("worker-crashed", f"the process that reads this input {how}: {type(error).__name__}")
    return {**_refusal(problem), "trace": frames(error)}


def _without_paths(said: Any, job: Arguments) -> Any:
    """A refusal in the client's words: where files lie here is nobody's business, one is its argument."""
    if isinstance(said, str):
        names = {path: name for name, path in job.items() if isinstance(path, str)}
        drafts = Path(job["limits"]["model"]).parents[1]
        for path in map(Path, job["limits"]["readable"]):
            name = names.get(str(path), "file")
            said = said.replace(str(path), name)
            if drafts not in path.parents:  # its name is a digest, which the client may know as `sha256:...`
                said = re.sub(rf"(?<!sha256:){re.escape(path.name)}", name, said)
        for folder in (job["limits"]["model"], *job["limits"]["writable"]):
            said = said.replace(f"{folder}/", "").replace(folder, "draft")
        return said
    if isinstance(said, list):
        return [_without_paths(item, job) for item in said]
    if isinstance(said, dict):
        return {key: _without_paths(item, job) for key, item in said.items()}
    return said


def _place_model(job: Arguments) -> dict[str, str]:
    """Put the model and its external data into one folder; before `_confine`, which forbids links."""
    if not job.get("external"):
        return {}
    home = Path(job["limits"]["model"])
    for location, source in ((MODEL_FILE, job["model"]), *job["external"]):
        goal = home / location
        goal.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, goal)
        except OSError:  # another file system
            shutil.copyfile(source, goal)
    return {"model": str(home / MODEL_FILE)}


def _limit(limits: Arguments) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + limits["seconds"]
    # At a hard limit the system kills without saying why; a second before, it says that it is the time.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    for kind, amount in (
        (resource.RLIMIT_AS, limits["memory"] + limits["mapped"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, 64),
    ):
        resource.setrlimit(kind, (amount, amount))


def _confine(limits: Arguments) -> None:
    """Leave the files of this job, the folder of what it makes, and the system's and our own code."""
    given = map(Path, (*limits["readable"], limits["model"]))
    readable = [*given, *own_files(Path(limits["data"]))]
    confine(readable, [Path(name) for name in (*limits["writable"], "/dev/null")])


def _model(job: Arguments) -> tuple[str, Graph]:
    path = Path(job["model"])
    data = path.read_bytes()
    if is_serialized(data):
        data, kind = serialized_text(data).encode(), "mlir"
    else:
        kind = model_format(data)
    if kind == "onnx":
        try:
            scan_onnx(data)
        except ModelError:
            # What is no ONNX file may be another kind of file, which the command and the library name.
            refuse_foreign("the model", data)
            raise
    elif kind == "litert":
        scan_litert(data)
    elif kind == "json":
        _scanned(data)
    else:
        scan_mlir(data)
    # Only a path has a folder for external data; only bytes have the name that the file gives itself.
    source = path if path.name == MODEL_FILE else data
    graph = check_sizes(load_model(source, format=kind, dims=job.get("dims")))
    called = job.get("called") or graph.name
    return kind, graph if called == graph.name else replace(graph, name=called)


def _corrected(graph: Graph, job: Arguments) -> Graph:
    """The model that a plan is for: with the biases that its request corrected, where `correction` has it."""
    asked = job.get("correction")
    if asked is None:
        return graph
    return with_corrections(graph, _statistics(asked), _target(asked["target"], job["functions"]), asked)


def _with_corrected(
    work: Callable[[Graph, Graph, Arguments], dict[str, Any]], job: Arguments
) -> dict[str, Any]:
    """Do a work on a model as it came and on the one that the plan is for."""
    _, graph = _model(job)
    return work(graph, _corrected(graph, job), job)


def _planned(job: Arguments) -> Planned:
    _, graph = _model(job)
    return make_plan(graph, _statistics(job), _target(job["target"], job["functions"]), job, job["steps"])


def _statistics(job: Arguments) -> Statistics | None:
    return read_statistics(_scanned(Path(job["stats"]).read_bytes())) if job["stats"] else None


def _target(target: Mapping[str, str], functions: Mapping[str, QuantFn]) -> Target:
    if "text" not in target:
        return load_target(target["name"])
    text = _text(Path(target["text"]).read_bytes()) + "\n"
    return load_target(text, functions=functions, trusted=False, name=target["name"])


def _scanned(data: bytes) -> str:
    scan_json(data, MAX_VALUES)
    return _text(data)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"not text: byte {error.start} is no UTF-8") from error


def _summary(graph: Graph) -> dict[str, Any]:
    boundary = {
        side: [
            {"name": name, "dtype": graph.values[name].dtype, "shape": graph.values[name].shape}
            for name in names[:MOST_LISTED]
        ]
        for side, names in (("inputs", graph.inputs), ("outputs", graph.outputs))
    }
    return {
        "name": graph.name,
        "kernels": len(graph.regions),
        "ops": sum(1 for _ in graph.all_ops()),
        "values": len(graph.values),
        "parameters": sum(graph.values[name].elements for name in graph.constants),
        **boundary,
        "notes": list(graph.notes[:MOST_LISTED]),
    }


if __name__ == "__main__":
    main()
