"""Samples that no device will see are told over HTTP as the library tells them, wherever samples run."""

import io

import numpy as np
import pytest

import planner
from tests.api.documents import put, relu
from tests.api.test_jobs_http import WAIT
from tests.api.test_problems import NOWHERE, check

RNG = np.random.default_rng(7)
GOOD = RNG.random((4, 1, 8)).astype(np.float32)
ZERO = np.concatenate([GOOD[:3], np.zeros_like(GOOD[:1])])
HOLE = np.where(np.arange(4)[:, None, None] == 1, np.nan, GOOD)
ODD = {
    "good": (GOOD, ""),
    "zero": (ZERO, "input 'x' is all zero in samples, sample 3: give samples like the data of the device"),
    "constant": (np.ones_like(GOOD), "is one number throughout all 4 samples"),
    "NaN": (HOLE, "has NaN or infinity in samples, sample 1"),
    "one over and over": (np.repeat(GOOD[:1], 4, 0), "is the same in all 4 samples"),
}


@pytest.fixture(scope="module")
def net(service):
    """A model of one Relu, its statistics, plan and file."""
    model = service.post("/v1/models", json={"blob": put(service, relu())}).json()["digest"]
    body = {"model": model, "samples": packed(service, GOOD)}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    plan = service.post("/v1/plans", json={"model": model, "target": "litert-int8", "stats": stats}).json()
    body = {"model": model, "plan": plan["key"], "format": "onnx-qdq"}
    file = service.post("/v1/exports", json=body).json()["blob"]
    return {"model": model, "plan": plan["key"], "file": file, "stats": stats}


def packed(service, array) -> str:
    file = io.BytesIO()
    np.savez(file, x=array)
    return put(service, file.getvalue())


def told(service, net, path: str, names: str, array, **more) -> list[str]:
    """Warnings of an answer."""
    body = {name: net[name] for name in names.split()} | {"samples": packed(service, array)} | more
    answer = service.post(path, json=body, headers=WAIT)
    assert answer.status_code == 201, answer.text
    return answer.json()["warnings"]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize(
    ("path", "names"),
    [("/v1/calibrations", "model"), ("/v1/comparisons", "model file"), ("/v1/losses", "model plan")],
)
def test_odd_samples(service, net, path, names, name):
    array, words = ODD[name]
    found = told(service, net, path, names, array)
    expected = planner.odd_samples(planner.load_model(relu()), {"x": array})
    assert [one for one in found if one.startswith("input ")] == list(expected)
    assert words in "".join(expected)
    assert bool(expected) is bool(words)


def test_samples_beyond_what_calibration_saw(service, net):
    """Only with the statistics of calibration, and by more than a tenth of the range."""
    twice = 2 * GOOD
    assert told(service, net, "/v1/comparisons", "model file", twice) == []
    (found,) = told(service, net, "/v1/comparisons", "model file stats", twice)
    assert "held-out data take 'x' beyond what calibration saw" in found
    assert " in samples, sample " in found
    assert told(service, net, "/v1/comparisons", "model file stats", GOOD) == []
    body = {name: net[name] for name in ("model", "file")} | {"samples": packed(service, GOOD)}
    check(service.post("/v1/comparisons", json=body | {"stats": NOWHERE}), "unknown-name", "statistics")


def test_samples_beyond_the_ranges_of_a_plan(service, net):
    """A plan knows the ranges it was made with."""
    found = told(service, net, "/v1/losses", "model plan", 3 * GOOD)
    assert "beyond the model's range for it" in found[0]


def test_statistics_of_another_model(service, net):
    values = {"elsewhere": {"min": -1.0, "max": 1.0}}
    stats = {"format": "qplan.stats/1", "model": NOWHERE, "method": "minmax", "samples": 1, "values": values}
    digest = service.post("/v1/stats", json=stats).json()["digest"]
    (found,) = told(service, net, "/v1/comparisons", "model file", GOOD, stats=digest)
    assert "another model" in found
