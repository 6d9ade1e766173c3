"""The image without an engine: its build script into an empty environment, and its command from there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import serving
from tests.api.documents import chain

ROOT = Path(__file__).resolve().parents[2]
TOKEN = {"Authorization": "Bearer token"}
KNOWN = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0"  # of "token"
RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions(name: str) -> list[str]:
    """What follows an instruction of the Dockerfile, in order."""
    return re.findall(rf"^{name} (.*)$", RECIPE, re.MULTILINE)


def test_the_image_runs_as_nobody_special_and_holds_only_what_is_built():
    assert len(instructions("FROM")) == 2
    assert instructions("USER") == ["qplan"]
    assert instructions("RUN")[0] == "docker/build.sh /opt/qplan"
    assert instructions("COPY")[-1] == "--from=build /opt/qplan /opt/qplan"


def test_what_is_copied_is_there():
    copied = [name for line in instructions("COPY")[:-1] for name in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_the_built_environment_serves(tmp_path):
    source, home, data = tmp_path / "source", tmp_path / "opt", tmp_path / "data"
    data.mkdir()
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    copied = tuple(name for line in instructions("COPY")[:-1] for name in line.split()[:-1])
    for name in listed.splitlines():
        if name.split("/")[0] in copied:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        ["docker/build.sh", str(home)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    entry, *_ = json.loads(instructions("ENTRYPOINT")[0])
    arguments = json.loads(instructions("CMD")[-1])
    command = (str(home / "bin" / entry), *arguments)
    with serving(data, command, QPLAN_TOKENS=KNOWN, PYTHONPATH="") as server:
        local = f"http://127.0.0.1:{server.port}"
        body = {"model": chain(3), "target": "litert-int8"}
        assert httpx.post(f"{local}/v1/plans", json=body, trust_env=False).status_code == 401
        plan = httpx.post(f"{local}/v1/plans", json=body, headers=TOKEN, trust_env=False)
        assert plan.json()["format"] == "qplan.plan/1"
        lint = httpx.post(
            f"{local}/v1/targets:lint",
            content="id: x",
            headers={**TOKEN, "Content-Type": "application/yaml"},
            trust_env=False,
            timeout=60,
        )
        assert lint.status_code == 422
