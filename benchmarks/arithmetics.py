"""How often float32 arithmetic and exact arithmetic store different integers: all pairs of bytes, per op.

`float32_spec` dequantizes, computes and quantizes in float32; `exact_even` does the same in rationals on
the same float32 scales, and rounds once. Usage: `python -m benchmarks.arithmetics --write` writes
docs/results/float32-steps.md. Source: docs/specification.md, section 8; StableHLO specification,
"Quantization computations".
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "float32-steps.md"
_NEAR: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Grid:
    """A per-tensor type of bytes: scale as float32, zero point, least stored value."""

    scale: float
    zero: int
    low: int = -128

    @property
    def step(self) -> np.float32:
        """The scale."""
        return np.float32(self.scale)


SETS: Final[Mapping[str, tuple[Grid, Grid, Grid]]] = {
    "page": (Grid(0.025, -1), Grid(0.075, -1), Grid(0.15, -1)),
    "same": (Grid(0.1, 3), Grid(0.1, 3), Grid(0.1, 3)),
    "apart": (Grid(0.0078125, -128), Grid(1.7, 5), Grid(0.31, 17)),
    "narrow": (Grid(0.037, 0, -127), Grid(0.0511, 0, -127), Grid(0.09, 0, -127)),
    "mixed": (Grid(0.02, -100), Grid(0.3, 50), Grid(0.2, -77)),
}
OPS: Final[Mapping[str, tuple[Callable[..., Any], Callable[[Fraction, Fraction], Fraction]]]] = {
    "add": (np.add, lambda a, b: a + b),
    "subtract": (np.subtract, lambda a, b: a - b),
    "multiply": (np.multiply, lambda a, b: a * b),
    "divide": (np.divide, lambda a, b: a / b),
    "maximum": (np.maximum, max),
    "minimum": (np.minimum, min),
}


def differences(op: str, grids: tuple[Grid, Grid, Grid]) -> tuple[int, int, int]:
    """Pairs compared, pairs that store different integers, and the largest difference.

    Pairs that divide by zero are left out.
    """
    x, y = (axis.reshape(-1) for axis in np.mgrid[grids[0].low : 128, grids[1].low : 128])
    if op == "divide":
        x, y = x[y != grids[1].zero], y[y != grids[1].zero]
    off = np.abs(_float32(op, x, y, grids) - _exact(op, x, y, grids))
    return x.size, int(np.count_nonzero(off)), int(off.max())


def _float32(op: str, x: Array, y: Array, grids: tuple[Grid, Grid, Grid]) -> Array:
    a, b = ((q - g.zero).astype(np.float32) * g.step for q, g in zip((x, y), grids, strict=False))
    result = grids[2]
    steps = OPS[op][0](a, b) / result.step + np.float32(result.zero)
    return np.asarray(np.rint(np.clip(steps, np.float32(result.low), np.float32(127))), np.int64)


def _exact(op: str, x: Array, y: Array, grids: tuple[Grid, Grid, Grid]) -> Array:
    """Round in float64, and in rationals where that could be a tie."""
    scales = [Fraction(float(grid.step)) for grid in grids]
    a, b = (
        (q - g.zero).astype(np.float64) * float(s) for q, g, s in zip((x, y), grids, scales, strict=False)
    )
    result = grids[2]
    steps = OPS[op][0](a, b) / float(scales[2]) + result.zero
    found = np.rint(np.clip(steps, result.low, 127)).astype(np.int64)
    close = np.flatnonzero((np.abs(steps - np.floor(steps) - 0.5) < _NEAR) & (np.abs(steps) < 130))
    for i in close.tolist():
        reals = [(int(q[i]) - g.zero) * s for q, g, s in zip((x, y), grids, scales, strict=False)]
        found[i] = min(max(round(OPS[op][1](*reals) / scales[2] + result.zero), result.low), 127)
    return found


def table() -> str:
    """The Markdown table: share of pairs that differ, all by one step."""
    lines = [f"| pairs that differ | {' | '.join(OPS)} |", f"|---|{'---|' * len(OPS)}"]
    for name, grids in SETS.items():
        cells = []
        for op in OPS:
            count, off, most = differences(op, grids)
            if most > 1:
                raise ValueError(f"{op} of {name} differs by {most} steps")
            cells.append(f"{off} ({100 * off / count:.2g} %)" if off else "0")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """The page with the table."""
    return f"""# Float32 beside exact arithmetic
Made by `python -m benchmarks.arithmetics --write`: pairs of bytes on which `float32_spec` stores the next
integer of `exact_even`'s; *page* is StableHLO's own example.

{table()}
"""


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
