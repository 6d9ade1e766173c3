"""Slow work: children do it, however small its request is; targets that were put are theirs altogether."""

import time

from tests.api.documents import YAML, chain
from tests.api.test_problems import check

HEAD = """apiVersion: planner/v1
kind: Target
id: slow
version: {version}
types: {{a8: {{storage: i8}}}}
kernels:
"""
ROW = "  - {{kernel: add, in: {{a: a8, b: a8}}, out: {{y: a8}}, when: {{holds: [{}]}}}}\n"
LAST = "  - {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}\n"
POWER = "(a.shape[1] + 1/3) ** 200"
DONE = ("done", "failed", "cancelled")


def slow_target(rows: int, version: str = "1.0.0", powers: int = 4) -> str:
    """A target of many rows whose conditions are as expensive as the limits allow."""
    product = " * ".join([POWER] * powers)
    listed = "".join(ROW.format(f'"{product} == {i}/7"') for i in range(rows))
    return HEAD.format(version=version) + listed + LAST


def put_slow(client, text: str, version: str = "1.0.0"):
    return client.put(f"/v1/targets/slow@{version}", content=text, headers=YAML)


def running(client, link: str) -> dict:
    """A job once a child works on it."""
    while (job := client.get(link).json())["state"] == "queued":
        time.sleep(0.02)
    return job


def test_others_are_answered_while_a_slow_target_is_planned_with(make_service):
    """A model small enough for the server's own process is planned in a child where its target was put."""
    client = make_service(child_seconds=600)
    assert put_slow(client, slow_target(250)).status_code == 201
    asked = {"model": chain(2000) | {"name": "held up"}, "target": "slow@1.0.0"}
    job = client.post("/v1/plans", json=asked, headers={"Prefer": "respond-async"})
    assert job.status_code == 202, job.text
    link = job.headers["location"]
    assert running(client, link)["state"] == "running"
    assert client.get("/v1/health/live").status_code == 200
    assert client.post("/v1/plans", json={"model": chain(2), "target": "litert-int8"}).status_code == 200
    assert client.get(link).json()["state"] == "running", "it must last longer than the requests beside it"
    assert client.post(f"{link}:cancel").status_code in (200, 202)
    while client.get(link).json()["state"] not in DONE:
        time.sleep(0.02)


def test_small_models_become_jobs_for_targets_that_were_put(make_service):
    """Only shipped targets are planned with at once, in the server's own process."""
    client = make_service()
    assert put_slow(client, slow_target(1)).status_code == 201
    at_once = {"Prefer": "respond-async"}
    for target, status in (("slow@1.0.0", 202), ("slow", 202), ("litert-int8", 200)):
        answer = client.post("/v1/plans", json={"model": chain(2), "target": target}, headers=at_once)
        assert answer.status_code == status, target


def test_limits_are_told_when_a_target_is_put_and_when_it_is_planned_with(make_service):
    """The limits that a file breaks by itself are told before, those of a model's sizes with the place."""
    client = make_service()
    check(put_slow(client, slow_target(600)), "target-invalid", "L045 conditions of the 601 rows of add")
    exponent = slow_target(1).replace("** 200", "** 4000")
    check(put_slow(client, exponent), "target-invalid", "slow.yaml:7:60: L044 when of add holds: an exponent")
    assert put_slow(client, slow_target(1, powers=5)).status_code == 201
    answer = client.post("/v1/plans", json={"model": chain(5), "target": "slow"})
    check(answer, "target-invalid", "gives a number of 4644 bits; at most 4096")
    place = {name: answer.json()["errors"][0][name] for name in ("line", "code")}
    assert place == {"line": 7, "code": "L044"}


def test_a_target_that_was_put_is_shown_until_it_goes(make_service):
    """A child writes its document, which is kept for as long as the target."""
    client = make_service()
    put_slow(client, slow_target(2))
    shown = [client.get("/v1/targets/slow").json() for _ in range(2)]
    assert shown[0] == shown[1]
    assert len(shown[0]["kernels"]["add"]) == 3
    assert client.delete("/v1/targets/slow@1.0.0").status_code == 204
    check(client.get("/v1/targets/slow@1.0.0"), "unknown-name", "slow")


def test_many_globs_are_matched_in_a_child(make_service):
    """A glob is matched with every name: many of both are no work of the server's own process."""
    client = make_service()
    model = chain(2)
    model["values"] += [{"name": f"aside{i}", "shape": [1]} for i in range(1000)]
    globs = {f"*a*s*i*d*e*{i}*": "!quant.any<i8>" for i in range(60)}
    few = dict(list(globs.items())[:2])
    for asked, status in ((few, 200), (globs, 202)):
        note = {"format": "qplan.annotations/1", "values": asked}
        body = {"model": model, "target": "litert-int8", "annotations": note}
        answer = client.post("/v1/plans", json=body, headers={"Prefer": "respond-async"})
        assert answer.status_code == status, answer.text
