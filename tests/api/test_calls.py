"""The allow-list of system calls: each of the kernel's table is used by a reader or a job, or refused."""

import io
import json
import platform
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from api.intake.calls import ALLOW, ALLOWED, COMMANDS, ENOSYS, EPERM, KILL, MACHINES, NEW, OWN, filter_of
from api.jobs import forks
from api.schemas.examples import TARGET
from api.settings import Settings
from benchmarks.decoder import Size, write_decoder
from tests.api.conftest import ROOT, served_here
from tests.api.documents import YAML, chain, put
from tests.api.test_jobs_http import AT_ONCE, WAIT, end_of
from tests.formats.stablehlo.reader.test_serialized import PROGRAM

DIGITS = ROOT / "examples" / "digits"
HERE = platform.machine()
CLONE, THREAD = {"x86_64": 56, "aarch64": 220}, 0x3D0F00
EVERY = range(1024)
"""Numbers of calls: the kernel's table ends below 500."""
ELSEWHERE = {
    **dict.fromkeys(
        ("access", "faccessat", "fstat", "lstat", "stat", "statx"), "other C libraries' newfstatat"
    ),
    "open": "other C libraries' openat",
    "mkdirat": "mkdir of machines without it",
    "readlink": "resolves links on the way to a file",
    "readlinkat": "readlink of machines without it",
    "renameat": "rename of machines without it",
    "renameat2": "rename of machines without it",
    "unlinkat": "unlink of machines without it",
    "pread64": "the loader of libraries, of some",
    "writev": "what C++ streams write at once",
    "clock_gettime": "the kernel's clock, where the vDSO has none",
    "gettimeofday": "the same",
    "clock_nanosleep": "a lock of a library that somebody holds",
    "nanosleep": "the same",
    "sched_yield": "the same",
    "restart_syscall": "the kernel's own call after SIGSTOP and SIGCONT",
    "sysinfo": "the C library's sort of large arrays",
}
"""Allowed calls that need not be made here, and what makes them elsewhere."""


def outcome(
    text: bytes, number: int, arguments: tuple[int, ...] = (), architecture: int | None = None
) -> int:
    """What a filter says of a call: the instructions of BPF that it has, one after the other."""
    lines = list(struct.iter_unpack("=HBBI", text))
    own = lines[1][3]
    given = [number, own if architecture is None else architecture, 0, 0]
    for one in (*arguments, *[0] * (6 - len(arguments))):
        given += [one & 0xFFFFFFFF, one >> 32]
    at = value = 0
    while True:
        code, yes, no, k = lines[at]
        at += 1
        if code == 0x06:
            return k
        if code == 0x20:
            value = given[k // 4]
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: value & k != 0}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", MACHINES)
def test_a_filter_allows_its_table_and_nothing_else(machine):
    text, at = filter_of(machine), MACHINES.index(machine)
    plain = {numbers[at] for numbers in ALLOWED.values() if numbers[at] is not None}
    told = {number: outcome(text, number, (7, 7, 7)) for number in EVERY}
    assert {number for number, found in told.items() if found == ALLOW} == plain
    others = set(EVERY) - plain
    assert all(told[number] == (ENOSYS if number >= NEW else EPERM) for number in others)
    assert outcome(text, min(plain), architecture=0x40000003) == KILL
    assert outcome(text, 0x40000000) == ENOSYS  # x32's numbers


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_count(machine):
    text, at = filter_of(machine), MACHINES.index(machine)
    for numbers, commands in COMMANDS.values():
        allowed = {command for command in range(70_000) if outcome(text, numbers[at], (3, command)) == ALLOW}
        assert allowed == commands
    for numbers in OWN.values():
        assert [outcome(text, numbers[at], (process,)) for process in (0, 1)] == [ALLOW, EPERM]
    clone = CLONE[machine]
    assert outcome(text, clone, (THREAD,)) == ALLOW
    assert outcome(text, clone, (0x7D0F00,)) == ALLOW  # musl's
    for flags in (0, 17, THREAD - 0x10000, THREAD | 0x20000, THREAD | 0x10000000, 0x11):
        assert outcome(text, clone, (flags,)) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_jumps_of_the_filter_stay_inside(machine):
    lines = list(struct.iter_unpack("=HBBI", filter_of(machine)))
    jumps = [(at, line) for at, line in enumerate(lines) if line[0] & 0x07 == 0x05]
    assert all(at + 1 + max(line[1], line[2]) < len(lines) for at, line in jumps)
    assert lines[-1][0] == 0x06


