"""The text of quantized types: printing and parsing are inverse, errors point at the column."""

# ruff: noqa: E501 - messages and files stand whole

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.errors import QTypeError
from planner.ir.types.parameter_texts import MANY
from planner.ir.types.qtypes import (
    Bipolar,
    Calibrated,
    FloatType,
    NoneType,
    RowMax,
    Storage,
    Uniform,
    WidthRange,
    float_text,
    storage,
    sub_channel,
    uniform,
)
from planner.ir.types.typetext import brief, parse_storage, parse_type
from tests.strategies import storages, types, uniforms


@given(types())
def test_print_then_parse_is_identity(kind):
    assert parse_type(str(kind)) == kind
    assert str(parse_type(str(kind))) == str(kind)


@given(storages())
def test_a_storage_survives_its_text(store):
    assert parse_storage(str(store)) == store


@given(types())
def test_spaces_mean_nothing(kind):
    text = str(kind)
    for sign in "<>{},:":
        text = text.replace(sign, f" {sign} ")
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("!quant.uniform<i8<-127:127>:f32, 0.5:-3>", uniform(storage("i8", -127, 127), 0.5, -3)),
        ("!quant.uniform<i8:f32:1, {0.5,0.25:5}>", uniform(storage("i8"), [0.5, 0.25], [0, 5], axis=1)),
        (
            "!quant.uniform<i4:f32:{0:1, 1:32}, {{0.5, 0.25}, {1.0, 2.0:1}}>",
            Uniform(
                storage("i4"), (0.5, 0.25, 1.0, 2.0), (0, 0, 0, 1), "f32", None, ((0, 1), (1, 32)), (2, 2)
            ),
        ),
        ("!quant.calibrated<f32<-0.998:1.23>>", Calibrated((-0.998,), (1.23,))),
        ("!quant.calibrated<f32:0, {-0.1:0.1, -0.2:0.3}>", Calibrated((-0.1, -0.2), (0.1, 0.3), axis=0)),
        (
            "!quant.calibrated<f32<-124.4:15.7>, {8 = -60.0:15.7}>",
            Calibrated((-124.4,), (15.7,), widths=(WidthRange(8, -60.0, 15.7),)),
        ),
        (
            "!quant.calibrated<f32<-2.0:2.0>, {row_max = {3: -1.0 of 9}, two_values = true, 4 = 0.0:1.0, 8 = -1.0:2.0}>",
            Calibrated(
                (-2.0,),
                (2.0,),
                row_max=(RowMax(3, -1.0, 9),),
                two_values=True,
                widths=(WidthRange(4, 0.0, 1.0), WidthRange(8, -1.0, 2.0)),
            ),
        ),
        ("!quant.none", NoneType()),
        ("!quant.bipolar<f32, 0.5>", Bipolar("f32", 0.5)),
        ("bf16", FloatType("bf16")),
    ],
)
def test_canonical_text(text, kind):
    """Each text is the canonical one: parsing and printing both meet it."""
    assert parse_type(text) == kind
    assert str(kind) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("!quant.uniform<i8<-128:127>:f32, 1:0>", "!quant.uniform<i8:f32, 1.0>"),
        ("!quant.uniform<ui8:f32, 5.0e-1>", "!quant.uniform<u8:f32, 0.5>"),
        ("!quant.uniform<si16:f32, 1e-20>", "!quant.uniform<i16:f32, 9.999999682655225e-21>"),
        ("!quant.uniform<i8:f32, 0.1>", "!quant.uniform<i8:f32, 0.10000000149011612>"),
        ("!quant.uniform<i8:f64, 0.1>", "!quant.uniform<i8:f64, 0.1>"),
        ("!quant.uniform<i8:f32:{1:2,0:1}, {{0.5}}>", "!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5}}>"),
        ("!quant.any<i8<-8:7>:f32>", "!quant.any<i8<-8:7>:f32>"),
        ("!quant.any<u8:f32,0.05 : 117>", "!quant.any<u8:f32, 0.05000000074505806:117>"),
        ("!quant.any<i8<-8:7>:f32, 0.5>", "!quant.any<i8<-8:7>:f32, 0.5>"),
        ("!quant.any<u8:f32 : 1,{0.5:117 , 0.25}>", "!quant.any<u8:f32:1, {0.5:117,0.25}>"),
        (
            "!quant.calibrated<f32<-2:2>, {readers={16=63.6,8=-3}, 8=-1:2}>",
            "!quant.calibrated<f32<-2.0:2.0>, {8 = -1.0:2.0, readers = {8 = -3.0, 16 = 63.6}}>",
        ),
        (
            "!quant.calibrated<f32<-2:2>, {8=-1:2, two_values=true, 4=0:1}>",
            "!quant.calibrated<f32<-2.0:2.0>, {two_values = true, 4 = 0.0:1.0, 8 = -1.0:2.0}>",
        ),
    ],
)
def test_what_is_printed_is_canonical(text, canonical):
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: expected a type such as !quant.uniform<...>, found 'the end' in ''"),
        ("i8", "column 1: unknown type 'i8'; known: !quant.any, !quant.bipolar, !quant.calibrated, !quant.uniform, !quant.none, f16, bf16, tf32, f32, f64, f80"),
        ("!quant.any<i8> x", "column 16: expected the end, found 'x' in '!quant.any<i8> x'"),
        ("!quant.any<u8:f32, 0.5:256>", "column 24: zero point 256 lies outside the storage range 0:255 of u8"),
        ("!quant.any<u8:f32:{0:1}, {{0.5}}>", "column 18: !quant.uniform<u8:f32:{0:1}, {{0.5}}> is no type per tensor or axis in u8:f32"),
        ("!quant.uniform<i8 f32, 0.5>", "column 19: expected ':', found 'f32, 0.5>' in '!quant.uniform<i8 f32, 0.5>'"),
        ("!quant.uniform<i8:f32, .5>", "column 24: expected a number, found '.5>' in '!quant.uniform<i8:f32, .5>'"),
        ("!quant.uniform<i8:f32, 0.1:2.5>", "column 28: expected an integer, found '2.5>' in '!quant.uniform<i8:f32, 0.1:2.5>'"),
        ("!quant.uniform<i8:f32, \u0663.0>", "column 24: expected a number, found '\u0663.0>' in '!quant.uniform<i8:f32, \u0663.0>'"),
        ("!quant.uniform<i8:f32, 0.1", "column 27: expected '>', found 'the end' in '!quant.uniform<i8:f32, 0.1'"),
        ("!quant.uniform<i65:f32, 0.1>", "column 16: storage 'i65' has more than 64 bits"),
        ("!quant.uniform<i0:f32, 0.1>", "column 16: unknown storage 'i0'; a storage is i1..i64, u1..u64 or f4E2M1FN, f6E3M2FN, f8E4M3FN, f8E5M2"),
        ("!quant.uniform<i8<5:5>:f32, 0.1>", "column 19: storage range 5:5 must not be empty and lie within -128:127 of i8"),
        ("!quant.uniform<u8<-1:5>:f32, 0.1>", "column 19: storage range -1:5 must not be empty and lie within 0:255 of u8"),
        ("!quant.uniform<i8:f33, 0.1>", "column 19: expressed type 'f33' is none of f16, bf16, tf32, f32, f64, f80"),
        ("!quant.uniform<i8:f32, 0.0>", "column 24: scale 0.0 must be positive and finite"),
        ("!quant.uniform<i8:f32, -1e300>", "column 24: scale -1e+300 must be positive and finite"),
        ("!quant.uniform<i8:f32, 1e999>", "column 24: scale inf must be positive and finite"),
        ("!quant.uniform<i8:f32, 1e39>", "column 24: scale 1e+39 is beyond f32"),
        ("!quant.bipolar<f32, -1.0>", "column 21: scale -1.0 must be positive and finite"),
        ("!quant.uniform<i8:f32, 0.1:200>", "column 28: zero point 200 lies outside the storage range -128:127 of i8"),
        ("!quant.uniform<i8:f32:-1, {0.1}>", "column 23: quantized dimension -1 is negative"),
        ("!quant.uniform<i8:f32:1, {{0.1}}>", "column 26: a per-axis type has one flat list of scales, this one nests 2 deep"),
        ("!quant.uniform<i8:f32:{0:1,0:2}, {0.1}>", "column 28: axis 0 has two block sizes"),
        ("!quant.uniform<i8:f32:{0:0}, {0.1}>", "column 24: block 0:0: the axis must not be negative, the size positive"),
        ("!quant.uniform<i8:f32:{3:2}, {{0.1}}>", "column 24: block axis 3 is beyond the scale list, which nests 2 deep"),
        ("!quant.uniform<i8:f32:{0:1}, {{0.1},{0.1,0.2}}>", "column 45: scale lists of 1 and 2 entries on one level"),
        ("!quant.calibrated<f32<1.0:-1.0>>", "column 23: calibrated range 1.0:-1.0 has min > max"),
        ("!quant.calibrated<f32<-1e999:1.0>>", "column 23: calibrated range -inf:1.0 must be finite"),
        ("!quant.calibrated<f32<-1.0:1.0>, {8 = -2.0:1.0}>", "column 19: the range 8 = -2.0:1.0 leaves the observed one, -1.0:1.0"),
        ("!quant.calibrated<f32<-1.0:1.0>, {8 = 0:1, 8 = 0:1}>", "column 44: 8 bits have two ranges"),
        ("!quant.calibrated<f32<-1.0:1.0>, {0 = 0:1}>", "column 35: a range for 0 bits; accepted: 1 to 64"),
        ("!quant.calibrated<f32<-1.0:1.0>, {65 = 0:1}>", "column 35: a range for 65 bits; accepted: 1 to 64"),
        ("!quant.calibrated<f32<-1.0:1.0>, {8 = 1:0}>", "column 39: calibrated range 1.0:0.0 has min > max"),
        ("!quant.calibrated<f32<-1.0:1.0>, {8 = 0}>", "column 40: expected ':', found '}>' in '!quant.calibrated<f32<-1.0:1.0>, {8 = 0}>'"),
        ("!quant.calibrated<f32<-1.0:1.0>, {}>", "column 35: expected 'row_max', 'two_values', 'readers' or a number of bits, found '}>' in '!quant.calibrated<f32<-1.0:1.0>, {}>'"),
        ("!quant.calibrated<f32<-1.0:1.0>, {i8 = 0:1}>", "column 35: 'i8' is not read here; accepted: row_max = {AXIS: REAL}, two_values = true, BITS = LO:HI, readers = {BITS = DB}, each once"),
        ("!quant.calibrated<f32<-1.0:1.0>, {readers = {}}>", "column 46: expected an integer, found '}}>' in '!quant.calibrated<f32<-1.0:1.0>, {readers = {}}>'"),
        ("!quant.calibrated<f32<-1.0:1.0>, {readers = {8 = 1.0, 8 = 2.0}}>", "column 55: 8 bits have two dB at consumers"),
        ("!quant.calibrated<f32<-1.0:1.0>, {readers = {65 = 1.0}}>", "column 46: dB at consumers 65 = 1.0: accepted: 1 to 64 bits, finite dB"),
        ("!quant.calibrated<f32<-1.0:1.0>, {readers = {8 = 1.0}, readers = {4 = 1.0}}>", "column 56: 'readers' is not read here; accepted: row_max = {AXIS: REAL}, two_values = true, BITS = LO:HI, readers = {BITS = DB}, each once"),
        ("!quant.calibrated<f32<-1.0:1.0>, {two_values = no}>", "column 35: two_values is true or not there"),
        ("!quant.calibrated<f32:0, {0:1, 0:2}, {8 = 0:1}>", "column 19: ranges for widths beside ranges along axis 0; they need one range"),
    ],
)  # fmt: skip
def test_refused(text, message):
    with pytest.raises(QTypeError) as caught:
        parse_type(text)
    assert str(caught.value) == message


