"""Families of input that means harm: each a typed 4xx, in little time, from readers as children run them.

What children read is read here by their own functions, so that hundreds of cases take seconds; `test_hostile`
sends one of each kind through a child.
"""

import time
from collections.abc import Iterator

import httpx
import pytest

from api import child
from api.intake.confine import peak_memory
from api.problems import TYPES, Refused, problem_of
from planner.errors import PlannerError
from tests.api.conftest import forget_peak
from tests.api.documents import JSON, YAML
from tests.api.hostile.corpus import CASES
from tests.api.hostile.families import families
from tests.api.test_problems import check

SECONDS = 3
"""Of a processor; the slowest takes a tenth of it, and a child that starts takes half a second."""
MEGABYTES = 512
MB = 1 << 20
READERS = {
    "model": (child.read_model, "model"),
    "stats": (child.read_stats, "stats"),
    "target": (child.lint_target, "text"),
}
FAMILIES = families()
READ = {name: case for name, case in FAMILIES.items() if case[0] in READERS}
SENT = {name: case for name, case in FAMILIES.items() if case[0] not in READERS}


@pytest.fixture(scope="module")
def client(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as made:
        yield made


def test_the_corpus_has_five_hundred_cases():
    assert len(CASES) + len(FAMILIES) >= 500
    kinds = {name.partition(":")[0].partition(" ")[0] for name in FAMILIES}
    assert kinds >= {"YAML", "pattern", "target", "statistics", "annotated", "LiteRT", "request"}


def test_each_case_has_a_peak_of_its_own():
    pieces = [bytes(100_000) for _ in range(2_000)]
    last = pieces.pop()
    del pieces
    assert len(last) == 100_000, "it keeps the allocator from giving back what lies in front of it"
    for size in (64, 32, 64):
        before = forget_peak()
        taken = b"x" * (size * MB)
        assert 0.9 * size * MB < peak_memory() - before < 1.5 * size * MB
        del taken


@pytest.mark.parametrize("name", READ)
def test_what_a_child_reads(name, tmp_path):
    sent, data, problem = READ[name]
    read, place = READERS[sent]
    (tmp_path / "in").write_bytes(data)
    job = {place: str(tmp_path / "in"), "out": str(tmp_path / "out"), "name": "text", "functions": {}}
    before = forget_peak()
    start = time.process_time()
    with pytest.raises((Refused, PlannerError)) as caught:
        read(job)
    assert time.process_time() - start < SECONDS
    assert peak_memory() - before < MEGABYTES * MB
    found = caught.value.problem if isinstance(caught.value, Refused) else problem_of(caught.value)
    assert (found.name, TYPES[found.name][0] < 500) == (problem, True)


@pytest.mark.parametrize("name", SENT)
def test_what_the_server_answers(client, server, name):
    sent, data, problem = SENT[name]
    start = server.cpu
    if sent.startswith("put:"):
        answer = client.put(f"/v1/targets/{sent.removeprefix('put:')}", content=data, headers=YAML)
    else:
        answer = client.post("/v1/plans", content=data, headers=JSON)
    assert server.cpu - start < SECONDS
    check(answer, problem)
    assert answer.status_code < 500


def test_the_server_stayed_small_and_goes_on(client, server):
    assert client.get("/v1/health/live").status_code == 200
    assert server.peak < 300
