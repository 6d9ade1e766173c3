"""A report with thirty float kernels at three widths: nothing overflows, no column is a letter wide."""

import pytest

from planner.report.totals import is_integer
from tests.report.floats import float_plan
from tests.report.pages import says, state

WIDTHS = (390, 768, 1440)
LEAST_LETTERS = 8
"""Letters that every cell of a table and every card has room for, if its text is as long."""

PARTS = "td, th, dt, dd, .card, .card li, .card p, summary, #what-if, #view-panel li"
NARROW = """([least, parts]) => { const found = [];
  const letter = Object.assign(document.createElement("canvas")).getContext("2d");
  for (const each of document.querySelectorAll(parts)) {
    const style = getComputedStyle(each);
    letter.font = style.font;
    const text = each.innerText.trim().slice(0, least);
    if (each.offsetParent && each.clientWidth + 1 < letter.measureText(text).width)
      found.push([each.tagName, text, each.clientWidth]); }
  return found; }"""

CUT = """() => { const { graph: g, scene, view: { unit } } = main;
  const items = [...scene.shown.flat(), ...scene.boxes.map((i) => g.count + i)];
  return items.filter((item) => { const { w, h } = placeOf(g, scene, item);
    return nameIn(g, item, { wide: w * unit, high: h * unit, unit }).cut; }); }"""

OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !each.closest(".wide, figure, #view-hits");
}).map((each) => each.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def plan():
    found = float_plan()
    assert sum(not is_integer(kernel) for kernel in found.kernels_in_order) == 30
    assert max(len(kernel.reason or "") for kernel in found.kernels_in_order) > 250
    return found


@pytest.mark.parametrize("width", WIDTHS)
def test_what_was_measured_fits_beside_its_names(show, full, width):
    plan, given = full
    page = show(plan, given=given, viewport={"width": width, "height": 900})
    page.evaluate("planPage.select('stem/conv')")
    says(page.locator("#view-panel dl"), "share of the noise")
    assert page.evaluate(NARROW, [LEAST_LETTERS, PARTS]) == []


@pytest.mark.parametrize("width", WIDTHS)
def test_thirty_float_kernels_fit(show, plan, width):
    page = show(plan, viewport={"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate("planPage.edit({of: 'kernel', at: '/head/softmax', value: 'float'})")
    state(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(NARROW, [LEAST_LETTERS, PARTS]) == []


def contrast(one, other):
    """WCAG 2.2's ratio of two colours, `rgb(...)` or `#...`."""

    def light(text):
        parts = (
            [int(text[i : i + 2], 16) for i in (1, 3, 5)]
            if text.startswith("#")
            else [int(part) for part in text.strip("rgb()").split(",")[:3]]
        )
        linear = [
            x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (p / 255 for p in parts)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_float_is_the_warm_colour_in_graph_bar_and_legend(show, plan, scheme):
    page = show(plan, color_scheme=scheme)
    float_, paper = page.evaluate("[colorOfKind('float'), palette.paper]")
    red, _, blue = (int(float_[i : i + 2], 16) for i in (1, 3, 5))
    assert red > 1.8 * blue
    assert contrast(float_, paper) >= 3
    assert contrast(float_, page.evaluate("inkOn(colorOfKind('float'))")) >= 4.5
    for kind in ("i4", "i8", "u8", "i16"):
        color = page.evaluate("(kind) => colorOfKind(kind)", kind)
        assert int(color[1:3], 16) <= int(color[5:7], 16) + 48, kind
    script = "() => getComputedStyle(document.querySelector('.cards svg .float')).fill"
    assert contrast(page.evaluate(script), float_) < 1.05
    says(page.locator("#view-legend li").first, "float 30")
    says(page.locator(".cards .legend"), "30 float")


def test_names_are_whole_at_first(show, plan, full):
    for page in (show(plan), show(full[0]), show(plan, viewport={"width": 390, "height": 900})):
        assert page.evaluate(CUT) == []


def test_the_panel_lists_float_kernels_by_cause_and_leads_to_each(show, plan):
    page = show(plan)
    panel = page.locator("#view-panel")
    says(panel.locator("h3").first, "30 kernels in float")
    causes = panel.locator("details.cause")
    says(causes.first, "are not supported by litert-int8: Div (5), Erf (5), LayerNormalization (5)")
    causes.first.locator("summary").click()
    causes.first.locator("button").first.click()
    assert state(page)["address"] == "/encoder/layer.0/attention/output/LayerNormalization"


def test_tables_are_folded_and_open_where_a_host_leads_to_them(show, plan):
    page = show(plan)
    parts = page.locator("#tables details.part")
    assert parts.count() > 3
    assert page.locator("#tables details[open]").count() == 0
    page.evaluate("planPage.read('kernels-in-float,-and-why')")
    assert page.locator("#tables details.part[open] h2").inner_text() == "Kernels in float, and why"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#tables details:not([open])").count() == 0
