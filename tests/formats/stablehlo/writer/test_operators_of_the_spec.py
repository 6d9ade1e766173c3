"""Every operator of StableHLO's specification: read, planned, written as a program that computes the same.

The programs are in `operators_of_the_spec.mlir`, one an operator, whose name is above it. What has an ONNX
name comes back as the operators that the exporter makes of it, the rest as it was. Left out: tuples, tokens,
and what exchanges data between machines, which models do not have.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import planner
from tests.oracles import hlo

PROGRAMS = Path(__file__).with_name("operators_of_the_spec.mlir")
NAMED = frozenset({  # that ONNX has by another name, or as several
    "cbrt", "clamp", "exponential_minus_one", "iota", "log_plus_one", "optimization_barrier",
    "round_nearest_afz", "rsqrt",
})  # fmt: skip


def programs():
    for text in PROGRAMS.read_text(encoding="utf-8").split("// -----\n"):
        head, _, body = text.partition("\n")
        yield head.removeprefix("// "), body


def drawn(kind):
    """Numbers of a tensor type: positive reals, or 0 and 1."""
    shape = tuple(int(size) for size in re.findall(r"(\d+)x", kind))
    rng = np.random.default_rng(len(kind))
    if "complex" in kind:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(np.complex64)
    if shape == (4, 4):  # that has a Cholesky factor
        return (np.eye(4) * 3 + 0.25).astype(np.float32)
    if "f32" in kind:
        return np.abs(rng.normal(size=shape)).astype(np.float32) + np.float32(0.1)
    if "i1" in kind:
        return rng.integers(0, 2, shape).astype(bool)
    dtype = np.uint64 if "ui64" in kind else np.int32
    return np.asarray(rng.integers(0, 2, shape), dtype)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Each program, its arguments, and what becomes of it in both forms, by operator."""
    found = {}
    path = tmp_path_factory.mktemp("programs") / "one.mlir"
    for name, text in programs():
        path.write_text(text, encoding="utf-8")
        graph = planner.load_model(path)
        plan = planner.plan(graph, "stablehlo")
        again = [planner.export(graph, plan, form).decode() for form in ("stablehlo", "stablehlo-int")]
        kinds = re.findall(r"%\w+: ([^,)]+)", text.partition("->")[0])
        found[name] = text, [drawn(kind) for kind in kinds], again
    return found


def test_operators_without_a_name_in_onnx_come_back(written):
    assert len(written) == 77
    for name, (_, _, again) in written.items():
        for text in again:
            assert (f'"stablehlo.{name}"' in text) == (name not in NAMED), name


def test_each_program_computes_what_it_did(written):
    jobs = [(one, arrays) for text, arrays, again in written.values() for one in (text, *again)]
    answers = iter(hlo.compiled(jobs))
    for name in written:
        own, *others = next(answers), next(answers), next(answers)
        for other in others:
            for a, b in zip(own, other, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), name
                np.testing.assert_allclose(b, a, rtol=1e-6, atol=1e-7, err_msg=name)
