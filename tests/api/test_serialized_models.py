"""Serialized MLIR over HTTP: through jaxlib where the children have it, else refused by what to install."""

import subprocess
import sys

import httpx
import pytest

from planner.formats.stablehlo.identifier import MAGIC
from planner.formats.stablehlo.reader.custom_form import is_available
from tests.api.conftest import ROOT, serving
from tests.api.documents import put
from tests.api.test_problems import check
from tests.formats.stablehlo.reader.test_serialized import PROGRAM
from tests.oracles.hlo import JAX

WRITE = """
import sys
from pathlib import Path
from planner.formats.stablehlo.reader.serialized import serialize
text = sys.stdin.read()
for form in ("mlirbc", "vhlo"):
    Path(sys.argv[1], form).write_bytes(serialize(text, form))
import jax, jax.numpy as jnp, jax.export
shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 3), (3, 4))]
exported = jax.export.export(jax.jit(lambda x, w: jnp.tanh(x @ w)))(*shapes)
Path(sys.argv[1], "jax.export").write_bytes(exported.serialize())
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder that puts jaxlib behind everything else, for a server and its children."""
    if not JAX.exists():
        pytest.skip("no .oracles/jax: run make oracles")
    folder = tmp_path_factory.mktemp("packages")
    oracle = next((JAX.parents[1] / "lib").glob("python3*/site-packages"))
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(oracle)!r})\n")
    return f"{ROOT}:{folder}"


def test_bytecode_and_artifacts_are_uploaded_planned_and_exported(packages, tmp_path):
    subprocess.run(
        [sys.executable, "-c", WRITE, tmp_path],
        input=PROGRAM,
        text=True,
        check=True,
        env={"PYTHONPATH": packages},
        capture_output=True,
    )
    (tmp_path / "data").mkdir()
    with (
        serving(tmp_path / "data", PYTHONPATH=packages) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=100) as client,
    ):
        wanted = client.post("/v1/models", json={"blob": put(client, PROGRAM.encode())}).json()
        for form in ("mlirbc", "vhlo"):
            blob = put(client, (tmp_path / form).read_bytes())
            record = client.post("/v1/models", json={"blob": blob}).json()
            assert (record["format"], record["ops"]) == ("mlir", wanted["ops"])
            body = {"model": record["digest"], "target": "stablehlo"}
            plan = client.post("/v1/plans", json=body).json()
            assert plan["kernels"]
            body = {"model": record["digest"], "plan": plan["key"], "format": "stablehlo-int"}
            made = client.post("/v1/exports", json=body).json()
            assert "stablehlo" in client.get(made["link"]).text
        blob = put(client, (tmp_path / "jax.export").read_bytes())
        record = client.post("/v1/models", json={"blob": blob}).json()
        assert (record["format"], record["ops"]) == ("mlir", 2), record
        ranges = {one["name"]: "!quant.calibrated<f32<-1.0:1.0>>" for one in record["inputs"]}
        notes = {"format": "qplan.annotations/1", "values": ranges}
        body = {"model": record["digest"], "target": "stablehlo", "annotations": notes}
        plan = client.post("/v1/plans", json=body).json()
        assert len(plan["kernels"]) == 2
        check(
            client.post("/v1/models", json={"blob": put(client, MAGIC + b"\x0dMLIR\0and no more")}),
            "model-invalid",
            "serialized MLIR",
        )


@pytest.mark.skipif(is_available(), reason="jaxlib is here")
def test_without_jaxlib_the_problem_says_what_to_install(service):
    answer = service.post("/v1/models", json={"blob": put(service, MAGIC + b"\x0dMLIR\0")})
    check(answer, "model-invalid", "serialized MLIR is read through jaxlib")
    assert answer.json()["hint"] == "pip install 'jaxlib>=0.5'"
