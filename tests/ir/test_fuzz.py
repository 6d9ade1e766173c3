"""Hostile texts into the type parser: a type that survives its own text, or the typed error, and soon."""

import random

import pytest

from planner.errors import QTypeError
from planner.ir.types.canonical_texts import read_canonical
from planner.ir.types.qtypes import MAX_RANK
from planner.ir.types.typereader import MAX_TEXT
from planner.ir.types.typetext import parse_storage, parse_type

TOKENS = (
    *(
        "!quant.uniform",
        "!quant.any",
        "!quant.calibrated",
        "!quant.none",
        "!quant.bipolar",
        "!quant.x",
        "quant",
    ),
    *(
        "<",
        ">",
        "{",
        "}",
        ":",
        ",",
        "(",
        ")",
        " ",
        "\n",
        "\t",
        "\0",
        "\u00a0",
        "\u0663",
        "\ud800",
        "<>",
        "{}",
    ),
    *("i8", "u8", "ui4", "si16", "i1", "i0", "i65", "u64", "f8E4M3FN", "f8E5M2", "f32", "bf16", "f80", "f33"),
    *(
        "0",
        "1",
        "-1",
        "+2",
        "00",
        "127",
        "-128",
        "0.5",
        "-0.5",
        "1.",
        ".5",
        "1e5",
        "1.0e-5",
        "1e999",
        "1e-999",
    ),
    *(
        "0x",
        "0x3F",
        "0x3FF0000000000000",
        "0x7FF0000000000000",
        "nan",
        "inf",
        "-inf",
        "1_0",
        "1" * 30,
        "9" * 50,
    ),
)
SEEDS = (
    "!quant.uniform<i8<-127:127>:f32, 0.5:-3>",
    "!quant.uniform<u8:bf16, 1.0e-05>",
    "!quant.uniform<i8:f32:1, {0.5,0.25:5}>",
    "!quant.uniform<i4:f32:{0:1, 1:32}, {{0.5, 0.25}, {1.0, 2.0:1}}>",
    "!quant.uniform<u8:f32:{}, {{{2.0:120}}}>",
    "!quant.uniform<i8<{-8:7,-128:127}>:f32:1, {0.5,0.25:-3}>",
    "!quant.any<i8<-8:7>:f32>",
    "!quant.any<u8:f32, 0.5:117>",
    "!quant.any<u8:f32:1, {0.5:117,0.25}>",
    "!quant.calibrated<f32<-0.998:1.23>>",
    "!quant.calibrated<f32:0, {-0.1:0.1, -0.2:0.3}>",
    "!quant.bipolar<f32, 0.5>",
)


def random_bytes(rng: random.Random) -> str:
    return rng.randbytes(rng.randrange(60)).decode(rng.choice(("latin-1", "utf-8")), "surrogateescape")


def random_tokens(rng: random.Random) -> str:
    body = rng.choices(TOKENS, k=rng.randrange(1, 25))
    return "".join(["!quant.uniform<i8:f32", *body] if rng.random() < 0.5 else body)


def spoiled(rng: random.Random) -> str:
    """A good text with a few pieces cut, doubled, moved or replaced."""
    text = rng.choice(SEEDS)
    for _ in range(rng.randrange(1, 4)):
        at, until = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        until = min(until, at + 6)
        insert = rng.choice((rng.choice(TOKENS), text[at:until] * 2, "", chr(rng.randrange(128))))
        text = text[:at] + insert + text[until:]
    return text


def nudged(rng: random.Random) -> str:
    """A good text with another sign in the place of a few."""
    text = list(rng.choice(SEEDS))
    for _ in range(rng.randrange(1, 4)):
        text[rng.randrange(16, len(text)) if len(text) > 16 else 0] = rng.choice("0123456789-.:, {}<>")
    return "".join(text)


def judge(text: str) -> bool:
    """Whether a text is a type; it then survives its own text, and so does its storage alone."""
    try:
        kind = parse_type(text)
    except QTypeError as error:
        if not error.message.startswith("column "):
            raise
        return False
    assert parse_type(str(kind)) == kind, text
    assert str(parse_type(str(kind))) == str(kind), text
    return True


