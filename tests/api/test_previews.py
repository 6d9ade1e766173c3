"""Previews of edits: what `:replan` would change, by a child that holds the plan; its limits, its ends."""

import os
import signal
import time
from pathlib import Path

import pytest

import planner
from api.jobs.child_process import start_child
from tests.api.documents import chain
from tests.api.test_problems import check
from tests.api.test_tokens import bearer, digest
from tests.api.test_whatif import PIN, library, make


def held(client):
    return client.app.state.service.residents.held


def previewed(client, key, edits, **more):
    answer = client.post(f"/v1/plans/{key}:preview", json=edits, **more)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("residents", [0, 2])
@pytest.mark.parametrize(
    "edits", [{"values": {"v3": PIN}}, {"kernels": {"k3": "float"}}, {"restore": ["k7"]}, {}]
)
def test_a_preview_is_the_difference_of_the_replan(make_service, residents, edits):
    client = make_service(residents=residents)
    key = make(client, chain(9))["key"]
    found = previewed(client, key, edits)
    after = client.post(f"/v1/plans/{key}:replan", json=edits).json()["key"]
    whole = client.get(f"/v1/plans/{key}/diff", params={"against": after}).json()
    assert found["totals"].items() <= whole["totals"].items()
    assert found["rescales"] == whole["rescales"]
    for what in ("kernels", "ports"):
        assert [one | {"why": ""} for one in whole[what]] == found[what]
    assert found["touched"] == sorted({*found["touched"]})
    names = {one["at"].partition(".")[0] for what in ("kernels", "ports") for one in found[what]}
    assert names <= set(found["touched"]) <= {f"k{n}" for n in range(9)}
    assert bool(found["touched"]) != found["same"]
    assert (found["same"], found["plan"]) == (whole["same"], key)
    assert len(held(client)) == (1 if residents else 0)


def test_one_child_answers_all_and_nothing_is_kept(make_service):
    client = make_service()
    key = make(client, chain(9))["key"]
    before = {entry["key"] for entry in client.get("/v1/plans").json()["items"]}
    first = previewed(client, key, {"values": {"v3": PIN}})
    child = held(client)[""].child.pid
    check(client.post(f"/v1/plans/{key}:preview", json={"values": {"v99": PIN}}), "annotation-invalid", "v99")
    assert previewed(client, key, {})["same"]
    assert previewed(client, key, {"values": {"v3": PIN}}) == first
    assert held(client)[""].child.pid == child
    assert {entry["key"] for entry in client.get("/v1/plans").json()["items"]} == before
    check(client.post(f"/v1/plans/sha256:{'0' * 64}:preview", json={}), "unknown-name")


def test_a_child_that_ended_is_made_again(make_service):
    client = make_service()
    key = make(client, chain(9))["key"]
    first = previewed(client, key, {"values": {"v3": PIN}})
    child = held(client)[""].child
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert previewed(client, key, {"values": {"v3": PIN}}) == first
    assert held(client)[""].child.pid != child.pid


@pytest.mark.parametrize("times", [1, 2])
def test_a_child_that_is_killed_while_it_plans_is_made_once_more(make_service, monkeypatch, times):
    turns = iter([True] * times + [False] * 9)

    def start(folder):
        child = start_child(folder)
        if next(turns):
            os.kill(child.pid, signal.SIGKILL)
        return child

    monkeypatch.setattr("api.jobs.residents.start_child", start)
    client = make_service()
    key = make(client, chain(9))["key"]
    answer = client.post(f"/v1/plans/{key}:preview", json={})
    if times == 1:
        assert answer.status_code == 200
    else:
        check(answer, "worker-lost", "SIGKILL from outside")


def test_another_plan_takes_the_place_of_the_one_before(make_service):
    client = make_service()
    keys = [make(client, chain(n))["key"] for n in (3, 4)]
    pids = []
    for key in keys:
        previewed(client, key, {})
        pids.append(held(client)[""].child.pid)
    assert [resident.key for resident in held(client).values()] == keys[1:]
    until = time.monotonic() + 5
    while Path(f"/proc/{pids[0]}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pids[0]}").exists()


def test_each_caller_has_one_and_the_longest_unused_goes(make_service):
    from api.server.tokens import parse_token

    tokens = tuple(parse_token(f"t{n}:write:{digest(f'secret{n}')}", "t") for n in range(3))
    client = make_service(tokens=tokens, residents=2)
    body = {"model": chain(3), "target": "litert-int8"}
    key = client.post("/v1/plans", json=body, headers=bearer("secret0")).json()["key"]
    for n in (0, 1, 0, 2):
        previewed(client, key, {}, headers=bearer(f"secret{n}"))
    assert list(held(client)) == ["t0", "t2"]


def test_a_model_too_big_for_a_child_is_a_refusal(make_service):
    client = make_service(child_memory=1 << 20)
    key = make(client, chain(3))["key"]
    answer = client.post(f"/v1/plans/{key}:preview", json={})
    assert answer.status_code in (413, 422, 500, 503), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert not held(client)


def test_the_outline_is_the_difference_without_reasons():
    before = library(chain(9))
    after = planner.replan(before, {"values": {"v3": PIN}})
    from planner.plans.diff import outline

    whole, found = planner.diff(before, after), outline(before, after)
    assert found.rescales == whole.rescales
    assert [(one.at, one.before, one.after) for one in found.ports] == [
        (one.at, one.before, one.after) for one in whole.ports
    ]
    assert {**found.totals, "worst bits lost": whole.totals["worst bits lost"]} == whole.totals
