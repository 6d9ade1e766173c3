"""Lists of what is kept, taking it away, HEAD, and how long an answer may be kept by a client."""

import json

import pytest

import planner
from api.planning import stored_items, what_if
from api.planning.stored_items import delete_file, delete_model
from api.problems import Refused
from api.storage.followers import follow, followers, require_sources
from planner.calibration.statistics import calibration_digest
from planner.client import Client
from tests.api.documents import AS_IT_IS, OCTETS, RANGE, chain, digest, put, relu
from tests.api.test_problems import check

STATS = {
    "format": "qplan.stats/2",
    "method": "minmax",
    "samples": 1,
    "values": {"y": {"min": -1.0, "max": 2.0}},
}


def planned(service, kernels: int = 2, **more) -> str:
    body = {"model": chain(kernels), "target": "litert-int8", **more}
    return service.post("/v1/plans", json=body).json()["key"]


def test_plans_are_listed_with_where_they_come_from(make_service):
    service = make_service()
    model = service.post("/v1/models", json={"blob": put(service, relu())}).json()["digest"]
    options = {"best_effort": True}
    asked = {"model": model, "target": "onnxruntime-cpu", "options": options, "annotations": RANGE}
    keys = {planned(service): None, service.post("/v1/plans", json=asked).json()["key"]: model}
    edited = service.post(f"/v1/plans/{next(iter(keys))}:replan", json={"restore": ["k0"]}).json()["key"]
    found = {item["key"]: item for item in service.get("/v1/plans").json()["items"]}
    assert {key: item["model"] for key, item in found.items()} == {**keys, edited: None}
    assert [found[key]["edits"] for key in (*keys, edited)] == [0, 0, 1]
    assert found[edited]["target"].startswith("litert-int8@")
    for key, item in found.items():
        assert item["bytes"] == len(service.get(item["link"]).content), key
    first = service.get("/v1/plans", params={"limit": 2}).json()
    rest = service.get("/v1/plans", params={"limit": 2, "cursor": first["next"]}).json()
    assert [item["key"] for item in first["items"] + rest["items"]] == sorted(found)
    assert rest["next"] is None


@pytest.mark.parametrize("kind", ["blobs", "plans", "stats"])
@pytest.mark.parametrize(("gave", "takes"), [("name", "newest"), ("newest", "name")])
def test_a_cursor_of_another_order_is_refused(make_service, kind, gave, takes):
    """It names a place that the other order does not have: the answer was an empty page, or the first."""
    service = make_service()
    store = service.app.state.service.store
    for data in (b"a", b"b"):
        store.put(kind, digest(data), b"{}")
    page = service.get(f"/v1/{kind}", params={"limit": 1, "order": gave}).json()
    rest = service.get(f"/v1/{kind}", params={"cursor": page["next"], "order": gave}).json()
    assert len(rest["items"]) == 1
    refused = service.get(f"/v1/{kind}", params={"cursor": page["next"], "order": takes})
    check(refused, "request-invalid", "/cursor")


def test_a_plan_that_went_is_made_again_by_its_request(make_service):
    service = make_service(quota=10_000_000)
    empty = service.app.state.quotas.whole.measure()
    key = planned(service)
    same = planned(service, options={"costs": {}, "strategy": "minimal"})
    assert same == key
    text = service.get(f"/v1/plans/{key}").content
    address = f"/v1/plans/{key}"
    check(service.delete(address, headers={"If-Match": '"other"'}), "precondition-failed")
    assert service.delete(address, headers={"If-Match": f'"{key}"'}).status_code == 204
    check(service.get(address), "unknown-name")
    check(service.delete(address), "unknown-name")
    assert service.get("/v1/plans").json()["items"] == []
    assert list((service.app.state.service.store.root / "requests").glob("*/*")) == []
    assert service.app.state.quotas.whole.used == service.app.state.quotas.whole.measure() == empty
    assert planned(service) == key
    assert service.get(address).content == text


