"""Causes of float kernels: one sentence for all reasons that differ in names and lines alone."""

import pytest

from planner.accuracy.coverage import Coverage, Fallback
from planner.report.causes import causes_of, fallback_lines, kinds_listed


def fallback(reason, kinds, macs=0, largest=0):
    return Fallback(reason, macs, kinds, next(iter(kinds)), largest)


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (
            {
                "no fusion of 'litert-int8' names it and no row is called so": {"LayerNormalization": 17},
                "litert-int8 has no row for the kernel": {"Div": 8},
            },
            "25 operators are not supported by litert-int8: LayerNormalization (17), Div (8)",
        ),
        (
            {
                "k210-kpu.yaml:74: x.shape[0] is not fixed ('batch'), must be 1": {"kpu_conv2d": 6},
                "k210-kpu.yaml:98: x.elements is not fixed ('a/b'), must be == x.shape[-1] (8)": {
                    "kpu_matmul": 5
                },
            },
            "11 kernels need a fixed batch: add --dim batch=1",
        ),
        (
            {"k210-kpu.yaml:98: x.elements is not fixed ('a/b'), must be == x.shape[-1] (8)": {"fc": 1}},
            "1 kernel needs a fixed size: fc (1): give it with --dim NAME=SIZE",
        ),
        (
            {
                "no fusion of 'ethos-u55' takes MatMul: w ('/a/b') is not a constant (matmul)": {"MatMul": 1},
                "no fusion of 'ethos-u55' takes MatMul: w ('/a/c') is not a constant (matmul)": {"MatMul": 1},
            },
            "2 operators match no kernel of the target: MatMul (2): w is not a constant (matmul)",
        ),
        (
            {
                "edgetpu.yaml:105: requires x.elements (16384) == x.shape[-1] (256)": {"fully_connected": 20},
                "edgetpu.yaml:105: requires x.elements (65536) == x.shape[-1] (1024)": {"fully_connected": 4},
            },
            (
                "24 kernels match no kernel variant of the target: fully_connected (24): "
                "requires x.elements == x.shape[-1]"
            ),
        ),
        (
            {
                "ethos-u55.yaml:103: x.rank is 3, must be 2; ethos-u55.yaml:111: x.rank is 3, must be 2": {
                    "fc": 1
                }
            },
            "1 kernel matches no kernel variant of the target: fc (1): x.rank is 3, must be 2",
        ),
        (
            {
                "no fusion of 'k210-kpu' takes MaxPool: 'a/b' is read by 'c' too (conv)": {"MaxPool": 1},
                "no fusion of 'k210-kpu' takes Relu: 'd' is read by 'e/f' too (conv)": {"Relu": 2},
            },
            (
                "3 operators match no kernel of the target: Relu (2), MaxPool (1): "
                "a value inside has another consumer (conv)"
            ),
        ),
        (
            {"no range": {"Add": 2}},
            "2 kernels have no range, since calibration did not reach them: Add (2)",
        ),
        ({"annotated: float": {"conv2d": 1}}, "1 kernel is in float on request: conv2d (1)"),
        (
            {"moves data between float ops": {"Reshape": 3}},
            "3 kernels move data between float kernels: Reshape (3)",
        ),
        (
            {"integer island: float kernels alone are around it": {"Sigmoid": 1}},
            "1 kernel is in float because its neighbours are: Sigmoid (1)",
        ),
        (
            {"Resize.mode is cubic": {"Resize": 2}},
            "2 kernels: Resize.mode is cubic: Resize (2)",
        ),
    ],
)
def test_a_sentence_for_each_cause(reasons, said):
    (cause,) = causes_of(fallback(reason, kinds) for reason, kinds in reasons.items())
    assert cause.text() == said


def test_the_cause_with_most_work_comes_first_and_says_how_much():
    many = fallback("no fusion of 't' names it and no row is called so", {"Div": 9})
    few = fallback("t.yaml:3: x.shape[0] is not fixed ('N'), must be 1", {"conv": 2}, macs=90, largest=60)
    more = fallback("t.yaml:4: x.shape[0] is not fixed ('N'), must be 1", {"fc": 1}, macs=70, largest=70)
    covered = Coverage(12, 0, 200, 40, (many, few, more))
    assert list(fallback_lines(covered)) == [
        "3 kernels (80 % of multiply-adds) need a fixed N: add --dim N=1",
        "9 operators are not supported by t: Div (9)",
    ]
    assert covered.largest_float_kernel == "fc"


def test_rare_kinds_are_counted():
    many = {"Pow": 3, "Sqrt": 3, "Neg": 1, "Cos": 1, "Sin": 1}
    assert kinds_listed(many) == "Pow (3), Sqrt (3), Cos (1), Neg (1) and 1 other kind"
