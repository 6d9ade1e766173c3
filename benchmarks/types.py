"""The type language and arrays: texts per second, and quantizing beside the plain numpy formula, on one core.

Both sides of a ratio are measured in the same run, in turns; the ratio is the median over the rounds, the
figure the best round. Results are compared before they are timed. Run as `python -m benchmarks.types
[--write]`; `--write` puts the tables into docs/results/arrays.md.
"""

import argparse
import os
import platform
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.constants.quantize import ARITHMETICS, dequantize_array, quantize_array
from planner.constants.requantize import requantize_array
from planner.ir.types.qtypes import Uniform, storage, sub_channel, uniform
from planner.ir.types.typetext import parse_type

Array = npt.NDArray[Any]
Job = Callable[[], object]

ROUNDS: Final = 5
TYPES: Final = 100_000
CHANNELS: Final = 4096
SHAPE: Final = (4096, 24_576)
BLOCK: Final = 32
PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "results" / "arrays.md"
START, END = "<!-- measured -->\n", "<!-- end -->\n"


def seconds(job: Job) -> float:
    """Take the processor time of one run: others on the machine do not count."""
    begin = time.process_time()
    job()
    return time.process_time() - begin


def best(job: Job) -> float:
    """Best of the rounds."""
    return min(seconds(job) for _ in range(ROUNDS))


def text_rows() -> Iterator[str]:
    """Types read and written."""
    rng = np.random.default_rng(0)
    scales = [_f32(value) for value in rng.uniform(1e-4, 1.0, TYPES)]
    zeros = rng.integers(-128, 128, TYPES).tolist()
    texts = [
        f"!quant.uniform<i8:f32, {s!r}{f':{z}' if z else ''}>" for s, z in zip(scales, zeros, strict=True)
    ]
    if [str(parse_type(text)) for text in texts] != texts:
        raise RuntimeError("a text does not survive")
    both = best(lambda: [str(parse_type(text)) for text in texts])
    yield f"| per tensor, read and written | {TYPES / both:,.0f} types/s | 100,000 types/s |"
    for what, count, wanted in (
        (f"{CHANNELS} slices", CHANNELS, "5 ms"),
        ("1,000,000 slices", 1_000_000, "-"),
    ):
        many = np.resize(np.array(scales), count).tolist()
        kind = uniform(storage("i8"), many, np.resize(np.array(zeros), count).tolist(), axis=0)
        text = str(kind)
        if parse_type(text) != kind:
            raise RuntimeError("a text does not survive")
        read, written = best(lambda text=text: parse_type(text)), best(lambda kind=kind: str(kind))
        yield f"| {what} along an axis, read | {1e3 * read:,.1f} ms | {wanted} |"
        yield f"| {what} along an axis, written | {1e3 * written:,.1f} ms | {wanted} |"


def _f32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def plain(array: Array, kind: Uniform, zero_point: Array) -> Array:
    """Write the naive formula in one line, with parameters that broadcast."""
    scale = np.float32(kind.scales).reshape(zero_point.shape)
    if kind.is_sub_channel:
        scale, zero_point = (np.repeat(values, BLOCK, axis=1) for values in (scale, zero_point))
    store = kind.storage
    return np.clip(np.rint(array / scale) + zero_point, store.qmin, store.qmax).astype(np.int8)


def array_rows() -> Iterator[str]:
    """Quantize beside the formula."""
    rng = np.random.default_rng(1)
    array = rng.normal(size=SHAPE).astype(np.float32)
    tops = np.abs(array).max(axis=1)
    zeros = rng.integers(-5, 5, SHAPE[0])
    tall = (SHAPE[0], 1)
    blocked = (SHAPE[0], SHAPE[1] // BLOCK)
    ends = np.abs(array).reshape(*blocked, BLOCK).max(axis=2).astype(np.float64)
    channels = uniform(storage("i8"), (tops / 127.0).tolist(), axis=0)
    shifted = uniform(storage("i8"), (tops / 120.0).tolist(), zeros.tolist(), axis=0)
    blocks = sub_channel(storage("i4"), (ends / 7).ravel().tolist(), blocks={0: 1, 1: BLOCK}, grid=blocked)
    for what, kind, zero_point, wanted in (
        ("i8 per channel", channels, np.zeros(tall, np.int64), "5"),
        ("the same, naive formula all in float32", channels, np.zeros(tall, np.float32), "-"),
        ("i8 per channel with zero points", shifted, zeros.reshape(tall), "5"),
        ("the same, naive formula all in float32", shifted, zeros.reshape(tall).astype(np.float32), "-"),
        (f"i4 in blocks of {BLOCK}", blocks, np.zeros(blocked, np.int64), "1.5"),
        ("the same, naive formula all in float32", blocks, np.zeros(blocked, np.float32), "-"),
    ):
        yield _beside(
            what,
            array,
            lambda kind=kind: quantize_array(array, kind),
            lambda kind=kind, zero_point=zero_point: plain(array, kind, zero_point),
            wanted,
        )


def _beside(
    what: str, array: Array, ours: Callable[[], Array], theirs: Callable[[], Array], wanted: str
) -> str:
    np.testing.assert_array_equal(ours(), theirs())
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS)]
    ratio = statistics.median(their / mine for mine, their in pairs)
    mine, their = (min(column) for column in zip(*pairs, strict=True))
    size = array.nbytes / 1e9
    return f"| {what} | {size / mine:.1f} | {size / their:.2f} | {ratio:.1f} | {wanted} |"


def way_rows() -> Iterator[str]:
    """Report the other ways of an array, ours alone."""
    rng = np.random.default_rng(2)
    array = rng.normal(size=(1024, 8192)).astype(np.float32)
    kind = uniform(storage("i8"), (np.abs(array).max(axis=1) / 127.0).tolist(), axis=0)
    other = uniform(storage("u8"), 0.05, 128)
    stored = quantize_array(array, kind)
    whole = quantize_array(array, other)
    exact = ARITHMETICS["exact_even"]
    for what, job in (
        ("dequantize, per channel", lambda: dequantize_array(stored, kind)),
        ("quantize, per channel, exact", lambda: quantize_array(array, kind, exact)),
        ("requantize, per channel to per tensor, float32", lambda: requantize_array(stored, kind, other)),
        ("the same, exact", lambda: requantize_array(stored, kind, other, exact)),
        (
            "requantize, per tensor, exact",
            lambda: requantize_array(whole, other, uniform(storage("i8"), 0.1), exact),
        ),
    ):
        yield f"| {what} | {1e9 * best(job) / array.size:.2f} |"


def report() -> str:
    """Return the tables."""
    machine = f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    lines = [
        f"Measured on {machine}: processor time on one core, best of {ROUNDS} rounds, ratios their medians.",
        "",
        "| text | found | wanted |",
        "|---|---|---|",
        *text_rows(),
        "",
        f"Quantizing {np.prod(SHAPE) * 4 / 1e6:.0f} MB of float32, results equal to the naive formula's:",
        "",
        "| | GB/s | naive, GB/s | ratio | wanted |",
        "|---|---|---|---|---|",
        *array_rows(),
        "",
        "| an array of 8.4 million elements | ns an element |",
        "|---|---|",
        *way_rows(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables, and put them into the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    write = parser.parse_args().write
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tables = report()
    print(tables)
    if write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(START)
        PAGE.write_text(f"{before}{START}{tables}{END}{rest.split(END)[1]}", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
