"""The first page and where it leads a person who has read nothing: the example, targets, the editor."""

import pytest
from playwright.sync_api import expect

from benchmarks.walk import DIGITS, WIDTHS, ready, walk
from tests.api.documents import put
from tests.report.pages import says


@pytest.fixture(scope="module")
def url(service):
    return str(service.base_url).rstrip("/")


def test_the_first_page_says_what_it_is_for_in_three_steps(opened, url):
    page = opened(url)
    ready(page)
    expect(page.locator("h1")).to_have_text("Quantize a model for your device")
    assert page.locator(".steps h2").all_inner_texts() == ["Choose a model", "Add samples", "Compare devices"]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_example_runs_to_a_plan_with_its_quality(opened, url, width):
    page = opened(url, viewport={"width": width, "height": 900})
    ready(page)
    page.get_by_role("button", name="Run the example").click()
    page.wait_for_url("**/plans/sha256:*")
    ready(page)
    frame = page.frames[1]
    frame.wait_for_function("() => window.__view && window.__view.frames > 0")
    says(frame.locator(".cards .card").first, " dB")
    expect(page.locator("#format")).to_have_value("litert")  # a format of the target's tools
    assert page.evaluate("document.documentElement.scrollWidth") == width
    frame.evaluate("planPage.edit({of: 'kernel', at: 'join/concat', value: 'float'})")
    says(frame.locator(".cards"), "15 of 15 → 14 of 15")
    says(frame.locator(".cards .card").first, "not measured")
    page.get_by_role("button", name="quality", exact=True).click()
    says(frame.locator(".cards .card").first, "→ ")
    frame.locator("#what-if").get_by_role("button", name="undo").click()
    says(frame.locator(".cards .card").first, " dB")


def test_the_walk_from_a_model_to_a_file_and_the_reason_of_the_worst_kernel(opened, url):
    said = [step.said for step in walk(opened(url), url)]
    assert said[-4] == "7 kernels in float"
    assert said[-3].startswith("3 operators match no kernel of the target: Add (1), MaxPool (1), Relu (1)")
    assert said[-2] == "res/add: no fusion of 'k210-kpu' takes Add of these operands"
    assert said[-1] == "digits.onnx-qdq.onnx"


def test_a_model_is_called_by_its_file(opened, service, url, tmp_path):
    path = tmp_path / "My detector.v2.onnx"
    path.write_bytes((DIGITS / "digits.onnx").read_bytes())
    page = opened(url)
    ready(page)
    page.set_input_files("#model-file", path)
    page.wait_for_url("**/models/sha256:*")
    ready(page)
    expect(page.locator("h1")).to_have_text("My detector.v2")
    digest = page.url.rpartition("/")[2]
    ranges = {"format": "qplan.annotations/1", "values": {"image": "!quant.calibrated<f32<0.0:16.0>>"}}
    asked = {"model": digest, "target": "litert-int8", "annotations": ranges}
    key = service.post("/v1/plans", json=asked).json()["key"]
    page.goto(f"{url}/plans/{key}")
    ready(page)
    says(page.locator("h1"), "My detector.v2 on litert-int8")


def test_targets_with_most_quantized_come_first_then_the_best_quality(opened, service, url):
    model = service.post("/v1/models", json={"blob": put(service, (DIGITS / "digits.onnx").read_bytes())})
    page = opened(url, f"/models/{model.json()['digest']}")
    ready(page)
    says(page.locator("details", has_text="How do I make this file?"), "")
    page.locator("details summary", has_text="How do I make this file?").click()
    says(page.locator("details pre"), '"image": ...,  # f32, shape (N, 1, 8, 8), N real inputs')
    page.set_input_files("#samples-file", DIGITS / "calibration.npz")
    page.get_by_text("Calibrated on").wait_for()
    for target in ("llm-w4", "litert-int8", "tosa-int8"):
        page.locator(f"tr[data-target={target}]").get_by_role("button").click()
        page.locator(f"tr[data-target={target}]").get_by_text(" dB, ").wait_for()
    rows = page.locator("tr[data-target]")
    names = [row.get_attribute("data-target") for row in rows.all()]
    chosen = [name for name in names if name in ("tosa-int8", "litert-int8", "llm-w4")]
    assert chosen == ["tosa-int8", "litert-int8", "llm-w4"]
    assert names.index("llm-w4") < names.index("edgetpu")  # without a plan
    heads = page.locator("th").all_inner_texts()
    assert heads == [
        "target", "kernels quantized", "quality, SQNR", "why float", "weights", "cost, elements",
        "rescales and casts", "work",
    ]  # fmt: skip
    says(page.locator("tr[data-target=llm-w4]"), "7 operators are not supported by llm-w4: Conv (7)")
    says(page.locator("tr[data-target=litert-int8]"), "100 % of multiply-adds")
    says(page.locator("tr[data-target=litert-int8]"), " kB")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_editor_wraps_lines_and_marks_those_with_problems(opened, url, width):
    page = opened(url, "/targets/litert-int8", viewport={"width": width, "height": 900})
    ready(page)
    area, lines = page.locator("#yaml"), page.locator(".editor .lines div")
    assert area.evaluate("(area) => area.scrollWidth <= area.clientWidth")
    text = area.input_value()
    assert lines.count() == len(text.split("\n"))
    # The numbers stand beside the lines that are written over them, wrapped ones too.
    assert area.evaluate("(area) => area.scrollHeight - area.previousElementSibling.scrollHeight") == 0
    area.fill(text.replace("mode: fixed", "mode: fxed", 1))
    says(page.get_by_role("status").first, "1 error")
    wrong = next(i for i, line in enumerate(text.split("\n")) if line == "mode: fixed")
    expect(lines.nth(wrong)).to_have_class("bad")
    page.locator(".beside ul button").first.click()
    says(page.locator(".editor-bar"), f"Line {wrong + 1}, column")
    says(page.locator(".editor-bar"), "not saved")
    assert all("422" in text for text in page.complaints)  # Chromium notes that lint refuses the text
    page.complaints.clear()
