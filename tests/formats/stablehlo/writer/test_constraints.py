"""Constraints of the specification on quantized operands: checked by us, cited by number."""

import numpy as np
import pytest

from planner.errors import UnsupportedExport
from planner.formats.mlir.generic import Function, module_text
from planner.formats.stablehlo.writer import operations as ops
from planner.formats.stablehlo.writer.constraints import _short
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.tensors import Tensor, quantized
from planner.ir.types.qtypes import storage, uniform
from tests.oracles import hlo

I8 = uniform(storage("i8"), 0.1, 3)
OTHER = uniform(storage("i8"), 0.2, -5)
ZERO = uniform(storage("i8"), 0.3)
I16 = uniform(storage("i16"), 0.1)
I32 = uniform(storage("i32"), 0.03)
AXIS0 = uniform(storage("i8"), [0.1, 0.2], 0, axis=0)
AXIS1 = uniform(storage("i8"), [0.1, 0.2], 0, axis=1)
I32_AXIS0 = uniform(storage("i32"), [0.1, 0.2], 0, axis=0)
I32_AXIS1 = uniform(storage("i32"), [0.1, 0.2], 0, axis=1)
DOTS = ops.Dots((), (), (1,), (0,))


def _tensor(name, kind, shape=(2, 2)):
    held = quantized(shape, kind)
    return Tensor(name, held.shape, held.element, kind)


def _float(name, shape=(2, 2)):
    return Tensor(name, shape, "f32")


def _conv(p, x, w, result):
    geometry = ops.Geometry((1,), ((0, 0),), (1,), (1,))
    return ops.convolution(p, x, w, geometry, result)


A, B = _tensor("a", I8), _tensor("b", OTHER)
C3 = (2, 2, 1)
# What is made of which operands, and the constraint it breaks; "" where it breaks none.
CASES = {
    "add": ((A, B), lambda p: ops.binary(p, "add", A, B, I8), ""),
    "add of floats and integers": (
        (A, _float("b")),
        lambda p: ops.binary(p, "add", A, _float("b"), I8),
        "add, C2",
    ),
    "add of two widths": (
        (A, _tensor("b", I16)),
        lambda p: ops.binary(p, "add", A, _tensor("b", I16), I8),
        "add, C3",
    ),
    "add to a type per axis": ((A, B), lambda p: ops.binary(p, "add", A, B, AXIS0), "add, C5"),
    "add across axes": (
        (_tensor("a", AXIS0), B),
        lambda p: ops.binary(p, "add", _tensor("a", AXIS0), B, AXIS1),
        "add, C6",
    ),
    "multiply": (
        (A, _tensor("b", I16)),
        lambda p: ops.binary(p, "multiply", A, _tensor("b", I16), I8),
        "multiply, C1",
    ),
    "concatenate": ((A, B), lambda p: ops.concatenate(p, [A, B], 0), "concatenate, C1"),
    "concatenate of one type": ((A,), lambda p: ops.concatenate(p, [A, A], 0), ""),
    "pad": (
        (A,),
        lambda p: ops.pad(p, A, p.stored_constant(np.asarray(0), OTHER), (1, 0), (0, 0)),
        "pad, C1",
    ),
    "dot": ((A, _tensor("b", ZERO)), lambda p: ops.dot_general(p, A, _tensor("b", ZERO), DOTS, I32), ""),
    "dot with a zero point": ((A, B), lambda p: ops.dot_general(p, A, B, DOTS, I32), "dot_general, C15"),
    "dot of two widths": (
        (A, _tensor("b", I16)),
        lambda p: ops.dot_general(p, A, _tensor("b", I16), DOTS, I32),
        "dot_general, C17",
    ),
    "dot along the quantized axis": (
        (A, _tensor("b", AXIS0)),
        lambda p: ops.dot_general(p, A, _tensor("b", AXIS0), DOTS, I32),
        "dot_general, C16",
    ),
    "dot to an axis out of nowhere": (
        (A, _tensor("b", ZERO)),
        lambda p: ops.dot_general(p, A, _tensor("b", ZERO), DOTS, I32_AXIS1),
        "dot_general, C19",
    ),
    "dot of floats to integers": (
        (_float("a"), _tensor("b", ZERO)),
        lambda p: ops.dot_general(p, _float("a"), _tensor("b", ZERO), DOTS, I32),
        "dot_general, C14",
    ),
    "hybrid dot": (
        (_float("a"), _tensor("b", AXIS1)),
        lambda p: ops.dot_general(p, _float("a"), _tensor("b", AXIS1), DOTS),
        "",
    ),
    "convolution": (
        (_tensor("a", I8, C3), _tensor("b", AXIS0, C3)),
        lambda p: _conv(p, _tensor("a", I8, C3), _tensor("b", AXIS0, C3), I32_AXIS1),
        "",
    ),
    "convolution, weights per input channel": (
        (_tensor("a", I8, C3), _tensor("b", AXIS1, C3)),
        lambda p: _conv(p, _tensor("a", I8, C3), _tensor("b", AXIS1, C3), I32_AXIS1),
        "convolution, C29",
    ),
    "convolution, result per batch": (
        (_tensor("a", I8, C3), _tensor("b", AXIS0, C3)),
        lambda p: _conv(p, _tensor("a", I8, C3), _tensor("b", AXIS0, C3), I32_AXIS0),
        "convolution, C30",
    ),
    "convolution of two widths": (
        (_tensor("a", I16, C3), _tensor("b", AXIS0, C3)),
        lambda p: _conv(p, _tensor("a", I16, C3), _tensor("b", AXIS0, C3), I32_AXIS1),
        "convolution, C31",
    ),
    "slices without a scale": (
        (_tensor("a", AXIS1, (2, 3)),),
        lambda p: ops.dequantize(p, _tensor("a", AXIS1, (2, 3))),
        "quantized tensor types, C13",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_broken_constraints_are_cited(name):
    """Where, what, which constraint of which operation, and what it asks."""
    _, make, cited = CASES[name]
    p = Program()
    p.start("k", "k.out[0] (row r@1)")
    if not cited:
        make(p)
        return
    with pytest.raises(UnsupportedExport) as caught:
        make(p)
    assert f"({cited})" in str(caught.value)
    assert str(caught.value).startswith("k.out[0] (row r@1): ")


def test_the_message_whole():
    p = Program()
    p.start("k", "k.out[0] (row r@1)")
    with pytest.raises(UnsupportedExport) as caught:
        ops.dot_general(p, A, B, DOTS, I32)
    assert str(caught.value) == (
        "k.out[0] (row r@1): dot_general of !quant.uniform<i8:f32, 0.10000000149011612:3>, "
        "!quant.uniform<i8:f32, 0.20000000298023224:-5> to !quant.uniform<i32:f32, 0.029999999329447746> "
        "breaks (dot_general, C15): the zero points of rhs are 0 (use stablehlo-int, or another type)"
    )


def test_what_we_take_the_verifier_takes():
    texts = []
    for operands, make, cited in CASES.values():
        if cited:
            continue
        p = Program()
        result = make(p)
        arguments = tuple((operand.name, operand.type) for operand in operands)
        texts.append(module_text([Function("main", arguments, (result.name,), tuple(p.operations))]))
    assert [text[:200] for text in hlo.printed(texts) if text.startswith("ERROR")] == []


@pytest.mark.parametrize("size", [1, 99, 100, 101, 102, 5000])
def test_a_message_names_a_type_in_a_hundred_characters(size):
    """A scale for each of a thousand channels would fill pages."""
    text = "i" * size
    said = _short(text)
    assert len(said) == min(size, 100)
    assert (said == text) == (size <= 100)
