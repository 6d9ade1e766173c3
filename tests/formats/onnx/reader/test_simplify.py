"""Small rewrites of drafts: programs of chance compute the same after them, and lose their transposes."""

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from planner.formats.onnx.drafts.draft import Draft
from planner.formats.onnx.drafts.simplify import tidy
from planner.formats.onnx.dtypes import dtype_of
from planner.ir.graph import Op, Value
from planner.ir.types.qtypes import Uniform, storage, uniform

PERMS = ((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (3, 1, 0, 2))
UNARY = {"Relu": lambda x: np.maximum(x, 0), "Neg": np.negative, "Abs": np.abs, "Tanh": np.tanh}
BINARY = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Max": np.maximum}


@dataclass
class State:
    """What an importer has read so far."""

    values: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    ops: list = field(default_factory=list)
    stated: dict = field(default_factory=dict)

    def fresh(self, base):
        """Make a name that no value has yet."""
        return f"{base}#{len(self.values)}"


class Program:
    """A draft, and the numbers of every value by numpy."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.draft = Draft(State())
        self.numbers: dict[str, np.ndarray] = {}
        self.input = self.named("x", self.real(1, 3, 4, 5))
        self.inputs = [self.input]

    def real(self, *shape):
        """Numbers of chance."""
        return self.rng.normal(size=shape).astype(np.float32)

    def named(self, name, array):
        """A value of these numbers."""
        self.numbers[name] = array
        self.draft.read.values[name] = Value(name, array.shape, dtype_of(array))
        return name

    def constant(self, array):
        """A constant; its name."""
        name = self.draft.constant(np.asarray(array))
        self.numbers[name] = np.asarray(array)
        return name

    def op(self, kind, inputs, array, **attributes):
        """An op of one result; its name."""
        name = self.named(f"v{len(self.draft.read.values)}", np.asarray(array))
        self.draft.read.ops.append(Op(name, kind, tuple(inputs), (name,), attributes))
        return name

    def turned(self, x, perm):
        """The value behind a transpose."""
        return self.op("Transpose", [x], self.numbers[x].transpose(perm), perm=tuple(perm))

    def step(self, kind, x):
        """One op of a kind behind a value."""
        array, rng = self.numbers[x], self.rng
        axis = int(rng.integers(array.ndim))
        spelled = axis - array.ndim * int(rng.integers(2))
        match kind:
            case "unary":
                name = str(rng.choice([*UNARY]))
                return self.op(name, [x], UNARY[name](array))
            case "constant" | "scalar" | "short":
                name = str(rng.choice([*BINARY]))
                shape = {"constant": array.shape, "scalar": (), "short": array.shape[-1:]}[kind]
                other = self.constant(self.real(*shape))
                pair = [x, other] if rng.integers(2) else [other, x]
                return self.op(name, pair, BINARY[name](*(self.numbers[one] for one in pair)))
            case "softmax":
                return self.op("Softmax", [x], _softmax(array, axis), axis=spelled)
            case "pad":
                pads = rng.integers(0, 3, (2, array.ndim))
                value = self.constant(np.float32(rng.normal()))
                padded = np.pad(array, [*zip(*pads, strict=True)], constant_values=self.numbers[value])
                return self.op("Pad", [x, self.constant(pads.reshape(-1)), value], padded, mode="constant")
            case "slice":
                first = min(1, array.shape[axis] - 1)  # a slice has elements
                ends = [self.constant([first]), self.constant([array.shape[axis]]), self.constant([spelled])]
                return self.op("Slice", [x, *ends], np.take(array, range(first, array.shape[axis]), axis))
            case "concat":
                other = self.constant(self.real(*array.shape))
                pair = [x, other] if rng.integers(2) else [other, x]
                joined = np.concatenate([self.numbers[one] for one in pair], axis)
                return self.op("Concat", pair, joined, axis=spelled)
            case "kept" | "reduced":
                keep, name = kind == "kept", str(rng.choice(["ReduceMean", "ReduceMax", "ReduceSum"]))
                compute = {"ReduceMean": np.mean, "ReduceMax": np.max, "ReduceSum": np.sum}[name]
                some = sorted(
                    int(one) for one in rng.choice(array.ndim, 2 if array.ndim > 2 else 1, replace=False)
                )
                found = compute(array, tuple(some), keepdims=keep).astype(np.float32)
                return self.op(name, [x, self.constant(some)], found, keepdims=int(keep))
            case "transpose":
                perm = [int(one) for one in rng.permutation(array.ndim)]
                return self.turned(x, perm)
            case "flat":
                return self.op("Reshape", [x, self.constant([-1])], array.reshape(-1))
            case _:
                shape = array.shape[::-1]
                return self.op("Reshape", [x, self.constant(shape)], array.reshape(shape))

    def run(self, outputs):
        """The outputs that the draft's ops compute, by onnx."""
        read = self.draft.read
        held = [numpy_helper.from_array(one.array, name) for name, one in read.constants.items()]
        described = [
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in names]
            for names, shape in ((self.inputs, None), (outputs, None))
        ]
        nodes = [helper.make_node(op.type, op.inputs, op.outputs, **op.attributes) for op in read.ops]
        graph = helper.make_graph(nodes, "g", *described, held)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return ReferenceEvaluator(made).run(None, {name: self.numbers[name] for name in self.inputs})

    def tidied(self, outputs, **how):
        """The kinds of ops after the rewrites, whose outputs and shapes have to be as before."""
        tidy(self.draft, outputs, **how)
        for name, found in zip(outputs, self.run(outputs), strict=True):
            np.testing.assert_allclose(found, self.numbers[name], rtol=1e-5, atol=1e-5)
            assert found.shape == self.numbers[name].shape
        return [op.type for op in self.draft.read.ops]


