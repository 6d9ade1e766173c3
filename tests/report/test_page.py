"""The page of a plan in Chromium: groups, colours, what if, two plans, tables, widths, dresses, keys, axe."""

import json
from importlib.resources import files
from xml.etree import ElementTree as ET

import pytest

import planner
from planner.formats.annotated.document import read_annotated
from tests.report.pages import PATIENCE, expect, once, press, says, state
from tests.report.test_html import MODEL, NASTY
from tests.report.test_view import WIDER

WIDTHS = {"phone": 390, "tablet": 820, "desk": 1440}
LAYERS = 6


def layered(layers=LAYERS, inside=8):
    """A chain in layers, named as PyTorch's exporter does."""
    names = [f"/enc/layer.{i}/act{k}" for i in range(layers) for k in range(inside)]
    values = [{"name": f"v{i}", "shape": [1, 4]} for i in range(len(names) + 1)]
    for value in values:
        value["constraints"] = ["!quant.calibrated<f32<-1.0:1.0>>"]
    kernels = [
        {"name": name, "kernel": "Relu", "inputs": [f"v{i}"], "outputs": [f"v{i + 1}"]}
        for i, name in enumerate(names)
    ]
    document = {"format": "qplan.annotated/1", "name": "layers", "values": values, "kernels": kernels,
                "inputs": ["v0"], "outputs": [f"v{len(names)}"]}  # fmt: skip
    return planner.plan(read_annotated(json.dumps(document)), "litert-int8")


def boxes(page):
    """Names of the folded groups, of the open ones, and how many kernels are boxes of their own."""
    return page.evaluate(
        """() => ({folded: main.scene.boxes.map((i) => pathOf(main.graph, i)),
                   open: main.scene.frames.map((i) => pathOf(main.graph, i)),
                   nodes: main.scene.shown.reduce((sum, row) => sum + row.length, 0)})"""
    )


def test_layers_are_folded_at_first_and_open(show):
    page = show(layered())
    layers = [f"enc/layer.{i}" for i in range(LAYERS)]
    assert boxes(page) == {"folded": layers, "open": ["enc"], "nodes": 2}
    assert state(page)["level"] == "names"
    page.evaluate("planPage.select('enc/layer.2')")
    assert state(page)["address"] == "enc/layer.2"
    says(page.locator("#view-panel"), "8 kernels")
    press(page, "Enter")
    assert boxes(page)["folded"] == [name for name in layers if name != "enc/layer.2"]
    assert boxes(page)["nodes"] == 2 + 8
    press(page, "Enter")
    assert boxes(page)["folded"] == layers
    page.get_by_role("button", name="unfold all").click()
    assert boxes(page) == {"folded": [], "open": ["enc", *layers], "nodes": 2 + 8 * LAYERS}
    page.get_by_role("button", name="fold all", exact=True).click()
    assert boxes(page)["folded"] == ["enc"]


def test_a_kernel_in_a_folded_layer_comes_into_sight(show):
    page = show(layered(), link="#kernel=%2Fenc%2Flayer.3%2Fact5")
    assert state(page)["address"] == "/enc/layer.3/act5"
    assert "enc/layer.3" in boxes(page)["open"]
    press(page, "j")
    assert page.evaluate("location.hash") == "#kernel=%2Fenc%2Flayer.3%2Fact6"
    assert press(page, "Escape")["selected"] is None
    assert page.evaluate("location.hash") == ""


def test_a_frame_without_height_at_first_opens_at_the_beginning(browser, digits):
    page = browser.new_page(viewport={"width": 800, "height": 900})
    page.set_default_timeout(PATIENCE)
    page.set_content('<iframe sandbox="allow-scripts" style="width: 700px; height: 0"></iframe>')
    text = planner.write_report(digits, live=True)
    page.evaluate("(text) => { document.querySelector('iframe').srcdoc = text; }", text)
    frame = page.frames[1]
    frame.wait_for_function("() => window.planPage")
    state(frame)
    page.evaluate("document.querySelector('iframe').style.height = '800px'")
    frame.wait_for_function("() => window.__view.frames > 1 && main.size.h > 300")
    assert 0 <= frame.evaluate("toScreen(main, 0, 0)[1]") < 40
    page.close()


