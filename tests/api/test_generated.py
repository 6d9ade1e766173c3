"""Clients that others generate from the OpenAPI document are whole, and lead from an upload to a download."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from api.app import create_app
from api.server.tokens import parse_token
from api.settings import Settings
from tests.api.documents import relu

ROOT = Path(__file__).resolve().parents[2]
ORACLE = ROOT / ".oracles" / "openapi" / "bin"
SCRIPT = ROOT / "tests" / "oracles" / "openapi_run.py"


@pytest.fixture(scope="module")
def generated(tmp_path_factory) -> Path:
    """A folder with the generated package, which has every operation."""
    if not ORACLE.exists():
        pytest.skip("no .oracles/openapi: run make oracles")
    folder = tmp_path_factory.mktemp("generated")
    document = create_app(Settings(data=folder / "unused")).openapi()
    (folder / "openapi.json").write_text(json.dumps(document))
    line = [ORACLE / "openapi-python-client", "generate", "--path", "openapi.json", "--meta", "none"]
    line += ["--output-path", "quant_planner_client"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=True)
    assert "will not be generated" not in done.stdout
    asked = {
        name for ops in document["paths"].values() for name in (one["operationId"] for one in ops.values())
    }
    made = {path.stem for path in (folder / "quant_planner_client" / "api").glob("*/*.py")} - {"__init__"}
    assert made == asked
    return folder


def test_a_generated_client_leads_from_upload_to_download(generated, make_service):
    token = parse_token(f"one/ci:write:{hashlib.sha256(b'secret').hexdigest()}", "the test")
    service = make_service(tokens=(token,))
    own = (ROOT / "targets" / "teaching-npu.yaml").read_text().replace("id: teaching-npu", "id: own-npu", 1)
    (generated / "own.yaml").write_text(own)
    (generated / "relu.onnx").write_bytes(relu())
    line = [ORACLE / "python", SCRIPT, generated, str(service.base_url), "secret", "relu.onnx", "own.yaml"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    headers = {"Authorization": "Bearer secret"}
    plan = service.get(f"/v1/plans/{told['key']}", headers=headers).json()
    assert told["kernels"] == [kernel["name"] for kernel in plan["kernels"]]
    assert told["part"] == told["key"]
    assert told["plans"] == sorted({told["key"], told["own"]})
    assert told["explained"]
    assert told["problem"] == [True, "urn:qplan:problem:unknown-name"]
    written = (generated / "written.onnx").read_bytes()
    found = f"sha256:{hashlib.sha256(written).hexdigest()}"
    assert service.get(f"/v1/blobs/{found}", headers=headers).content == written
