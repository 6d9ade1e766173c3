"""Both databases and both executors, each beside the other: what holds for one holds for all."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Engine

from api.jobs.forks import Forks
from api.jobs.records import made, stored, work
from api.storage.database import default_url, metadata, open_database, writing
from api.storage.digests import digest_of
from api.storage.store import Store
from benchmarks.clusters import Dask, Postgres, dask, postgres, postgres_folder
from tests.api.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One PostgreSQL server for all tests; CI has to have it."""
    if postgres_folder() is None and os.environ.get("CI") != "true":
        pytest.skip("Debian's package postgresql is not installed")
    with postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path) -> str:
    """A database of each kind, empty."""
    if request.param == "sqlite":
        return default_url(tmp_path)
    server = request.getfixturevalue("postgres_server")
    engine = open_database(server.url)
    with writing(engine) as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
    engine.dispose()
    return server.url


@pytest.fixture
def engine(database_url) -> Iterator[Engine]:
    opened = open_database(database_url)
    yield opened
    opened.dispose()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Dask]:
    """A real Dask cluster of two workers; they see the data folders of the tests."""
    with dask(2, errors=None) as running:
        yield running


@pytest.fixture
def store(tmp_path) -> Store:
    made_here = Store(tmp_path / "data")
    made_here.open()
    return made_here


@pytest.fixture
def forks() -> Iterator[Forks]:
    """A server of its own, which is gone afterwards."""
    made = Forks()
    yield made
    if made.server is not None:
        process, control = made.server
        control.close()
        process.kill()
        process.wait()


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def keep(store: Store, data: bytes) -> str:
    """Keep bytes as a blob."""
    store.put("blobs", digest_of(data), data)
    return digest_of(data)


def calibration(store: Store, **more) -> dict:
    """The work of calibrating the digits."""
    model, samples = ((DIGITS / name).read_bytes() for name in ("digits.onnx", "calibration.npz"))
    return calibration_of(store, model, samples, **more)


def calibration_of(store: Store, model: bytes, samples: bytes, **more) -> dict:
    files = {"model": stored("blobs", keep(store, model)), "samples": stored("blobs", keep(store, samples))}
    return work("calibrate", {**files, "method": "minmax", "shard": None, "out": made("stats"), **more})


def endless(store: Store, folder) -> dict:
    """The work of calibrating the digits with more samples than anybody waits for."""
    path = folder / "many.npz"
    np.savez_compressed(path, image=np.zeros((500_000, 1, 8, 8), np.float32))
    return calibration_of(store, (DIGITS / "digits.onnx").read_bytes(), path.read_bytes())
