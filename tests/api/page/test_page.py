"""The walk of a new user through the server's page, and what may not happen on it."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import planner
from api.page.files import is_open
from tests.api.documents import chain, put
from tests.api.test_jobs_http import WAIT
from tests.api.test_tokens import bearer, digest
from tests.plan_search.outliers import written
from tests.report.pages import expect, says

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits"
PAGES = ("/", "/plans", "/jobs", "/targets", "/targets/litert-int8", "/docs")
WIDTHS = {"phone": 390, "tablet": 820, "desk": 1440}
NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def url(service):
    return str(service.base_url).rstrip("/")


def ranges_of_digits():
    """What calibration finds, as annotations: a plan that names no statistics."""
    model = planner.load_model(DIGITS / "digits.onnx")
    known = planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))
    values = {name: str(value.facts[0]) for name, value in known.values.items() if value.facts}
    return {"format": "qplan.annotations/1", "values": values}


def ready(page):
    page.wait_for_selector("main[data-ready]")


def violations(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page)
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found.response["violations"]]


def test_the_walk_of_a_new_user(opened, url):
    page = opened(url)
    ready(page)
    page.set_input_files("#model-file", DIGITS / "digits.onnx")
    page.wait_for_url("**/models/sha256:*")
    ready(page)
    page.set_input_files("#samples-file", DIGITS / "calibration.npz")
    page.get_by_text("Calibrated on").wait_for()
    # The quality on onnxruntime's own target is this processor's, which may add products in 16 bits.
    page.get_by_role("button", name="plan for litert-int8").click()
    row = page.locator("tr[data-target=litert-int8]")
    row.get_by_text("dB").wait_for()
    says(row, " of ")
    assert violations(page) == []
    told = row.locator("td.good").inner_text()
    row.get_by_role("link", name=" of ").click()
    page.wait_for_url("**/plans/sha256:*")
    page.reload()
    ready(page)
    frame = page.frames[1]
    frame.wait_for_function("() => window.__view && window.__view.frames > 0")
    card = frame.locator(".cards .card").first
    says(card, told.partition(",")[0])
    says(card, "the 128 calibration samples against the float model")
    expect(frame.locator(".cards .figure.good")).to_have_count(2)  # accuracy and coverage
    # A choice in the frame is kept in the page's address, and the frame stays.
    name = frame.evaluate("main.graph.nameOf(1)")
    frame.evaluate("(name) => planPage.select(name)", name)
    page.wait_for_function("() => location.hash.startsWith('#kernel=')")
    # However late the lists beside the plan come: its frame is listened to from the start.
    late = []

    def hold(route):
        late.append(route)

    page.route("**/v1/stats/**", hold)
    page.reload()
    page.wait_for_selector("iframe")
    frame = page.frames[1]
    frame.wait_for_function("() => window.__view && window.__view.frames > 0")
    assert late
    for route in late:
        route.continue_()
    page.unroute_all()
    ready(page)
    frame.wait_for_function("() => window.__view && window.__view.selected !== null")
    assert frame.evaluate("window.__view.address") == name
    frame.evaluate("(at) => planPage.edit({of: 'kernel', at, value: 'float'})", name)
    page.locator("#edited a").wait_for()
    frame.locator("#view-said", has_text="cost").wait_for()
    frame.evaluate("planPage.undo()")
    page.wait_for_function("() => !document.querySelector('#edited a')")
    with page.expect_download() as download:
        page.get_by_role("button", name="export and download").click()
    assert download.value.suggested_filename.endswith("digits.litert.tflite")
    assert len(Path(download.value.path()).read_bytes()) > 1000


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [("phone", "light"), ("tablet", "light"), ("desk", "dark")])
def test_pages_fit_and_are_accessible(opened, url, path, width, scheme):
    page = opened(url, path, viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    if path != "/docs":
        ready(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []


def test_names_of_models_stay_text(opened, service, url):
    text = json.dumps({**chain(3), "name": NASTY}).encode()
    blob = f"sha256:{hashlib.sha256(text).hexdigest()}"
    kind = {"Content-Type": "application/octet-stream"}
    service.put(f"/v1/blobs/{blob}", content=text, headers=kind).raise_for_status()
    service.post("/v1/models", json={"blob": blob}).raise_for_status()
    page = opened(url)
    ready(page)
    page.get_by_role("link", name=NASTY).click()
    page.wait_for_url("**/models/*")
    ready(page)
    expect(page.locator("h1")).to_have_text(NASTY)
    expect(page.locator("img")).to_have_count(0)


def test_by_keys_alone(opened, url):
    page = opened(url)
    ready(page)
    seen = []
    for _ in range(8):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent || document.activeElement.id"))
    assert seen[:7] == ["quant-planner", "Home", "Plans", "Jobs", "Targets", "API", "model-file"]


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 1000])
def test_sha256_in_parts(opened, url, size):
    data = bytes(i * 7 % 256 for i in range(size))
    script = """async ([data, cut]) => {
      const src = document.querySelector('script[type=module]').src.replace('app.js', 'sha256.js');
      const { Sha256 } = await import(src);
      const hash = new Sha256();
      hash.update(Uint8Array.from(data.slice(0, cut)));
      hash.update(Uint8Array.from(data.slice(cut)));
      return hash.hex(); }"""
    page = opened(url)
    assert page.evaluate(script, [list(data), size // 3]) == hashlib.sha256(data).hexdigest()


def test_a_target_is_linted_as_one_types_and_kept(opened, url):
    page = opened(url, "/targets/litert-int8")
    ready(page)
    page.get_by_text("No problems").wait_for()
    text = page.input_value("#yaml")
    page.get_by_role("button", name="Run tests").click()
    page.get_by_text("0 failed").wait_for()
    page.fill("#yaml", text.replace("id: litert-int8", "id: my-own", 1))
    page.get_by_role("button", name="Save as a version").click()
    page.wait_for_url("**/targets/my-own*")
    name = page.locator("h1").inner_text()
    assert name.startswith("my-own@")
    page.goto(f"{url}/targets")
    ready(page)
    expect(page.get_by_role("button", name="delete litert-int8")).to_have_count(0)
    page.get_by_role("button", name=f"delete {name}").click()
    page.wait_for_function("() => !document.querySelector('main').textContent.includes('my-own')")
    assert page.locator("tr").count() > 10


def test_with_tokens_one_signs_in_and_is_offered_what_one_may(opened, make_service):
    from api.server.tokens import parse_token

    tokens = (parse_token(f"eye:read:{digest('look')}", "t"), parse_token(f"all:write:{digest('do')}", "t"))
    service = make_service(tokens=tokens)
    assert service.get("/v1/server").status_code == 401
    assert service.get("/v1/server", headers=bearer("look")).json()["scopes"] == ["read"]
    url = str(service.base_url).rstrip("/")
    page = opened(url)
    for secret, offered in (("look", 0), ("do", 1)):
        page.fill("#token", secret)
        page.get_by_role("button", name="sign in").click()
        ready(page)
        expect(page.locator("#model-file")).to_have_count(offered)
        page.get_by_role("button", name="sign out").click()
        page.wait_for_selector("#token")
    assert all("401" in text for text in page.complaints)  # Chromium notes each refusal
    page.complaints.clear()


def test_targets_are_chosen_and_plans_that_there_are_shown(opened, service, url):
    model = service.post("/v1/models", json={"blob": put(service, (DIGITS / "digits.onnx").read_bytes())})
    digest = model.json()["digest"]
    ranges = {"annotations": ranges_of_digits()}
    service.post("/v1/plans", json={"model": digest, "target": "teaching-npu", **ranges}).raise_for_status()
    page = opened(url, f"/models/{digest}")
    ready(page)
    says(page.locator("main"), "21 operators")
    kept = page.locator("tr[data-target=teaching-npu]")
    says(kept, "of 15")
    says(kept, "not measured")
    page.get_by_role("button", name="choose none").click()
    page.get_by_role("checkbox", name="choose tosa-int8").check()
    page.get_by_role("button", name="plan for 1 targets").click()
    page.get_by_text("1 of 1 chosen targets failed").wait_for()
    says(page.locator("tr[data-target=tosa-int8]"), "no ranges are known")
    assert "of" not in page.locator("tr[data-target=ethos-u55] td").nth(1).inner_text()


def test_an_effort_plans_better_where_the_plan_is_not_good(opened, service, url, tmp_path):
    """The row tells what is done, then the better plan with what it gave up."""
    model, data = written(tmp_path)
    blob = put(service, model.read_bytes())
    digest = service.post("/v1/models", json={"blob": blob}).json()["digest"]
    page = opened(url, f"/models/{digest}")
    ready(page)
    page.set_input_files("#samples-file", data)
    page.get_by_text("Calibrated on").wait_for(timeout=60_000)
    row = page.locator("tr[data-target=litert-int8]")
    page.get_by_label("Effort").select_option("normal")
    page.get_by_role("button", name="plan for litert-int8").click()
    row.get_by_text("2 kernels (mul) in i16: ").wait_for(timeout=90_000)
    row.get_by_text(" dB, good").wait_for(timeout=60_000)
    assert violations(page) == []


def test_a_search_that_is_cancelled_gives_its_best_plan_so_far(opened, service, url, tmp_path):
    """The page asks again without trials, and shows what was measured before."""
    model, data = written(tmp_path, 1500.0)
    digest = service.post("/v1/models", json={"blob": put(service, model.read_bytes())}).json()["digest"]
    page = opened(url, f"/models/{digest}")
    ready(page)
    page.set_input_files("#samples-file", data)
    page.get_by_text("Calibrated on").wait_for(timeout=60_000)
    bodies, cancelled = [], []

    def search(route):
        bodies.append(route.request.post_data_json)
        route.continue_()

    def job(route):
        answer = route.fetch()
        if cancelled or "search" not in answer.text():
            route.fulfill(response=answer)
            return
        cancelled.append(route.request.url)
        route.fulfill(response=answer, json=answer.json() | {"state": "cancelled", "result": None})

    page.route("**/v1/searches", search)
    page.route(re.compile(r"/v1/jobs/\w+$"), job)
    row = page.locator("tr[data-target=litert-int8]")
    page.get_by_label("Effort").select_option("normal")
    page.get_by_role("button", name="plan for litert-int8").click()
    row.get_by_text(" in i16: ").wait_for(timeout=90_000)
    row.get_by_text(" dB, good").wait_for(timeout=60_000)
    assert [body.get("trials") for body in bodies] == [None, 0]
    assert len(cancelled) == 1


def test_trade_offs_and_another_plan_are_drawn_where_they_are_asked_for(opened, service, url):
    model = service.post("/v1/models", json={"blob": put(service, (DIGITS / "digits.onnx").read_bytes())})
    asked = {"model": model.json()["digest"], "target": "litert-int8"}
    samples = put(service, (DIGITS / "calibration.npz").read_bytes())
    body = {"model": asked["model"], "samples": samples}
    asked["stats"] = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    key = service.post("/v1/plans", json=asked).json()["key"]
    edits = {"format": "qplan.annotations/1", "kernels": {"join/concat": "float"}}
    service.post("/v1/plans", json=asked | {"annotations": edits}).raise_for_status()
    page = opened(url, f"/plans/{key}")
    ready(page)
    page.frames[1].wait_for_function("() => window.__view && window.__view.frames > 0")
    page.frames[1].locator("#view-panel details.cause summary").first.click()
    page.frames[1].locator("#view-panel details.cause button").first.click()
    page.frames[1].get_by_role("button", name="trade-offs").click()
    page.wait_for_url("**?pareto=*")
    page.frames[-1].get_by_role("heading", name="Trade-offs").wait_for()
    expect(page.frames[-1].locator("svg .dot").nth(1)).to_be_attached()
    page.reload()  # a link has them
    ready(page)
    page.frames[-1].get_by_role("heading", name="Trade-offs").wait_for()
    page.select_option("#before", index=1)
    page.wait_for_url("**before=sha256*")
    ready(page)
    page.frames[-1].wait_for_function("() => document.getElementById('view-stage').classList.contains('two')")


PLACES = [
    ("mo|", "mode"),
    ("mode: |", "fixed codegen"),
    ("types:\n  a8: {sto|", "storage"),
    ("types:\n  a8:\n    storage: i8\n    gran|", "granularity"),
    ("types: {a8: {storage: i8}}\nkernels:\n- kernel: conv\n  in: {x: |", "* a8"),
    ("types:\n  a8: {storage: i8}\nkernels:\n  - {kernel: conv,\n     in: {x: a|", "a8"),
    ("kernels:\n  - kernel: c\n    rules:\n      - same|", "same_scale same_storage"),
    ("kernels:\n  - kernel: 'a: {b'  # mode: {\n    acc|", "accumulator"),
    ("nothing: {of: the sch|", ""),
]


@pytest.mark.parametrize(("text", "offered"), PLACES)
def test_the_schema_is_offered_at_the_caret(opened, url, text, offered):
    """Keys and words by the place in the YAML, `|` the caret; a file's own types where a port takes one."""
    script = """async ([text, caret]) => {
      const src = document.querySelector('script[type=module]').src.replace('app.js', 'complete.js');
      const { offersAt } = await import(src);
      const schema = await (await fetch('/v1/schemas/target')).json();
      return offersAt(schema, text, caret).offers.map(({ name }) => name); }"""
    page = opened(url, "/docs")
    page.goto(f"{url}/targets")
    found = page.evaluate(script, [text.replace("|", ""), text.index("|")])
    assert found == offered.split()


