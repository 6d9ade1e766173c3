"""A page of a plan in Chromium, which may complain of nothing and ask for nothing. CI installs Chromium."""

import shutil

import pytest

import planner
from tests.report.pages import PATIENCE
from tests.report.test_html import DIGITS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="package")
def browser():
    """Debian's Chromium; tests that ask for it are skipped without."""
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def annotated():
    model = planner.load_model(DIGITS / "digits.onnx")
    return planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))


@pytest.fixture(scope="package")
def digits(annotated):
    return planner.plan(annotated, "onnxruntime-cpu")


@pytest.fixture(scope="package")
def full(annotated):
    """All that a report can have, of the digits."""
    plan = planner.plan(annotated, "litert-int8")
    samples = DIGITS / "calibration.npz"
    stats = planner.calibrate(planner.load_model(DIGITS / "digits.onnx"), samples, method="mse")
    given = {
        "comparisons": {
            "onnx-qdq": planner.compare(annotated, planner.export(annotated, plan, "onnx-qdq"), samples)
        },
        "losses": planner.losses(annotated, plan, samples),
        "stats": stats,
        "tradeoffs": {"skip/pool_out#0": planner.pareto(plan, "skip/pool_out#0")},
    }
    return plan, given


@pytest.fixture
def show(browser, tmp_path):
    """Opens the report of a plan; the page may complain of nothing and ask for nothing."""
    complaints, contexts = [], []

    def opened(plan, before=None, *, given=None, link="", **options):
        path = tmp_path / "report.html"
        path.write_text(planner.write_report(plan, before=before, **(given or {})), encoding="utf-8")
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                None if asked.url.startswith((path.as_uri(), "blob:")) else complaints.append(asked.url)
            ),
        )
        page.goto(path.as_uri() + link)
        if options.get("java_script_enabled", True):
            page.wait_for_function("() => window.__view && window.__view.frames > 0")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
