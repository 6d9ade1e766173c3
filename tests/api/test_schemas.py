"""A plan request is the same however it is read: at once from its bytes, or by FastAPI."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from api.schemas.requests import PlanRequest, read_plan_request
from tests.api.test_scan import PLAIN

MODELS = st.dictionaries(st.text(), PLAIN, max_size=3)
REQUESTS = st.fixed_dictionaries(
    {"model": MODELS | PLAIN, "target": st.text(max_size=5)},
    optional={
        "stats": MODELS | st.none(),
        "annotations": MODELS,
        "options": st.fixed_dictionaries(
            {},
            optional={
                "best_effort": st.booleans() | st.integers(0, 2) | st.sampled_from(["true", "no", ""]),
                "costs": st.dictionaries(st.text(max_size=2), PLAIN, max_size=2),
                "strategy": st.sampled_from(["minimal", "rfc", "other"]),
            },
        ),
        "more": PLAIN,
    },
)


def read_by_fastapi(text):
    try:
        return PlanRequest.model_validate(json.loads(text))
    except (ValidationError, ValueError):
        return None


@given(REQUESTS, st.booleans())
def test_both_ways_read_the_same(request, ascii_only):
    text = json.dumps(request, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert repr(read_plan_request(text)) == repr(read_by_fastapi(text))


@pytest.mark.parametrize(
    "number",
    [
        *("-0", "-0.0", "1E400", "-1e400", "1e-400", "9007199254740993", "0.1e1", "5e-324"),
        *("2.2250738585072011e-308", "8.988465674311579e307", "0.30000000000000004", "NaN", "-Infinity"),
    ],
)
def test_numbers_are_the_same_to_the_last_bit(number):
    text = f'{{"model": {{"a": {number}}}, "target": "t"}}'.encode()
    assert repr(read_plan_request(text)) == repr(read_by_fastapi(text)) != "None"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"model": {"a": 1, "a": 2}, "target": "t", "target": "u"}', "{'a': 2} target='u'"),
        (b'{"model": {}, "target": 1}', "None"),
        (b'{"model": {}}', "None"),
        (b"{", "None"),
        (b"", "None"),
    ],
)
def test_odd_ones(text, words):
    assert repr(read_plan_request(text)) == repr(read_by_fastapi(text))
    assert words in repr(read_plan_request(text)).replace(",", "")