def campaign(count: int, seed: int) -> int:
    rng = random.Random(seed)  # noqa: S311 - a fuzzer, seeded
    return sum(judge(rng.choice((random_bytes, random_tokens, spoiled, nudged))(rng)) for _ in range(count))


def test_random_texts_give_a_type_or_the_typed_error():
    assert campaign(10_000, seed=1) > 300  # some are types: the campaign reaches past the first token


@pytest.mark.soak
def test_a_million_random_texts_give_a_type_or_the_typed_error():
    assert campaign(1_000_000, seed=2) > 30_000


def test_random_storages_give_a_storage_or_the_typed_error():
    rng = random.Random(3)  # noqa: S311
    for _ in range(2_000):
        text = "".join(rng.choices(TOKENS, k=rng.randrange(1, 6)))
        try:
            store = parse_storage(text)
        except QTypeError:
            continue
        assert parse_storage(str(store)) == store


def test_canonical_texts_take_the_short_way_and_mean_the_same():
    """What `str` writes is read without tokens; with spaces put in, by token, into an equal type."""
    for text in SEEDS[:5]:
        quick = read_canonical(str(parse_type(text)))
        assert quick == parse_type(text.replace(":", " : ").replace(",", " , "))


def deep(depth: int) -> str:
    return "!quant.uniform<i8:f32:{0:1}, " + "{" * depth + "0.5" + "}" * depth + ">"


def test_lists_nest_as_deep_as_a_tensor_has_dimensions():
    assert parse_type(deep(MAX_RANK)).grid == (1,) * MAX_RANK
    with pytest.raises(QTypeError, match=rf"^column 30: scale lists nest more than {MAX_RANK} deep$"):
        parse_type(deep(MAX_RANK + 1))


@pytest.mark.parametrize("tail", ["{", "{0.5,", "<", "{{0.5},", "{}", "}", "{0.5},"])
def test_a_million_brackets_are_refused_without_recursion(tail):
    for head in ("!quant.uniform<i8:f32:{0:1}, ", "!quant.uniform<i8:f32:0, ", "!quant.calibrated<f32:0, "):
        with pytest.raises(QTypeError, match=r"^column "):
            parse_type(head + tail * 300_000)


MANY = [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("count", MANY)
def test_very_many_scales_are_read_and_written(count):
    flat = ",".join(["0.5", "0.25:5"] * (count // 2))
    axis = f"!quant.uniform<i8:f32:0, {{{flat}}}>"
    assert str(parse_type(axis)) == axis
    rows = ", ".join(["{" + ", ".join(["0.5", "0.25:5"] * 500) + "}"] * (count // 1_000))
    blocks = f"!quant.uniform<i8:f32:{{0:1, 1:32}}, {{{rows}}}>"
    kind = parse_type(blocks)
    assert parse_type(str(kind)) == kind
    assert ', dense<"0x' in str(kind)


@pytest.mark.parametrize("count", MANY)
def test_very_many_scales_are_read_by_token_and_judged_one_by_one(count):
    text = "!quant.uniform<i8:f32:0,{" + ",".join(["0.5"] * count)
    assert len(parse_type(text + "}>").scales) == count
    with pytest.raises(QTypeError, match=rf"^column {4 * count + 26}: zero point 200 lies outside"):
        parse_type(text + ":200}>")


def test_a_number_of_a_million_digits_is_only_a_number():
    assert parse_type("!quant.uniform<i8:f32, 0.5" + "0" * 1_000_000 + ">").scale == 0.5
    with pytest.raises(QTypeError, match=r"^column 24: scale inf must be positive and finite$"):
        parse_type("!quant.uniform<i8:f32, " + "9" * 1_000_000 + ".0>")
    with pytest.raises(QTypeError, match=r"^column 28: expected an integer"):
        parse_type("!quant.uniform<i8:f32, 0.5:" + "9" * 1_000_000 + ">")


def test_a_text_beyond_the_limit_is_not_read():
    with pytest.raises(
        QTypeError, match=rf"^type text of {MAX_TEXT + 1} characters; at most {MAX_TEXT} are read$"
    ):
        parse_type(" " * (MAX_TEXT + 1))