def test_a_frame_without_width_at_first_shows_two_plans_side_by_side(browser, annotated):
    """Chromium may run a frame's script before the frame has its size."""
    before = planner.plan(annotated, "litert-int8")
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(PATIENCE)
    page.set_content('<iframe sandbox="allow-scripts" style="width: 0; height: 800px; border: 0"></iframe>')
    text = planner.write_report(planner.replan(before, {"kernels": {"join/concat": "float"}}), before=before)
    page.evaluate("(text) => { document.querySelector('iframe').srcdoc = text; }", text)
    frame = page.frames[1]
    frame.wait_for_function("() => window.planPage")
    both = frame.get_by_role("button", name="before | after")
    is_beside = "() => document.getElementById('view-stage').classList.contains('two')"
    assert not frame.evaluate(is_beside)
    page.evaluate("document.querySelector('iframe').style.width = '1000px'")
    frame.wait_for_function(is_beside)
    assert both.get_attribute("aria-pressed") == "true"
    both.click()  # from here on the reader's choice counts
    page.evaluate("document.querySelector('iframe').style.width = '800px'")
    page.evaluate("document.querySelector('iframe').style.width = '1000px'")
    frame.wait_for_function("() => window.innerWidth === 1000")
    assert not frame.evaluate(is_beside)
    page.close()


def test_both_plans_side_by_side_have_a_map(show):
    plan = layered()
    page = show(planner.replan(plan, {"values": {"v9": "!quant.none"}}), before=plan)
    page.get_by_role("button", name="unfold all").click()
    page.evaluate("panes.forEach((pane) => { pane.view.unit = 60; refresh(pane); })")
    state(page)
    assert page.evaluate("panes.map(({ map }) => map.hidden)") == [False, False]
    tops = page.evaluate("panes.map(({ view }) => view.y)")
    low = page.locator("#view-before-map").bounding_box()
    page.mouse.click(low["x"] + low["width"] / 2, low["y"] + 0.9 * low["height"])
    once(page, "(tops) => panes.every(({ view }, i) => view.y > tops[i] + 10)", tops)
    moved = [
        now - before
        for now, before in zip(page.evaluate("panes.map(({ view }) => view.y)"), tops, strict=True)
    ]
    assert moved[0] > 10
    assert moved[0] == pytest.approx(moved[1])