@given(
    st.text(max_size=40)
    | st.lists(
        st.sampled_from(
            ["!quant.uniform", "!quant.any", "<", ">", "{", "}", ":", ",", "i8", "f32", "1", "-0.5"]
        )
    ).map("".join)
)
def test_any_other_text_gives_the_typed_error(text):
    try:
        kind = parse_type(text)
    except QTypeError:
        return
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize("text", ["{" * 100_000, "{0.5," * 100_000, "<" * 100_000])
def test_deep_nesting_is_refused_without_recursion(text):
    with pytest.raises(QTypeError):
        parse_type(f"!quant.uniform<i8:f32:{{0:1}}, {text}")


def test_bits_that_a_range_needs():
    cases = {(-8, 7): 4, (-128, 127): 8, (-127, 127): 8, (0, 1): 2, (-1, 0): 1, (3, 4): 4}
    assert {r: Storage(8, True, *r).range_bits for r in cases} == cases
    assert Storage(8, False, 0, 15).range_bits == 4


def column_of(text):
    with pytest.raises(QTypeError, match=r"^column \d+: ") as caught:
        parse_type(text)
    return int(str(caught.value).split(":")[0].removeprefix("column "))


@given(types(), st.data())
def test_a_text_that_stops_early_is_refused_where_it_stops_or_before(kind, data):
    text = str(kind)
    assume(text.startswith("!quant.") and text != "!quant.none")
    end = data.draw(st.integers(len("!quant.any<"), len(text) - 1))
    assert column_of(text[:end]) <= end + 1


