"""Tokens with scopes, and how often each may ask."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.paths import import_path
from api.server.limits import PROBES, SLOTS, RateLimiter
from api.server.metrics import SHARED
from api.server.tokens import EVERYTHING, find_token, make_token, needed, parse_token
from api.settings import settings_from
from planner.errors import InputError
from tests.api.documents import YAML, chain
from tests.api.test_problems import check

KNOWN = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0"  # of "token"


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize(
    ("text", "name", "scopes"),
    [
        (KNOWN, KNOWN[:8], EVERYTHING),
        (f"ci:plan:{KNOWN}", "ci", {"read", "plan"}),
        (f"ops:write:{KNOWN}", "ops", {"read", "plan", "write"}),
        (f"prom.1:metrics:{KNOWN}", "prom.1", {"metrics"}),
        (f"both:read+metrics:{KNOWN}", "both", {"read", "metrics"}),
    ],
)
def test_tokens_are_read(text, name, scopes):
    token = parse_token(text, "the test")
    assert (token.name, token.digest, token.scopes) == (name, KNOWN, frozenset(scopes))


@pytest.mark.parametrize(
    "text", ["secret", "ci:plan:secret", f"ci:{KNOWN}", f"c i:plan:{KNOWN}", KNOWN.upper()]
)
def test_what_is_no_digest_is_not_quoted(text):
    with pytest.raises(InputError, match="no sha256") as caught:
        parse_token(text, "QPLAN_TOKENS")
    assert "secret" not in str(caught.value)


def test_an_unknown_scope_is_named():
    with pytest.raises(InputError, match="scope 'reed'"):
        parse_token(f"ci:reed:{KNOWN}", "QPLAN_TOKENS")


def test_tokens_come_from_both_settings(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"# people\nann:plan:{KNOWN}  # left in May\n\nbob:read:{digest('b')}\n")
    found = settings_from({"QPLAN_TOKENS": f"ci:plan:{digest('c')}", "QPLAN_TOKENS_FILE": str(file)})
    assert [token.name for token in found.tokens] == ["ci", "ann", "bob"]
    with pytest.raises(InputError, match="QPLAN_TOKENS_FILE: cannot read"):
        settings_from({"QPLAN_TOKENS_FILE": str(tmp_path / "none")})
    file.write_text("ann\n")
    with pytest.raises(InputError, match=r"tokens:1 holds something"):
        settings_from({"QPLAN_TOKENS_FILE": str(file)})


def test_a_mark_of_byte_order_is_no_part_of_a_token(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"ann:plan:{KNOWN}\n", encoding="utf-8-sig")
    assert [token.name for token in settings_from({"QPLAN_TOKENS_FILE": str(file)}).tokens] == ["ann"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"one/ann:plan:{KNOWN}", f"two/ann:plan:{KNOWN}"),
        (f"ann:plan:{KNOWN}", f"ann:write:{KNOWN}"),
        (KNOWN, f"ann:plan:{KNOWN}"),
    ],
)
def test_one_digest_is_one_token(tmp_path, first, second):
    file = tmp_path / "tokens"
    file.write_text(f"{first}\n{second}\n")
    with pytest.raises(InputError, match=r"tokens:2: '.*ann' has the sha256 of '.*' \(.*tokens:1\)"):
        settings_from({"QPLAN_TOKENS_FILE": str(file)})
    file.write_text(f"{second}\n")
    with pytest.raises(InputError, match=r"tokens: '.*ann' has the sha256 of '.*' \(QPLAN_TOKENS\)"):
        settings_from({"QPLAN_TOKENS": first, "QPLAN_TOKENS_FILE": str(file)})
    file.write_text(f"{first}\n{first}  # twice\n")
    assert len(settings_from({"QPLAN_TOKENS_FILE": str(file)}).tokens) == 2


def test_a_made_token_is_found_by_its_setting():
    secret, line = make_token("ci", ["plan", "metrics"])
    token = parse_token(line, "the test")
    assert secret not in line
    assert find_token([token], f"bearer {secret}".encode()) == token
    assert find_token([token], f"Basic {secret}".encode()) is None
    with pytest.raises(InputError):
        make_token("c:i", ["plan"])


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/targets", "read"),
        ("HEAD", "/v1/blobs/x", "read"),
        ("POST", "/v1/plans", "plan"),
        ("PUT", "/v1/blobs/x", "plan"),
        ("PATCH", "/v1/uploads/x", "plan"),
        ("POST", "/v1/targets:lint", "plan"),
        ("PUT", "/v1/targets/a@1", "write"),
        ("DELETE", "/v1/models/x", "write"),
        ("GET", "/metrics", "metrics"),
        ("BREW", "/v1/plans", "plan"),
    ],
)
def test_what_a_request_needs(method, path, scope):
    assert needed(method, path) == scope


def test_scopes_are_kept(make_service):
    words = {name: f"{name}:{name}:{digest(name)}" for name in ("read", "plan", "write", "metrics")}
    tokens = tuple(parse_token(text, "the test") for text in words.values())
    service = make_service(tokens=tokens)
    body = {"model": chain(1), "target": "litert-int8"}
    assert service.get("/v1/targets", headers=bearer("read")).status_code == 200
    assert service.get("/v1/targets", headers=bearer("plan")).status_code == 200
    assert service.post("/v1/plans", json=body, headers=bearer("plan")).status_code == 200
    assert service.get("/metrics", headers=bearer("metrics")).status_code == 200
    found = check(service.post("/v1/plans", json=body, headers=bearer("read")), "forbidden")
    assert found["scope"] == "plan"
    check(service.get("/v1/targets", headers=bearer("metrics")), "forbidden")
    check(service.get("/metrics", headers=bearer("write")), "forbidden")
    put = service.put("/v1/targets/x@1.0.0", content=b"", headers={**YAML, **bearer("plan")})
    check(put, "forbidden", "scope write")


def test_a_token_that_asks_too_often(make_service):
    tokens = tuple(parse_token(f"{name}:read:{digest(name)}", "the test") for name in ("one", "two"))
    service = make_service(tokens=tokens, rate=1, burst=3)
    answers = [service.get("/v1/targets", headers=bearer("one")) for _ in range(5)]
    assert [answer.status_code for answer in answers[:3]] == [200] * 3
    found = check(answers[-1], "rate-limited")
    assert int(answers[-1].headers["retry-after"]) == found["retry_after"] >= 1
    assert service.get("/v1/targets", headers=bearer("two")).status_code == 200
    assert service.get("/v1/health/live").status_code == 200


def test_guessing_tokens_is_slow(make_service):
    service = make_service(tokens=(parse_token(KNOWN, "the test"),))
    answers = [service.get("/v1/targets", headers=bearer(f"guess{i}")) for i in range(40)]
    assert {answer.status_code for answer in answers} == {401, 429}
    # On a slow machine a guess comes free again before the last.
    check(next(answer for answer in answers if answer.status_code == 429), "rate-limited")
    assert service.get("/v1/targets", headers=bearer("token")).status_code == 200


@pytest.mark.parametrize(
    ("times", "admitted"),
    [
        ([0, 0, 0, 0], 3),  # the burst
        ([0, 0, 0, 0.5, 1.0], 5),  # two a second come back
        ([0, 100, 100, 100, 100], 4),  # not more than the burst, however long nobody asked
    ],
)
def test_buckets(times, admitted):
    buckets = RateLimiter("test", 2, 3)
    assert sum(buckets.take("a", at) == 0 for at in times) == admitted


def test_buckets_say_how_long_to_wait_and_forget():
    buckets = RateLimiter("test", 2, 1)
    assert [buckets.take("a", 0.0), buckets.take("a", 0.25)] == [0.0, 0.25]
    for i in range(SLOTS * PROBES):
        buckets.take(str(i), 1.0 + i / SLOTS)
    assert buckets.take("a", 0.3) == 0.0
    assert all(RateLimiter("test", 0, 1).take("a", 0.0) == 0 for _ in range(9))


TAKING = """
import sys
from api.server.limits import RateLimiter, Quota
buckets, quota = RateLimiter("test", 1, 500), Quota(9000, int)
for _ in range(400):
    quota.take(10)