def test_arrows_go_along_the_edges_and_over_folded_layers(show):
    page = show(layered())
    page.evaluate("planPage.select('enc/layer.1')")
    seen = [
        press(page, key)["address"] for key in ("ArrowDown", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp")
    ]
    assert seen == ["enc/layer.2", "enc/layer.3", "enc/layer.2", "enc/layer.1", "enc/layer.0"]
    moved = press(page, "Shift+ArrowRight")
    assert moved["address"] == "enc/layer.0"


@pytest.mark.parametrize("figure", ["storage", "share", "lost", "macs", "work"])
def test_boxes_are_coloured_by_a_figure_that_the_legend_explains(show, full, figure):
    plan, given = full
    page = show(plan, given=given)
    page.locator("#view-color").select_option(figure)
    state(page)
    script = "() => [...Array(main.graph.count).keys()].map((node) => colorOf(main, node))"
    assert len(set(page.evaluate(script))) > (1 if figure == "storage" else 2)
    unit = page.evaluate("(name) => MODES[name].unit ?? 'i8'", figure)
    says(page.locator("#view-legend"), unit)


def test_own_loss_is_offered_where_it_was_measured(show, digits):
    assert page_options(show(digits)) == ["storage", "lost", "macs", "work"]


def page_options(page):
    return page.evaluate("() => [...document.getElementById('view-color').options].map((one) => one.value)")


def test_what_if_shows_the_file_and_the_command_that_do_it(show, annotated, tmp_path):
    plan = planner.plan(annotated, "litert-int8")
    page = show(plan)
    page.evaluate("document.addEventListener('qplan:edit', (event) => (window.told = event.detail))")
    page.evaluate("planPage.select('head/gemm')")
    page.locator("#view-panel .asks button", has_text="float").click()
    page.evaluate("planPage.select('stem/conv')")
    page.locator("#view-panel .ports button", has_text="out[0]").click()
    page.locator("#view-panel .why .asks button", has_text="fix this type").click()
    pinned = str(plan.values["stem/relu_out"].type)
    wanted = {"kernels": {"head/gemm": "float"}, "values": {"stem/relu_out": pinned}}
    assert page.evaluate("told") == {
        "action": "edit", "of": "value", "at": "stem/relu_out", "value": pinned,
        "document": {"format": "qplan.annotations/1", **wanted},
    }  # fmt: skip
    shown = page.locator("#view-edits pre").first.inner_text()
    says(page.locator("#view-edits"), "qplan replan plan.json --edits edits.yaml")
    path = tmp_path / "edits.yaml"
    path.write_text(shown, encoding="utf-8")
    again = planner.replan(plan, path)
    assert again.kernels["head/gemm"].row is None
    assert again.key == planner.replan(plan, wanted).key
    with page.expect_download() as saved:
        page.get_by_role("button", name="save edits.yaml").click()
    assert saved.value.path().read_text(encoding="utf-8").strip() == shown.strip()
    page.get_by_role("button", name="undo").click()
    assert page.evaluate("told.action") == "undo"
    assert "values" not in page.evaluate("planPage.document()")
    page.get_by_role("button", name="clear").click()
    assert page.locator("#view-edits").is_hidden()


def test_a_host_in_the_window_around_hears_edits_and_shows_another_plan(browser, annotated, tmp_path):
    plan = planner.plan(annotated, "litert-int8")
    again = planner.replan(plan, {"kernels": {"head/gemm": "float"}})
    (tmp_path / "report.html").write_text(planner.write_report(plan, live=True), encoding="utf-8")
    frame = '<iframe src="report.html" sandbox="allow-scripts allow-downloads" width="1000" height="800">'
    listen = "<script>const heard = []; onmessage = (event) => heard.push(event.data);</script>"
    (tmp_path / "host.html").write_text(f"{listen}{frame}</iframe>", encoding="utf-8")
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto((tmp_path / "host.html").as_uri())
    inner = page.frames[1]
    inner.wait_for_function("() => window.__view && window.__view.frames > 0")
    inner.evaluate("planPage.edit({of: 'kernel', at: 'head/gemm', value: 'float'})")
    page.wait_for_function("() => heard.length > 0")
    assert page.evaluate("heard[0].type") == "qplan:edit"
    assert page.evaluate("heard[0].detail.document.kernels") == {"head/gemm": "float"}
    from_view = planner.report.view.view_of(again, plan)
    send = "(message) => document.querySelector('iframe').contentWindow.postMessage(message, '*')"
    page.evaluate(send, {"type": "qplan:say", "text": "planned in 3 ms"})
    page.evaluate(send, {"type": "qplan:mark", "names": ["head/gemm", "no such kernel"]})
    inner.wait_for_function("() => main.graph.changed.size === 1")
    says(inner.locator("#view-legend"), "changed kernel")
    page.evaluate(send, {"type": "qplan:show", "view": from_view})
    page.evaluate(send, {"type": "qplan:select", "name": "head/gemm"})
    inner.wait_for_function("() => window.__view.address === 'head/gemm'")
    expect(inner.locator("#view-said")).to_have_text("planned in 3 ms")
    says(inner.locator("#view-panel"), "float, because")
    page.close()


def test_two_plans_stand_side_by_side_and_move_as_one(show, annotated):
    before = planner.plan(annotated, "litert-int8")
    after = planner.replan(before, {"values": {"stem/relu_out": WIDER}})
    page = show(after, before)
    expect(page.locator("#view-before")).to_be_visible()
    chosen = press(page, "d")["address"]
    other = "() => itemName(panes[0].graph, panes[0].view.selected)"
    assert page.evaluate(other) == chosen
    assert page.evaluate("panes[0].graph.rescales.id.length") == len(before.rescales)
    press(page, "+", "+")
    assert page.evaluate("panes[0].view.unit === panes[1].view.unit")
    page.locator("#view-before").focus()
    page.keyboard.press("j")
    assert state(page)["address"] == page.evaluate(other)
    page.get_by_role("button", name="before | after").click()
    assert page.locator("#view-before").is_hidden()
    assert show(after).locator("#view-both").is_hidden()


def test_the_graph_is_saved_as_svg_and_png(show):
    page = show(planner.plan(read_annotated(MODEL % ((NASTY,) * 4)), "teaching-npu"))
    with page.expect_download() as saved:
        page.get_by_role("button", name="save the graph as SVG").click()
    root = ET.fromstring(saved.value.path().read_text(encoding="utf-8"))  # noqa: S314 - our own text
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names == {"svg", "title", "path", "rect", "text"}
    assert any(NASTY[:4] in (element.text or "") for element in root.iter())
    with page.expect_download() as saved:
        page.get_by_role("button", name="save the graph as PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


def test_tables_sort_filter_and_save(show, full):
    plan, given = full
    page = show(plan, given=given)
    section = page.locator("#tables details#values")
    section.locator("summary").click()
    section.get_by_role("button", name="bits lost").click()
    cells = section.locator("tbody td:nth-child(3)")
    numbers = [float(text) for text in cells.all_inner_texts()]
    assert numbers == sorted(numbers)
    section.get_by_role("button", name="bits lost").click()
    assert [float(text) for text in cells.all_inner_texts()] == sorted(numbers, reverse=True)
    page.get_by_label("filter Values", exact=True).fill("relu")
    shown = section.locator("tbody tr:visible")
    assert 0 < shown.count() < len(numbers)
    assert all("relu" in text for text in shown.all_inner_texts())
    with page.expect_download() as saved:
        page.get_by_label("save Values as CSV", exact=True).click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0] == '"value","type at its definition","bits lost","clipped"'
    assert len(lines) == 1 + shown.count()


def test_two_fingers_zoom_and_one_drags(show, digits):
    page = show(digits, has_touch=True, is_mobile=True, viewport={"width": 390, "height": 844})
    page.locator("#view-canvas").scroll_into_view_if_needed()
    box = page.locator("#view-canvas").bounding_box()
    session = page.context.new_cdp_session(page)
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    def touch(kind, *places):
        points = [{"x": middle[0] + x, "y": middle[1] + y, "id": i} for i, (x, y) in enumerate(places)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    first = state(page)
    touch("touchStart", (-20, 0), (20, 0))
    for apart in (30, 45, 60):
        touch("touchMove", (-apart, 0), (apart, 0))
    touch("touchEnd")
    near = state(page)
    assert near["unit"] == pytest.approx(3 * first["unit"], rel=0.15)
    touch("touchStart", (0, 0))
    touch("touchMove", (0, 30))
    touch("touchMove", (0, 50))
    touch("touchEnd")
    assert state(page)["y"] < near["y"] - 20 / near["unit"]
    assert state(page)["selected"] is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_at_any_width_in_any_dress(show, full, width, scheme):
    plan, given = full
    page = show(plan, given=given, color_scheme=scheme, viewport={"width": WIDTHS[width], "height": 900})
    page.evaluate("planPage.select('stem/conv')")
    page.locator("#view-panel .ports button").first.click()
    page.evaluate("planPage.edit({of: 'kernel', at: 'head/gemm', value: 'float'})")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document)).violations")
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_with_keys_alone(show, full):
    """To the graph by Tab, to a kernel, into its ports, to what if, and back by undo; no pointer at all."""
    plan, given = full
    page = show(plan, given=given)

    def tab_to(wanted):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate(f"document.activeElement.matches({wanted!r})"):
                return
        pytest.fail(f"no Tab leads to {wanted}")

    tab_to("#view-canvas")
    for key in ("Enter", "j", "Enter"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.closest('#view-panel') !== null")
    page.keyboard.press("Enter")
    assert len(page.evaluate("planPage.document().kernels")) == 1
    tab_to("#what-if button")
    assert page.evaluate("document.activeElement.textContent") == "undo"
    page.keyboard.press("Enter")
    assert "kernels" not in page.evaluate("planPage.document()")


def test_hostile_names_stay_text_in_all_that_is_written(show):
    plan = planner.plan(read_annotated(MODEL % ((NASTY,) * 4)), "teaching-npu")
    page = show(plan, link="#kernel=%E0%A4%A")
    page.evaluate("(name) => planPage.edit({of: 'value', at: name, value: '!quant.none'})", NASTY)
    says(page.locator("#view-edits pre").first, NASTY)
    expect(page.locator("img")).to_have_count(0)


def test_on_paper_there_is_the_graph_and_no_button(show, digits):
    page = show(digits)
    page.emulate_media(media="print")
    expect(page.locator("#view-canvas")).to_be_visible()
    assert page.locator("#view-bar").is_hidden()
    assert page.locator("td button").first.is_hidden()