@given(types(), st.sampled_from((">", " x", ", 1.0", "{", "<f32>", "\x00")))
def test_a_text_that_goes_on_is_refused_where_it_should_have_ended(kind, more):
    text = str(kind)
    column = column_of(text + more)
    assert column == len(text) + 1 + (more[0] == " ") or kind == NoneType() or isinstance(kind, FloatType)


def spoil_zero_point(kind, draw):
    low, high = kind.slice_ranges[0]
    text = str(replace(kind, zero_points=(0, *kind.zero_points[1:]))) if low <= 0 <= high else None
    bad = draw(st.sampled_from((low - 1, high + 1)))
    scale = float_text(kind.scales[0])
    return text and text.replace(f" {scale}", f" {scale}:{bad}", 1).replace(
        f"{{{scale}", f"{{{scale}:{bad}", 1
    )


def spoil_scale(kind, draw):
    bad = draw(st.sampled_from(("0.0", "-1.0", "1.0e999", "1.0e-999", "0x7FF8000000000000", "nan", "x")))
    scale = float_text(kind.scales[-1])
    head, tail = str(kind).rsplit(scale, 1)
    return head + bad + tail


def spoil_storage(kind, draw):
    name, rest = kind.storage.name, str(kind).split("<", 1)[1]
    bad = draw(
        st.sampled_from(
            ("i0", "u65", "j8", "int8", "i8x", "f16", f"{name}<1:1>", f"{name}<2:1>", f"{name}<0:{1 << 64}>")
        )
    )
    tail = rest[rest.index(":f" if f":f{kind.expressed[1:]}" in rest else f":{kind.expressed}") :]
    return f"!quant.uniform<{bad}{tail}"


