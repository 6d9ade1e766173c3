"""Lowered casts compute what they should: interpreted, and compiled by LLVM through torch-mlir."""

import numpy as np
import pytest

from planner.formats.mlir.parse import parse_text
from planner.formats.mlir.passes.tool import run_parts, transform
from planner.formats.mlir.types import uniform_of
from tests.formats.mlir.evaluate import FLOATS, run
from tests.oracles.mlir import ask

COUNT = 100_000

# (type, shape of the carrier or None for a scalar)
CASTS = [
    ("!quant.uniform<i8:f32, 0.1>", "100x1000x"),
    ("!quant.uniform<i8:f32, 0.1:-7>", None),
    ("!quant.uniform<i8<-127:127>:f32, 0.37:5>", "?x1000x"),
    ("!quant.uniform<u8:f32, 0.1:131>", "*x"),
    ("!quant.uniform<u8<1:254>:f32, 0.5:77>", "100000x"),
    ("!quant.uniform<i4:f32, 3.0>", "100x1000x"),
    ("!quant.uniform<u4:f32, 3.0:9>", None),
    ("!quant.uniform<i2:f32, 30.0>", "100x1000x"),
    ("!quant.uniform<u1:f32, 30.0>", "100x1000x"),
    ("!quant.uniform<i16:f32, 0.001:3>", "100x1000x"),
    ("!quant.uniform<u16:f32, 0.001:40000>", None),
    ("!quant.uniform<i32:f32, 1.0e-7>", "100x1000x"),
    ("!quant.uniform<u32:f32, 1.0e-7:2147483648>", "100x1000x"),
    ("!quant.uniform<i8:f64, 0.1:3>", "100x1000x"),
    ("!quant.uniform<i32:f64, 1.0e-7>", "100x1000x"),
    ("!quant.uniform<i8:f16, 0.1:3>", "100x1000x"),
    ("!quant.uniform<u16:f16, 0.01:9>", None),
    ("!quant.uniform<i8:bf16, 0.1:3>", "100x1000x"),
    ("!quant.uniform<i8:f32:0, {0.1, 0.2:3, 0.3:-9, 1.0}>", "4x25000x"),
    ("!quant.uniform<u8:f32:1, {0.1:200, 0.2:3, 0.3:9, 1.0}>", "?x4x25x"),
    ("!quant.uniform<u8:f32:1, {0.1:200, 0.2:3, 0.3:9, 1.0}>", "*x"),
    ("!quant.uniform<i8:f32:{0:1, 1:2}, {{0.1, 0.2:3}, {0.3:-9, 1.0}}>", "2x4x"),
    ("!quant.uniform<u4:f16:{2:1}, {{{0.1, 0.2:3, 0.7:7}}}>", "?x2x3x"),
    ("!quant.uniform<i8:f32:{}, {{0.1:4}}>", "100x1000x"),
]
IDS = [f"{kind.removeprefix('!quant.uniform')} {shape}" for kind, shape in CASTS]
COMPILED = [(k, s) for k, s in CASTS if s and "?" not in s and "*" not in s and (":f32" in k or ":f64" in k)]


def carriers(kind, shape):
    """Types of the reals and of the quantized values, and the parameters as written."""
    module, _ = parse_text(f'"t.op"() : () -> {kind}')
    uniform = uniform_of(next(iter(module.body.ops)).results[0].type)
    if shape is None:
        return uniform.expressed, kind, uniform
    return f"tensor<{shape}{uniform.expressed}>", f"tensor<{shape}{kind}>", uniform


def lowered(cast, taken, given, *, truncating=False):
    source = f"""func.func @run(%x: {taken}) -> {given} {{
      %0 = quant.{cast} %x : {taken} to {given}
      return %0 : {given}
    }}"""
    return transform(source, ["lower-quant-ops"], truncating=truncating)[0]