def test_an_offered_word_is_typed(opened, url):
    page = opened(url, "/targets/litert-int8")
    ready(page)
    page.fill("#yaml", "apiVersion: planner/v1\nmo")
    # Both keys within a frame: what is offered is what is typed, not what the last frame drew.
    page.evaluate(
        """() => {
        const area = document.querySelector('#yaml');
        area.setRangeText('d', area.selectionStart, area.selectionStart, 'end');
        area.dispatchEvent(new Event('input'));
        area.dispatchEvent(new KeyboardEvent('keydown', {key: ' ', ctrlKey: true, cancelable: true})); }"""
    )
    assert page.input_value("#yaml").endswith("\nmode: ")
    page.locator(".fits button", has_text="codegen").wait_for()
    assert page.locator(".fits button").all_inner_texts() == ["fixed", "codegen"]
    page.keyboard.press("Control+Space")
    # A key that comes up late, or a caret that moves nowhere, leaves the focus where it is.
    page.eval_on_selector("#yaml", "area => area.dispatchEvent(new Event('keyup'))")
    page.wait_for_timeout(100)
    assert page.evaluate("document.activeElement.textContent") == "fixed"
    page.keyboard.press("Tab")
    # Half a description is linted while one types, and Chromium notes that it is refused.
    with page.expect_response(
        lambda answer: (answer.request.post_data or "").endswith("mode: codegen")
    ) as refusal:
        page.keyboard.press("Enter")
    assert refusal.value.status == 422
    assert page.input_value("#yaml").endswith("\nmode: codegen")
    assert violations(page) == []
    assert all("422" in text for text in page.complaints)
    page.complaints.clear()


