"""Statistics: the range of a percentile, merging, and the file."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.observe import observe_histogram
from planner.calibration.statistics import (
    Statistics,
    ValueStats,
    from_observed,
    merge,
    percentile_of,
    range_of,
)
from planner.calibration.statsjson import load_statistics, read_statistics
from planner.errors import StatsError

HEAD = {"format": "qplan.stats/1", "model": "sha256:1", "method": "percentile", "samples": 2}


def text_of(value, **head):
    return json.dumps({**HEAD, "values": {"v": value}, **head})


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5000),
    st.sampled_from(["percentile", "percentile:99", "percentile:90.5", "percentile:100"]),
)
def test_percentile_is_within_one_bin_of_the_sorted_elements(seed, size, method):
    rng = np.random.default_rng(seed)
    numbers = (rng.standard_normal(size) ** 3 * rng.uniform(0.01, 100)).astype(np.float32)
    stats = from_observed(observe_histogram(numbers))
    (lo,), (hi,) = range_of(stats, method)
    cut = float(100 - percentile_of(method)) / 2
    width = 2.0**stats.bins.exponent
    below = np.percentile(numbers, cut, method="inverted_cdf")
    above = np.percentile(numbers, 100 - cut, method="inverted_cdf")
    assert stats.lo <= lo <= hi <= stats.hi
    assert np.count_nonzero(numbers < lo) <= size * cut / 100
    assert np.count_nonzero(numbers > hi) <= size * cut / 100
    # At a tie numpy takes the element on one side of the cut, we the one on the other.
    ordered = np.sort(numbers)
    after = ordered[np.searchsorted(ordered, below, side="right") :][:1]
    assert below - width <= lo <= max([below, *after])
    assert hi >= above - width
    assert hi <= above + width


def test_method_decides_the_range():
    stats = from_observed(observe_histogram(np.array([0.0] * 98 + [-4.0, 8.0], np.float32)))
    width = 2.0**stats.bins.exponent
    assert range_of(stats, "minmax") == ((-4.0,), (8.0,))
    assert range_of(stats, "percentile") == ((-4.0,), (8.0,))
    assert range_of(stats, "percentile:98") == ((0.0,), (width,))


def test_merge_adds_and_keeps_what_only_one_saw():
    a = Statistics(
        "m", "minmax", 2, {"x": ValueStats((-1.0,), (2.0,), 1, 0), "y": ValueStats((0.0,), (1.0,))}
    )
    b = Statistics("m", "minmax", 3, {"x": ValueStats((0.0,), (3.0,), 0, 4)})
    joined = Statistics("m", "minmax", 5, {"x": ValueStats((-1.0,), (3.0,), 1, 4), "y": a.values["y"]})
    assert merge(a, b) == merge(b, a) == joined


def test_merge_joins_slices_of_one_axis():
    a = Statistics("m", "minmax", 1, {"w": ValueStats((-1.0, 0.0), (1.0, 1.0), axis=0)})
    b = Statistics("m", "minmax", 1, {"w": ValueStats((0.0, -2.0), (2.0, 0.0), axis=0)})
    assert merge(a, b).values["w"] == ValueStats((-1.0, -2.0), (2.0, 1.0), axis=0)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            Statistics("n", "minmax", 1, {}),
            "statistics of different models do not merge: 'm' and 'n'",
        ),
        (
            Statistics("m", "percentile", 1, {}),
            "statistics of different methods do not merge: 'minmax' and 'percentile'",
        ),
        (
            Statistics("m", "minmax", 1, {"w": ValueStats((0.0,), (1.0,))}),
            "statistics of 'w' do not merge: 2 ranges along axis 0 in one, one range in the other",
        ),
    ],
)
def test_what_does_not_merge(other, message):
    with pytest.raises(StatsError) as caught:
        merge(Statistics("m", "minmax", 1, {"w": ValueStats((0.0, 0.0), (1.0, 1.0), axis=0)}), other)
    assert str(caught.value) == message


def test_file_reads_back(tmp_path):
    numbers = np.random.default_rng(0).standard_normal(999).astype(np.float32)
    values = {
        "a/b:0": from_observed(observe_histogram(numbers)),
        'quo"te': ValueStats((-0.1, -1e-40), (0.1, 3e38), axis=1),
        "n": ValueStats((0.0,), (0.0,), nan=3, inf=4, below=True),
    }
    stats = Statistics("sha256:1", "percentile:99.9", 7, values)
    path = tmp_path / "s.json"
    path.write_text(stats.to_json(), encoding="utf-8")
    assert load_statistics(path) == stats
    empty = Statistics("m", "minmax", 1, {})
    assert read_statistics(empty.to_json()) == empty


def test_the_example_of_the_format_reads():
    text = """{"format": "qplan.stats/1", "model": "sha256:...", "method": "percentile", "samples": 32,
     "values": {"conv1_out": {"min": -1.2, "max": 3.4, "nan": 0, "inf": 0,
                              "bins": {"exponent": -9, "first": -614, "counts": [0, 3, 17]}},
                "w": {"axis": 0, "min": [-0.1, -0.2], "max": [0.1, 0.3]}}}"""
    stats = read_statistics(text)
    assert stats.values["w"] == ValueStats((-0.1, -0.2), (0.1, 0.3), axis=0)
    assert stats.values["conv1_out"].bins.counts == (0, 3, 17)


NO_PERCENTILE = "no percentile above 50 and up to 100 (a decimal number such as percentile:99.9)"
KNOWN = "axis, below, bins, inf, max, mean, min, nan, readers, row_max, two_values"
BAD = [
    ("[1", "s.json: not JSON: Expecting ',' delimiter: line 1 column 3 (char 2)"),
    ("[]", "s.json: expected an object, found []"),
    (
        '{"format": "qplan.stats/3"}',
        "s.json: format: \"qplan.stats/3\" is not read here; 'qplan.stats/1' and 'qplan.stats/2' are",
    ),
    (
        text_of({}, extra=1),
        "s.json: extra: unknown field; known: format, method, model, samples, sizes, trips, values",
    ),
    (
        text_of({}, method="kl"),
        "unknown calibration method 'kl' (minmax, percentile, percentile:99.9, mse, entropy)",
    ),
    (
        text_of({}, method="percentile:1e-999999999"),
        f"calibration method 'percentile:1e-999999999': '1e-999999999' is {NO_PERCENTILE}",
    ),
    (
        text_of({}, method="percentile:49"),
        f"calibration method 'percentile:49': '49' is {NO_PERCENTILE}",
    ),
    (text_of({}, samples=-1), "s.json: samples: -1 is not a count"),
    (text_of({}), "s.json: values.v.max: this field is missing"),
    (text_of({"min": 1, "max": 0}), "s.json: values.v: min 1.0 is above max 0.0"),
    (text_of({"min": float("nan"), "max": 0}), "s.json: values.v.min: NaN is not a finite number"),
    (text_of({"min": 0, "max": float("inf")}), "s.json: values.v.max: Infinity is not a finite number"),
    (text_of({"min": 0, "max": "1"}), 's.json: values.v.max: expected a number, found "1"'),
    (
        text_of({"min": 0, "max": 1, "average": 1}),
        f"s.json: values.v.average: unknown field; known: {KNOWN}",
    ),
    (text_of({"min": [0], "max": [1]}), "s.json: values.v.min: expected a number, found [0]"),
    (
        text_of({"axis": 0, "min": 0, "max": [1]}),
        "s.json: values.v.min: expected a list of numbers, one per slice of axis 0",
    ),
    (text_of({"axis": 0, "min": [0, 2], "max": [1, 1]}), "s.json: values.v[1]: min 2.0 is above max 1.0"),
    (text_of({"axis": 0, "min": [0, 2], "max": [1]}), "s.json: values.v: min has 2 entries, max has 1"),
    (text_of({"min": 0, "max": 1, "nan": 1.5}), "s.json: values.v.nan: expected a whole number, found 1.5"),
    (
        text_of({"min": 0, "max": 1, "bins": {"exponent": 0, "first": 0, "counts": [0, -1]}}),
        "s.json: values.v.bins.counts[1]: -1 is not a count",
    ),
    (
        text_of({"min": 0, "max": 1, "bins": {"exponent": 0, "first": 0, "counts": [0]}}),
        "s.json: values.v.bins.counts: every bin is empty",
    ),
    (
        text_of({"min": 0, "max": 1, "bins": {"exponent": 9999, "first": 0, "counts": [1]}}),
        "s.json: values.v.bins.exponent: 9999 lies outside -1024..1024",
    ),
    ('{"format": 1, "format": 2}', "s.json: format: this field is there twice"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_files_say_where(text, message):
    with pytest.raises(StatsError) as caught:
        read_statistics(text, "s.json")
    assert str(caught.value) == message


def test_missing_file():
    with pytest.raises(StatsError) as caught:
        load_statistics("no/such.json")
    assert str(caught.value) == "no/such.json: cannot read statistics: No such file or directory"