def sizes(shape):
    known = [int(size) for size in (shape or "*x").rstrip("x").split("x") if size not in "*?"]
    if shape is None:
        return (COUNT,)
    if "*" in shape:
        return (50, 4, 500)
    count = max(1, int(np.prod(known)))
    return tuple(COUNT // count if size == "?" else int(size) for size in shape.rstrip("x").split("x"))


def parameters(uniform, shape):
    """Scales and zero points, spread over an array's shape."""
    scales = np.array(uniform.scales).astype(FLOATS[uniform.expressed])
    zeros = np.array(uniform.zero_points)
    if uniform.axis is not None:
        around = [-1 if axis == uniform.axis else 1 for axis in range(len(shape))]
        return scales.reshape(around), zeros.reshape(around)
    tables = [table.reshape(uniform.grid or (1,) * len(shape)) for table in (scales, zeros)]
    for axis, count in enumerate(uniform.grid):
        tables = [np.repeat(table, shape[axis] // count, axis) for table in tables]
    return tables


def reals(uniform, shape):
    """Awkward and random reals: ties, ends of the range and beyond, 1000.0, infinities, NaN."""
    store, kind = uniform.storage, FLOATS[uniform.expressed]
    random = np.random.default_rng(7)
    count = int(np.prod(shape))
    scales, zeros = (np.broadcast_to(table, shape).reshape(-1) for table in parameters(uniform, shape))
    steps = random.uniform(store.qmin - 20, store.qmax + 20, count)
    steps[::3] = np.floor(steps[::3]) + 0.5
    with np.errstate(all="ignore"):
        values = ((steps - zeros) * scales.astype(np.float64)).astype(kind)
        special = np.array([1000.0, -1000.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30]).astype(kind)
    values[: min(count, 9)] = special[: min(count, 9)]
    return values.reshape(shape)


def quantized(values, uniform):
    """The formula in numpy: `rint(clip(x / scale + zero_point))` in the expressed type."""
    scales, zeros = parameters(uniform, values.shape)
    with np.errstate(all="ignore"):
        steps = (values / scales).astype(values.dtype)
        steps = np.where(zeros == 0, steps, (steps + zeros.astype(values.dtype)).astype(values.dtype))
    clipped = np.clip(steps.astype(np.float64), uniform.storage.qmin, uniform.storage.qmax)
    stored = np.rint(np.where(np.isnan(clipped), uniform.storage.qmin, clipped)).astype(np.int64)
    return as_signless(stored, uniform)


def as_signless(stored, uniform):
    bits = uniform.storage.bits
    return np.where(stored >= 1 << bits - 1, stored - (1 << bits), stored)


@pytest.mark.parametrize(("kind", "shape"), CASTS, ids=IDS)
def test_quantizing_rounds_half_to_even_and_saturates(kind, shape):
    taken, given, uniform = carriers(kind, shape)
    values = reals(uniform, sizes(shape))
    found = run(lowered("qcast", taken, given), values)
    np.testing.assert_array_equal(found, quantized(values, uniform))


@pytest.mark.parametrize(("kind", "shape"), CASTS, ids=IDS)
def test_dequantizing_takes_the_zero_point_off_and_scales(kind, shape):
    taken, given, uniform = carriers(kind, shape)
    random = np.random.default_rng(8)
    stored = random.integers(uniform.storage.qmin, uniform.storage.qmax, sizes(shape), endpoint=True)
    scales, zeros = parameters(uniform, stored.shape)
    real = FLOATS[uniform.expressed]
    with np.errstate(all="ignore"):
        expected = ((stored.astype(real) - zeros.astype(real)).astype(real) * scales).astype(real)
    found = run(lowered("dcast", given, taken), as_signless(stored, uniform))
    np.testing.assert_array_equal(found, expected)


def test_a_thousand_into_eight_bits_is_the_greatest():
    taken, given, _ = carriers("!quant.uniform<i8:f32, 1.0>", None)
    values = np.array([1000.0, -1000.0, 0.5, 1.5, 2.5, -0.5, np.nan], np.float32)
    assert run(lowered("qcast", taken, given), values).tolist() == [127, -128, 0, 2, 2, 0, -128]


def test_truncating_goes_towards_zero():
    taken, given, _ = carriers("!quant.uniform<i8<-5:5>:f32, 1.0>", None)
    values = np.array([0.9, -0.9, 2.5, 100.0, -100.0], np.float32)
    assert run(lowered("qcast", taken, given, truncating=True), values).tolist() == [0, 0, 2, 5, -5]


def test_compiled_by_llvm_it_is_the_same():
    jobs, expected = [], []
    for kind, shape in COMPILED:
        taken, given, uniform = carriers(kind, shape)
        values = reals(uniform, sizes(shape))
        width = next(bits for bits in (8, 16, 32, 64) if uniform.storage.bits <= bits)
        jobs.append(
            {
                "compile": lowered("qcast", taken, given),
                "input": [values.dtype.name, values.shape, values.tobytes().hex()],
                "output": [f"int{width}", values.shape],
            }
        )
        # Bits beyond the storage's width mean nothing in memory.
        mask = (1 << uniform.storage.bits) - 1
        expected.append((quantized(values, uniform) & mask, width, mask))
    for job, answer, (stored, width, mask) in zip(jobs, ask(jobs), expected, strict=True):
        found = np.frombuffer(bytes.fromhex(answer["output"]), f"int{width}").reshape(stored.shape)
        np.testing.assert_array_equal(found.astype(np.int64) & mask, stored, err_msg=job["compile"])


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "!quant.uniform<f8E4M3FN:f32, 0.5>",
            "stores floats; only integer storages are lowered",
        ),
        (
            "!quant.uniform<i8:f80, 0.5>",
            "expresses f80; lowered are bf16, f16, f32, f64, tf32",
        ),
    ],
)
def test_what_cannot_be_lowered_says_so(kind, message):
    real = kind.split(":")[1].split(",")[0]
    (part,) = run_parts(
        f"func.func @run(%x: {real}) {{ %0 = quant.qcast %x : {real} to {kind} return }}", ["lower-quant-ops"]
    )
    assert part.error == f"1:27: lower-quant-ops: {kind} {message}"


@pytest.mark.parametrize("op", ["add", "maximum", "divide"])
@pytest.mark.parametrize("narrow", [0, 1, 2])
def test_a_result_of_fewer_numbers_than_its_bytes_is_clamped_behind_its_rescale(op, narrow):
    """An operand of fewer is as it is; the last of the three types is the result's."""
    stores = ["i8<-100:90>" if i == narrow else "i8" for i in range(3)]
    kinds = [f"tensor<4x!quant.uniform<{store}:f32, 0.5>>" for store in stores]
    source = f"""func.func @run(%x: {kinds[0]}, %y: {kinds[1]}) -> {kinds[2]} {{
      %0 = "stablehlo.{op}"(%x, %y) : ({kinds[0]}, {kinds[1]}) -> {kinds[2]}
      return %0 : {kinds[2]}
    }}"""
    text, *_ = transform(source, ["stablehlo-quant-legalize-to-tosa-rescale"])
    assert "tosa.rescale" in text
    assert ("stablehlo.clamp" in text, "dense<-100>" in text, "dense<90>" in text) == (narrow == 2,) * 3
