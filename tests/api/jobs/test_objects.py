"""The store before an object store: what one server keeps another finds, and what is damaged is noticed."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from api.problems import Refused
from api.settings import Settings
from api.storage.digests import digest_of
from api.storage.objects import Objects, open_objects
from api.storage.store import Store
from benchmarks.clusters import free_port, object_store
from planner.errors import InputError
from tests.api.conftest import served_here
from tests.api.documents import chain

DATA = b"bytes of a model"
DIGEST = digest_of(DATA)
PLAN = f"sha256:{'1' * 64}"
REQUEST = f"sha256:{'2' * 64}"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """An S3-compatible server, and its keys in the environment."""
    with object_store() as (url, variables), mock.patch.dict(os.environ, variables):
        yield url


@pytest.fixture(params=["file", "s3"])
def objects(request, tmp_path) -> Objects:
    """An object store of each kind, empty."""
    if request.param == "file":
        url = f"file://{tmp_path}/shared"
    else:
        url = f"{request.getfixturevalue('s3')}/{tmp_path.name}"
    opened = open_objects(url)
    assert opened is not None
    return opened


@pytest.fixture
def make_store(objects, tmp_path):
    """A server's store: a folder of its own before the same objects."""

    def make(name: str) -> Store:
        store = Store(tmp_path / name, objects)
        store.open()
        return store

    return make


def test_what_one_keeps_the_other_finds(make_store):
    one, other = make_store("one"), make_store("other")
    assert not other.has("blobs", DIGEST)
    one.put("blobs", DIGEST, DATA)
    assert other.has("blobs", DIGEST)
    assert list(other.digests("blobs")) == [DIGEST]
    assert other.size("blobs") == len(DATA)
    assert other.find_verified("blobs", DIGEST).read_bytes() == DATA
    assert other.find("blobs", DIGEST).is_relative_to(other.root)


def test_links_are_found(make_store):
    one, other = make_store("one"), make_store("other")
    one.put("plans", PLAN, b"a plan")
    one.link(REQUEST, PLAN)
    assert other.has("requests", REQUEST)
    assert other.find("requests", REQUEST).read_bytes() == b"a plan"


def test_a_server_answers_what_another_one_made(tmp_path):
    body = {"model": chain(3), "target": "litert-int8"}
    blobs, answers = f"file://{tmp_path}/shared", []
    for name in ("one", "other"):
        data = tmp_path / name
        data.mkdir()
        with served_here(Settings(data=data, blobs=blobs)) as client:
            plan = client.post("/v1/plans", json=body).json()
            edited = client.post(f"/v1/plans/{plan['key']}:replan", json={"restore": ["k1"]}).json()
            paths = ["", "/ports", "/explain?port=k0.out[0]", f"/diff?against={edited['key']}"]
            read = [client.get(f"/v1/plans/{plan['key']}{path}") for path in paths]
            assert [answer.status_code for answer in read] == [200] * len(paths)
            answers.append([plan, edited, *(answer.content for answer in read)])
    assert answers[0] == answers[1]


def test_what_was_taken_away_is_gone_everywhere(make_store):
    one, other = make_store("one"), make_store("other")
    one.put("models", DIGEST, b"{}")
    assert other.read_json("models", DIGEST) == {}
    one.drop("models", DIGEST)
    assert not other.has("models", DIGEST)
    with pytest.raises(Refused, match="unknown-name"):
        other.find("models", DIGEST)


def test_what_is_not_there_is_unknown_with_the_nearest(make_store):
    store = make_store("one")
    store.put("blobs", DIGEST, DATA)
    with pytest.raises(Refused, match="unknown-name") as caught:
        store.find("blobs", DIGEST[:-1] + "0")
    assert caught.value.problem.more["nearest"] == [DIGEST]


def test_a_damaged_copy_is_brought_again(make_store):
    one, other = make_store("one"), make_store("other")
    one.put("blobs", DIGEST, DATA)
    other.find("blobs", DIGEST).write_bytes(b"damage")
    assert other.find_verified("blobs", DIGEST).read_bytes() == DATA


def test_a_damaged_object_is_taken_away_and_can_be_sent_again(make_store, objects, tmp_path):
    one, other = make_store("one"), make_store("other")
    one.put("blobs", DIGEST, DATA)
    damage = tmp_path / "damage"
    damage.write_bytes(b"damage")
    objects.send(damage, one.path("blobs", DIGEST).relative_to(one.root).as_posix())
    with pytest.raises(Refused, match="corrupted"):
        other.find_verified("blobs", DIGEST)
    assert not other.has("blobs", DIGEST)
    other.put("blobs", DIGEST, DATA)
    assert other.find_verified("blobs", DIGEST).read_bytes() == DATA


def test_without_an_object_store_damage_is_noticed_too(tmp_path):
    store = Store(tmp_path)
    store.open()
    store.put("blobs", DIGEST, DATA)
    path = store.find_verified("blobs", DIGEST)
    path.write_bytes(b"damage")
    with pytest.raises(Refused, match="corrupted"):
        store.find_verified("blobs", DIGEST)
    assert not path.exists()


def test_a_draft_of_a_living_server_stays(tmp_path):
    store = Store(tmp_path)
    store.open()
    with store.draft() as folder:
        Store(tmp_path).open()
        assert folder.is_dir()
    assert list((tmp_path / "drafts").iterdir()) == []


def test_a_server_that_starts_takes_no_draft_away_as_it_is_made(tmp_path):
    store = Store(tmp_path)
    store.open()
    ended = threading.Event()

    def start() -> None:
        while not ended.is_set():
            Store(tmp_path).open()

    with ThreadPoolExecutor(3) as pool:
        starting = [pool.submit(start) for _ in range(3)]
        try:
            for number in range(300):
                with store.draft() as folder:
                    (folder / "data").write_bytes(b"x")
                store.put("blobs", digest_of(b"%d" % number), b"x")
        finally:
            ended.set()
    assert [one.exception() for one in starting] == [None] * 3
    assert len(list(store.digests("blobs"))) == 300


@pytest.mark.parametrize("scheme", ["nothing", "s4", "ftp"])
def test_what_is_no_object_store_is_said(scheme):
    with pytest.raises(InputError, match=f"QPLAN_BLOBS: .*'{scheme}' is no scheme here") as caught:
        open_objects(f"{scheme}://nope/x")
    assert caught.value.hint == "s3://BUCKET/PREFIX or file:///DIR"


def test_no_address_is_the_data_folder_alone():
    assert open_objects("") is None


def test_an_object_store_that_is_away_is_a_problem_not_a_bug(tmp_path):
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_MAX_ATTEMPTS": "1"}
    with mock.patch.dict(os.environ, {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}):
        store = Store(Path(tmp_path), open_objects("s3://away/store"))
        store.open()
        with pytest.raises(Refused, match="not-ready"):
            store.has("blobs", DIGEST)
