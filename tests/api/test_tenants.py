"""Tenants: what one made, nobody else sees, cancels or takes away, and nothing tells that it is there."""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import httpx
import pytest

from api.server.tokens import LOOK_EVERY, KnownTokens, make_token, needed, parse_token
from api.storage.digests import digest_of
from api.storage.store import TENANTS
from planner.errors import InputError
from tests.api.conftest import COMMAND, serving
from tests.api.documents import YAML, chain
from tests.api.test_problems import check
from tests.api.test_tokens import KNOWN, bearer, digest

BODY = {"model": chain(1), "target": "litert-int8"}
OCTETS = {"Content-Type": "application/octet-stream"}
NAMES = ("one/ann", "one/ben", "two/cat", "dan")
HEADERS = {name: bearer(name) for name in NAMES}
ANN, BEN, CAT, DAN = (HEADERS[name] for name in NAMES)
TARGET = Path(__file__).resolve().parents[2].joinpath("targets", "teaching-npu.yaml").read_text()
OWN = TARGET.replace("id: teaching-npu", "id: own-npu", 1)


@pytest.fixture
def tenants(make_service):
    """A service of three tenants: `one` of two tokens, `two`, and the default one."""
    tokens = (parse_token(f"{name}:write+metrics:{digest(name)}", "the test") for name in NAMES)
    return make_service(tokens=tuple(tokens))


@pytest.mark.parametrize(
    ("text", "tenant", "principal"),
    [
        (KNOWN, "default", KNOWN[:8]),
        (f"ci:plan:{KNOWN}", "default", "ci"),
        (f"one/ci:plan:{KNOWN}", "one", "one/ci"),
    ],
)
def test_a_token_names_its_tenant(text, tenant, principal):
    token = parse_token(text, "the test")
    assert (token.tenant, token.principal) == (tenant, principal)


@pytest.mark.parametrize("tenant", ["", "..", "One", "a/b", "-a", "a" * 32])
def test_what_is_no_name_of_a_tenant(tenant):
    with pytest.raises(InputError, match="is no name for a token"):
        make_token("ci", ["plan"], tenant)
    with pytest.raises(InputError, match="no sha256"):
        parse_token(f"{tenant}/ci:plan:{KNOWN}", "the test")


def kept_by(service, headers) -> dict[str, str]:
    """Make one thing of each kind, and give their addresses."""
    blob = json.dumps(chain(3)).encode()
    found = {"blob": f"/v1/blobs/{digest_of(blob)}"}
    assert service.put(found["blob"], content=blob, headers=headers | OCTETS).status_code == 201
    model = service.post("/v1/models", json={"blob": digest_of(blob)}, headers=headers).json()["digest"]
    found["model"] = f"/v1/models/{model}"
    plan = service.post("/v1/plans", json=BODY, headers=headers).json()["key"]
    found["plan"] = f"/v1/plans/{plan}"
    stats = {
        "format": "qplan.stats/1",
        "model": digest_of(b""),
        "method": "minmax",
        "samples": 1,
        "values": {},
    }
    answer = service.post("/v1/stats", json=stats, headers=headers)
    found["stats"] = f"/v1/stats/{answer.json()['digest']}"
    put = service.put("/v1/targets/own-npu@1.0.0", content=OWN, headers=headers | YAML)
    assert put.status_code == 201, put.text
    found["target"] = "/v1/targets/own-npu@1.0.0"
    announced = {"digest": digest_of(b"to come"), "bytes": 7}
    found["upload"] = service.post("/v1/uploads", json=announced, headers=headers).json()["link"]
    later = {"model": model, "target": "litert-int8", "options": {"costs": {"bit_price": 2.5}}}
    job = service.post("/v1/plans", json=later, headers=headers | {"Prefer": "respond-async"})
    assert job.status_code == 202, job.text
    found["job"] = job.json()["link"]
    assert "event: done" in service.get(f"{found['job']}/events", headers=headers).text
    return found


def test_what_one_made_is_not_there_for_another(tenants):
    own = kept_by(tenants, ANN)
    for kind, address in own.items():
        assert tenants.get(address, headers=BEN).status_code == 200, kind
        for other in (CAT, DAN):
            unseen = tenants.get(address, headers=other)
            never = tenants.get(nothing_like(address), headers=other)
            assert unseen.status_code == never.status_code == 404, kind
            assert told(unseen, address) == told(never, nothing_like(address)), kind
            assert tenants.get(f"{address}/events", headers=other).status_code == 404
            if kind != "job":
                assert tenants.delete(address, headers=other).status_code == 404, kind
    assert tenants.post(f"{own['job']}:cancel", headers=CAT).status_code == 404
    for listed in ("blobs", "models", "plans", "stats", "jobs"):
        assert tenants.get(f"/v1/{listed}", headers=CAT).json()["items"] == [], listed
        assert len(tenants.get(f"/v1/{listed}", headers=BEN).json()["items"]) >= 1, listed
    assert "own-npu" not in tenants.get("/v1/targets", headers=CAT).text
    assert "own-npu" in tenants.get("/v1/targets", headers=BEN).text
    assert tenants.get("/v1/server", headers=CAT).json()["tenant"] == "two"