def test_all_that_followed_goes_with_what_it_was_made_of(make_service, monkeypatch):
    service = make_service(quota=10_000_000)
    root, quota = service.app.state.service.store.root, service.app.state.quotas.whole
    empty = quota.measure()
    blob = put(service, relu())
    model = service.post("/v1/models", json={"blob": blob}).json()["digest"]
    first, second = planned(service), planned(service, 3)
    parts = ("summary", "view", "report")
    addresses = [f"/v1/plans/{key}/{part}" for key in (first, second) for part in parts]
    addresses += [f"/v1/plans/{first}/diff?against={second}", f"/v1/plans/{first}/ports"]
    addresses += [f"/v1/plans/{first}/report?before={second}", f"/v1/plans/{first}/pareto?component=v1"]
    before = quota.used
    for address in addresses:
        assert service.get(address).status_code == 200, address
    monkeypatch.setattr(what_if, "SMALL", 1)
    assert service.get(f"/v1/plans/{first}/part?pointer=/key").status_code == 200
    assert quota.used > before + 10_000
    service.delete(f"/v1/plans/{first}")
    assert 0 < len(list((root / "answers").glob("*/*"))) < 5
    for address in (f"/v1/plans/{second}", f"/v1/models/{model}", f"/v1/blobs/{blob}"):
        assert service.delete(address).status_code == 204
    assert quota.used == quota.measure() == empty
    assert list((root / "answers").glob("*/*")) == list((root / "followers").iterdir()) == []


def test_reports_go_with_the_statistics_and_the_search_they_draw(make_service):
    service = make_service()
    model = service.post("/v1/models", json={"blob": put(service, relu())}).json()["digest"]
    names = [value.name for value in planner.load_model(relu()).values.values() if value.shape is not None]
    given = STATS | {"model": model, "values": {names[0]: {"min": 0.0, "max": 1.0}}}
    stats = service.post("/v1/stats", json=given).json()["digest"]
    asked = {"model": model, "stats": stats, "target": "onnxruntime-cpu", "options": {"best_effort": True}}
    key = service.post("/v1/plans", json=asked).json()["key"]
    store = service.app.state.service.store

    def answers() -> set[str]:
        return set(store.digests("answers"))

    before = answers()
    assert service.get(f"/v1/plans/{key}/summary").status_code == 200
    kept = answers()
    assert service.get(f"/v1/plans/{key}/report").status_code == 200
    assert len(answers()) == len(kept) + 1 == len(before) + 2
    service.delete(f"/v1/stats/{stats}")
    assert answers() == kept


def test_names_of_values_stay_while_a_model_has_them(make_service):
    service = make_service()
    store = service.app.state.service.store
    names, models = digest(b"names"), [digest(b"a"), digest(b"b")]
    store.put("answers", names, b"[]")
    for model in models:
        store.put("models", model, b"{}")
        follow(store, names, [("models", model)])
    delete_model(store, models[0])
    assert store.has("answers", names)
    delete_model(store, models[1])
    assert not store.has("answers", names)


def test_what_a_search_measured_goes_with_its_samples(make_service):
    store = make_service().app.state.service.store
    samples, state = digest(b"samples"), digest(b"state")
    store.put("blobs", samples, b"samples")
    follow(store, state, [("blobs", samples)])
    store.replace("states", state, b"measured")
    delete_file(store, "blobs", samples)
    assert not store.has("states", state)


def test_an_answer_whose_plan_went_meanwhile_is_not_kept(make_service):
    store = make_service().app.state.service.store
    plan, answer = digest(b"plan"), digest(b"answer")
    follow(store, answer, [("plans", plan)])
    store.put("answers", answer, b"{}")
    with pytest.raises(Refused, match="unknown-name"):
        require_sources(store, answer, [("plans", plan)])
    assert not store.has("answers", answer)


def test_followers_lie_in_the_object_store_too(make_service, tmp_path):
    service = make_service(blobs=f"file://{tmp_path / 'objects'}")
    key = planned(service)
    assert service.get(f"/v1/plans/{key}/summary").status_code == 200
    assert service.get(f"/v1/plans/{key}/summary").status_code == 200
    store = service.app.state.service.store
    assert len(list(store.digests("answers"))) == len(list(followers(store, key))) == 1
    assert service.delete(f"/v1/plans/{key}").status_code == 204
    assert list(store.digests("answers")) == list(followers(store, key)) == []


