"""Shares: how long one user's work takes alone, and beside another user who asks for all there is.

One server of one process with two tokens, started as users do, for each `QPLAN_SHARE`; at 100 tokens are
still served in turn, and nothing is kept free for others. The other user posts 22 MB of junk to be read as a
model, has ten searches wait, or calibrates with a small file of 56 million samples; junk and samples twelve
at once, again and again. Ratios count.
Usage, from the repository root: `python -m benchmarks.shares [--rounds 8] [--mb 22] [--share 50 100]`
"""

import argparse
import hashlib
import io
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

from benchmarks.faults import DIGITS
from benchmarks.scanners import MODEL, TENSORS, wire
from benchmarks.service_load import fleet
from planner.client.client import Client
from planner.errors import PlannerError

AT_ONCE: Final = 12
JOBS: Final = 10
SAMPLES: Final = 56_000_000
MOST_RATIO: Final = 2.0
KEPT: Final = 50
"""The share of which the figure is asked: the default."""
TOKENS: Final = ("greedy", "modest")


def junk(size: int) -> bytes:
    """A file of initializers that takes a scanner long, whole and of no use."""
    tensor = wire(TENSORS, b"\x08\x02\x08\x02\x10\x01\x42\x05abcde\x4a\x10" + bytes(16))
    return wire(MODEL, tensor * (size // len(tensor)))


def client(url: str, name: str) -> Client:
    """The client of a user."""
    return Client(url, token=name, timeout=600)


@contextmanager
def posting(url: str, headers: Mapping[str, str], path: str, body: Mapping[str, str]) -> Iterator[None]:
    """Have one body posted again and again, several at once, with a second's rest where that is too many."""
    ending = threading.Event()

    def post() -> None:
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=600) as one:
            while not ending.is_set():
                with suppress(httpx.HTTPError):
                    if one.post(path, json=body).status_code == httpx.codes.TOO_MANY_REQUESTS:
                        ending.wait(1)

    threads = [threading.Thread(target=post) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(1)
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


@contextmanager
def reading(url: str, size: int) -> Iterator[None]:
    """Have junk read, again and again."""
    data = junk(size)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    headers = {"Authorization": "Bearer greedy"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=600) as one:
        kind = {"Content-Type": "application/octet-stream"}
        one.put(f"/v1/blobs/{digest}", content=data, headers=kind).raise_for_status()

    with posting(url, headers, "/v1/models", {"blob": digest}):
        yield


@contextmanager
def searching(url: str, _size: int) -> Iterator[None]:
    """Have ten searches wait, and cancel them."""
    with client(url, "greedy") as greedy:
        samples = greedy.upload(DIGITS / "calibration.npz")
        model = greedy.model(DIGITS / "digits.onnx")["digest"]
        headers = {"Authorization": "Bearer greedy", "Prefer": "respond-async"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as one:
            links = []
            for number in range(JOBS):
                goal = f"sqnr={60 + number}"
                body = {
                    "model": model,
                    "target": "litert-int8",
                    "samples": samples,
                    "goal": goal,
                    "trials": 200,
                }
                links.append(one.post("/v1/searches", json=body).raise_for_status().json()["link"])
            try:
                time.sleep(3)
                yield
            finally:
                for link in links:
                    one.post(f"{link}:cancel")


@contextmanager
def unfolding(url: str, _size: int) -> Iterator[None]:
    """Have samples calibrated that unfold to a hundred times their bytes and more, again and again."""
    packed = io.BytesIO()
    np.savez_compressed(packed, image=np.zeros((SAMPLES, 1), np.int8))
    headers = {"Authorization": "Bearer greedy", "Prefer": "wait=60"}
    with client(url, "greedy") as greedy, tempfile.NamedTemporaryFile(suffix=".npz") as file:
        file.write(packed.getvalue())
        file.flush()
        body = {
            "model": greedy.model(DIGITS / "digits.onnx")["digest"],
            "samples": greedy.upload(Path(file.name)),
        }

    with posting(url, headers, "/v1/calibrations", body):
        yield


def read(modest: Client) -> None:
    """What the other user does: a model is read."""
    modest.model(DIGITS / "digits.onnx")


def calibrate(modest: Client) -> None:
    """What the other user does: a model is calibrated."""
    modest.calibrate(modest.model(DIGITS / "digits.onnx")["digest"], DIGITS / "calibration.npz")


CASES: Final[dict[str, tuple[Callable[[Client], Any], Callable[[str, int], Any]]]] = {
    "a model read, beside junk": (read, reading),
    "a calibration, beside ten searches": (calibrate, searching),
    "a calibration, beside endless samples": (calibrate, unfolding),
}


def seconds(modest: Client, work: Callable[[Client], Any], rounds: int) -> list[float]:
    """How long a work takes each time."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        with suppress(PlannerError):
            work(modest)
        found.append(time.perf_counter() - start)
    return found


def main() -> None:
    """Measure, print, and end with 1 where a share of 50 leaves somebody twice as slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--mb", type=float, default=22.0)
    parser.add_argument("--share", type=int, nargs="+", default=[50, 100])
    options = parser.parse_args()
    met = True
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in TOKENS}
    os.environ["QPLAN_TOKENS"] = ",".join(f"{name}:write:{digest}" for name, digest in digests.items())
    print(
        f"{'share':>6}  {'medians of ' + str(options.rounds) + ', s':38}{'alone':>8}{'beside':>8}{'ratio':>8}"
    )
    for share in options.share:
        os.environ["QPLAN_SHARE"] = str(share)
        for name, (work, burden) in CASES.items():
            with fleet(1) as server, client(f"http://127.0.0.1:{server.port}", "modest") as modest:
                url = f"http://127.0.0.1:{server.port}"
                seconds(modest, work, 2)
                alone = statistics.median(seconds(modest, work, options.rounds))
                with burden(url, int(options.mb * 1e6)):
                    beside = statistics.median(seconds(modest, work, options.rounds))
            met = met and (share > KEPT or beside <= MOST_RATIO * alone)
            print(f"{share:>6}  {name:38}{alone:8.2f}{beside:8.2f}{beside / alone:8.2f}", flush=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