def test_the_page_of_a_plan_measures_it(opened, service, url):
    model = service.post("/v1/models", json={"blob": put(service, (DIGITS / "digits.onnx").read_bytes())})
    asked = {"model": model.json()["digest"], "target": "litert-int8", "annotations": ranges_of_digits()}
    key = service.post("/v1/plans", json=asked).json()["key"]
    page = opened(url, f"/plans/{key}")
    ready(page)
    says(page.frames[1].locator(".cards .card").first, "not measured")
    page.set_input_files("#study-file", DIGITS / "calibration.npz")
    page.get_by_role("button", name="quality", exact=True).click()
    page.get_by_text("kept with the plan").wait_for()
    quality = service.get(f"/v1/plans/{key}/summary").json()["quality"]
    card = page.frames[-1].locator(".cards .card").first
    says(card, quality["text"])
    expect(card.locator(f".figure.{quality['grade']}")).to_be_visible()
    assert violations(page) == []
    page.goto(f"{url}/plans")
    ready(page)
    says(page.locator("tr", has=page.locator(f"a[href='/plans/{key}']")), quality["text"])


def test_of_many_kernels_the_page_says_at_once_what_an_edit_changes(opened, service, url):
    text = json.dumps(chain(600)).encode()
    model = service.post("/v1/models", json={"blob": put(service, text)}).json()["digest"]
    key = service.post("/v1/plans", json={"model": model, "target": "litert-int8"}).json()["key"]
    page = opened(url, f"/plans/{key}")
    ready(page)
    frame = page.frames[1]
    frame.wait_for_function("() => window.__view && window.__view.frames > 0")
    frame.evaluate("planPage.select('k301')")  # the server holds the plan from here on
    frame.evaluate("""() => { window.heard = []; const say = (event) => heard.push(event.data);
                              window.addEventListener("message", say); }""")
    frame.evaluate("planPage.edit({of: 'value', at: 'v300', value: '!quant.none'})")
    page.locator("#edited a").wait_for()
    heard = frame.evaluate("heard.map((one) => one.type + ' ' + (one.text ?? (one.names ?? []).join()))")
    kinds = [line.partition(" ")[0] for line in heard]
    assert kinds.index("qplan:mark") < kinds.index("qplan:show")
    mark, told = heard[kinds.index("qplan:mark")], heard[kinds.index("qplan:mark") + 1]
    assert "k301" in mark.partition(" ")[2].split(",")
    assert told.startswith("qplan:say cost")
    assert told.endswith("drawing")
    # What was said is what the plan says that was drawn.
    assert heard[-1].partition(",")[0] == told.partition(",")[0]


def test_pages_need_no_token_and_nothing_else_is_open():
    assert all(is_open("GET", path) for path in ("/", "/plans/sha256:1", "/targets/a@1", "/page/0/app.js"))
    assert not any(is_open("GET", path) for path in ("/v1/plans", "/openapi.json", "/metrics", "/plans/a/b"))
    assert not is_open("POST", "/")


def test_policy_and_caching(service):
    page = service.get("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    file = page.text.partition('src="')[2].partition('"')[0]
    assert "immutable" in service.get(file).headers["cache-control"]
    assert service.get("/page/old/app.js").headers["cache-control"] == "no-store"
    assert service.get("/page/old/none.js").status_code == 404
    assert service.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    # Another page under the same files is another one.
    assert service.get("/docs", headers={"If-None-Match": page.headers["etag"]}).status_code == 200
