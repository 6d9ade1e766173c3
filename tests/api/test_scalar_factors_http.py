"""Scalar factors over HTTP: what annotating absorbed is absorbed in the model that a plan comes with."""

import io
from pathlib import Path

import numpy as np
import pytest

from tests.api.documents import put
from tests.api.test_jobs_http import WAIT
from tests.cli.test_scalar_factors import attention


@pytest.fixture(scope="module")
def asked(service, tmp_path_factory):
    """A request about a model of attention."""
    path = attention(tmp_path_factory.mktemp("models") / "attention.onnx")
    file = io.BytesIO()
    np.savez(file, x=np.random.default_rng(0).normal(size=(4, 1, 6, 8)).astype(np.float32))
    with Path(path).open("rb") as source:
        model = service.post("/v1/models", json={"blob": put(service, source.read())}).json()["digest"]
    body = {"model": model, "samples": put(service, file.getvalue())}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    return body, {"model": model, "target": "litert-int8", "stats": stats}


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "tosa-int8", "qnn-htp"])
def test_a_plan_and_what_is_made_of_it(service, asked, target):
    body, wanted = asked
    plan = service.post("/v1/plans", json=wanted | {"target": target}).json()
    assert any("is no kernel" in note for note in plan["graph"]["notes"])
    assert {kernel["kernel"] for kernel in plan["kernels"]}.isdisjoint({"Div", "Neg", "Mul", "mul"})
    form = {"litert-int8": "litert", "tosa-int8": "tosa"}.get(target, "onnx-qdq")
    made = {"model": body["model"], "plan": plan["key"], "format": form}
    exported = service.post("/v1/exports", json=made, headers=WAIT)
    assert exported.status_code == 201, exported.text
    for more in ({}, {"format": "interpreter"}):
        found = service.post("/v1/comparisons", json=body | {"plan": plan["key"]} | more, headers=WAIT)
        assert found.status_code == 201, found.text
        assert found.json()["outputs"]["y"]["sqnr"] > 10
    lost = service.post("/v1/losses", json=body | {"plan": plan["key"]}, headers=WAIT)
    assert lost.status_code == 201, lost.text
    edits = {"values": {"y": "!quant.none"}}
    again = service.post(f"/v1/plans/{plan['key']}:replan", json=edits)
    assert again.status_code in (200, 201), again.text
    assert again.json()["graph"]["scaled"] == plan["graph"]["scaled"]