def nothing_like(address: str) -> str:
    """An address of the same kind, of something that nobody has."""
    *parts, last = address.split("/")
    head, _, name = last.rpartition(":")
    other = "own-gpu@1.0.0" if "@" in last else f"{head}{':' if head else ''}{name[:-4]}{'0000'}"
    return "/".join([*parts, other])


def told(answer, address: str) -> str:
    """What an answer says, but for the name that was asked for, its like, and the id of the request."""
    document = answer.json()
    del document["request_id"]
    assert not {"own-npu@1.0.0", "own-npu"} & set(document.pop("nearest", []))
    return json.dumps(document).replace(address.rpartition("/")[2], "NAME")


def test_what_another_has_is_made_as_if_nobody_had_it(tenants):
    """Whoever sends what is there already is told nothing by it: his own is read and made anew."""
    kept_by(tenants, ANN)
    root = tenants.app.state.service.store.root
    before = {path for path in root.rglob("*") if path.is_file()}
    kept_by(tenants, CAT)
    made = {path for path in root.rglob("*") if path.is_file()} - before
    for kind in ("answers", "blobs", "descriptions", "models", "origins", "plans", "requests", "stats"):
        assert any(path.is_relative_to(root / TENANTS / "two" / kind) for path in made), kind
    elsewhere = [path for path in made if not path.is_relative_to(root / TENANTS / "two")]
    assert [path for path in elsewhere if "sqlite" not in path.name] == []
    assert not (root / "plans").exists() or list((root / "plans").glob("*/*")) == []


def test_a_job_reads_and_makes_what_is_its_tenants(tenants):
    own = kept_by(tenants, ANN)
    plan = tenants.get(own["job"], headers=BEN).json()["result"]["link"]
    assert tenants.get(plan, headers=ANN).status_code == 200
    assert tenants.get(plan, headers=CAT).status_code == 404
    assert tenants.get(plan, headers=DAN).status_code == 404


def test_a_key_of_one_is_free_for_another(tenants):
    for headers in (ANN, BEN, CAT):
        again = headers | {"Idempotency-Key": "mine", "Prefer": "respond-async"}
        body = BODY | {"options": {"costs": {"bit_price": 1.0 + NAMES.index("one/ann")}}}
        assert tenants.post("/v1/plans", json=body, headers=again).status_code in (200, 202)
    other = ANN | {"Idempotency-Key": "mine"}
    check(tenants.post("/v1/plans", json=BODY | {"target": "tosa-int8"}, headers=other), "key-reused")
    free = DAN | {"Idempotency-Key": "mine"}
    assert tenants.post("/v1/plans", json=BODY | {"target": "tosa-int8"}, headers=free).status_code == 200


def test_a_tenant_has_a_quota_of_its_own(make_service):
    tokens = tuple(parse_token(f"{name}:write:{digest(name)}", "the test") for name in NAMES)
    service = make_service(tokens=tokens, tenant_quota=300_000, quota=500_000)

    def put(size: int, headers: dict[str, str]) -> int:
        data = os.urandom(size)
        return service.put(f"/v1/blobs/{digest_of(data)}", content=data, headers=headers | OCTETS).status_code

    assert [put(200_000, ANN), put(200_000, BEN), put(200_000, CAT)] == [201, 507, 201]
    assert [put(200_000, DAN), put(90_000, DAN)] == [507, 201]
    asked = {"digest": digest_of(b"never sent"), "bytes": 200_000}
    found = check(service.post("/v1/uploads", json=asked, headers=DAN), "quota", "the server is full")
    assert not re.search("[0-9]", found["detail"])
    quotas = service.app.state.quotas
    quotas.count()
    assert (quotas.of("one").used, quotas.of("two").used, quotas.whole.used) == (200_000, 200_000, 490_000)


