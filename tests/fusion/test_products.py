"""Products: a pattern of factors and a number fits every spelling of that product, and of no other number."""

import random

import pytest

from planner.fusion.fuse import fuse
from planner.fusion.products import MAX_DEPTH
from planner.target.records import Fusion
from tests.fusion.small import graph_of, target_of

FACTORS = {"x": "Sigmoid", "y": "Tanh", "z": "Erf"}
PATTERNS = [
    (("x", "y"), 0.5),
    (("x", "y"), None),
    (("x",), -3.0),
    (("x", "x"), 0.25),
    (("x", "x", "x"), 0.5),
    (("x", "y", "z"), -0.5),
    (("x", "1/y"), 2.0),
    (("x", "1/y"), None),
    (("x", "x", "1/y"), None),
]


class Spelling:
    """Lines of a graph that compute a product, spelled by chance."""

    def __init__(self, seed):
        self.chance = random.Random(seed)  # noqa: S311 - a seeded case, no secret
        self.lines: list[str] = []
        self.constants: dict[str, float] = {}

    def op(self, kind, *args):
        """The name of what an operator computes."""
        self.lines.append(f"v{len(self.lines)} = {kind}({', '.join(args)})")
        return f"v{len(self.lines) - 1}"

    def constant(self, number):
        """The name of a constant that repeats a number."""
        name = f"N{len(self.constants)}"
        self.constants[name] = number if self.chance.random() < 0.5 else [[number], [number]]
        return name

    def factor(self, name):
        """An operator of its own, or the pattern's variables would fit any factor."""
        if name.startswith("1/"):
            return self.op("Reciprocal", self.factor(name[2:]))
        return self.op(FACTORS[name], name)

    def product(self, factors, number, depth=0):
        """The name of a value that is the product; only some splits at each step, so that it ends."""
        ways = ["neg", "div", "number", "seen"] if depth < 2 else []
        if len(factors) > 1:
            ways += ["mul", "mul", "mul"]
            if number == 1 and set(factors) == {"x"}:
                ways += ["pow", "pow"]
        if any(factor.startswith("1/") for factor in factors) and len(factors) > 1:
            ways += ["quotient", "quotient"]
        if len(factors) == 1 and number != 1 and not ways:
            ways = ["number"]
        if len(factors) == 1 and number == 1 and (not ways or self.chance.random() < 0.5):
            return self.factor(factors[0])
        match self.chance.choice(ways):
            case "neg":
                return self.op("Neg", self.product(factors, -number, depth + 1))
            case "seen":
                return self.op("Identity", self.product(factors, number, depth + 1))
            case "div":
                by = self.chance.choice([2.0, -4.0])
                return self.op("Div", self.product(factors, number * by, depth + 1), self.constant(by))
            case "number":
                part = number if depth >= 2 else self.chance.choice([2.0, -0.5])
                pair = [self.product(factors, number / part, depth + 1), self.constant(part)]
                self.chance.shuffle(pair)
                return self.op("Mul", *pair)
            case "pow":
                return self.op("Pow", self.factor("x"), self.constant(float(len(factors))))
            case "quotient":
                inner = next(factor for factor in factors if factor.startswith("1/"))
                rest = list(factors)
                rest.remove(inner)
                return self.op("Div", self.product(rest, number, depth + 1), self.factor(inner[2:]))
            case _:
                mixed = self.chance.sample(factors, len(factors))
                cut = self.chance.randrange(1, len(factors))
                left = self.product(mixed[:cut], 2.0, depth + 1)
                return self.op("Mul", left, self.product(mixed[cut:], number / 2.0, depth + 1))


def pattern_of(factors, number):
    args = [
        f"Reciprocal({FACTORS[factor[2:]]}({factor[2:]}))"
        if factor.startswith("1/")
        else f"{FACTORS[factor]}({factor})"
        for factor in factors
    ]
    return f"Relu(Product({', '.join([*args, *([] if number is None else [str(number)])])}))"


def fused(spelling, value, pattern):
    text = "\n".join([*spelling.lines, f"r = Relu({value})"])
    graph = graph_of(text, outputs=["r"], constants=spelling.constants)
    return fuse(graph, target_of(Fusion("product", (pattern,)))).regions


