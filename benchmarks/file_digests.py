"""Digests of written files: which files, and which graphs read back from them, a change leaves as they were.

Operators, bodies, recurrent layers, random models and the models of the folder, each on targets with the
formats that they write; a refusal is digested too. Before a change:
`python -m benchmarks.file_digests --write out/digests.json`; after it: `--against out/digests.json`, whose
exit code is 1 where one differs. `--only GROUP ...` takes groups (operator, body, recurrent, random, model,
file), `--targets TARGET ...` the formats of targets; `--random N` sets the number of random models.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

import planner
from benchmarks.samples import model_folder
from planner.errors import PlannerError
from planner.formats.table import EXPORTERS
from planner.ir.expand import expand
from planner.ir.graph import Graph
from tests.formats import bodies
from tests.formats.litert.writer.test_operators import OWN
from tests.formats.test_every_model import SIZES
from tests.formats.tosa.writer.test_operators import CASES, made
from tests.plans.randommodels import random_model
from tests.plans.recorded import MODELS, ranged
from tests.recurrent.layers import LAYERS, data, sample

Digests: TypeAlias = dict[str, str]
Graphs: TypeAlias = Callable[[], Iterator[tuple[str, Graph]]]

WRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    "finn-fpga": ("finn",),
    "hls4ml-fpga": ("hls4ml",),
    "litert-int8": ("litert", "encodings"),
    "llm-w4": ("onnx-matmulnbits",),
    "onnxruntime-cpu": (
        "onnx-integer",
        "onnx-qcdq",
        "onnx-qdq",
        "onnx-qoperator",
        "onnx-qoperator-clip",
        "qonnx",
    ),
    "stablehlo": ("stablehlo", "stablehlo-int"),
    "tosa-int8": ("tosa",),
}
"""Formats that files are written in, by the target that is planned for."""
READ: Final = frozenset({"litert", "onnx-qdq", "qonnx", "stablehlo", "stablehlo-int", "tosa"})
"""Formats whose files are read back."""
_SIZES: Final[Mapping[str, Mapping[str, tuple[int, ...]]]] = SIZES  # type: ignore[assignment]
LARGE: Final = frozenset({"bert_l4_h256", "mobilenetv2_100", "squeezenet_real_fp32", "unet_b32_128"})
"""Models that take minutes."""


def operators() -> Iterator[tuple[str, Graph]]:
    """One operator, behind a Tanh, of every kind that the tests of LiteRT and TOSA have."""
    cases: Mapping[str, tuple[str, Sequence[int], Mapping[str, Any]]] = {**CASES, **OWN}
    for name, (text, shape, constants) in cases.items():
        rng = np.random.default_rng(0)
        samples = [{"i": rng.uniform(-1.5, 2, shape).astype(np.float32)} for _ in range(2)]
        yield name, _calibrated(planner.load_model(made(text, shape, constants)), samples)


def loops() -> Iterator[tuple[str, Graph]]:
    """Loops and branches."""
    for name, (text, shapes) in bodies.MODELS.items():
        yield name, bodies.prepared(text, shapes, 4)[0]  # type: ignore[no-untyped-call]


def recurrent() -> Iterator[tuple[str, Graph]]:
    """LSTM, GRU and RNN."""
    for name, layer in LAYERS.items():
        yield name, _calibrated(planner.load_model(data(layer)), [sample(layer)])


def randoms(count: int) -> Iterator[tuple[str, Graph]]:
    """Random models, some with facts."""
    for seed in range(count):
        yield str(seed), random_model(seed, 3 + seed % 10, facts=(0.0, 0.1, 0.3)[seed % 3])


def models() -> Iterator[tuple[str, Graph]]:
    """The example's model and those of the folder, with ranges that follow from names."""
    yield "digits", ranged(planner.load_model("examples/digits/digits.onnx"))
    for name in MODELS:
        path = model_folder() / f"{name}.onnx"
        if path.stem in LARGE or not path.is_file():
            continue
        model, sizes = planner.load_model(path), _SIZES.get(path.stem, {})
        values = {
            key: replace(value, shape=sizes.get(key, value.shape)) for key, value in model.values.items()
        }
        yield path.stem, ranged(expand(replace(model, values=values)))


