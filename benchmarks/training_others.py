"""Training under a plan, by torchao's PT2E and by Brevitas with their own defaults, planned for devices.

`python -m benchmarks.training_others --write` writes docs/results/training-others.md; it needs
`make .oracles/executorch/.made .oracles/brevitas/.made`, and minutes. `--keep FILE` keeps finished runs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "training-others.md"
WIDTHS: Final = (8, 4, 3, 2)
SEEDS: Final = (0, 1, 2)
EPOCHS: Final = 3
ROADS: Final = {"ours": "executorch", "torchao": "executorch", "brevitas": "brevitas"}
"""Roads, and the environment of each."""
NAMES: Final = {"ours": "under the plan", "torchao": "torchao PT2E", "brevitas": "Brevitas"}
HEADS: Final = ("bits", "road", "in torch", "planned", "rescales", "price", "in float")


def runs(road: str) -> Iterator[dict[str, Any]]:
    """The runs of a road, in its environment, with the packages of this one behind it."""
    places = [str(ROOT), *(place for place in sys.path if Path(place).name == "site-packages")]
    python = ROOT / ".oracles" / ROADS[road] / "bin" / "python"
    folder = ROOT / "out" / "training_others"
    folder.mkdir(parents=True, exist_ok=True)
    lists = [",".join(map(str, numbers)) for numbers in (WIDTHS, SEEDS)]
    line = [str(python), "-P", "benchmarks/training_others_side.py", road, str(folder), str(EPOCHS), *lists]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    yield from (json.loads(text) for text in done.stdout.splitlines() if text.startswith('{"road"'))


def spread(numbers: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(numbers):.1f} ± {statistics.pstdev(numbers):.1f}"


def values(numbers: list[float]) -> str:
    """Each figure once."""
    return ", ".join(f"{number:g}" for number in sorted(set(numbers)))


def row(bits: int, road: str, found: list[dict[str, Any]]) -> str:
    """A line of a table."""
    cells = [
        str(bits),
        NAMES[road],
        spread([one["torch"] for one in found]),
        spread([one["right"] for one in found]),
        *(values([one[figure] for one in found]) for figure in ("rescales", "price", "floats")),
    ]
    return f"| {' | '.join(cells)} |\n"


def page(known: list[dict[str, Any]]) -> str:
    """The page of finished runs."""
    devices = [*known[0]["found"]]
    counts = Counter((one["road"], one["bits"]) for one in known)
    widths = [bits for bits in WIDTHS if all(counts[road, bits] == len(SEEDS) for road in ROADS)]
    shown = ", ".join(map(str, widths))
    text = f"""# Training under a plan beside other roads
Made by `python -m benchmarks.training_others --write`: a convnet of two convolutions and a linear layer on
the digits, weights at {shown} bits, activations at 8; {EPOCHS} epochs from one float network, Adam at one
rate; accuracy in percent of 450 images, mean and standard deviation of {len(SEEDS)} seeds. torchao:
`prepare_qat_pt2e` with XNNPACK's quantizer. Brevitas: its layers with their default quantizers, read as
QONNX. Both with their own defaults, and then planned for the device. Rescales without the casts at the ends;
price: of all; in float: kernels that fall back.
"""
    for device in devices:
        text += f"\n## {device}\n| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|\n"
        for bits in widths:
            for road in ROADS:
                found = [one["found"][device] for one in known if one["road"] == road and one["bits"] == bits]
                text += row(bits, road, found)
    return text


def main() -> None:
    """Run what is missing, then print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    known: list[dict[str, Any]] = []
    if given.keep is not None and given.keep.exists():
        known = [json.loads(text) for text in given.keep.read_text(encoding="utf-8").splitlines()]
    for road in ROADS:
        if not any(one["road"] == road for one in known):
            known += runs(road)
    if given.keep is not None:
        given.keep.write_text("".join(f"{json.dumps(one)}\n" for one in known), encoding="utf-8")
    if given.write:
        PAGE.write_text(page(known), encoding="utf-8")
    else:
        print(page(known))


if __name__ == "__main__":
    main()
