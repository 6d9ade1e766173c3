"""The pages that show the API are true: curl's walk through docs/service.md, and a client in JavaScript."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.documents import chain

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
DIGITS = ROOT / "examples" / "digits"
MARK = "== block"


def walk() -> list[tuple[str, list[str]]]:
    """The commands of the walk, block by block, with the lines that each must print."""
    section = PAGE.partition("## Step by step, with curl\n")[2].partition("\n## ")[0]
    found: list[tuple[str, list[str]]] = []
    for kind, text in re.findall(r"^```(sh|text)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        if kind == "sh":
            found.append((text, []))
        else:
            found[-1][1].extend(text.splitlines())
    return found


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_the_walk_with_curl(server, tmp_path):
    blocks = walk()
    assert len(blocks) > 5
    script = "".join(f"{commands}\necho '{MARK}'\n" for commands, _ in blocks)
    assert "URL=http://127.0.0.1:8000\n" in script
    script = script.replace("URL=http://127.0.0.1:8000\n", f"URL={server.url}\n")
    for name in ("digits.onnx", "calibration.npz"):
        shutil.copy(DIGITS / name, tmp_path)
    line = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for (commands, lines), printed in zip(blocks, done.stdout.split(MARK), strict=False):
        missing = [expected for expected in lines if expected not in printed]
        assert missing == [], f"{commands}\nprinted\n{printed}"


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_a_client_made_of_the_document(server, tmp_path):
    """A client in JavaScript that knows nothing but the OpenAPI document does the main job."""
    (tmp_path / "model.json").write_text(json.dumps(chain(9)))
    document = ROOT / "tests" / "api" / "golden" / "openapi.json"
    line = ["node", str(ROOT / "examples" / "client.mjs"), server.url, str(document), "model.json"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["operations"] == len(re.findall('"operationId"', document.read_text("utf-8")))
    assert told["kernels"] == told["restored"] == 9
    assert told["floats"] == 1
    assert told["problem"] == "unknown-name"
    assert told["states"] == ["queued", "running", "done"]
    assert told["ports"] > 20