def files() -> Digests:
    """What is read of LiteRT's files that others wrote."""
    paths = sorted(model_folder().glob("*/*.tflite"))
    return {f"file: {path.name}": _graph_digest(path) for path in paths}


def digests(groups: Mapping[str, Graphs], targets: Sequence[str]) -> Digests:
    """A digest for each model, target and format, and for each file that is read."""
    found: Digests = {}
    for group, graphs in groups.items():
        for name, graph in graphs():
            for target in targets:
                found |= _of_target(f"{group}: {name}", graph, target)
        print(f"{group}: {len(found)} digests", file=sys.stderr)
    return found


def _of_target(name: str, graph: Graph, target: str) -> Iterator[tuple[str, str]]:
    try:
        plan = planner.plan(graph, target)
    except PlannerError as error:
        yield f"{name} on {target}", f"no plan: {_digest(str(error))}"
        return
    for form in WRITTEN[target]:
        key = f"{name} on {target} as {form}"
        try:
            written = EXPORTERS[form](graph, plan)
        except PlannerError as error:
            yield key, f"refused: {_digest(str(error))}"
            continue
        yield key, _digest(written)
        if form in READ:
            yield f"{key}, read", _graph_digest(written)


def _graph_digest(source: bytes | Path) -> str:
    """Digest of all that is read; values in the order of their names, as a reader may meet them in any."""
    try:
        graph = planner.load_model(source)
    except PlannerError as error:
        return f"not read: {_digest(str(error))}"
    numbers = [
        (name, None if held.array is None else _digest(held.array.tobytes()))
        for name, held in sorted(graph.constants.items())
    ]
    parts = (
        sorted(graph.values.items()),
        graph.ops,
        graph.inputs,
        graph.outputs,
        graph.scopes,
        graph.notes,
        numbers,
    )
    return _digest(repr(parts))


def _calibrated(graph: Graph, samples: list[dict[str, np.ndarray]]) -> Graph:
    return planner.annotate(graph, stats=planner.calibrate(graph, samples))


def _digest(written: bytes | str) -> str:
    return hashlib.sha256(written if isinstance(written, bytes) else written.encode()).hexdigest()[:16]


GROUPS: Final[Mapping[str, Graphs]] = {
    "operator": operators,
    "body": loops,
    "recurrent": recurrent,
    "random": partial(randoms, 20),
    "model": models,
}


def main() -> None:
    """Write digests, or compare them with those of before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", nargs="+", default=[*GROUPS, "file"])
    parser.add_argument("--targets", nargs="+", default=[*WRITTEN])
    parser.add_argument("--random", type=int, default=20)
    options = parser.parse_args()
    groups: dict[str, Graphs] = {**GROUPS, "random": partial(randoms, options.random)}
    chosen = {name: graphs for name, graphs in groups.items() if name in options.only}
    found = digests(chosen, options.targets)
    found |= files() if "file" in options.only else {}
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(json.dumps(found, indent=0), encoding="utf-8")
    if options.against:
        before = json.loads(options.against.read_text(encoding="utf-8"))
        keys = [key for key in before if _is_chosen(key, options.only, options.targets)]
        differ = [key for key in keys if found.get(key) != before[key]]
        print(*differ, sep="\n")
        print(f"{len(keys) - len(differ)} of {len(keys)} digests are as they were")
        sys.exit(bool(differ))


def _is_chosen(key: str, groups: Sequence[str], targets: Sequence[str]) -> bool:
    """Whether a digest is one of groups and targets."""
    group, _, rest = key.partition(":")
    target = rest.rpartition(" on ")[2].split(" as ")[0]
    return group in groups and (group == "file" or target in targets)


if __name__ == "__main__":
    main()
