"""Probe: run tiny models for every kernel and signature, and write the table of those that run.

In: an engine. Out: those that ran and those refused, both as a target file. The shipped
`onnxruntime-cpu` is this file plus fusions. Source: docs/command.md.
"""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

import numpy as np

from planner.errors import unknown_name
from planner.formats.onnx.sessions import FAILURES, one_line, open_session
from planner.target_tests.probes import PROBES, TYPES, Probe, Storages, storage_of


@dataclass(frozen=True, slots=True)
class Answer:
    """One kernel with one choice of storages: whether the engine runs it, else its message."""

    kernel: str
    operator: str
    storages: Storages
    refusal: str = ""

    @property
    def runs(self) -> bool:
        """Whether every tiny model of it ran."""
        return not self.refusal


@dataclass(frozen=True, slots=True)
class Probing:
    """Answers of an engine, in order, and its name and version."""

    engine: str
    version: str
    answers: tuple[tuple[Probe, tuple[Answer, ...]], ...]


def probe(engine: str = "onnxruntime", kernels: Iterable[str] | None = None) -> Probing:
    """Ask an engine.

    Args:
      engine: a key of `ENGINES`.
      kernels: names of the kernels to try; all without any.

    Raises:
      UnknownName: no such engine or kernel.
    """
    if engine not in ENGINES:
        raise unknown_name("engine", engine, ENGINES)
    known = {found.kernel for found in PROBES}
    wanted = known if kernels is None else set(kernels)
    for name in wanted - known:
        raise unknown_name("kernel", name, known)
    release, run = ENGINES[engine]
    answers = tuple(
        (found, tuple(_ask(found, storages, run) for storages in found.choices))
        for found in PROBES
        if found.kernel in wanted
    )
    return Probing(engine, release, answers)


def rows_of(probing: Probing) -> tuple[str, ...]:
    """Rows of kernels that run, as lines of `kernels:`; one for data movement that takes all storages."""
    lines: list[str] = []
    for found, answers in probing.answers:
        if found.same and all(answer.runs for answer in answers):
            lines.append(f"- {{kernel: {found.kernel}, {found.same}}}")
            continue
        for answer in answers:
            if answer.runs:
                least = -128 if answer.storages[-1] == "i8" else 0
                text = found.row.format(*answer.storages, least=least)
                lines.append(f"- {{kernel: {found.kernel}, {text}}}")
    return tuple(lines)


def probe_yaml(probing: Probing, name: str) -> str:
    """Write kernels that run as a target file, and refusals as comments at its end."""
    rows = rows_of(probing)
    used = [key for key in TYPES if any(f": {key}," in row or f": {key}}}" in row for row in rows)]
    refused = [answer for _, answers in probing.answers for answer in answers if not answer.runs]
    head = (
        "# yaml-language-server: $schema=./target.schema.json\n#\n"
        f"# Written by: qplan target probe --engine {probing.engine}\n"
        f"# Kernels that {probing.engine} {probing.version} really loads and runs, each tried with every\n"
        "# choice of storages; what it refuses stands at the end. Do not edit it: extend it.\n"
        f"apiVersion: planner/v1\nkind: Target\nid: {name}\nversion: 1.0.0\n"
        f"title: Kernels of {probing.engine}, as probed\nmode: fixed\n\ntypes:\n"
    )
    types = "".join(f"  {key}: {TYPES[key]}\n" for key in used)
    body = "\ndefaults: {port: u8, on_no_kernel: float, requantize: float32_even}\n\nkernels:\n"
    body += "".join(f"  {row}\n" for row in rows)
    tail = "".join(map(_refused_lines, _by_kernel(refused).items()))
    return head + types + body + (f"\n# Refused:\n{tail}" if tail else "")


def _refused_lines(entry: tuple[tuple[str, str], list[Storages]]) -> str:
    (kernel, operator), choices = entry
    text = f"{kernel} ({operator}): {', '.join(' '.join(storages) for storages in choices)}"
    return textwrap.fill(text, 108, initial_indent="# ", subsequent_indent="#   ") + "\n"


def _by_kernel(refused: Sequence[Answer]) -> Mapping[tuple[str, str], list[Storages]]:
    found: dict[tuple[str, str], list[Storages]] = {}
    for answer in refused:
        found.setdefault((answer.kernel, answer.operator), []).append(answer.storages)
    return found


def _ask(found: Probe, storages: Storages, run: Callable[[bytes], str]) -> Answer:
    plain = tuple(storage_of(name) for name in storages)
    refusal = next(filter(None, map(run, found.spell(plain))), "")
    return Answer(found.kernel, found.operator, storages, refusal)


def _on_onnxruntime(data: bytes) -> str:
    """Load and run a tiny model; onnxruntime's message where it refuses, else ""."""
    try:
        session = open_session(data)
        (port,) = session.get_inputs()
        session.run(None, {port.name: np.ones(port.shape, _NUMPY[port.type])})
    except FAILURES as error:
        return one_line(error)
    return ""


_NUMPY: Final = {
    "tensor(bool)": np.bool_,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint16)": np.uint16,
    "tensor(uint8)": np.uint8,
    "tensor(float)": np.float32,
}

ENGINES: Final[Mapping[str, tuple[str, Callable[[bytes], str]]]] = {
    "onnxruntime": (version("onnxruntime"), _on_onnxruntime),
}
"""Engines by name: their version, and a function that runs a model and gives its refusal."""
