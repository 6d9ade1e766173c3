"""Schemathesis asks every operation of the OpenAPI document whatever it thinks of: no answer is a 5xx."""

import json
import re
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import serving
from tests.api.documents import chain, put, relu

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / ".oracles" / "schemathesis" / "bin" / "schemathesis"
LONG = {"examples": 100, "phases": "examples,coverage,fuzzing,stateful", "minutes": 15}
"""Stateful: calls along links, which schemathesis finds in the schemas."""


def prepared(client: httpx.Client) -> dict[str, str]:
    """Things that are there, by the names of the parameters that find them."""
    blob = put(client, relu())
    model = client.post("/v1/models", json={"blob": blob}).json()["digest"]
    body = {"model": chain(3), "target": "litert-int8"}
    key = client.post("/v1/plans", json=body).json()["key"]
    return {"key": key, "digest": model, "port": "k0.out[0]", "id": "litert-int8", "against": key}


def ran(
    url: str, folder: Path, known: dict[str, str], *, examples: int, phases: str, minutes: float = 0.0
) -> int:
    """Run it once, again and again for some minutes if given; how many cases it made."""
    if known:
        lines = [f'"path.{name}" = {json.dumps(value)}' for name, value in known.items()]
        lines += [f'"query.{name}" = {json.dumps(value)}' for name, value in known.items()]
        (folder / "schemathesis.toml").write_text("[parameters]\n" + "\n".join(lines), encoding="utf-8")
    line = [str(COMMAND), "run", f"{url}/openapi.json", "--checks", "not_a_server_error"]
    line += ["--max-examples", str(examples), "--phases", phases, "--seed", "1", "--no-color"]
    line += ["--generation-database", "none", "--request-timeout", "60"]
    line += ["--suppress-health-check", "too_slow"]  # of drawing data: a busy machine is no finding
    line += ["--max-time", f"{60 * minutes:.0f}"] if minutes else []
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return int(re.search(r"(\d+) generated, \1 passed", done.stdout)[1])


@pytest.mark.parametrize(
    ("form", "least"),
    [
        pytest.param({"examples": 3, "phases": "examples,fuzzing"}, 150, id="short"),
        pytest.param(LONG, 5000, marks=pytest.mark.soak, id="half-an-hour"),
    ],
)
def test_no_answer_is_a_server_error(tmp_path, form, least, record_property):
    if not COMMAND.exists():
        pytest.skip("no .oracles/schemathesis: run make oracles")
    data = tmp_path / "data"
    data.mkdir()
    with serving(data, QPLAN_ACCESS_LOG="off") as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            known = prepared(client)
        count = ran(server.url, tmp_path, {}, **form)
        count += ran(server.url, tmp_path, known, **form)
        alive = httpx.get(f"{server.url}/v1/health/ready", trust_env=False, timeout=60)
    assert alive.status_code == 200
    record_property("count", count)
    assert count >= least