def spoil_count(kind, draw):
    """One scale more in one list than in the others, or lists where there should be none."""
    scale = draw(st.sampled_from(("1.0", "{1.0}")))
    if scale == "1.0" and not kind.is_per_tensor and math.prod(kind.grid[:-1]) == 1:
        return None  # another number of slices in the only list: only a tensor can refuse that
    return str(kind)[:-1].rstrip("}") + f", {scale}" + "}" * max(1, len(kind.grid)) + ">"


@given(uniforms(), st.sampled_from((spoil_zero_point, spoil_scale, spoil_storage, spoil_count)), st.data())
def test_a_type_with_one_thing_wrong_is_refused(kind, spoil, data):
    text = spoil(kind, data.draw)
    assume(text is not None)
    assert column_of(text) <= len(text)


def blocks_of(count, expressed="f32", zeros=0):
    scales = np.random.default_rng(count).uniform(0.001, 0.01, count).tolist()
    return sub_channel(
        storage("u8"), scales, zeros, blocks={0: 1, 1: 32}, grid=(count // 4, 4), expressed=expressed
    )


@pytest.mark.parametrize("expressed", ["f16", "bf16", "f32", "f64"])
def test_very_many_scales_stand_as_dense_constants(expressed):
    kind = blocks_of(MANY, expressed, 3)
    text = str(kind)
    assert f"> : tensor<{MANY // 4}x4xi8>>" in text
    assert len(text) < 19 * MANY
    assert parse_type(text) == kind
    assert str(parse_type(text)) == text


def test_fewer_scales_stand_in_decimal():
    assert "dense" not in str(blocks_of(MANY - 4))


def test_zero_points_of_a_dense_type_survive():
    zeros = [int(zero) for zero in np.random.default_rng(1).integers(0, 256, MANY)]
    kind = blocks_of(MANY, zeros=zeros)
    assert "xi16>" in str(kind)
    assert parse_type(str(kind)) == kind


def test_a_dense_text_of_few_scales_is_read_too():
    kind = parse_type('!quant.uniform<i4:f32:{0:32, 1:1}, dense<"0x0000803f00000040"> : tensor<1x2xf32>>')
    assert kind == sub_channel(storage("i4"), [1.0, 2.0], 0, blocks={0: 32, 1: 1}, grid=(1, 2))


@pytest.mark.parametrize(
    "body",
    [
        'dense<"0x0000803f00000040"> : tensor<1x3xf32>',
        'dense<"0x0000803f00000040"> : tensor<999999999999999999x2xf32>',
        'dense<"0x0000803f0000004"> : tensor<1x2xf32>',
        'dense<"0x0000803f00000000"> : tensor<1x2xf32>',
        'dense<"0x0000803f00000040"> : tensor<1x2xi32>',
        'dense<"0x0000803f00000040"> : tensor<1x2xf32>, dense<"0x09"> : tensor<1x2xi8>',
        'dense<"0x0000803f00000040"> : tensor<1x2xf32>, dense<"0x0900"> : tensor<1x2xi8>',
    ],
)
def test_a_dense_text_that_does_not_hold_is_refused(body):
    with pytest.raises(QTypeError, match="column"):
        parse_type(f"!quant.uniform<i4:f32:{{0:32, 1:1}}, {body}>")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("!quant.uniform<i8:f32, 0.05:3>", "!quant.uniform<i8:f32, 0.05000000074505806:3>"),
        ("!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8:f32, 0.5>"),
        ("!quant.uniform<i8:f32:1, {0.1,0.25:3}>", "!quant.uniform<i8:f32:1, {0.10000000149011612,0.25:3}>"),
        ("!quant.uniform<i8<-8:7>:bf16, 0.1>", "!quant.uniform<i8<-8:7>:bf16, 0.10009765625>"),
        (
            "!quant.uniform<i8:f32:{0:1}, {{0.1}, {0.2:1}}>",
            "!quant.uniform<i8:f32:{0:1}, {{0.10000000149011612}, {0.20000000298023224:1}}>",
        ),
    ],
)
def test_scales_keep_the_digits_of_their_text(text, canonical):
    """Compared and computed with is the value of the expressed type; what was written is kept beside it."""
    kind = parse_type(text)
    assert str(kind) == canonical
    assert kind.written_text == text
    assert kind == parse_type(canonical)
    assert parse_type(canonical).written == ()
    assert parse_type(text.replace(", ", ",  ")).written == kind.written  # token by token
    assert replace(kind, zero_points=kind.zero_points).written_text == text
    other = replace(kind, scales=tuple([scale * 2 for scale in kind.scales]))
    assert other.written_text == str(other)


def test_many_scales_are_counted_in_messages():
    kind = parse_type("!quant.any<u8:f32:1, {0.5,0.25,0.125}>")
    assert brief(kind) == "!quant.any<u8:f32:1, {3 scales}>"
