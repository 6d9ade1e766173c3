"""The report: everything a plan says, in one file that asks for nothing and runs two scripts of ours."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import planner
from planner.formats.annotated.document import read_annotated
from planner.report import html
from planner.report.markup import Markup, element, escape, table
from planner.report.rescale_causes import rescale_causes
from planner.report.resources import script, style, table_script
from planner.report.totals import totals

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
NASTY = "<img src=x onerror=alert(1)>"
MODEL = """{"format": "qplan.annotated/1", "name": "%s",
 "values": [
  {"name": "a", "shape": [1, 8], "constraints": ["!quant.calibrated<f32<-1.0:1.0>>"]},
  {"name": "b", "shape": [1, 8], "constraints": ["!quant.calibrated<f32<-40.0:40.0>>"]},
  {"name": "%s", "shape": [1, 16], "constraints": ["!quant.calibrated<f32<-40.0:40.0>>"]},
  {"name": "z", "shape": [1, 16]}],
 "kernels": [
  {"name": "cat </td>", "kernel": "Concat", "inputs": ["a", "b"], "outputs": ["%s"]},
  {"name": "odd & end", "kernel": "Mystery", "inputs": ["%s"], "outputs": ["z"]}],
 "inputs": ["a", "b"], "outputs": ["z"]}"""


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):  # noqa: D102 - HTMLParser's
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):  # noqa: D102 - HTMLParser's
        assert self.open.pop() == tag

    def handle_data(self, data):  # noqa: D102 - HTMLParser's
        self.words.append(data)


@pytest.fixture(scope="module")
def nasty():
    plan = planner.plan(read_annotated(MODEL % ((NASTY,) * 4)), "teaching-npu")
    return plan, Page(planner.write_report(plan))


@pytest.fixture(scope="module")
def digits():
    model = planner.load_model(DIGITS / "digits.onnx")
    model = planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))
    plan = planner.plan(model, "onnxruntime-cpu")
    data = planner.export(model, plan, "onnx-qdq")
    comparison = planner.compare(model, data, DIGITS / "calibration.npz")
    return plan, comparison, planner.write_report(plan, {"onnx-qdq": comparison})


def test_names_stay_text(nasty):
    plan, page = nasty
    assert plan.graph.name == NASTY
    assert "img" not in page.tags
    assert any(NASTY in word for word in page.words)
    assert any("cat </td>" in word for word in page.words)
    assert any("odd & end" in word for word in page.words)


def test_tags_are_closed(nasty):
    assert nasty[1].open == []


def test_float_kernels_have_their_reason(nasty):
    plan, page = nasty
    reason = plan.kernels["odd & end"].reason
    assert reason
    assert any(reason in word for word in page.words)


def test_nothing_is_asked_for_and_two_scripts_run(digits):
    text = digits[2]
    page = Page(text)
    assert not {"link", "img", "iframe", "object"} & set(page.tags)
    assert page.tags.count("script") == 4  # two of them data
    assert ("type", "application/json") in page.attributes
    admitted = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (script(), table_script())
    )
    styled = "'sha256-" + base64.b64encode(hashlib.sha256(style().encode()).digest()).decode() + "'"
    policy = dict(page.attributes)["content"]
    assert policy == f"default-src 'none'; style-src {styled}; script-src {admitted}"
    assert not [name for name, _ in page.attributes if name in ("src", "href") or name.startswith("on")]
    assert not re.search(r"https?://|url\(|@import", text)


def test_every_kernel_rescale_and_value_is_there(digits):
    plan, _, text = digits
    words = "\n".join(Page(text).words)
    names = [kernel.name for kernel in plan.kernels_in_order] + [rescale.id for rescale in plan.rescales]
    assert [name for name in names if name not in words] == []
    assert all(plan.row_of(name).source in words for name, kernel in plan.kernels.items() if kernel.row)
    assert str(plan.values["image"].type or "float") in words


def test_totals_and_quality_are_there(digits):
    plan, comparison, text = digits
    words = "\n".join(Page(text).words)
    count = totals(plan)
    assert f"{count.integer} of {count.kernels}" in words
    assert f"{comparison.outputs['probabilities'].sqnr:.2f} dB" in words
    assert plan.key in words


def test_the_cost_is_in_its_parts():
    """The parts of docs/price.md: 64 and 10 elements cast at 100 each, the rest two readers' lost bits."""
    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    model = planner.correct_biases(planner.annotate(model, stats=stats), "litert-int8", stats)
    plan = planner.plan(model, "litert-int8", requantize=100.0, quantize=100.0, dequantize=100.0)
    text = "13,556 (the least possible): 7,400 for rescales and casts, 6,156 for lost bits"
    assert text in Page(planner.write_report(plan)).words


def test_the_same_plan_gives_the_same_page(digits):
    plan, comparison, text = digits
    assert planner.write_report(plan, {"onnx-qdq": comparison}) == text


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (element("b", "a < b & c"), "<b>a &lt; b &amp; c</b>"),
        (element("td", Markup("<i>x</i>"), 3), "<td><i>x</i>3</td>"),
        (element("p", class_='"x"'), '<p class="&quot;x&quot;"></p>'),
        (escape("a\x00\x1b[2J\u202eb"), "a\ufffd\ufffd[2J\ufffdb"),
        (table(("x",), []), '<p class="none">(none)</p>'),
    ],
)
def test_markup_escapes_everything_else(made, text):
    assert made == text


def test_causes_beyond_the_rows_that_are_listed_say_so(digits, monkeypatch):
    plan = digits[0]
    monkeypatch.setattr(html, "SHOWN", 1)
    text = planner.write_report(plan)
    causes = len(rescale_causes(plan))
    assert causes > 1
    assert text.count("Too many to list here.") == causes - 1
