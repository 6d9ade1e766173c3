"""Charts and the top of a report: figures where they belong, in words too, and names as text."""

import math
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

import planner
from planner.accuracy.quality import Quality
from planner.formats.annotated.document import read_annotated
from planner.interpreter.compare import Comparison
from planner.ir.types.qtypes import Uniform
from planner.report.charts import Bar, Level, Seen, Steps, Trade, along, bars, channels, histogram, trades
from planner.report.plan_charts import causes_by_kernel, reasons, rescale_chart
from planner.report.summary import bytes_text, mark, size_of, summary
from planner.report.totals import is_integer
from tests.conftest import ROOT
from tests.report.test_html import MODEL, NASTY


def read(chart):
    """The chart as XML: tags with their attributes, and its description."""
    root = ET.fromstring(str(chart))  # noqa: S314 - our own text
    return root, root.find("desc").text


def of_class(root, name):
    return [one for one in root.iter() if name in one.get("class", "").split()]


def test_bars_are_as_long_as_their_numbers():
    root, told = read(bars("x", [Bar("a", 4.0, "four"), Bar(NASTY, 1.0, "one"), Bar("c", 0.0, "none")]))
    wide = [float(one.get("width")) for one in of_class(root, "bar")]
    assert wide[0] == pytest.approx(4 * wide[1])
    assert wide[2] == 1.0
    assert told == f"a: four; {NASTY}: one; c: none"


def test_a_histogram_has_its_range_its_steps_and_what_is_outside():
    seen = Seen([0.0, 1.0, 2.0, 3.0, 4.0], [4, 9, 0, 3])
    root, told = read(histogram("v", seen, Steps(0.0, 2.0, 0.5, 5)))
    assert told == "Seen from 0 to 4; the type holds 0 to 2 in 5 levels, steps of 0.5; 18.75% lies outside."
    (chosen,) = of_class(root, "chosen")
    assert float(chosen.get("width")) == pytest.approx(320 / 2)
    assert of_class(root, "steps")[0].get("d").count("M") == 5


@pytest.mark.parametrize("counts", [[1], [0, 1, 1], [1, 4], [10**6, 3]])
def test_the_tallest_bar_of_a_histogram_reaches_the_top_of_the_range(counts):
    borders = [float(k) for k in range(len(counts) + 1)]
    root, _ = read(histogram("v", Seen(borders, counts), Steps(0.0, 1.0, 1 / 255, 256)))
    (chosen,), (bar,) = of_class(root, "chosen"), of_class(root, "bar")
    heights = re.findall(r"V([\d.]+)", bar.get("d"))
    assert min(map(float, heights)) == float(chosen.get("y"))
    assert float(heights[-1]) == float(chosen.get("y")) + float(chosen.get("height"))


def test_steps_that_run_into_each_other_are_not_drawn():
    root, _ = read(histogram("v", Seen([0.0, 1.0], [1]), Steps(0.0, 1.0, 1 / 255, 256)))
    assert of_class(root, "steps") == []


@pytest.mark.parametrize(
    "chart",
    [
        histogram("v", Seen([0.0, 0.0], [0]), Steps(0.0, 0.0, 1.0, 1)),
        along("x", [Level("a", math.inf), Level("b", -math.inf)], (20.0, 10.0)),
        channels("w", [0.0, 0.0]),
        channels("w", [1e-30, 1.0]),
        trades("y", [Trade(0, 0.0, chosen=True)]),
        bars("x", []),
    ],
)
def test_odd_figures_are_drawn(chart):
    assert not any(
        "nan" in value or "inf" in value for one in read(chart)[0].iter() for value in one.attrib.values()
    )


def test_sqnr_along_the_model_names_the_worst():
    root, told = read(along("x", [Level("a", 40.0), Level("b", 12.5), Level("c", math.inf)], (20.0, 10.0)))
    assert told.startswith("3 values; the worst: b 12.5 dB; a 40.0 dB; c exact")
    heights = [float(one.get("cy")) for one in of_class(root, "dot")]
    assert heights[1] > heights[0] > heights[2]
    assert len(of_class(root, "limit")) == 2


@pytest.mark.parametrize(
    ("sqnr", "word"),
    [(math.inf, "good"), (30.0, "good"), (29.9, "fair"), (20.0, "fair"), (19.9, "poor"), (9.9, "poor")],
)
def test_quality_has_a_colour_by_the_limits_of_the_command(sqnr, word):
    assert mark(sqnr) == word
    plan = planner.plan(read_annotated(MODEL % (("m",) * 4)), "teaching-npu")
    top = summary(plan, {"onnx-qdq": Comparison(3, {"z": Quality(sqnr, 0.1, 16)}, held_out=True)}, None)
    assert f'class="figure {word}"' in top
    assert f'<span class="level">{word}</span>' in top
    assert "SQNR of the worst output of onnx-qdq, on 3 held-out samples against the float model" in top


def test_what_was_not_measured_is_not_judged():
    plan = planner.plan(read_annotated(MODEL % (("m",) * 4)), "teaching-npu")
    assert "not measured" in summary(plan, {}, None)
    assert "grade" not in summary(plan, {}, None)


def test_weights_count_once_for_each_type(digits):
    size = size_of(digits)
    stored = {
        (port.value, port.type.storage.bits)
        for kernel in digits.kernels_in_order
        for port in kernel.inputs
        if port.value in digits.graph.constants and isinstance(port.type, Uniform)
    }
    values = digits.graph.values
    assert size.before == sum(4 * values[name].elements for name in {name for name, _ in stored})
    assert size.after == sum(values[name].elements * bits / 8 for name, bits in stored)
    assert size.after < 0.3 * size.before


def test_like_reasons_are_one():
    plan = planner.plan(read_annotated(MODEL % (("m",) * 4)), "teaching-npu")
    (odd,) = [kernel for kernel in plan.kernels_in_order if kernel.kernel == "Mystery"]
    other = replace(odd, kernel="Other", reason=odd.reason.replace("Mystery", "Other"))
    several = replace(plan, kernels_in_order=(odd, odd, other))
    ((reason, kinds),) = reasons(several)
    assert reason == "teaching-npu has no row for the kernel"
    assert dict(kinds) == {"Mystery": 2, "Other": 1}


def test_the_dearest_rescale_comes_first(digits):
    _, told = read(rescale_chart(digits).removeprefix("<figure>").removesuffix("</figure>"))
    first = max(digits.rescales, key=lambda one: one.cost)
    assert told.startswith(f"{first.id}: {first.cost:,.0f} {first.kind}; ")


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999 bytes"), (45_000, "45 kB"), (1_234_567, "1.23 MB"), (2e9, "2 GB")]
)
def test_bytes_in_words(number, text):
    assert bytes_text(number) == text


def test_each_cause_counts_the_kernels_that_are_listed_below_it():
    """Kernels that only move data between floats do not count for a verdict, and are listed all the same."""
    model = planner.load_model(ROOT / "examples" / "digits" / "digits.onnx")
    plan = planner.plan(model, "llm-w4")
    found = causes_by_kernel(plan)
    assert [cause.kernels for cause, _ in found] == [len(names) for _, names in found]
    named = [name for _, names in found for name in names]
    assert sorted(named) == sorted(kernel.name for kernel in plan.kernels_in_order if not is_integer(kernel))
    assert found[0][0].text().startswith("19 operators are not supported by llm-w4: Conv (7), Relu (5)")