def test_plans_count_for_the_quota_of_their_tenant(make_service):
    tokens = tuple(parse_token(f"{name}:write:{digest(name)}", "the test") for name in NAMES)
    service = make_service(tokens=tokens, tenant_quota=100_000)

    def plans(headers: dict[str, str]) -> list[int]:
        bodies = (BODY | {"options": {"costs": {"bit_price": 1.0 + k}}} for k in range(30))
        return [service.post("/v1/plans", json=body, headers=headers).status_code for body in bodies]

    found = plans(ANN)
    assert (found[0], found[-1]) == (200, 507)
    assert plans(CAT) == found
    assert service.app.state.quotas.of("one").used <= 100_000


def test_a_plan_that_does_not_fit_leaves_nothing(make_service):
    service = make_service(quota=20_000)
    bodies = [BODY | {"options": {"costs": {"bit_price": 1.0 + k}}} for k in range(30)]
    codes = [service.post("/v1/plans", json=body).status_code for body in bodies]
    assert codes == sorted(codes)
    assert {*codes} == {200, 507}
    store = service.app.state.service.store
    assert len([*store.digests("origins")]) == len([*store.digests("plans")]) == codes.count(200)


def test_who_uploads_may_give_up():
    assert needed("DELETE", "/v1/uploads/x") == "plan"
    assert needed("DELETE", "/v1/blobs/x") == "write"


def test_a_file_of_tokens_is_read_again(tmp_path, caplog):
    file, clock = tmp_path / "tokens", [0.0]
    file.write_text(f"ann:plan:{KNOWN}\n")
    fixed = parse_token(f"ci:read:{digest('ci')}", "the test")
    known = KnownTokens(
        (fixed, parse_token(f"ann:plan:{KNOWN}", "x", str(file))), str(file), lambda: clock[0]
    )

    def names() -> list[str]:
        clock[0] += LOOK_EVERY
        return [token.principal for token in known.now()]

    assert names() == ["ci", "ann"]
    file.write_text(f"one/ben:read:{digest('b')}\n")
    assert [token.principal for token in known.now()] == ["ci", "ann"]  # looked at once a second
    assert names() == ["ci", "one/ben"]
    file.write_text("what is no token at all\n")
    assert names() == ["ci", "one/ben"]
    assert "the tokens stay as they were" in caplog.text
    caplog.clear()
    file.write_text(f"one/ben:read:{digest('b')}\ntwo/ben:read:{digest('b')}\n")
    assert names() == ["ci", "one/ben"]
    assert "'two/ben' has the sha256 of 'one/ben'" in caplog.text
    file.write_text(f"ben:read:{digest('ci')}\n")
    assert names() == ["ci", "one/ben"]
    file.unlink()
    assert names() == ["ci", "one/ben"]
    file.write_text("")
    assert names() == ["ci"]


def test_tokens_come_and_go_while_the_server_runs(make_service, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ann:plan:{digest('ann')}\n")
    token = parse_token(f"ann:plan:{digest('ann')}", "x", str(file))
    service = make_service(tokens=(token,), tokens_file=str(file))
    assert service.get("/v1/targets", headers=bearer("ann")).status_code == 200
    file.write_text(f"one/ben:plan:{digest('ben')}\n")
    # The file is looked at once a second; asked without a pause, a quick machine comes to the end of the
    # requests that one principal has in a minute.
    until = time.monotonic() + 10
    status = 200
    while status == 200 and time.monotonic() < until:
        time.sleep(0.1)
        status = service.get("/v1/targets", headers=bearer("ann")).status_code
    assert status == 401
    assert service.get("/v1/targets", headers=bearer("ben")).status_code == 200
    file.write_text("")  # no tokens at all: nobody, not everybody
    time.sleep(1.1)
    assert service.get("/v1/targets").status_code == 401


@pytest.mark.parametrize("processes", [1, 2])
def test_a_hangup_ends_nothing_where_tokens_come_from_a_file(tmp_path, processes):
    file = tmp_path / "tokens"
    file.write_text(f"ann:plan:{digest('ann')}\n")
    command = (sys.executable, "-c", COMMAND, "serve", "--processes", str(processes))
    with serving(tmp_path, command, QPLAN_TOKENS_FILE=str(file)) as server:
        file.write_text(f"ben:plan:{digest('ben')}\n")
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        servers = [pid for pid in children if b"api.server.run" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(servers) == (processes if processes > 1 else 0)
        for pid in (server.process.pid, *map(int, servers)):
            os.kill(pid, signal.SIGHUP)
        time.sleep(1.1)
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            assert client.get("/v1/targets", headers=bearer("ben")).status_code == 200
            assert client.get("/v1/targets", headers=bearer("ann")).status_code == 401
        assert server.process.poll() is None
        assert all(Path(f"/proc/{pid}").exists() for pid in servers)