def test_statistics_come_back_as_the_library_takes_them(make_service, tmp_path):
    service = make_service()
    model = planner.load_model(relu())
    names = [value for value in model.values if value not in model.constants]
    values = {name: {"min": -1.0, "max": 2.0} for name in names}
    mine = STATS | {"model": calibration_digest(model), "values": values}
    with Client(str(service.base_url)) as client:
        kept = client.stats(mine)
        again = client.get_stats(kept["digest"])
        assert again["values"].keys() == values.keys()
        assert client.stats(again)["digest"] == kept["digest"]
        (tmp_path / "again.json").write_text(json.dumps(again))
        planner.annotate(model, stats=tmp_path / "again.json")
        assert [item["digest"] for item in client.list_stats()] == [kept["digest"]]
        client.delete_stats(kept["digest"])
        assert client.list_stats() == []
    check(service.get(f"/v1/stats/{kept['digest']}"), "unknown-name")


def test_blobs_are_listed_and_go(make_service):
    service = make_service()
    contents = [b"1", b"22", b"333"]
    for content in contents:
        put(service, content)
    with Client(str(service.base_url)) as client:
        assert {item["digest"]: item["bytes"] for item in client.blobs()} == {
            digest(content): len(content) for content in contents
        }
        client.delete_blob(digest(b"22"))
        assert len(client.blobs()) == 2
    check(service.get(f"/v1/blobs/{digest(b'22')}"), "unknown-name")
    put(service, b"22")
    assert service.get(f"/v1/blobs/{digest(b'22')}").content == b"22"


def pages_of(service, path: str, **params) -> list[list[dict]]:
    """The items of a list, page by page, by its links."""
    answer = service.get(path, params=params)
    found = [answer.json()["items"]]
    while "next" in answer.links:
        answer = service.get(answer.links["next"]["url"])
        found.append(answer.json()["items"])
    return found


@pytest.mark.parametrize("objects", [False, True])
def test_lists_begin_with_the_newest(make_service, tmp_path, objects):
    """What comes while they are read pushes nothing aside; what goes is left out."""
    service = make_service(blobs=f"file://{tmp_path / 'objects'}" if objects else "")
    contents = [str(number).encode() for number in range(6)]
    blobs = [put(service, content) for content in contents]
    first = service.get("/v1/blobs", params={"order": "newest", "limit": 2})
    assert [item["digest"] for item in first.json()["items"]] == blobs[:3:-1]
    put(service, b"another")
    service.delete(f"/v1/blobs/{blobs[2]}")
    rest = [service.get(first.links["next"]["url"])]
    while "next" in rest[-1].links:
        rest.append(service.get(rest[-1].links["next"]["url"]))
    found = [item["digest"] for page in rest for item in page.json()["items"]]
    assert found == [blobs[3], blobs[1], blobs[0]]
    check(service.get("/v1/blobs", params={"order": "size"}), "request-invalid", "/order")


