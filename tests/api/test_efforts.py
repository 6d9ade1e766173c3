"""Efforts over HTTP: a search where the first plan is not good, as `quantize` does it."""

import json

import pytest

import planner
from planner.accuracy.verdict import FAIR_SQNR, GOOD_SQNR
from tests.api.documents import put
from tests.api.test_jobs_http import WAIT
from tests.plan_search.outliers import written

TARGET = "litert-int8"


@pytest.fixture(scope="module")
def body(service, tmp_path_factory):
    """A request without an effort, of a model that 8 bits ruin; all that it names is sent before."""
    return sent(service, *written(tmp_path_factory.mktemp("outliers")))


def sent(service, model, data):
    """What a request names, sent before: of a model and samples that are files."""
    stats = planner.calibrate(planner.load_model(model), data)
    blob = put(service, model.read_bytes())
    return {
        "model": service.post("/v1/models", json={"blob": blob}).json()["digest"],
        "target": TARGET,
        "stats": service.post("/v1/stats", json=json.loads(stats.to_json())).json()["digest"],
        "samples": put(service, data.read_bytes()),
    }


@pytest.fixture(scope="module")
def found(service, body):
    answer = service.post("/v1/searches", json={**body, "effort": "normal"}, headers=WAIT)
    assert answer.status_code == 201, answer.text
    return answer.json()


def best(found):
    return found["trials"][found["best"]]


def test_a_better_plan_is_kept_with_what_it_gave_up(service, body, found):
    assert found["met"] is True
    assert best(found)["sqnr"] >= GOOD_SQNR
    assert len(found["trials"]) <= 16
    assert found["given_up"].startswith("2 kernels (mul) in i16: ")
    assert found["annotations"]["kernels"]
    plan = service.get(found["link"]).json()
    assert plan["key"] == found["plan"]
    again = {name: body[name] for name in ("model", "target", "stats")}
    same = service.post("/v1/plans", json={**again, "annotations": found["annotations"]})
    assert same.json()["key"] == found["plan"]


def test_quick_measures_the_plan_alone(service, body):
    found = service.post("/v1/searches", json={**body, "effort": "quick"}, headers=WAIT).json()
    assert (found["met"], found["given_up"], len(found["trials"])) == (False, "", 1)
    assert best(found)["sqnr"] < FAIR_SQNR
    plain = {name: body[name] for name in ("model", "target", "stats")}
    assert service.post("/v1/plans", json=plain).json()["key"] == found["plan"]


def test_asked_again_it_measures_nothing(service, body, found):
    """What was measured is kept, also of a job that was cancelled: the same request goes on from there."""
    high = service.post("/v1/searches", json={**body, "effort": "normal"}, headers=WAIT).json()
    assert (high["plan"], high["blob"]) == (found["plan"], found["blob"])


def test_without_trials_it_is_the_best_of_what_was_measured(service, body, found):
    """As the page asks once a search was cancelled: nothing more is measured."""
    kept = service.post("/v1/searches", json={**body, "effort": "normal", "trials": 0}, headers=WAIT).json()
    assert (kept["plan"], kept["met"], kept["annotations"]) == (found["plan"], True, found["annotations"])
    assert kept["given_up"] == found["given_up"]
    assert best(kept)["sqnr"] == best(found)["sqnr"]


def test_without_trials_and_measurements_it_is_the_plan_alone(service, tmp_path):
    model, data = written(tmp_path, 7.0)
    asked = sent(service, model, data)
    kept = service.post("/v1/searches", json={**asked, "effort": "normal", "trials": 0}, headers=WAIT).json()
    assert (len(kept["trials"]), kept["given_up"], kept["annotations"]["kernels"]) == (1, "", {})


@pytest.mark.parametrize(
    "more",
    [{}, {"effort": "normal", "goal": "sqnr=20"}, {"effort": "low"}, {"goal": "sqnr=20", "trials": 0}],
)
def test_asked_wrongly(service, body, more):
    answer = service.post("/v1/searches", json={**body, **more})
    assert answer.status_code == 422


def test_a_good_plan_is_searched_no_further(service, tmp_path):
    model, data = written(tmp_path, 1.0)
    asked = {**sent(service, model, data), "effort": "normal"}
    found = service.post("/v1/searches", json=asked, headers=WAIT).json()
    assert (found["met"], len(found["trials"]), found["annotations"]["kernels"]) == (True, 1, {})
