"""What was kept is there after a restart, whole."""

import json
import os
import signal
import stat
from typing import get_args

import httpx
import pytest

from api.problems import Refused
from api.server.limits import Quota
from api.storage.digests import digest_of
from api.storage.kept_bytes import kept_bytes
from api.storage.store import Kind, Store
from tests.api.conftest import serving
from tests.api.documents import RANGE, chain, put, relu


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_finds_everything(tmp_path, ending):
    body = {"model": chain(3), "target": "litert-int8"}
    with (
        serving(tmp_path) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=100) as client,
    ):
        blob = put(client, relu())
        record = client.post("/v1/models", json={"blob": blob}).json()
        plan = client.post("/v1/plans", json=body).text
        key = json.loads(plan)["key"]
        assert client.get(f"/v1/plans/{key}").text == plan
        server.process.send_signal(ending)
        server.process.wait(timeout=60)
    with (
        serving(tmp_path) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=100) as client,
    ):
        assert client.get(f"/v1/plans/{key}").text == plan
        assert client.post("/v1/plans", json=body).text == plan
        assert client.get(f"/v1/blobs/{blob}").content == relu()
        onnx_plan = client.post(
            "/v1/plans", json={"model": record["digest"], "target": "onnxruntime-cpu", "annotations": RANGE}
        )
        assert onnx_plan.status_code == 200


def test_the_answer_of_a_request_comes_from_the_store(tmp_path):
    body = {"model": chain(3), "target": "litert-int8"}
    with serving(tmp_path) as server:
        post = f"{server.url}/v1/plans"
        key = httpx.post(post, json=body, trust_env=False).json()["key"]
        httpx.get(f"{post}/{key}", trust_env=False).raise_for_status()
        path = Store(tmp_path).path("plans", key)
        path.write_text("marked")
        assert httpx.post(post, json=body, trust_env=False).text == "marked"
        for header in ({"Prefer": "wait=30"}, {"Idempotency-Key": "k"}):  # read another way, and the same
            assert httpx.post(post, json=body, headers=header, trust_env=False).text == "marked"
        other = {**body, "options": {"strategy": "rfc"}}
        assert httpx.post(post, json=other, trust_env=False).json()["key"] != key


def test_half_done_files_go(tmp_path):
    store = Store(tmp_path)
    store.open()
    with store.draft() as folder:
        (folder / "data").write_bytes(b"x")
    assert list((tmp_path / "drafts").iterdir()) == []
    (tmp_path / "drafts" / "left").mkdir()
    store.open()
    assert list((tmp_path / "drafts").iterdir()) == []


def test_what_cannot_be_made_again_has_its_name_on_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(stat.S_ISDIR(os.fstat(file).st_mode)))
    store = Store(tmp_path)
    store.open()
    store.put("blobs", digest_of(b"a"), b"a")
    store.put("plans", digest_of(b"b"), b"b")
    assert synced == [False, True, False]


def test_what_is_there_stays(tmp_path):
    store = Store(tmp_path)
    store.open()
    store.put("blobs", digest_of(b"a"), b"a")
    store.put("blobs", digest_of(b"a"), b"b")
    assert store.find("blobs", digest_of(b"a")).read_bytes() == b"a"


def test_several_files_are_kept_in_order_or_none_is_left_half_done(tmp_path):
    store = Store(tmp_path)
    store.open()
    first, last = digest_of(b"a"), digest_of(b"b")
    store.put_all([("origins", first, b"a" * 300_000), ("plans", last, b"b")])
    assert (store.read("origins", first), store.read("plans", last)) == (b"a" * 300_000, b"b")
    store.put_all([("origins", first, b"x"), ("plans", first, b"d")])
    assert (store.read("origins", first), store.read("plans", first)) == (b"a" * 300_000, b"d")
    (tmp_path / "answers" / last[7:9]).write_text("in the way")
    with pytest.raises(OSError, match="answers"):
        store.put_all([("origins", last, b"e"), ("answers", last, b"f"), ("stats", last, b"g")])
    assert [store.has(kind, last) for kind in ("origins", "answers", "stats")] == [True, False, False]
    assert list((tmp_path / "drafts").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "sha256:", "sha256:../..", "sha256:" + "A" * 64, "sha256:" + "0" * 64 + "\n"]
)
def test_what_is_no_digest_is_no_path(tmp_path, name):
    with pytest.raises(Refused, match="unknown-name"):
        Store(tmp_path).path("blobs", name)


@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind != "requests"])
def test_every_kind_counts_for_the_quota_as_it_grows_shrinks_and_goes(tmp_path, kind):
    store = Store(tmp_path)
    store.open()
    before = kept_bytes(store)
    quota = Quota(10_000, lambda: kept_bytes(store))
    quota.count()
    counted = Store(tmp_path, quota=quota)
    digest = f"sha256:{'0' * 64}"
    for size in (100, 5000, 300):
        counted.replace(kind, digest, b"x" * size)
        assert quota.used == kept_bytes(store) == before + size
    with pytest.raises(Refused, match="quota"):
        counted.replace(kind, digest, b"x" * 20_000)
    assert quota.used == kept_bytes(store) == before + 300
    counted.drop(kind, digest)
    assert quota.used == kept_bytes(store) == before


def test_a_plan_that_is_made_again_keeps_the_links_of_its_requests(tmp_path):
    """Each is a second name of its file: by that it is found when the plan is taken away."""
    store = Store(tmp_path)
    store.open()
    key, *requests = (digest_of(name) for name in (b"plan", b"first", b"second"))
    for request in requests:
        with store.draft() as folder:
            (folder / "plan").write_bytes(b"plan")
            store.keep_plan(request, key, folder / "plan", b"origin")
    stand = {store.path("plans", key).stat().st_ino}
    assert {store.path("requests", request).stat().st_ino for request in requests} == stand
