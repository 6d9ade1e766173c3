"""Values pinned to types that no TOSA operator reads: a legal program brings them there, or they are refused.

The reference model takes zero points of 8 bits alone, and CLAMP of 16 bits at most.
"""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.tosa.writer.write import write_tosa
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import storage, uniform
from tests.formats.plans import model, op
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import tosa

KINDS = [
    *(("i8", zero, 0.03) for zero in (0, -128, 3)),
    *(("u8", zero, 0.03) for zero in (0, 128)),
    *(("i16", zero, 2e-4) for zero in (0, -32768, 3)),
    *(("u16", zero, 2e-4) for zero in (0, 32768, 700)),
    *(("i12", zero, 2e-3) for zero in (0, 5)),
    *(("u12", zero, 2e-3) for zero in (0, 2048)),
    *(("u4", zero, 0.5) for zero in (0, 3)),
    *(("i20", zero, 1e-5) for zero in (0, 77)),
    *(("u20", zero, 1e-5) for zero in (0, 1 << 19)),
    *(("i32", zero, 1e-7) for zero in (0, 5, -(1 << 31))),
    *(("u32", zero, 1e-7) for zero in (0, 1 << 31)),
]
INSIDE = {("i20", 77), ("u20", 1 << 19), ("i32", 5), ("i32", -(1 << 31)), ("u32", 0)}
"""Refused between kernels: zero points that are subtracted in 32 bits from integers of as many."""


def planned(place: str, name: str, zero: int, scale: float):
    rng = np.random.default_rng(7)
    graph = model(
        [op("Conv", "x w", "h"), op("Flatten", "h", "f"), op("Gemm", "f v", "y", transB=1)],
        inputs={"x": (1, 2, 4, 4)},
        outputs={"y": (1, 5)},
        constants={
            "w": rng.normal(size=(3, 2, 3, 3)).astype(np.float32) * 0.4,
            "v": rng.normal(size=(5, 12)).astype(np.float32) * 0.2,
        },
        facts={place: (uniform(storage(name), scale, zero),)},
        shapes={"h": (1, 3, 2, 2), "f": (1, 12)},
    )
    samples = [{"x": rng.normal(size=(1, 2, 4, 4)).astype(np.float32) * 2} for _ in range(4)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples))
    plan = planner.plan(ready, "tosa-int8")
    planner.check(plan, ready, "tosa-int8")
    return ready, plan, samples[0]


@pytest.mark.parametrize("place", ["x", "h", "f", "y"])
def test_every_pin_is_a_legal_program_or_refused(place, tmp_path):
    jobs, cases, refused = [], [], set()
    for name, zero, scale in KINDS:
        graph, plan, sample = planned(place, name, zero, scale)
        try:
            jobs.append((write_tosa(graph, plan), [fed(graph, plan, sample)]))
        except UnsupportedExport:
            refused.add((name, zero))
            continue
        cases.append((name, zero, graph, plan, sample))
    for (name, zero, graph, plan, sample), found in zip(cases, tosa.run(tmp_path, jobs), strict=True):
        assert not isinstance(found, str), (name, zero, found)
        for value, wanted, got in agreed(Interpreter(graph, plan).run(sample), plan, found[0]):
            np.testing.assert_array_equal(got, wanted, f"{value}, pinned to {name}:{zero}")
    if place in "hf":
        assert refused == INSIDE
    else:  # an interface has types of 16 bits at most, with zero points that TOSA has
        assert not refused & {(name, zero) for name, zero, _ in KINDS if name in {"i8", "u8", "u4"}}
