"""Modules in generic form: text as other tools read it, numbers that read back exactly."""

import numpy as np
import pytest

from planner.formats.mlir.generic import (
    Block,
    Function,
    Operation,
    array_text,
    dense_text,
    float_text,
    module_text,
    ssa_name,
    tensor_text,
)
from tests.oracles.mlir import modules

F32 = "tensor<2x3xf32>"

SUM = Function(
    "main",
    (("x", F32),),
    ("total",),
    (
        Operation(
            "stablehlo.constant", (), (("zero", "tensor<f32>"),), {"value": dense_text(np.zeros(()), "f32")}
        ),
        Operation(
            "stablehlo.reduce",
            ("x", "zero"),
            (("total", "tensor<2xf32>"),),
            {"dimensions": array_text([1])},
            (
                Block(
                    (("a", "tensor<f32>"), ("b", "tensor<f32>")),
                    (
                        Operation("stablehlo.add", ("a", "b"), (("c", "tensor<f32>"),)),
                        Operation("stablehlo.return", ("c",)),
                    ),
                ),
            ),
            comment="sum of rows",
        ),
    ),
    {"no_inline": "unit"},
)

TEXT = """\
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<2x3xf32>):
    %zero = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> (tensor<f32>)
    // sum of rows
    %total = "stablehlo.reduce"(%x, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> (tensor<f32>)
      "stablehlo.return"(%c) : (tensor<f32>) -> ()
    }) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> (tensor<2xf32>)
    "func.return"(%total) : (tensor<2xf32>) -> ()
  }) {function_type = (tensor<2x3xf32>) -> (tensor<2xf32>), sym_name = "main", no_inline} : () -> ()
}) : () -> ()
"""


def test_module_text():
    """One line an operation, types of operands from their definitions, regions indented."""
    assert module_text([SUM]) == TEXT


@pytest.mark.parametrize(
    ("array", "element", "text"),
    [
        (np.zeros((4, 4)), "f32", "dense<0.0> : tensor<4x4xf32>"),
        (np.array([0.0, -0.0]), "f32", "dense<[0.0, -0.0]> : tensor<2xf32>"),  # equal, and not the same
        (np.array([[1, 2], [3, 4]]), "i8", "dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>"),
        (np.array([200, 3]), "ui8", "dense<[200, 3]> : tensor<2xui8>"),
        (np.array([-8, 7]), "i4", "dense<[-8, 7]> : tensor<2xi4>"),
        (np.array([True, False]), "i1", "dense<[true, false]> : tensor<2xi1>"),
        (np.array([np.nan, np.inf]), "f32", "dense<[0x7FC00000, 0x7F800000]> : tensor<2xf32>"),
        (
            np.float32([0.1, 1e-30]),
            "f32",
            "dense<[0.10000000149011612, 1.0000000031710769e-30]> : tensor<2xf32>",
        ),
        (np.zeros((0, 2)), "f32", "dense<> : tensor<0x2xf32>"),
        (
            np.arange(33) - 1,
            "i16",
            f'dense<"0xFFFF{"".join(f"{i:02X}00" for i in range(32))}"> : tensor<33xi16>',
        ),
        (np.full((), 0.5), "bf16", "dense<0.5> : tensor<bf16>"),
    ],
)
def test_dense_text(array, element, text):
    """Splat where equal, decimal where few, hexadecimal otherwise."""
    assert dense_text(array, element) == text


def test_small_texts():
    """Types, names, numbers."""
    assert tensor_text((), "i32") == "tensor<i32>"
    assert ssa_name("layer/1:0 ü") == "layer_1_0__"
    assert ssa_name("0") == "v0"
    assert float_text(float(np.float32(0.1))) == "0.10000000149011612 : f32"
    assert float_text(float("-inf")) == "0xFF800000 : f32"
    assert array_text([]) == "array<i64>"
    assert array_text([1, 0], "i1") == "array<i1: true, false>"


def test_torch_mlir_reads_it():
    """The text parses elsewhere, hexadecimal constants of four bits among it."""
    constants = [
        (np.arange(40).reshape(8, 5) % 16 - 8, "i4"),
        (np.arange(40), "ui8"),
        (np.linspace(0, 1, 40), "f32"),
        (np.arange(40) % 3 == 0, "i1"),
        (np.array([np.nan]), "f32"),
    ]
    body = [
        Operation(
            "test.constant",
            (),
            ((f"c{i}", tensor_text(a.shape, e)),),
            {"value": dense_text(a, e), "flag": "unit"},
        )
        for i, (a, e) in enumerate(constants)
    ]
    (text,) = modules([module_text([Function("main", (), (), tuple(body))])])
    assert not text.startswith("ERROR"), text
    assert text.count("test.constant") == len(constants)
