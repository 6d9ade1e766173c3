"""The support table, the difference of two targets, files to start from."""

import re
from html.parser import HTMLParser

import pytest

from planner.errors import InputError
from planner.target.diff import diff_targets
from planner.target.docs.starter import new_target
from planner.target.docs.support import support_markdown, support_of
from planner.target.lint.findings import lint
from planner.target.load import load_target, target_ids
from planner.target_tests.cases import run_cases
from planner.target_tests.support_page import support_html

SMALL = """
apiVersion: planner/v1
kind: Target
id: small
version: 1.0.0
title: Small <device>
types: {a8: {storage: i8}, p8: {storage: i8, power_of_two: true, scale_min: 1/16}}
fusions:
  - {kernel: conv, pattern: "Relu|Clip?(Conv(x, w))", where: {Conv.group: 1}}
  - {kernel: pool, pattern: "MaxPool(x)"}
kernels:
  - {kernel: conv, in: {x: p8, w: a8}, out: {y: a8}, when: {min_bits: {x: 4}}, accumulator: i32}
  - {kernel: Tanh, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/128}}]}
"""


def test_markdown_of_a_small_target():
    head, table = support_markdown(load_target(SMALL)).split("## Kernels\n")
    assert head.startswith("# Small <device> (small 1.0.0)\n\n| | |\n|---|---|\n| mode | fixed |\n")
    assert table.splitlines()[1:] == [
        "| kernel | ops | in | out | rules | when | arithmetic | row |",
        "|---|---|---|---|---|---|---|---|",
        (
            "| conv | Relu\\|Clip?(Conv(x, w)) where Conv.group: 1 | x: i8, scale 2^n, scale >= 0.0625<br>w: i8 "  # noqa: E501
            "| y: i8 |  | min_bits: {x: 4} | tosa_double, i32 accumulator | text:12 |"
        ),
        "| Tanh | Tanh | x: i8 | y: i8 | fixed_scale: port y, scale 1/128, zero_point 0 |  | tosa_double | text:13 |",  # noqa: E501
        "",
        "In float, without a row: `pool`.",
    ]


@pytest.mark.parametrize("name", target_ids())
def test_the_table_has_every_row(name):
    target = load_target(name)
    rows = [row for group in target.rows.values() for row in group]
    assert [row.source for row in support_of(target).rows] == [row.source for row in rows]
    cells = [
        len(re.findall(r"(?<!\\)\|", line))
        for line in support_markdown(target).splitlines()
        if ".yaml:" in line
    ]
    assert set(cells) == {9}


def test_html_is_whole_and_asks_for_nothing():
    tags = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append((tag, dict(attrs)))

    text = support_html(load_target(SMALL))
    Reader().feed(text)
    assert {"script", "link", "img", "device"} & {tag for tag, _ in tags} == set()
    assert not any("src" in attrs or "href" in attrs for _, attrs in tags)
    assert "Small &lt;device&gt;" in text
    assert "unsafe-inline" not in text


@pytest.mark.parametrize("name", target_ids())
def test_a_target_does_not_differ_from_itself(name):
    assert diff_targets(load_target(name), load_target(name)) == ()


@pytest.mark.parametrize(
    ("written", "instead", "line"),
    [
        ("version: 1.0.0", "version: 1.1.0", "~ head version: 1.0.0 -> 1.1.0"),
        ("types:", "costs: {bit_price: 3}\ntypes:", "~ cost bit_price: 2.0 -> 3.0"),
        ("types:", "defaults: {bias: i64}\ntypes:", "~ default bias: i32 -> i64"),
        ("types:", "legalize: [{kernel: k, into: [conv]}]\ntypes:", "+ legalize k: [conv]"),
        (
            "scale: 1/128",
            "scale: 1/127",
            "~ row Tanh(x: i8) -> (y: i8): fixed_scale: port y, scale 1/128, zero_point 0; tosa_double -> fixed_scale: port y, scale 1/127, zero_point 0; tosa_double",  # noqa: E501
        ),
        (", where: {Conv.group: 1}", "", "~ fusion conv Relu|Clip?(Conv(x, w)): Conv.group: 1 -> nothing"),
        ('  - {kernel: pool, pattern: "MaxPool(x)"}\n', "", "- fusion pool MaxPool(x)"),
        (
            "kernels:",
            "kernels:\n  - {kernel: Erf, in: {x: a8}, out: {y: a8}}",
            "+ row Erf(x: i8) -> (y: i8): tosa_double",
        ),
        ("types:", "# a comment\ntypes:", None),
    ],
)
def test_diff(written, instead, line):
    found = diff_targets(load_target(SMALL), load_target(SMALL.replace(written, instead, 1)))
    assert [str(difference) for difference in found] == ([] if line is None else [line])


def test_diff_tells_an_order_that_changed():
    row = "  - {kernel: Erf, in: {x: %s}, out: {y: a8}}\n"
    a, b = (load_target(SMALL + row % one + row % two) for one, two in (("a8", "p8"), ("p8", "a8")))
    (found,) = diff_targets(a, b)
    assert str(found).startswith("~ order of rows Erf(x: i8) -> (y: i8): before Erf(x: ")
    assert str(found).endswith(" -> behind it")


@pytest.mark.parametrize("last", [False, True])
def test_diff_tells_an_entry_that_moved_past_others_once(last):
    rows = [
        f"  - {{kernel: Erf, in: {{x: {{storage: {kind}}}}}, out: {{y: a8}}}}\n"
        for kind in ("i8", "u8", "i4")
    ]
    moved = rows[1:] + rows[:1] if last else rows[2:] + rows[:2]
    (found,) = diff_targets(load_target(SMALL + "".join(rows)), load_target(SMALL + "".join(moved)))
    assert str(found).startswith("~ order of rows Erf(x: i8) -> (y: i8): before Erf(x: ")


def test_diff_tells_no_order_that_decides_nothing():
    """Two fusions that want no op in common may stand either way round; those that share one may not."""
    lines = [line for line in SMALL.splitlines() if line.startswith("  - {kernel: ") and "pattern: " in line]
    apart = '  - {kernel: gate, pattern: "Sigmoid(x)"}'
    near = '  - {kernel: conv_tanh, pattern: "Tanh(Conv(x, w))"}'
    assert "Conv(" in lines[0]

    def with_first(line, *, last=False):
        pair = (lines[0], line) if last else (line, lines[0])
        return load_target(SMALL.replace(lines[0], "\n".join(pair), 1))

    assert diff_targets(with_first(apart), with_first(apart, last=True)) == ()
    (found,) = diff_targets(with_first(near), with_first(near, last=True))
    assert str(found).startswith("~ order of fusions conv_tanh Tanh(Conv(x, w)): before conv ")


@pytest.mark.parametrize("base", [None, *target_ids()])
def test_a_starter_lints_clean_and_its_tests_pass(base):
    text = new_target("my-npu", None if base is None else load_target(base), title='A "new" one')
    target = load_target(text)
    assert (target.id, target.title) == ("my-npu", 'A "new" one')
    assert [str(finding) for finding in lint(target)] == []
    results = run_cases(target)
    assert results
    assert all(result.ok for result in results)


def test_a_name_that_is_no_id():
    with pytest.raises(InputError, match="'my npu' is no id of a target"):
        new_target("my npu")