def test_a_machine_without_a_table_has_no_filter():
    assert filter_of("riscv64") is None


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")],
)
def test_numbers_are_the_kernels(machine, header):
    path, at = Path("/usr/include") / header, MACHINES.index(machine)
    if not path.exists():
        pytest.skip(f"no {path}: Debian's linux-libc-dev has it")
    text = path.read_text(encoding="utf-8")
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)\b", text)}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    ours = {name: numbers[at] for name, numbers in ALLOWED.items()}
    ours |= {name: numbers[at] for name, (numbers, _) in COMMANDS.items()}
    ours |= {name: numbers[at] for name, numbers in OWN.items()} | {"clone": CLONE[machine]}
    assert {name: known.get(name) for name in ours} == ours


REFUSED = """
import ctypes, json, sys
from pathlib import Path
from api.intake.confine import confine
call = ctypes.CDLL(None, use_errno=True).syscall
took = confine([Path(sys.prefix), Path(sys.base_prefix)], [])
found = {}
if took["calls"]:
    for number in json.load(sys.stdin):
        found[number] = ctypes.get_errno() if call(number, -1, -1, -1, -1, -1, -1) < 0 else 0
print(json.dumps(found))
"""


UNFILTERED = {"x86_64": {335, 336}, "aarch64": set()}
"""Calls of the kernel's own trampolines of uprobes, which pass by filters; it ends any other caller."""