def _softmax(array, axis):
    power = np.exp(array - array.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


ORDERED = ["unary", "constant", "scalar", "short", "softmax", "pad", "slice", "concat", "kept"]


@pytest.mark.parametrize("seed", range(120))
def test_programs_compute_the_same(seed):
    program = Program(seed)
    names = [program.turned(program.input, PERMS[seed % 4])]
    for _ in range(6):
        kinds = (
            [*ORDERED, "transpose", "reduced", "reshape"]
            if program.numbers[names[-1]].ndim > 1
            else ["unary"]
        )
        names.append(program.step(str(program.rng.choice(kinds)), names[-1]))
    # A value in the middle that something else reads keeps its numbers too.
    program.tidied([names[-1], str(program.rng.choice(names))])


@pytest.mark.parametrize("perm", PERMS)
@pytest.mark.parametrize("kind", ORDERED)
def test_a_program_with_its_channels_last_is_one_with_them_first(kind, perm):
    for seed in range(4):
        program = Program(seed)
        behind = program.step(kind, program.turned(program.input, perm))
        last = program.turned(behind, [int(axis) for axis in np.argsort(perm)])
        out = program.op("Relu", [last], np.maximum(program.numbers[last], 0))
        assert "Transpose" not in program.tidied([out]), kind


@pytest.mark.parametrize("perm", PERMS)
def test_two_operands_that_are_turned_alike_are_turned_once_behind(perm):
    for name, compute in BINARY.items():
        program = Program(1)
        other = program.named("z", program.real(1, 3, 4, 5))
        program.inputs.append(other)
        left, right = program.turned(program.input, perm), program.turned(other, perm)
        out = program.op(name, [left, right], compute(program.numbers[left], program.numbers[right]))
        assert program.tidied([out]) == [name, "Transpose"]
        joined = np.concatenate([program.numbers[left], program.numbers[right]], 2)
    program = Program(1)
    other = program.named("z", program.real(1, 3, 4, 5))
    program.inputs.append(other)
    left, right = program.turned(program.input, perm), program.turned(other, perm)
    out = program.op("Concat", [left, right], joined, axis=2)
    assert program.tidied([out]) == ["Concat", "Transpose"]


def test_operands_that_are_turned_in_different_ways_stay():
    program = Program(2)
    program.numbers["x"] = program.real(2, 2, 2, 2)
    program.draft.read.values["x"] = Value("x", (2, 2, 2, 2), "f32")
    left, right = program.turned("x", PERMS[0]), program.turned("x", PERMS[1])
    for name in ("Add", "Concat"):
        pair = program.numbers[left], program.numbers[right]
        array = np.add(*pair) if name == "Add" else np.concatenate(pair, 1)
        out = program.op(name, [left, right], array, **({} if name == "Add" else {"axis": 1}))
        assert program.tidied([out]).count("Transpose") == 2
        program.draft.read.ops = [op for op in program.draft.read.ops if op.type == "Transpose"]


@pytest.mark.parametrize("outer", [False, True])
def test_transposes_that_undo_each_other_leave_nothing_or_an_identity(outer):
    program = Program(3)
    back = program.turned(program.turned(program.input, (0, 2, 3, 1)), (0, 3, 1, 2))
    out = back if outer else program.step("unary", back)
    assert program.tidied([out]) == (["Identity"] if outer else [program.draft.read.ops[-1].type])


def test_transposes_in_a_row_are_one():
    program = Program(4)
    out = program.turned(program.turned(program.input, (0, 2, 3, 1)), (0, 2, 3, 1))
    assert program.tidied([out]) == ["Transpose"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("pools", [False, True])
def test_the_mean_of_all_pixels_is_a_pool_where_that_is_asked(seed, pools):
    for axes, channels_last in (([2, 3], False), ([1, 2], True), ([1, 3], True), ([1, 2], False)):
        program = Program(seed)
        x = program.turned(program.input, (0, 2, 3, 1)) if channels_last else program.input
        mean = program.numbers[x].mean(tuple(axes))
        out = program.op("ReduceMean", [x, program.constant(axes)], mean, keepdims=0)
        kinds = program.tidied([out], pools=pools)
        is_all = (axes, channels_last) in (([2, 3], False), ([1, 2], True))
        if is_all:
            assert kinds == (["GlobalAveragePool", "Reshape"] if pools else ["ReduceMean"])
        else:
            assert "GlobalAveragePool" not in kinds


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    ("shape", "is_bias"),
    [((6, 1, 1), True), ((1, 6, 1, 1), True), ((1, 1, 1), False), ((6, 1, 4), False), ((4,), False)],
)
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_added_to_channels_is_the_bias_of_their_convolution(kind, shape, is_bias, turned):
    program = Program(5)
    w = program.constant(program.real(6, 3, 1, 1) if kind == "Conv" else program.real(3, 6, 1, 1))
    matrix = program.numbers[w][:, :, 0, 0]
    made = np.einsum("oc,bchw->bohw" if kind == "Conv" else "co,bchw->bohw", matrix, program.numbers["x"])
    # One column less, so that a row of numbers is as long as none of the other axes.
    c = program.op(kind, ["x", w], made, kernel_shape=(1, 1))
    c = (
        program.op("Slice", [c, *(program.constant([n]) for n in (0, 4, 3))], made[..., :4])
        if shape[-1:] == (4,)
        else c
    )
    added = program.constant(program.real(*shape))
    pair = [added, c] if turned else [c, added]
    out = (
        program.op("Add", pair, program.numbers[c] + program.numbers[added])
        if _fits(program, c, added)
        else c
    )
    kinds = program.tidied([out])
    assert (kinds == [kind]) == is_bias or out == c


def _fits(program, a, b):
    try:
        np.broadcast_shapes(program.numbers[a].shape, program.numbers[b].shape)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("change", ["", "other axis", "other operand", "reshaped"])
def test_a_softmax_spelled_out_is_one(axis, change):
    program = Program(6)
    array = program.numbers["x"]

    def reduced(kind, compute, x, along):
        kept = compute(program.numbers[x], along, keepdims=True)
        if change != "reshaped":
            return program.op(kind, [x, program.constant([along])], kept, keepdims=1)
        flat = program.op(
            kind, [x, program.constant([along])], compute(program.numbers[x], along), keepdims=0
        )
        return program.op("Reshape", [flat, program.constant(kept.shape)], kept)

    of = program.step("unary", "x") if change == "other operand" else "x"
    top = reduced("ReduceMax", np.max, of, axis)
    less = program.op("Sub", ["x", top], array - program.numbers[top])
    power = program.op("Exp", [less], np.exp(program.numbers[less]))
    total = reduced("ReduceSum", np.sum, power, (axis + 1) % 4 if change == "other axis" else axis)
    out = program.op("Div", [power, total], program.numbers[power] / program.numbers[total])
    kinds = program.tidied([out])
    assert (kinds == ["Softmax"]) == (change in ("", "reshaped"))
    assert "Softmax" not in kinds or program.draft.read.ops[0].attributes == {"axis": axis}


def test_reshapes_in_a_row_are_one_and_axes_of_size_1_are_not_moved():
    program = Program(7)
    out = program.step("flat", program.step("reshape", program.input))
    assert program.tidied([out]) == ["Reshape"]
    program = Program(7)
    program.input = program.named("x", program.real(1, 3, 1, 5))
    out = program.step("flat", program.turned("x", (0, 2, 1, 3)))
    assert program.tidied([out]) == ["Reshape"]
    program = Program(7)
    out = program.step("flat", program.turned("x", (0, 2, 3, 1)))
    assert program.tidied([out]) == ["Transpose", "Reshape"]


def test_types_follow_the_axes_that_move_and_hold_those_that_cannot():
    per_axis = Uniform(storage("i8"), (0.5,) * 5, (0,) * 5, "f32", 2)
    for kind, goes in ((uniform(storage("i8"), 0.5), True), (per_axis, False)):
        program = Program(8)
        x = program.turned("x", (0, 2, 3, 1))
        out = program.op("Relu", [x], np.maximum(program.numbers[x], 0))
        program.draft.read.stated[out] = (kind,)
        assert program.tidied([out]) == (["Relu", "Transpose"] if goes else ["Transpose", "Relu"])
        assert (kind,) == program.draft.read.stated[out]
        inner = program.draft.read.ops[0].outputs[0]
        assert program.draft.read.stated.get(inner, ()) == ((kind,) if goes else ())
    program = Program(8)
    x = program.turned("x", (0, 2, 3, 1))
    other = program.constant(program.real(1, 4, 5, 3))
    program.draft.read.stated[other] = (per_axis,)
    out = program.op("Add", [x, other], program.numbers[x] + program.numbers[other])
    assert program.tidied([out]) == ["Add", "Transpose"]
    moved = program.draft.read.ops[0].inputs[1]
    assert program.draft.read.stated[moved][0].axis == 3  # of 5 numbers, behind the channels now


def test_ops_that_nothing_reads_go_and_opaque_ones_stay():
    program = Program(9)
    program.step("unary", "x")
    out = program.step("unary", "x")
    program.draft.read.ops.append(Op("o", "custom::Side", (out,), ("side",)))
    program.named("side", np.zeros(1, np.float32))
    tidy(program.draft, [out])
    assert [op.outputs[0] for op in program.draft.read.ops] == [out, "side"]
