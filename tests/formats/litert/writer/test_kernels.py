"""What docs/litert.md says of the runtime's kernels where they round otherwise than a row: its formulas."""

import math

import numpy as np
import pytest

from planner.formats.litert.vocabulary import COMPARISONS as VOCABULARY
from planner.formats.litert.writer.flatbuffer import file_bytes
from planner.formats.litert.writer.operations import Program, Tensor
from planner.interpreter.calls import Call, Operand
from planner.interpreter.fixed_point import ratios, scaled_sum
from planner.interpreter.kernels.litert import COMPARISONS, LITERT, LITERT_KERNELS
from planner.ir.arithmetic.rescaling import apply_scale_32, multiplier_or_zero
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform, storage, uniform
from tests.formats.litert.writer.running import told
from tests.oracles import litert

POOL = {"Padding": 1, "StrideH": 8, "StrideW": 8, "FilterHeight": 8, "FilterWidth": 8}


def one(operator, x, kinds, shape, options, axes=()):  # noqa: PLR0917
    """A file of one operator on stored integers."""
    program = Program()
    given = program.argument("x", x.shape, x.dtype.name.replace("int", "i"), kinds[0])
    more = [program.numbers(axes)] if axes else []
    like = Tensor(-1, shape, given.element, given.order, kinds[1])
    result = program.emit(operator, [given, *more], like, "y", options)
    program.result("y", result)
    return file_bytes(program, name="one", description="")


def drawn(bits, shape, share):
    limit = (1 << (bits - 1)) // share
    return np.random.default_rng(bits).integers(-limit, limit, shape).astype(f"int{bits}")