def test_the_kernel_refuses_every_other_call():
    if HERE not in MACHINES:
        pytest.skip(f"no table for {HERE}")
    at = MACHINES.index(HERE)
    others = sorted(set(EVERY) - {numbers[at] for numbers in ALLOWED.values()} - UNFILTERED[HERE])
    line = [sys.executable, "-c", REFUSED]
    done = subprocess.run(
        line, check=False, cwd=ROOT, input=json.dumps(others), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if not found:
        pytest.skip("this kernel has no seccomp")
    assert {int(number): error for number, error in found.items()} == {
        number: 38 if number >= NEW else 1 for number in others
    }


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> set[str]:
    """Names of the calls that confined children made for a service that was asked for everything."""
    if HERE not in MACHINES or not filter_of(HERE):
        pytest.skip(f"no table for {HERE}")
    folder, data = tmp_path_factory.mktemp("calls"), tmp_path_factory.mktemp("data")
    line = (sys.executable, "-P", "-m", "tests.api.watched_calls", str(folder))
    start, own = subprocess.Popen, forks.FORKS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("api.jobs.forks.subprocess.Popen", lambda _, **given: start(line, **given))
        patch.setattr(own, "server", None)
        try:
            with served_here(Settings(data=data)) as client:
                tasks = ask_for_everything(client)
        finally:
            process, control = own.server
            process.kill()
            process.wait()
            control.close()
    told = [set(map(int, path.read_text().split())) for path in folder.iterdir()]
    assert len(told) >= tasks
    at = MACHINES.index(HERE)
    names = {numbers[at]: name for name, numbers in ALLOWED.items()}
    return {names[number] for number in set().union(*told) if number in names}


def ask_for_everything(client: httpx.Client) -> int:
    """Every reader and every job, each by a child; how many children there were at least."""
    samples = npz(image=np.load(DIGITS / "calibration.npz")["image"][:4])
    data = (DIGITS / "digits.onnx").read_bytes()
    model, samples = model_of(client, data), put(client, samples)
    given = {"model": model, "samples": samples}
    for method in ("minmax", "percentile"):
        stats = good(client.post("/v1/calibrations", json=given | {"method": method}, headers=WAIT))["digest"]
    good(client.post("/v1/stats", json=good(client.get(f"/v1/stats/{stats}"))))
    asked = {"model": model, "stats": stats, "target": "litert-int8"}
    key = good(client.post("/v1/plans", json=asked))["key"]
    other = good(client.post("/v1/plans", json=asked | {"target": "stablehlo"}))["key"]
    files = {
        form: export(client, model, plan, form)
        for plan, forms in {key: ("onnx-qdq", "litert", "tosa"), other: ("stablehlo",)}.items()
        for form in forms
    }
    for form in ("litert", "stablehlo", "tosa"):
        model_of(client, client.get(f"/v1/blobs/{files[form]}").content)
    program = model_of(client, PROGRAM.encode())
    key_of_program = good(client.post("/v1/plans", json={"model": program, "target": "stablehlo"}))["key"]
    export(client, program, key_of_program, "stablehlo-int")
    model_of(client, (DIGITS / "digits.tflite").read_bytes())
    notes = json.dumps(chain(3)).encode()
    model_of(client, notes)
    good(client.post("/v1/comparisons", json=given | {"file": files["onnx-qdq"]}, headers=WAIT))
    good(client.post("/v1/comparisons", json=given | {"plan": key}, headers=WAIT))
    good(client.post("/v1/losses", json=given | {"plan": key, "limit": 2}, headers=WAIT))
    search = asked | {"samples": samples, "goal": "sqnr=45", "trials": 3}
    good(client.post("/v1/searches", json=search, headers=WAIT))
    link = good(client.post("/v1/calibrations", json=given | {"method": "mse"}, headers=AT_ONCE))["link"]
    assert end_of(client, link)["state"] == "done"
    at = f"/v1/plans/{key}"
    again = good(client.post(f"{at}:replan", json={"kernels": {"head/softmax": "float"}}))["key"]
    good(client.post(f"{at}:preview", json={"kernels": {"head/softmax": "float"}}))
    for path in ("ports", "suggest?rescale=image%230", f"diff?against={again}", "view"):
        good(client.get(f"{at}/{path}"))
    for path in ("report", "explain?port=probabilities%230"):
        assert client.get(f"{at}/{path}").status_code == 200
    for verb in ("lint", "test"):
        good(client.post(f"/v1/targets:{verb}", content=TARGET, headers=YAML))
    weigh(client)
    return 25


def weigh(client: httpx.Client) -> None:
    """A model with external data, planned and written with its weights apart."""
    with tempfile.TemporaryDirectory() as folder:
        source = write_decoder(Path(folder) / "decoder.onnx", Size(1, 128, 352, 500))
        blob, weights = (put(client, path.read_bytes()) for path in (source, source.with_suffix(".data")))
    beside = [{"location": "decoder.data", "blob": weights}]
    model = good(client.post("/v1/models", json={"blob": blob, "external_data": beside}))
    ranges = {
        one["name"]: "!quant.calibrated<f32<-1.0:1.0>>" for one in model["inputs"] if one["dtype"] == "f32"
    }
    notes = {"format": "qplan.annotations/1", "values": ranges}
    asked = {"model": model["digest"], "target": "onnxruntime-cpu", "annotations": notes}
    plan = good(client.post("/v1/plans", json=asked))
    export(client, model["digest"], plan["key"], "onnx-qdq", external_data=True)


def good(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code < 300, answer.text
    return dict(answer.json())


def model_of(client: httpx.Client, data: bytes) -> str:
    return str(good(client.post("/v1/models", json={"blob": put(client, data)}))["digest"])


def export(client: httpx.Client, model: str, plan: str, form: str, **more: Any) -> str:
    return str(
        good(client.post("/v1/exports", json={"model": model, "plan": plan, "format": form, **more}))["blob"]
    )


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def test_every_allowed_call_is_used(used):
    """Whoever adds a call adds a request here that makes it."""
    assert set(ALLOWED) - used <= set(ELSEWHERE) <= set(ALLOWED)
