"""Clients that others generate from the OpenAPI document are whole, and lead from an upload to a download."""

import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from api.app import create_app
from api.server.tokens import parse_token
from api.settings import Settings
from tests.api.documents import quantized_relu

ROOT = Path(__file__).resolve().parents[2]
ORACLE = ROOT / ".oracles" / "openapi" / "bin"
SCRIPT = ROOT / "tests" / "oracles" / "openapi_run.py"
NODE = ROOT / ".oracles" / "typescript"
TYPED_SCRIPT = ROOT / "tests" / "oracles" / "typescript_run.ts"
SECRET = hashlib.sha256(b"secret").hexdigest()
STRICT = ("--strict", "--noUncheckedIndexedAccess", "--skipLibCheck")
TSC = (*STRICT, "--module", "nodenext", "--target", "es2022", "--types", "node")


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
    # YAML is left out, for the bodies that are also JSON and bytes.
    told = [line for line in (done.stdout + done.stderr).splitlines() if "nsupported content" in line]
    assert [line for line in told if "application/yaml" not in line] == []
    asked = {
        name for ops in document["paths"].values() for name in (one["operationId"] for one in ops.values())
    }
    made = {path.stem for path in (folder / "quant_planner_client" / "api").glob("*/*.py")} - {"__init__"}
    assert made == asked
    return folder


def test_a_generated_client_leads_from_upload_to_download(generated, make_service):
    token = parse_token(f"one/ci:write:{SECRET}", "the test")
    service = make_service(tokens=(token,))
    own = (ROOT / "targets" / "teaching-npu.yaml").read_text().replace("id: teaching-npu", "id: own-npu", 1)
    (generated / "own.yaml").write_text(own)
    (generated / "relu.onnx").write_bytes(quantized_relu())
    np.savez(generated / "samples.npz", x=np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8))
    line = [ORACLE / "python", SCRIPT, generated, str(service.base_url), "secret"]
    line += ["relu.onnx", "own.yaml", "samples.npz"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    headers = {"Authorization": "Bearer secret"}
    plan = service.get(f"/v1/plans/{told['key']}", headers=headers).json()
    assert told["kernels"] == [kernel["name"] for kernel in plan["kernels"]]
    assert told["part"] == told["key"]
    assert {told["key"], told["own"]} < set(told["plans"])
    assert told["linted"] == "own-npu"
    assert told["quantized"][0] == told["quantized"][1]
    assert service.get(f"/v1/blobs/{told['quantized'][0]}", headers=headers).status_code == 200
    assert told["verdict"] in ("good", "fair", "poor")
    assert told["explained"]
    assert told["problem"] == [True, "urn:qplan:problem:unknown-name"]
    written = (generated / "written.onnx").read_bytes()
    found = f"sha256:{hashlib.sha256(written).hexdigest()}"
    assert service.get(f"/v1/blobs/{found}", headers=headers).content == written


@pytest.fixture(scope="module")
def node(tmp_path_factory) -> Path:
    """A folder with the document, and the packages of Node beside it."""
    if not NODE.exists():
        pytest.skip("no .oracles/typescript: run make soak")
    folder = tmp_path_factory.mktemp("typescript")
    (folder / "node_modules").symlink_to(NODE / "node_modules")
    (folder / "package.json").write_bytes((NODE / "package.json").read_bytes())
    document = create_app(Settings(data=folder / "unused")).openapi()
    (folder / "openapi.json").write_text(json.dumps(document))
    return folder


def run(folder: Path, program: str, *arguments: str) -> str:
    """What one of the packages' programs says; it ends well."""
    line = [folder / "node_modules" / ".bin" / program, *arguments]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.soak
def test_redocly_finds_no_error(node):
    told = json.loads(run(node, "redocly", "lint", "openapi.json", "--format", "json"))
    assert told["totals"]["errors"] == 0


@pytest.mark.soak
def test_a_client_with_generated_types_leads_from_upload_to_download(node, make_service):
    run(node, "openapi-typescript", "openapi.json", "--default-non-nullable", "false", "-o", "api.ts")
    (node / TYPED_SCRIPT.name).write_bytes(TYPED_SCRIPT.read_bytes())
    run(node, "tsc", *TSC, TYPED_SCRIPT.name)
    document = json.loads((node / "openapi.json").read_text())
    operations = {one["operationId"] for ops in document["paths"].values() for one in ops.values()}
    typed = (node / "api.ts").read_text()
    assert all(f'operations["{name}"]' in typed for name in operations)
    service = make_service(tokens=(parse_token(f"one/ci:write:{SECRET}", "the test"),))
    own = (ROOT / "targets" / "teaching-npu.yaml").read_text().replace("id: teaching-npu", "id: own-npu", 1)
    (node / "own.yaml").write_text(own)
    (node / "relu.onnx").write_bytes(quantized_relu())
    np.savez(node / "samples.npz", x=np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8))
    line = ["node", "typescript_run.js", str(service.base_url), "secret", "relu.onnx", "own.yaml", "w.onnx"]
    line += ["samples.npz"]
    done = subprocess.run(line, cwd=node, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    headers = {"Authorization": "Bearer secret"}
    plan = service.get(f"/v1/plans/{told['key']}", headers=headers).json()
    assert told["kernels"] == [kernel["name"] for kernel in plan["kernels"]]
    assert {told["key"], told["own"]} < set(told["plans"])
    assert told["linted"] == "own-npu"
    assert told["quantized"][0] == told["quantized"][1]
    assert told["explained"]
    assert told["problem"] == "urn:qplan:problem:unknown-name"
    written = (node / "w.onnx").read_bytes()
    found = f"sha256:{hashlib.sha256(written).hexdigest()}"
    assert service.get(f"/v1/blobs/{found}", headers=headers).content == written


@pytest.mark.soak
def test_the_typescript_example_leads_from_a_model_to_its_file(node, make_service):
    run(node, "openapi-typescript", "openapi.json", "--default-non-nullable", "false", "-o", "api.ts")
    (node / "service.ts").write_bytes((ROOT / "examples" / "service.ts").read_bytes())
    run(node, "tsc", *TSC, "service.ts")
    service = make_service()
    files = [str(ROOT / "examples" / "digits" / name) for name in ("digits.onnx", "calibration.npz")]
    line = ["node", "service.js", *files, "out.onnx", "tensorrt-int8", str(service.base_url).rstrip("/")]
    done = subprocess.run(line, cwd=node, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "13 of 14 kernels quantized for tensorrt-int8" in done.stdout
    assert "1 operator is not supported by tensorrt-int8: Softmax (1)" in done.stdout
    assert (node / "out.onnx").stat().st_size > 10_000
