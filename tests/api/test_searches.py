"""Searches over HTTP: what the library finds, a plan that is kept, and measurements that outlive their child."""

import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import planner
from planner.calibration.statsjson import write_statistics
from planner.plan_search.search import Search
from planner.plan_search.told import search_json
from tests.api.documents import put
from tests.api.test_jobs_http import AT_ONCE, DIGITS, WAIT, end_of, events_of
from tests.api.test_problems import check

TARGET = "litert-int8"


def arrays_of(name: str, count: int) -> dict[str, np.ndarray]:
    whole = np.load(DIGITS / f"{name}.npz")
    return {key: whole[key][:count] for key in whole.files}


def npz(arrays: dict[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def asked(client: httpx.Client, goal: Any = "sqnr=40", **more: Any) -> dict[str, Any]:
    """The body of a search in the digits example, with all that it names sent before."""
    data = (DIGITS / "digits.onnx").read_bytes()
    model = client.post("/v1/models", json={"blob": put(client, data)}).json()["digest"]
    arrays = arrays_of("calibration", 4)
    stats = planner.calibrate(planner.load_model(data), [{k: v[:1] for k, v in arrays.items()}])
    digest = client.post("/v1/stats", json=json.loads(write_statistics(stats))).json()["digest"]
    body = {"model": model, "target": TARGET, "stats": digest, "samples": put(client, npz(arrays))}
    return {**body, "goal": goal, "trials": 8, **more}


def found_here(goal: str, trials: int, path: Path) -> Search:
    """The same search by the library."""
    model = planner.load_model(DIGITS / "digits.onnx")
    arrays = arrays_of("calibration", 4)
    stats = planner.calibrate(model, [{k: v[:1] for k, v in arrays.items()}])
    path.write_bytes(npz(arrays))
    return planner.search(planner.annotate(model, stats=stats), TARGET, path, goal=goal, trials=trials)
