"""Models that engines of others run as wholes: their files, samples, counts of equal numbers, and tables.

Not part of the product. Each benchmark of an engine writes its table between two marks of its page; a run
of few models replaces their rows alone.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import onnx

import planner
from benchmarks.samples import SAMPLERS, Draw, Sample, model_folder, photos
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final[Mapping[str, str]] = {
    "ad01_fp32": "mlperf-tiny",
    "bert_l4_h256": "sequence",
    "mnist": "vision",
    "mobilenetv2_100": "vision",
    "pretrainedResnet": "mlperf-tiny",
    "vww_96_float": "mlperf-tiny",
    "yolox_nano": "vision",
}
"""Float networks with the folder of each; that of `digits` is examples/digits."""
FLOAT_STEP: Final = 1e-6
T = TypeVar("T")


def path_of(name: str) -> Path:
    """The file of a float network."""
    folder = ROOT / "examples" / "digits" if name == "digits" else model_folder() / FOLDERS[name]
    return folder / f"{name}.onnx"


def loaded(name: str) -> Graph:
    """A float network for one sample at a time."""
    path = path_of(name)
    graph = planner.load_model(path)
    names = {size for key in graph.inputs for size in graph.values[key].shape or () if isinstance(size, str)}
    return planner.load_model(path, dims=dict.fromkeys(names, 1))


def batches(name: str, calibration: int, count: int) -> tuple[list[Sample], list[Sample]]:
    """Calibration and held-out samples, one picture or text each."""
    path = path_of(name)
    if name == "digits":
        with np.load(path.parent / "calibration.npz") as archive:
            known = {key: archive[key] for key in archive.files}
        single = [{key: array[i : i + 1] for key, array in known.items()} for i in range(calibration + count)]
        return single[:calibration], single[calibration:]
    if name == "yolox_nano":
        return tuple(
            [{"images": _letterboxed(picture)} for picture in photos("240x320", number, held_out=held)]
            for number, held in ((calibration, False), (count, True))
        )  # type: ignore[return-value]
    sampler = SAMPLERS[name]
    return sampler(Draw(path, calibration, held_out=False)), sampler(Draw(path, count, held_out=True))


def _letterboxed(picture: np.ndarray, side: int = 416) -> np.ndarray:
    """A picture in the upper left of a grey square, as the detector was trained: 0 to 255, channels first."""
    image = np.full((side, side, 3), 114, np.float32)
    image[: picture.shape[0], : picture.shape[1]] = picture[:side, :side]
    return np.ascontiguousarray(image.transpose(2, 0, 1)[None])


def zoo_model(name: str, count: int, side: int | None = None) -> tuple[Graph, list[Sample]]:
    """A model of QONNX's zoo with its own types, and samples of random numbers in [0, 1) from one seed.

    Args:
      side: of its square pictures, where the file says another.
    """
    path = model_folder() / "qonnx" / f"{name}.onnx"
    model = planner.load_model(path if side is None else _with_side(path, side))
    rng = np.random.default_rng(7)
    shapes = {
        key: [d if isinstance(d, int) else 1 for d in model.values[key].shape or ()] for key in model.inputs
    }
    return model, [
        {key: rng.random(shape, np.float32) for key, shape in shapes.items()} for _ in range(count)
    ]


def _with_side(path: Path, side: int) -> bytes:
    """A fully convolutional network for square pictures of another size."""
    file = onnx.load(path)
    constants = {tensor.name for tensor in file.graph.initializer}
    (picture,) = (item for item in file.graph.input if item.name not in constants)
    sizes = picture.type.tensor_type.shape.dim
    largest = max(size.dim_value for size in sizes)
    for size in sizes:
        size.dim_value = side if size.dim_value == largest else size.dim_value
    del file.graph.value_info[:]
    for item in file.graph.output:
        item.type.tensor_type.ClearField("shape")
    return file.SerializeToString()


def prepared(
    name: str, target: str, calibration: int, count: int, *, seen: bool = True
) -> tuple[Graph, list[Sample]]:
    """A model ready to be planned, and samples to run.

    Args:
      name: a float network, `NAME at 4 bits` for weights and activations of as many bits, or a model of
        QONNX's zoo, `NAME at 32x32` for pictures of that size.
      seen: whether a model of the zoo is calibrated, which has types of its own.
    """
    stem, _, form = name.partition(" at ")
    if stem in FOLDERS or stem == "digits":
        graph, (known, samples) = loaded(stem), batches(stem, calibration, count)
    else:
        side = int(form.split("x")[0]) if form else None
        if not seen:
            return zoo_model(stem, count, side)
        graph, every = zoo_model(stem, calibration + count, side)
        known, samples = every[:calibration], every[calibration:]
    if form.endswith("bits"):
        width = int(form.removesuffix(" bits"))
        graph = planner.with_bits(graph, target, {"w": width, "a": width})
    return planner.annotate(graph, stats=planner.calibrate(graph, known), target=target), samples


def compared(
    plan: Plan, wanted: Sequence[Mapping[str, np.ndarray]], found: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, Any]:
    """Count outputs that are equal and one step off; a step is the scale of the output's type, 1e-6 in float.

    `worst` is in steps, `furthest` a share of the largest number.
    """
    steps = {
        port.value: port.type.scale
        for kernel in plan.kernels_in_order
        for port in kernel.outputs
        if isinstance(port.type, Uniform) and port.type.is_per_tensor
    }
    off, signal, noise, apart, largest = [], 0.0, 0.0, 0.0, 0.0
    for one, other in zip(wanted, found, strict=True):
        for name, array in one.items():
            exact, theirs = np.asarray(array, np.float64), np.asarray(other[name], np.float64)
            off.append(np.abs(exact - theirs).ravel() / steps.get(name, FLOAT_STEP))
            apart = max(apart, float(np.abs(exact - theirs).max(initial=0)))
            largest = max(largest, float(np.abs(exact).max(initial=0)))
            signal += float(np.square(exact).sum())
            noise += float(np.square(exact - theirs).sum())
    every = np.concatenate(off)
    return {
        "numbers": every.size,
        "equal": int((every < 0.5).sum()),
        "one_step": int(((every >= 0.5) & (every < 1.5)).sum()),
        "worst": float(every.max()),
        "furthest": apart / (largest or 1.0),
        "decibels": float("inf") if not noise else 10 * float(np.log10(signal / noise)),
    }


def short(text: str, most: int = 160) -> str:
    """A message on one line of a table."""
    line = " ".join(text.replace("|", "/").split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def table_of(page: Path, maker: str) -> list[str]:
    """The lines of the table that a benchmark wrote into a page; none before the first."""
    found = _between(maker).search(page.read_text("utf-8"))
    return found[0].splitlines() if found else []


def put_table(page: Path, maker: str, lines: Sequence[str], *, keys: int = 0) -> None:
    """Write a table into a page, between the marks of a benchmark.

    Args:
      maker: the benchmark's name, as in `<!-- made by benchmarks.finn -->`.
      lines: two of its head, and a row each.
      keys: as many cells name a row: a row of the page with other names stays. 0: all rows are new.
    """
    text = page.read_text("utf-8")
    if keys and table_of(page, maker)[:2] == list(lines[:2]):
        rows = {_cells(line)[:keys]: line for line in table_of(page, maker)[2:]}
        rows |= {_cells(line)[:keys]: line for line in lines[2:]}
        lines = [*lines[:2], *rows.values()]
    # Once: behind an empty table `sub` looks for another one from the same place, up to the next end.
    made = _between(maker).sub(lambda _: "".join(f"{line}\n" for line in lines), text, count=1)
    page.write_text(made, "utf-8")


def run_models(
    maker: str,
    page: Path,
    models: Sequence[str],
    measure: Callable[[str, int], Iterable[T]],
    table: Callable[[Sequence[T]], Iterator[str]],
    *,
    samples: int,
    keys: int,
) -> int:
    """The command of a benchmark of minutes a model: print and write the rows of each model behind it.

    Args:
      measure: the records of a model, with as many samples.
      table: two lines of a head, and a row for each record.
      samples: as many by default.
      keys: as many cells name a row.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {maker}")
    parser.add_argument("--only", nargs="*", metavar="MODEL", choices=models, default=list(models))
    parser.add_argument("--samples", type=int, default=samples)
    parser.add_argument("--write", action="store_true", help=f"put the rows into {page.relative_to(ROOT)}")
    options = parser.parse_args()
    for name in options.only:
        lines = [*table([*measure(name, options.samples)])]
        sys.stdout.write("\n".join(lines[2:]) + "\n")
        sys.stdout.flush()
        if options.write:
            put_table(page, maker, lines, keys=keys)
    return 0


def finish(page: Path, maker: str, lines: Sequence[str], *, keys: int, write: bool) -> None:
    """Print a table, and write it into its page if asked."""
    if write:
        put_table(page, maker, lines, keys=keys)
    sys.stdout.write("\n".join(lines) + "\n")


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip("|").split("|"))


def _between(maker: str) -> re.Pattern[str]:
    return re.compile(rf"(?<=<!-- made by {re.escape(maker)} -->\n).*?(?=<!-- end -->)", re.DOTALL)
