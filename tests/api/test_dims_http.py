"""Sizes of open dimensions over HTTP: a model is read with them, and everything about it has them."""

import numpy as np

from planner.formats.onnx.write import write_graph
from tests.api.documents import RANGE, put
from tests.api.test_jobs_http import end_of
from tests.api.test_problems import check
from tests.calibration.test_sizes_seen import attention


def test_a_model_is_read_with_sizes(service, tmp_path):
    blob = put(service, write_graph(attention()))
    plain = service.post("/v1/models", json={"blob": blob}).json()
    record = service.post("/v1/models", json={"blob": blob, "dims": {"batch": 1, "x[1]": 16}}).json()
    assert record["inputs"][0]["shape"] == [1, 16, 8]
    assert record["dims"] == {"batch": 1, "x[1]": 16}
    assert plain["inputs"][0]["shape"] == ["batch", "seq", 8]
    assert plain["digest"] != record["digest"]
    assert service.get(f"/v1/models/{record['digest']}").json()["dims"] == record["dims"]

    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).normal(size=(4, 16, 8)).astype(np.float32))
    samples = put(service, (tmp_path / "s.npz").read_bytes())
    asked = {"model": record["digest"], "samples": samples}
    job = end_of(service, service.post("/v1/calibrations", json=asked).json()["link"])
    assert job["state"] == "done", job
    body = {"model": record["digest"], "target": "stablehlo", "stats": job["result"]["digest"]}
    plan = service.post("/v1/plans", json=body).json()
    shapes = {value["name"]: value["shape"] for value in plan["graph"]["values"]}
    assert shapes["s"] == [1, 16, 16]


def test_odd_sizes_are_refused(service):
    blob = put(service, write_graph(attention()))
    check(
        service.post("/v1/models", json={"blob": blob, "dims": {"bach": 1}}), "unknown-name", "open dimension"
    )
    check(service.post("/v1/models", json={"blob": blob, "dims": {"batch": 0}}), "request-invalid", "/dims")


def test_an_export_says_which_sizes_it_takes_for_one(service):
    model = service.post("/v1/models", json={"blob": put(service, write_graph(attention()))}).json()["digest"]
    body = {"model": model, "target": "stablehlo", "annotations": RANGE}
    key = service.post("/v1/plans", json=body).json()["key"]
    told = [
        service.post("/v1/exports", json={"model": model, "plan": key, "format": form}).json()["warnings"]
        for form in ("stablehlo", "onnx-qdq")
    ]
    (text,) = told[1]
    assert text.startswith(
        "tools of stablehlo read stablehlo or stablehlo-int alone, and this file is onnx-qdq"
    )
    (text,) = told[0]
    assert "these are open and set to 1: x[0] 'batch', x[1] 'seq'" in text
