"""The scans let good files through and stop the others where their limits are."""

import json

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.problems import Refused
from api.scan import MAX_DEPTH, scan_json, scan_onnx
from planner.errors import ModelError
from tests.api.documents import chain, nested, relu

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def depth(document) -> int:
    inner = (
        document.values() if isinstance(document, dict) else document if isinstance(document, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(PLAIN, st.booleans())
def test_json_is_let_through_to_its_depth(document, ascii_only):
    text = json.dumps(document, ensure_ascii=ascii_only, allow_nan=True).encode("utf-8", "surrogatepass")
    scan_json(text, 10_000, max_depth=depth(document))
    if depth(document):
        with pytest.raises(Refused, match="deeper"):
            scan_json(text, 10_000, max_depth=depth(document) - 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "[[[[[[[[[["}',
        r'{"a": "\"[[[[[[[["}',
        r'{"a\\": ["\\"], "b": "[[[["}',
        '[1.2345678901234567890123, 1e22, 123456789012345678901234.5, "123456789012345678901234"]',
    ],
)
def test_text_and_reals_do_not_count(text):
    scan_json(text.encode(), 100, max_depth=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1,2,3,4,5]", "more than 4 values"),
        ("[12345678901234567890]", "19 digits"),
        ('{"a": -12345678901234567890}', "19 digits"),
        ("[[[[", "deeper than 3"),
    ],
)
def test_json_that_is_stopped(text, words):
    with pytest.raises(Refused, match=words):
        scan_json(text.encode(), 4, max_depth=3)


def test_a_model_of_fifty_kernels_passes():
    scan_json(json.dumps(chain(50)).encode(), 10_000)


def test_nested_graphs_to_the_limit():
    scan_onnx(nested((MAX_DEPTH - 2) // 3))
    with pytest.raises(ModelError, match="messages deep"):
        scan_onnx(nested((MAX_DEPTH + 1) // 3))


@pytest.mark.parametrize("cut", range(1, len(relu())))
def test_a_file_cut_anywhere_is_refused_or_shorter(cut):
    try:
        scan_onnx(relu()[:cut])
    except ModelError as error:
        assert "truncated" in str(error)  # noqa: PT017 - a cut between fields is a shorter file
    else:
        onnx.ModelProto.FromString(relu()[:cut])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        scan_onnx(data)
    except ModelError:
        return


def test_real_models_pass(models):
    files = sorted(models.rglob("*.onnx"), key=lambda path: path.stat().st_size)[:20]
    assert files
    for path in files:
        scan_onnx(path.read_bytes())
