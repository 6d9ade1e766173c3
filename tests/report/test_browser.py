"""The graph of a report in Chromium: state, hands, words. Skips without Chromium; CI installs it."""

import pytest

import planner
from api.settings import Settings
from benchmarks.topologies import TOPOLOGIES
from planner.formats.annotated.document import read_annotated
from planner.plans.explain import explain
from tests.api.conftest import served_here
from tests.api.documents import chain
from tests.report.pages import PATIENCE, colors, expect, once, press, says, state
from tests.report.test_html import MODEL, NASTY
from tests.report.test_view import WIDER


def test_the_whole_graph_is_there_at_first(show, digits):
    page = show(digits)
    now = state(page)
    assert now["nodes"] == len(digits.kernels_in_order) + len(digits.graph.inputs) + len(digits.graph.outputs)
    assert now["visible"] == now["nodes"]
    assert now["selected"] is None
    assert colors(page) > 5
    says(page.locator("#view-legend"), f"{len(digits.rescales)} rescales and casts")


def test_keys_move_zoom_and_choose(show, digits):
    page = show(digits)
    first = state(page)
    right = press(page, "ArrowRight")
    assert right["x"] > first["x"]
    near = press(page, "+", "+", "+", "+", "+")
    assert near["unit"] > 2.5 * first["unit"]
    chosen = press(page, "j", "j")
    assert chosen["selected"] == 1
    assert chosen["level"] == "names"
    expect(page.locator("#view-panel h3").first).to_have_text(digits.kernels_in_order[0].name)
    assert press(page, "k")["selected"] == 0
    assert press(page, "Escape")["selected"] is None
    assert press(page, "0")["unit"] == first["unit"]


def test_a_click_opens_a_kernel_and_its_ports_explain_themselves(show, digits):
    page = show(digits)
    press(page, "j", "j")
    box = page.locator("#view-canvas").bounding_box()
    press(page, "Escape")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert state(page)["selected"] == 1
    kernel = digits.kernels_in_order[0]
    for port in (*kernel.inputs, *kernel.outputs):
        side, _, index = port.address.rpartition(".")[2].partition("[")
        page.locator("#view-panel .ports button", has_text=f"{side}[{index}").click()
        assert state(page)["address"] == port.address
        shown = page.locator("#view-panel .why").inner_text()
        for line in explain(digits, port.address).split("\n")[1:]:
            assert line.strip() in shown.replace(" show", "")


def test_every_chain_is_what_explain_says(show, digits):
    refusing = planner.plan(TOPOLOGIES["random"](100), "litert-int8")
    assert any(step.refused for step in refusing.steps)
    for plan in (digits, refusing):
        assert chains(show(plan)) == told(plan)


def told(plan):
    """The lines of `explain` for each port that a step speaks of."""
    ports = [port.address for kernel in plan.kernels_in_order for port in (*kernel.inputs, *kernel.outputs)]
    return {
        address: [line.strip() for line in explain(plan, address).split("\n")[1:]]
        for address in ports
        if address in plan.step_at
    }


def chains(page):
    """The words of the page for each of them, in order."""
    script = """() => { const said = {}; const g = main.graph;
      for (let port = 0; port < g.ports.node.length; port++) {
        const step = g.stepOf(addressOf(g, port));
        if (step === undefined) continue;
        const words = (item) => [...item.children].flatMap((child) => child.tagName === "UL"
          ? [...child.children].flatMap(words) : [child.firstChild.textContent.trim()]);
        said[addressOf(g, port)] = [...chain(g, step, 1, new Set()).children].flatMap(words);
      } return said; }"""
    return page.evaluate(script)


def test_rescales_one_after_the_other(show, digits):
    page = show(digits)
    ids = [rescale.id for rescale in digits.rescales]
    seen = [press(page, "r")["address"] for _ in ids]
    assert seen == ids
    assert press(page, "r")["address"] == ids[0]
    rescale = digits.rescales[0]
    shown = page.locator("#view-panel .why").inner_text()
    assert f"{rescale.kind} of {rescale.elements:,} elements" in shown


