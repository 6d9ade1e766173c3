"""Training under a plan, by torchao's PT2E and by Brevitas with their own defaults, planned for devices.

`python -m benchmarks.training_others --write` writes docs/results/training-others.md; it needs
`make .oracles/executorch/.made .oracles/brevitas/.made`, QPLAN_MODELS and minutes. `--keep FILE` keeps
finished runs.
"""

import argparse
import itertools
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
RATES: Final = (5e-4, 2e-3, 8e-3)
EPOCHS: Final = {"digits": 20, "resnet": 4}
ROADS: Final = {"ours": "executorch", "torchao": "executorch", "brevitas": "brevitas"}
"""Roads, and the environment of each."""
NAMES: Final = {"ours": "under the plan", "torchao": "torchao PT2E", "brevitas": "Brevitas"}
NETWORKS: Final = {
    "digits": "a convnet of two convolutions and a linear layer; 1,077 images train, 270 choose the rate; "
    "accuracy in percent of the 450 of the test file",
    "resnet": "MLPerf Tiny's ResNet-8, of which the model folder has no labels: it learns from its own float "
    "probabilities on 512 cuts of the left halves of photographs; accuracy is the share of its own decisions "
    "that stay, in percent, on 400 cuts of the lower right quarters, and 200 of the upper right choose",
}
HEADS: Final = ("bits", "road", "rate", "in torch", "planned", "rescales", "price", "in float")


def runs(network: str, road: str, widths: list[int]) -> Iterator[dict[str, Any]]:
    """The runs of a network by a road, one for each width and seed, in its environment, as they finish.

    The packages of this environment are behind those of the road's.
    """
    places = [str(ROOT), *(place for place in sys.path if Path(place).name == "site-packages")]
    python = ROOT / ".oracles" / ROADS[road] / "bin" / "python"
    folder = ROOT / "out" / "training_others"
    folder.mkdir(parents=True, exist_ok=True)
    script = ["-P", "benchmarks/training_others_side.py"]
    numbers = [str(EPOCHS[network]), ",".join(map(str, RATES)), *map(str, widths)]
    line = [str(python), *script, network, road, str(folder), *numbers]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"}
    with (
        (folder / "stderr.txt").open("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            line, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        yield from (json.loads(text) for text in process.stdout or () if text.startswith('{"network"'))
        if process.wait():
            errors.seek(0)
            sys.exit(errors.read()[-2000:])


def spread(numbers: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(numbers):.1f} ± {statistics.pstdev(numbers):.1f}"


def values(numbers: list[float]) -> str:
    """Each figure once."""
    return ", ".join(f"{number:.9g}" for number in sorted(set(numbers)))


def row(bits: int, road: str, found: list[dict[str, Any]]) -> str:
    """A line of a table."""
    cells = [
        str(bits),
        road,
        values([one["rate"] for one in found]) if "rate" in found[0] else "",
        spread([one["torch"] for one in found]) if "torch" in found[0] else "",
        spread([one["right"] for one in found]),
        *(values([one[figure] for one in found]) for figure in ("rescales", "price", "floats")),
    ]
    return f"| {' | '.join(cells)} |\n"


def page(known: list[dict[str, Any]]) -> str:
    """The page of finished runs."""
    there = {one["network"] for one in known}
    epochs = " and ".join(f"{count} epochs ({name})" for name, count in EPOCHS.items() if name in there)
    text = f"""# Training under a plan beside other roads
Made by `python -m benchmarks.training_others --write`: weights of few bits, activations of 8; Adam from one
float network, {epochs}; mean and standard
deviation of {len(SEEDS)} seeds. Each road and width tries {len(RATES)} rates with the first seed; the images
for choosing, which train nothing, decide, and the test images come last. Under the plan training
starts with `fit_weights` of the calibration data; that method and one rate for weights and scales were set
after runs of the digits example, another network, on the test images of the digits. torchao:
`prepare_qat_pt2e` with XNNPACK's quantizer. Brevitas: its layers with their default quantizers, read as
QONNX; one quantizer for both sides of a sum. Both with their own defaults, and then planned for the device.
Rescales: without the casts at the ends; price: of all; in float: kernels that fall back. At 8 bits
calibration alone keeps more of the ResNet than any road: so few images train it, and no lower rate was tried.
"""
    for network, what in NETWORKS.items():
        mine = [one for one in known if one["network"] == network]
        if {one["road"] for one in mine} != {*ROADS}:
            continue
        for device in mine[0]["found"]:
            text += f"\n## {network}, {device}\n{what[0].upper()}{what[1:]}.\n\n"
            text += f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|\n"
            text += "".join(rows(mine, device))
    return text


def rows(known: list[dict[str, Any]], device: str) -> Iterator[str]:
    """The lines of a network's table: after calibration, and by each road, of widths that all have."""
    for bits in WIDTHS:
        found = {
            road: [one["found"][device] for one in known if (one["road"], one["bits"]) == (road, bits)]
            for road in ROADS
        }
        if not all(found.values()):
            continue
        yield row(bits, "after calibration", [one["before"] for one in found["ours"]])
        for road, name in NAMES.items():
            yield row(bits, name, found[road])


def whole(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of widths that have all seeds."""
    counts = Counter((one["network"], one["road"], one["bits"]) for one in known)
    return [one for one in known if counts[one["network"], one["road"], one["bits"]] == len(SEEDS)]


def main() -> None:
    """Run what is missing, then print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="run this one; default: all")
    given = parser.parse_args()
    known: list[dict[str, Any]] = []
    if given.keep is not None and given.keep.exists():
        known = whole([json.loads(text) for text in given.keep.read_text(encoding="utf-8").splitlines()])
    for network, road in itertools.product(given.network or NETWORKS, ROADS):
        done = {one["bits"] for one in known if (one["network"], one["road"]) == (network, road)}
        widths = [bits for bits in WIDTHS if bits not in done]
        for one in runs(network, road, widths) if widths else ():
            known.append(one)
            if given.keep is not None:
                with given.keep.open("a", encoding="utf-8") as kept:
                    kept.write(f"{json.dumps(one)}\n")
    if given.write:
        PAGE.write_text(page(known), encoding="utf-8")
    else:
        print(page(known))


if __name__ == "__main__":
    main()