def test_plans_and_models_are_filtered(make_service, monkeypatch):
    service = make_service()
    model = service.post("/v1/models", content=relu(), headers=OCTETS).json()["digest"]
    named = service.post("/v1/models", content=json.dumps(chain(2)).encode(), headers=OCTETS).json()["digest"]
    asked = {"model": model, "annotations": RANGE, "options": {"best_effort": True}}
    keys = [
        service.post("/v1/plans", json={**asked, "target": target}).json()["key"]
        for target in ("onnxruntime-cpu", "litert-int8", "tensorrt-int8")
    ]
    other = planned(service)
    version = service.get("/v1/targets/litert-int8").json()["version"]

    def listed(path: str, field: str, **params) -> list[str]:
        return [item[field] for page in pages_of(service, path, **params) for item in page]

    assert listed("/v1/plans", "key", model=model) == sorted(keys)
    assert listed("/v1/plans", "key", model=model, order="newest") == keys[::-1]
    assert listed("/v1/plans", "key", target="litert-int8") == sorted([keys[1], other])
    exact = {"target": f"litert-int8@{version}", "model": model}
    assert listed("/v1/plans", "key", **exact) == [keys[1]]
    assert listed("/v1/plans", "key", target="litert-int8@0") == []
    assert (
        listed("/v1/models", "digest", format="json")
        == listed("/v1/models", "digest", name="chain")
        == [named]
    )
    assert listed("/v1/models", "digest", order="newest") == [named, model]
    # A page looks at so many, and may be short; the next one goes on.
    monkeypatch.setattr(stored_items, "MOST_LOOKS", 1)
    pages = pages_of(service, "/v1/plans", model=model, limit=1)
    assert len(pages) == 4
    assert [item["key"] for page in pages for item in page] == sorted(keys)
    shipped, own = (service.get("/v1/targets", params={"shipped": s}).json() for s in (True, False))
    assert ({item["id"] for item in shipped}, own) == (set(planner.target_ids()), [])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/plans",
        "/v1/plans/{key}",
        "/v1/plans/{key}/report",
        "/v1/targets",
        "/v1/server",
        "/v1/health/live",
    ],
)
def test_head_is_get_without_the_body(service, path):
    address = path.replace("{key}", planned(service))
    got, asked = (service.request(name, address, headers=AS_IT_IS) for name in ("GET", "HEAD"))
    assert (asked.status_code, asked.content) == (200, b"")
    same = ("content-type", "content-length", "etag", "cache-control")
    assert {name: asked.headers.get(name) for name in same} == {name: got.headers.get(name) for name in same}
    assert asked.headers["content-length"] == str(len(got.content))


def test_head_of_what_is_not_there_and_of_streams(service):
    assert service.head("/v1/plans/none").status_code == 404
    assert service.head("/v1/exports").status_code == 405
    assert service.head(f"/v1/jobs/{'0' * 32}/events").status_code == 405


def test_what_its_address_names_never_changes(service):
    key = planned(service)
    stats = service.post("/v1/stats", json=STATS).json()["digest"]
    for address in (f"/v1/plans/{key}", f"/v1/blobs/{put(service, b'1')}", f"/v1/stats/{stats}"):
        answer = service.get(address)
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert address.rpartition("/")[2] in answer.headers["etag"]
        head = service.head(address)
        same = ("content-type", "content-length", "etag", "cache-control")
        assert [head.headers.get(name) for name in same] == [answer.headers.get(name) for name in same]
        known = service.get(address, headers={"If-None-Match": answer.headers["etag"]})
        assert known.status_code == 304
        assert known.headers["cache-control"] == answer.headers["cache-control"]
    for address in (f"/v1/plans/{key}/report", "/v1/plans", "/v1/targets/litert-int8"):
        assert "immutable" not in service.get(address).headers.get("cache-control", "")


STATS = {
    "format": "qplan.stats/1",
    "model": f"sha256:{'0' * 64}",
    "method": "minmax",
    "samples": 1,
    "values": {},
}
POINTERS = {
    "": 200,
    "/key": 200,
    "/kernels/0/name": 200,
    "/kernels/01": 404,
    "/kernels/-": 404,
    "/kernels/99": 404,
    "/kernel": 404,
    "/key/deeper": 404,
    "kernels": 422,
}


@pytest.mark.parametrize("small", [True, False], ids=["read here", "read in a child"])
def test_a_part_of_a_plan_by_its_pointer(make_service, monkeypatch, small):
    if not small:
        monkeypatch.setattr(what_if, "SMALL", 1)
    service = make_service()
    plan = service.post("/v1/plans", json={"model": chain(2), "target": "litert-int8"}).json()
    parts = f"/v1/plans/{plan['key']}/part"
    found = {pointer: service.get(parts, params={"pointer": pointer}) for pointer in POINTERS}
    assert {pointer: answer.status_code for pointer, answer in found.items()} == POINTERS
    assert found[""].json() == plan
    assert found["/key"].json() == plan["key"]
    assert found["/kernels/0/name"].json() == plan["kernels"][0]["name"]
    assert "did you mean 'kernels'" in found["/kernel"].json()["hint"]
    tag = {"If-None-Match": found["/key"].headers["etag"]}
    assert service.get(parts, params={"pointer": "/key"}, headers=tag).status_code == 304
    path = str(service.app.state.service.store.path("plans", plan["key"]))
    assert service.get(parts, params={"pointer": path}).status_code == 404
