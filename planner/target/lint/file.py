"""Lint of a file as a whole: its tests, types and op groups.

Checks of `lint.CHECKS`; each yields `file:line`, or an address in `Target.places`, and a message.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from planner.errors import InputError
from planner.target.lint.opnames import ONNX_OPS
from planner.target.lint.rows import Found
from planner.target.modeltext import read_model_text
from planner.target.records import ExportFormat, Target
from planner.target.yamltree import nearest


def without_tests(target: Target) -> Found:
    """L011: the target has no tests."""
    if not target.tests:
        yield f"{target.file}:1", "the target has no tests"


def unused_type(target: Target) -> Found:
    """L015: a named type that no port and no default uses."""
    document = target.document
    used = {spec for row in document.get("kernels", ()) for spec in _specs(row)}
    used.add(str(document.get("defaults", {}).get("port")))
    for name in document.get("types", {}):
        if name not in used:
            yield f"types.{name}", f"type {name!r} is used nowhere"


def _specs(row: Mapping[str, Any]) -> Iterator[str]:
    for side in ("in", "out"):
        for spec in (row.get(side) or {}).values():
            if isinstance(spec, str):
                yield spec


def unreadable_model(target: Target) -> Found:
    """L017: the model of a test cannot be read."""
    for case in target.tests:
        try:
            read_model_text(case.model, case.name)
        except InputError as error:
            file = case.source.rpartition(":")[0]
            found = re.match(r"line (\d+): ", str(error))
            line = case.model_line + int(found[1]) - 1 if found else case.model_line
            message = str(error)[found.end() :] if found else str(error)
            yield f"{file}:{line}", f"model of test {case.name!r}: {message}"


def unknown_kernel(target: Target) -> Found:
    """L020: a test expects a kernel that the target does not have."""
    known = {*target.rows, *(fusion.kernel for fusion in target.fusions)}
    for case in target.tests:
        for kernel in case.expect.get("kernels", ()):
            if kernel not in known:
                hint = nearest(kernel, sorted(known))
                yield (
                    case.source,
                    f"test {case.name!r} expects {kernel!r}, which has no row and no fusion{hint}",
                )


def unused_group(target: Target) -> Found:
    """L021: an op group that no row takes, or that names no op."""
    for name, ops in target.document.get("op_groups", {}).items():
        if name not in target.groups:
            yield f"op_groups.{name}", f"op group {name!r} is used nowhere"
            continue
        for op in ops:
            hint = nearest(op, sorted(ONNX_OPS), cutoff=0.75, listed=False)
            if op not in ONNX_OPS and "::" not in op and hint:
                yield f"op_groups.{name}", f"op group {name!r}: no op of ONNX is called {op!r}{hint}"


def unknown_format(target: Target) -> Found:
    """L046: a format under `files` that no plan is written in."""
    known = get_args(ExportFormat)
    for name in target.files.formats:
        if name not in known:
            yield "files", f"files.formats: no plan is written as {name!r}{nearest(name, known)}"


def idle_wanted_float(target: Target) -> Found:
    """L041: `wanted_float` where it has no effect."""
    if target.costs.wanted_float and target.costs.wanted_db is None:
        yield "costs", "wanted_float is true, and no wanted_db says when"
    elif target.costs.wanted_float and target.on_no_kernel == "error":
        yield "costs", "wanted_float is true, and on_no_kernel: error lets no kernel run in float"


def tests_of_one_name(target: Target) -> Found:
    """L025: two tests have one name, so a report cannot distinguish them."""
    first: dict[str, str] = {}
    for case in target.tests:
        before = first.setdefault(case.name, case.source)
        if before != case.source:
            yield case.source, f"test {case.name!r} has the name of the one in {before}"