print(sum(buckets.take("a", 0.0) == 0 for _ in range(400)), quota.used)
"""


def test_processes_of_a_server_count_together(tmp_path):
    variables = {**os.environ, SHARED: str(tmp_path), "PYTHONPATH": import_path()}
    line = [sys.executable, "-c", TAKING]
    running = [subprocess.Popen(line, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[0].split() for process in running]
    assert sum(int(admitted) for admitted, _ in told) == 500
    assert max(int(used) for _, used in told) == 8000


def test_the_secret_is_nowhere(make_service, tmp_path, capfd):
    service = make_service(tokens=(parse_token(KNOWN, "the test"),))
    service.get("/v1/targets", headers=bearer("token"))
    kept = [path for path in Path(tmp_path).rglob("*") if path.is_file() and b"Bearer" in path.read_bytes()]
    assert kept == []
    assert "Bearer" not in capfd.readouterr().err


def test_the_document_needs_no_token(make_service):
    service = make_service(tokens=(parse_token(f"ci:read:{KNOWN}", "the test"),))
    answer = service.get("/openapi.json")
    assert answer.json()["openapi"].startswith("3.1")
    assert service.head("/openapi.json").status_code == 200
    for path in ("/v1/server", "/openapi.json/", "/metrics"):
        check(service.get(path), "unauthorized")