@pytest.mark.parametrize("factors", PATTERNS, ids=lambda case: pattern_of(*case))
@pytest.mark.parametrize("seed", range(8))
def test_a_product_fits_all_its_spellings_and_no_other_number(factors, seed):
    factors, number = factors
    pattern = pattern_of(factors, number)
    wanted = 1.0 if number is None else number
    spelling = Spelling(seed)
    (region,) = fused(spelling, spelling.product(list(factors), wanted), pattern)
    assert region.kernel == "product"
    assert len(region.ops) == len(spelling.lines) + 1
    assert set(region.inputs) == {factor.removeprefix("1/") for factor in factors}
    for other in (wanted * 2, -wanted, 1 / wanted):
        if other != wanted:
            spelling = Spelling(seed)
            value = spelling.product(list(factors), other)
            assert "product" not in {region.kernel for region in fused(spelling, value, pattern)}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("v = Mul(a, b)", True),
        ("v = Mul(b, a)", True),
        ("v = Mul(a, a)", False),  # another factor
        ("v = Add(a, b)", False),
        ("c = Mul(a, b)\nv = Mul(c, x)", False),  # one factor more
        ("v = Div(a, b)", False),  # no reciprocal in the pattern
        ("v = Mul(a, N)", False),  # a number is no factor
        ("c = Mul(a, b)\nv = Mul(c, N)", True),
        ("c = Mul(a, b)\nv = Mul(c, M)", False),  # several numbers are no number
        ("c = Mul(a, b)\nv = Div(c, N)", True),
        ("c = Mul(a, b)\nv = Div(N, c)", False),
        ("c = Mul(a, b)\nv = Div(c, ZERO)", False),
        ("c = Mul(a, b)\nv = Pow(c, N)", False),
    ],
)
def test_factors_are_those_of_the_pattern(text, fits):
    spelling = Spelling(0)
    spelling.lines = ["a = Sigmoid(x)", "b = Tanh(y)", *text.splitlines()]
    spelling.constants = {"N": 1.0, "M": [1.0, 2.0], "ZERO": 0.0}
    assert (fused(spelling, "v", pattern_of(("x", "y"), None))[-1].kernel == "product") is fits


def test_a_power_is_a_factor_as_often_as_its_exponent_says():
    for often in range(2, 5):
        for exponent in range(2, 5):
            spelling = Spelling(0)
            spelling.lines = ["a = Sigmoid(x)", "v = Pow(a, N)"]
            spelling.constants = {"N": float(exponent)}
            regions = fused(spelling, "v", pattern_of(("x",) * often, None))
            assert (regions[-1].kernel == "product") == (often == exponent)
    spelling.constants = {"N": 2.0}
    assert fused(spelling, "v", pattern_of(("x", "y"), None))[-1].kernel != "product"


@pytest.mark.parametrize("count", range(9, 18))
def test_a_product_is_followed_for_some_operators_only(count):
    """Searches end: a chain of more operators than any file has is no product."""
    spelling = Spelling(0)
    value = spelling.factor("x")
    for _ in range(count):
        value = spelling.op("Identity", value)
    regions = fused(spelling, spelling.op("Mul", value, spelling.factor("y")), pattern_of(("x", "y"), None))
    assert (regions[-1].kernel == "product") == (count <= MAX_DEPTH)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("s = Sqrt(a)\nv = Reciprocal(s)", True),
        ("s = Sqrt(a)\nv = Div(ONE, s)", True),
        ("s = Sqrt(a)\nv = Pow(s, MINUS)", True),
        ("v = Pow(a, MINUS_HALF)", True),
        ("v = Pow(a, HALF)", False),
        ("s = Pow(a, HALF)\nv = Reciprocal(s)", True),
        ("s = Pow(a, HALF)\nv = Div(ONE, s)", True),
        ("s = Sqrt(a)\nv = Div(s, ONE)", False),
        ("s = Sqrt(a)\nv = Div(TWO, s)", False),
    ],
)
@pytest.mark.parametrize("loose", [False, True])
def test_a_reciprocal_and_a_root_of_a_block_have_other_spellings(text, fits, loose):
    spelling = Spelling(0)
    spelling.lines = ["a = Sigmoid(x)", *text.splitlines()]
    spelling.constants = {"ONE": 1.0, "TWO": 2.0, "MINUS": -1.0, "HALF": 0.5, "MINUS_HALF": -0.5}
    graph = graph_of("\n".join([*spelling.lines, "r = Relu(v)"]), outputs=["r"], constants=spelling.constants)
    parts = (("a part makes a block", ("Sigmoid(x)",)),) if loose else ()
    fusion = Fusion("product", ("Relu(Reciprocal(Sqrt(Sigmoid(x))))",), parts=parts)
    found = fuse(graph, target_of(fusion)).regions[-1].kernel == "product"
    assert found is (fits if loose else text.startswith("s = Sqrt(a)\nv = Reciprocal"))


def test_a_number_that_stands_twice_in_a_pattern_is_one_number():
    spelling = Spelling(0)
    spelling.lines, spelling.constants = ["a = Sigmoid(x)", "v = Mul(a, N)"], {"N": 6.0}
    assert fused(spelling, "v", "Relu(Product(Sigmoid(x), 2, 3))")[-1].kernel == "product"
    assert fused(spelling, "v", "Relu(Product(Sigmoid(x), 2, 2))")[-1].kernel != "product"


def test_an_optional_factor_may_be_missing_and_a_number_is_none():
    for text, inputs in (
        ("v = Mul(a, w)", ("x", "w")),
        ("v = Mul(w, a)", ("x", "w")),
        ("v = Identity(a)", ("x", "")),
    ):
        spelling = Spelling(0)
        spelling.lines = ["a = Sigmoid(x)", text]
        (region,) = fused(spelling, "v", "Relu(Product(Sigmoid(x), w?))")
        assert (region.kernel, region.inputs) == ("product", inputs)
    spelling.lines, spelling.constants = ["a = Sigmoid(x)", "v = Mul(a, N)"], {"N": 2.0}
    assert fused(spelling, "v", "Relu(Product(Sigmoid(x), w?))")[-1].kernel != "product"