def test_differences_are_marked_and_listed(show, annotated):
    before = planner.plan(annotated, "litert-int8")
    after = planner.replan(before, {"values": {"stem/relu_out": WIDER}})
    page = show(after, before)
    words = page.locator("#view-panel").inner_text()
    found = planner.diff(before, after)
    assert f"{len(found.ports) + len(found.rescales)} differences" in words
    assert "rescales: 1 → 0" in words
    assert press(page, "d")["selected"] == 1
    kernel = after.kernels_in_order[0]
    says(page.locator("#view-panel"), kernel.outputs[0].address)
    changed = {change.at.rpartition(".")[0] for change in found.ports}
    changed |= {
        name for rescale in before.rescales for name, _ in rescale.consumers if rescale.kind == "requantize"
    }
    seen = [press(page, "d")["address"] for _ in changed]
    assert seen[-1] == kernel.name
    assert set(seen) == changed
    assert "Differences" not in show(after).locator("#view-panel").inner_text()


def test_the_wheel_scrolls_the_page_until_the_graph_has_focus(show, digits):
    page = show(digits)
    box = page.locator("#view-canvas").bounding_box()
    page.mouse.move(box["x"] + 40, box["y"] + 60)
    before = state(page)
    page.mouse.wheel(0, 300)
    assert once(page, "() => window.scrollY > 0")["unit"] == before["unit"]
    page.evaluate("window.scrollTo(0, 0)")
    page.locator("#view-canvas").focus()
    place = "() => toWorld(main, 40, 60)"
    at = page.evaluate(place)
    page.mouse.wheel(0, -400)
    assert once(page, "(unit) => window.__view.unit > unit", before["unit"])["unit"] > before["unit"]
    assert page.evaluate(place) == pytest.approx(at, abs=0.05)
    assert page.evaluate("window.scrollY") == 0


def test_dragging_moves_the_view(show, digits):
    page = show(digits)
    before = state(page)
    box = page.locator("#view-canvas").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 260, box["y"] + 230, steps=4)
    page.mouse.up()
    after = state(page)
    assert after["x"] == pytest.approx(before["x"] - 60 / before["unit"])
    assert after["y"] == pytest.approx(before["y"] - 30 / before["unit"])
    assert after["selected"] is None


def test_find_leads_to_kernels_and_values(show, digits):
    page = show(digits)
    press(page, "f")
    kernel = digits.kernels_in_order[-1]
    page.keyboard.type(kernel.outputs[0].value)
    page.keyboard.press("Enter")
    now = state(page)
    assert now["address"] in {kernel.name for kernel in digits.kernels_in_order}
    page.locator("#view-find").fill("no such name")
    says(page.locator("#view-hits"), "no kernel or value")


def test_tables_lead_to_the_graph(show, digits):
    page = show(digits)
    name = digits.kernels_in_order[2].name
    page.locator("#kernels > summary").click()
    page.locator("td [data-kernel] button").nth(2).click()
    assert state(page)["address"] == name


def test_names_stay_text(show):
    plan = planner.plan(read_annotated(MODEL % ((NASTY,) * 4)), "teaching-npu")
    page = show(plan)
    for _ in range(state(page)["nodes"]):
        press(page, "j")
        for button in page.locator("#view-panel .ports li > button:first-child").all():
            button.click()
    page.locator("#view-find").fill("img")
    says(page.locator("#view-hits"), NASTY)
    expect(page.locator("img")).to_have_count(0)


def test_the_dark_page_is_dark(show, digits):
    script = """() => { const c = document.getElementById("view-canvas");
      return [...c.getContext("2d").getImageData(2, 2, 1, 1).data].slice(0, 3).reduce((a, b) => a + b); }"""
    assert show(digits, color_scheme="light").evaluate(script) == 3 * 255
    assert show(digits, color_scheme="dark").evaluate(script) < 120


def test_a_server_s_page_draws_too(browser, tmp_path):
    """Its header and the page's own policy both admit the script, in a sandbox without an origin."""
    plan = {"model": chain(3), "target": "litert-int8"}
    with served_here(Settings(data=tmp_path)) as service:
        key = service.post("/v1/plans", json=plan).json()["key"]
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"{service.base_url}/v1/plans/{key}/report")
        page.wait_for_function("() => window.__view && window.__view.frames > 0")
        assert press(page, "j")["selected"] == 0
        assert page.evaluate("window.origin") == "null"
        page.close()


def test_without_scripts_the_tables_are_there(show, digits):
    page = show(digits, java_script_enabled=False)
    assert page.locator("#view").is_hidden()
    page.locator("#kernels > summary").click()
    expect(page.locator("td", has_text=digits.kernels_in_order[0].name).first).to_be_visible()