@pytest.mark.parametrize("kernels", ["reference", "optimized"])
@pytest.mark.parametrize(("bits", "zero_point"), [(8, -128), (8, 0), (8, 3), (16, 0)])
def test_average_pool_divides_stored_integers(bits, zero_point, kernels, tmp_path):
    x, kind = drawn(bits, (16, 8, 8, 64), 3), uniform(storage(f"i{bits}"), 0.05, zero_point)
    data = one("AVERAGE_POOL_2D", x, (kind, kind), (16, 1, 1, 64), ("Pool2DOptions", POOL))
    assert told(data).counts == {"AVERAGE_POOL_2D": 1}
    got = litert.run(tmp_path, [(data, [{"x": x}])], kernels=kernels)[0][0]["y"]

    def away(sums):
        return np.sign(sums) * ((np.abs(sums) + 32) // 64)

    sums = x.astype(np.int64).sum((1, 2), keepdims=True)
    np.testing.assert_array_equal(got, away(sums))
    # Without the zero point, as TOSA's operator has it, ties between the two signs fall the other way.
    others = np.count_nonzero(got != away(sums - 64 * zero_point) + zero_point)
    assert (others > 0) == (zero_point != 0)


@pytest.mark.parametrize(
    ("bits", "x", "y", "size"),
    [
        (8, (0.05, -128), (0.01, -128), 7),
        (8, (0.05, 3), (0.02, -7), 7),
        (8, (0.03, 3), (0.03, 3), 8),
        (8, (0.05, 3), (0.013, 5), 3),
        (16, (0.05, 0), (0.02, 0), 7),
        (16, (0.03, 0), (0.03, 0), 8),
    ],
)
def test_mean_has_the_count_in_its_multiplier(bits, x, y, size, tmp_path):
    """The reference kernel: a multiplier of 31 bits times a power of two below the count, over the count."""
    kinds = [uniform(storage(f"i{bits}"), scale, zero) for scale, zero in (x, y)]
    array, count = drawn(bits, (4, size, size, 256), 1), size * size
    data = one("MEAN", array, kinds, (4, 1, 1, 256), ("ReducerOptions", {"KeepDims": True}), (1, 2))
    got = litert.run(tmp_path, [(data, [{"x": array}])])[0][0]["y"]
    sums = array.astype(np.int64).sum((1, 2), keepdims=True) - count * kinds[0].zero_point
    multiplier, shift = multiplier_or_zero(kinds[0].scale / kinds[1].scale)
    left = min(int(math.log2(count)), 32, 62 - int(shift))
    cut = np.asarray((int(multiplier) << left) // count)
    ends = np.iinfo(array.dtype)

    def stored(steps):
        return np.clip(steps + kinds[1].zero_point, ends.min, ends.max)

    np.testing.assert_array_equal(got, stored(apply_scale_32(sums, cut, shift + left, double_round=True)))
    # The row's arithmetic has the exact ratio over the count, which is another number where 49 divides.
    ratio = ratios((kinds[0].scale,), 1.0, kinds[1].scale) / count
    off = np.abs(got - stored(scaled_sum([(sums, ratio)], "tosa_double")))
    assert off.max() <= 1
    assert size == 7 or not off.any()


@pytest.mark.parametrize("kernels", ["reference", "optimized"])
@pytest.mark.parametrize("kind", sorted(COMPARISONS))
def test_comparisons_are_of_multiples_of_256ths(kind, kernels, tmp_path):
    """Of every magnitude of two scales below 1, in every pair of bytes."""
    rng, jobs, wanted = np.random.default_rng(0), [], []
    a, b = np.arange(-128, 128, dtype=np.int8)[:, None], np.arange(-128, 128, dtype=np.int8)[None]
    for power in range(-6, 1):
        near = float(np.float32(10.0**power * rng.uniform(0.1, 0.999)))
        other = near if power % 2 else float(np.float32(near * rng.uniform(0.01, 1)))
        types = uniform(storage("i8"), near, int(rng.integers(-128, 128))), uniform(storage("i8"), other, -7)
        program = Program()
        pair = [
            program.argument(name, array.shape, "i8", type_)
            for name, array, type_ in zip("ab", (a, b), types, strict=True)
        ]
        result = program.emit(VOCABULARY[kind].operator, pair, Tensor(-1, (256, 256), "bool", (0, 1)), "y")
        program.result("y", result)
        jobs.append((file_bytes(program, name="one", description=""), [{"a": a, "b": b}]))
        operands = {("y", 0): Operand(a, types[0]), ("y", 1): Operand(b, types[1])}
        call = Call((Op("y", kind, ("a", "b"), ("y",)),), operands, None, LITERT, lambda _: a)
        wanted.append(LITERT_KERNELS[kind,](call))
    for answer, own in zip(litert.run(tmp_path, jobs, kernels=kernels), wanted, strict=True):
        np.testing.assert_array_equal(answer[0]["y"], own)


@pytest.mark.parametrize("bits", [8, 16])
def test_fully_connected_has_a_multiplier_per_channel(bits, tmp_path):
    """Weights with a scale per output channel, rounded once as `tosa_single` rounds: 40,960 integers."""
    rng, x = np.random.default_rng(bits), drawn(bits, (4096, 24), 1)
    given, made = (0.05, 3 if bits == 8 else 0), (0.3 if bits == 8 else 60.0, 0)
    kinds = [uniform(storage(f"i{bits}"), scale, zero) for scale, zero in (given, made)]
    scales = tuple(map(float, rng.uniform(0.001, 0.02, 10).astype(np.float32)))
    weights, bias = rng.integers(-127, 128, (10, 24)).astype(np.int8), rng.integers(-3000, 3000, 10)
    stores = storage("i8", -127, 127), storage("i32")
    slices = [Uniform(store, scales, (0,) * 10, axis=0) for store in stores]
    program = Program()
    operands = [
        program.argument("x", x.shape, f"i{bits}", kinds[0]),
        program.constant(weights, "i8", "w", kind=slices[0]),
        program.constant(bias, "i32" if bits == 8 else "i64", "b", kind=slices[1]),
    ]
    like = Tensor(-1, (4096, 10), f"i{bits}", (0, 1), kinds[1])
    program.result("y", program.emit("FULLY_CONNECTED", operands, like, "y", ("FullyConnectedOptions", {})))
    data = file_bytes(program, name="one", description="")
    assert (told(data).operators, told(data).runtime) == ((("FULLY_CONNECTED", 12),), "2.17.0")
    got = litert.run(tmp_path, [(data, [{"x": x}])])[0][0]["y"]
    sums = (x.astype(np.int64) - kinds[0].zero_point) @ weights.T.astype(np.int64) + bias
    columns = [
        scaled_sum([(sums[:, i], ratios((scale,), kinds[0].scale, kinds[1].scale))], "tosa_single")
        for i, scale in enumerate(scales)
    ]
    ends = np.iinfo(x.dtype)
    np.testing.assert_array_equal(got, np.clip(np.stack(columns, 1), ends.min, ends.max))
    assert np.count_nonzero((got > ends.min) & (got < ends.max)) > 10000
