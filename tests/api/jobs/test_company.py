"""The company setup whole: two servers and workers that share nothing but a database and an object store."""

import httpx
import pytest

from benchmarks.clusters import dask, object_store
from tests.api.conftest import serving
from tests.api.documents import put
from tests.api.jobs.conftest import DIGITS
from tests.api.jobs.test_faults import end_of


@pytest.mark.slow
def test_what_one_server_was_asked_another_answers(postgres_server, tmp_path):
    for name in ("one", "other", "worker"):
        (tmp_path / name).mkdir()
    with object_store() as (blobs, keys), dask(1, QPLAN_DATA=str(tmp_path / "worker"), **keys) as cluster:
        settings = {
            **keys,
            "QPLAN_DATABASE_URL": postgres_server.url,
            "QPLAN_BLOBS": blobs,
            "QPLAN_EXECUTOR": cluster.executor,
        }
        with serving(tmp_path / "one", **settings) as one, serving(tmp_path / "other", **settings) as other:
            with httpx.Client(base_url=one.url, trust_env=False, timeout=60) as client:
                digest = put(client, (DIGITS / "digits.onnx").read_bytes())
                samples = put(client, (DIGITS / "calibration.npz").read_bytes())
                model = client.post("/v1/models", json={"blob": digest}).json()["digest"]
                body = {"model": model, "samples": samples, "method": "minmax"}
                job = client.post("/v1/calibrations", json=body).json()["id"]
            with httpx.Client(base_url=other.url, trust_env=False, timeout=60) as client:
                ended = end_of(other.url, job)
                assert ended["state"] == "done", ended
                body = {"model": model, "target": "onnxruntime-cpu", "stats": ended["result"]["digest"]}
                plan = client.post("/v1/plans", json=body)
                assert plan.status_code == 200, plan.text
            key = plan.json()["key"]
            again = httpx.get(f"{one.url}/v1/plans/{key}", trust_env=False, timeout=60)
            assert again.text == plan.text
