"""Input that means harm, made by this script: `python -m tests.api.hostile.corpus DIR` writes it as files.

Each case says how it is sent and which problem answers it. Nothing here is random.
"""

import base64
import hashlib
import io
import json
import struct
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.api.documents import (
    chain,
    claiming,
    expanding,
    external,
    nested,
    onnx_file,
    relu,
    sparse,
)

MB = 1_000_000
CALIBRATED = "!quant.calibrated<f32<-1.0:1.0>>"


@dataclass(frozen=True)
class Case:
    """Bytes, where they are sent (`model`, `plan`, `samples`, ...), and the problem: its name and words."""

    sent: str
    data: bytes
    problem: str
    words: str = ""


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def sequences(depth: int) -> bytes:
    """Types of sequences of sequences."""
    inner = b""
    for _ in range(depth):
        inner = field(4, field(1, inner))
    return inner


def tensor(*dims: int, **more: Any) -> bytes:
    """A model of one initializer `w` of these dims."""
    made = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, **more)
    return onnx_file([helper.make_node("Identity", ["w"], ["y"])], [made], inputs=())


def wired(*nodes: tuple[str, list[str], list[str]]) -> bytes:
    return onnx_file([helper.make_node(*node) for node in nodes])


def annotated(**changes: Any) -> bytes:
    return json.dumps({**chain(1), **changes}).encode()


def valued(**changes: Any) -> bytes:
    """An annotated model with a value that is changed."""
    model = chain(1)
    model["values"][0].update(changes)
    return json.dumps(model).encode()


def weighted(shape: list[int], data: bytes, dtype: str = "float32") -> bytes:
    """An annotated model whose weights are an array."""
    model = chain(1)
    array = {"dtype": dtype, "shape": shape, "data": base64.b64encode(data).decode()}
    model["values"][1] = {"name": "w0", "shape": shape, "constant": {"value": {"array": array}}}
    return json.dumps(model).encode()


def planned(model: dict[str, Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"model": model or chain(1), "target": "litert-int8", **more}).encode()


def stats(**values: Any) -> bytes:
    head = {"format": "qplan.stats/1", "model": f"sha256:{'0' * 64}", "method": "minmax", "samples": 1}
    return json.dumps({**head, "values": values}).encode()


def described(rows: str, **more: str) -> bytes:
    """A target with something in its rows."""
    head = "".join(f"{key}: {text}\n" for key, text in more.items())
    return f"apiVersion: planner/v1\nkind: Target\nid: x-npu\nversion: 1.0.0\n{head}kernels:\n{rows}".encode()


def laughing() -> bytes:
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    return "\n".join(lines).encode()


def zipped(*members: tuple[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def npy(array: np.ndarray, **more: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def headed(text: str, data: bytes = b"") -> bytes:
    """An array with a head of our own."""
    head = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def overlapping() -> bytes:
    """Two entries of a directory that share their bytes."""
    data = bytearray(zipped(("a.npy", npy(np.zeros(1000))), ("b.npy", npy(np.zeros(1000)))))
    second = data.rindex(b"PK\x01\x02")
    data[second + 42 : second + 46] = struct.pack("<I", 0)
    return bytes(data)


def claiming_size(data: bytes, size: int) -> bytes:
    """A directory that promises more than is there."""
    changed = bytearray(data)
    at = changed.index(b"PK\x01\x02")
    changed[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(changed)


def flagged() -> bytes:
    data = bytearray(zipped(("x.npy", npy(np.zeros(3)))))
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    return bytes(data)


OPEN = b"module {\n  func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {\n    "
SHUT = b"\n    return %x : tensor<1xf32>\n  }\n}\n"
ROW = "  - kernel: relu\n    in: {x: {storage: i8}}\n    out: {y: {storage: i8}}\n"

CASES: dict[str, Case] = {
    # ONNX files
    "a truncated file": Case("model", relu()[:-7], "model-invalid", "truncated"),
    "an empty file": Case("model", b"", "model-invalid", "empty"),
    "zeros": Case("model", b"\0" * 1000, "model-invalid"),
    "noise": Case("model", hashlib.shake_256(b"noise").digest(4096), "model-invalid", "no ONNX model"),
    "2 MB of [": Case("model", b"[" * 2 * MB, "model-invalid", "no ONNX model"),
    "a length beyond the file": Case(
        "model", b"\x3a\xff\xff\xff\xff\x0f", "model-invalid", "promises 4294967295"
    ),
    "a number without end": Case("model", b"\x08" + b"\xff" * 40, "model-invalid", "no whole number"),
    "a group": Case("model", b"\x3b\x3b\x3b\x3b", "model-invalid", "wire type 3"),
    "graphs in graphs": Case("model", nested(3000), "model-invalid", "64 messages deep"),
    "types in types": Case(
        "model", field(7, field(11, field(2, sequences(500)))), "model-invalid", "64 messages deep"
    ),
    "a million nodes": Case(
        "model", field(7, field(1, field(3, b"n" * 9)) * MB), "model-invalid", "500000 nodes"
    ),
    "a million nodes of nothing": Case(
        "model", field(7, field(1, b"") * MB), "model-invalid", "took more steps"
    ),
    "a name of 1 MB": Case(
        "model", field(7, field(1, field(4, b"a" * MB))), "model-invalid", "65536 are the limit"
    ),
    "a tensor of 100,000 dimensions": Case(
        "model", field(7, field(5, field(1, b"\x01" * 100_000))), "model-invalid", "more than 64 dimensions"
    ),
    "ConstantOfShape of 400 GB": Case("model", expanding("ConstantOfShape"), "model-invalid", "100000000000"),
    "Expand to 400 GB": Case("model", expanding("Expand"), "model-invalid", "100000000000 elements"),
    "Tile to 400 GB": Case("model", expanding("Tile"), "model-invalid", "100000000000 elements"),
    "a tensor without its 16 GB": Case("model", claiming(1 << 20, 1 << 12), "model-invalid", "hold less"),
    "dimensions that overflow": Case("model", claiming(*[(1 << 63) - 1] * 8), "model-invalid", "hold less"),
    "a negative dimension": Case("model", tensor(-5, 3), "model-invalid"),
    "raw data of the wrong length": Case("model", tensor(2, 2, raw_data=b"1234567"), "model-invalid"),
    "a tensor of no known type": Case(
        "model", claiming(1).replace(b"\x10\x01", b"\x10\x63"), "model-invalid"
    ),
    "a sparse tensor of 32 GB": Case("model", sparse(1 << 31, 4), "model-invalid", "8589934592 elements"),
    "external data elsewhere": Case("model", external("/etc/passwd"), "model-invalid", "/etc/passwd"),
    "external data above": Case("model", external("../../../etc/passwd"), "model-invalid", "etc/passwd"),
    "external data of terabytes": Case(
        "model", external("a.bin", offset=1 << 50, length=1 << 50), "model-invalid", "a.bin"
    ),
    "a graph in a circle": Case(
        "model",
        wired(("Relu", ["b"], ["a"]), ("Relu", ["a"], ["b"]), ("Relu", ["b"], ["y"])),
        "model-invalid",
    ),
    "a value made twice": Case(
        "model", wired(("Relu", ["x"], ["y"]), ("Abs", ["x"], ["y"])), "model-invalid"
    ),
    "a value from nowhere": Case("model", wired(("Relu", ["nowhere"], ["y"])), "model-invalid", "nowhere"),
    # Annotated models
    "JSON nested 1 M deep": Case("model", b'{"a":' * MB, "json-invalid", "deeper than 64"),
    "JSON that is no text": Case("model", b'{"format": "\xff\xfe"}', "input-invalid", "no UTF-8"),
    "JSON that stops": Case("model", annotated()[:-9], "model-invalid"),
    "an integer of a million digits": Case(
        "model", b'{"a": ' + b"9" * MB + b"}", "json-invalid", "19 digits"
    ),
    "an annotated tensor of 10^36": Case(
        "model", valued(shape=[10**18, 10**18]), "model-invalid", "are the limit"
    ),
    "an array that is longer than it says": Case("model", weighted([8, 8], bytes(4)), "model-invalid"),
    "an array of Python objects": Case("model", weighted([8, 8], bytes(512), "object"), "model-invalid"),
    "a type of 100,000 brackets": Case(
        "model", valued(constraints=["!quant.any<" * 100_000]), "model-invalid"
    ),
    "a type of 2^31 bits": Case("model", valued(constraints=["!quant.any<i2147483647>"]), "model-invalid"),
    "a range of infinities": Case(
        "model", valued(constraints=["!quant.calibrated<f32<-1e999:1e999>>"]), "model-invalid"
    ),
    "kernels in a circle": Case(
        "model",
        annotated(kernels=[{"name": "k", "kernel": "relu", "inputs": ["v0"], "outputs": ["v0"]}]),
        "model-invalid",
    ),
    # MLIR
    "MLIR nested 20 k deep": Case("model", b"module {" * 20_000, "model-invalid", "nested too deep"),
    "MLIR types in types": Case("model", OPEN + b"tensor<" * 5000 + SHUT, "model-invalid", "nested too deep"),
    "MLIR text without end": Case("model", OPEN + b'"' + b"a" * MB, "model-invalid"),
    "a word of 1 MB in MLIR": Case("model", OPEN + b"a" * MB + SHUT, "model-invalid", "4096 are the limit"),
    "MLIR with zeros": Case("model", OPEN + b"\0" * 100 + SHUT, "model-invalid"),
    "an integer of 10^9 bits in MLIR": Case(
        "model", OPEN + b"%0 = arith.constant 1 : i1000000000" + SHUT, "model-invalid"
    ),
    "a dense tensor of 10^15 in MLIR": Case(
        "model",
        OPEN + b"%0 = arith.constant dense<1.0> : tensor<1000000x1000000x1000xf32>" + SHUT,
        "out-of-memory",
    ),
    # Targets
    "YAML nested by brackets": Case("target", b"a: " + b"[" * 3000, "target-invalid", "T003"),
    "YAML nested by dashes": Case("target", b"- " * 5000, "target-invalid", "T003"),
    "YAML nested by lines": Case(
        "target", b"\n".join(b" " * i + b"a:" for i in range(1000)), "target-invalid", "T003"
    ),
    "YAML that multiplies": Case("target", laughing(), "target-invalid", "T006"),
    "YAML that runs code": Case(
        "target", b'!!python/object/apply:os.system ["id"]', "target-invalid", "T005"
    ),
    "YAML of 1 MB in a line": Case("target", b"a: " + b"x" * MB, "target-invalid", "T002"),
    "YAML with zeros": Case("target", b"id: \0\0", "target-invalid", "T001"),
    "a number beyond a double": Case("target", b"id: 1e9999", "target-invalid", "T007"),
    "a target that extends a file": Case(
        "target", described(ROW, extends="/etc/passwd"), "target-invalid", "/etc/passwd"
    ),
    "a target that calls a function": Case(
        "target", described(ROW + "    rules: [{fn: {name: os.system}}]\n"), "target-invalid", "os.system"
    ),
    "an expression 10,000 brackets deep": Case(
        "target", described(ROW + f'    when: "{"(" * 10_000}1"\n'), "target-invalid"
    ),
    "an expression of powers": Case(
        "target", described(ROW + '    when: "9**9**9**9**9 > 1"\n'), "target-invalid"
    ),
    # Statistics
    "statistics nested": Case("stats", b'{"values":' * 100, "json-invalid", "deeper than 64"),
    "statistics of NaN": Case("stats", stats(x={"min": float("nan"), "max": 1}), "stats-invalid"),
    "bins of 2^1000000000": Case(
        "stats",
        stats(x={"min": 0, "max": 1, "bins": {"exponent": 10**9, "first": 0, "counts": [1]}}),
        "stats-invalid",
    ),
    "bins that begin at 10^18": Case(
        "stats",
        stats(x={"min": 0, "max": 1, "bins": {"exponent": 0, "first": 10**18, "counts": [1]}}),
        "stats-invalid",
    ),
    "an integer of 100,000 digits": Case("stats", b'{"samples": ' + b"9" * 100_000 + b"}", "json-invalid"),
    # Requests
    "200,000 values in a request": Case("plan", b'{"model": [' + b"0," * 200_000 + b"0]}", "json-invalid"),
    "costs without bounds": Case("plan", planned(options={"costs": {"bit_price": 1e308}}), "input-invalid"),
    "a request with annotations in circles": Case(
        "plan",
        planned(annotations={"format": "qplan.annotations/1", "values": {"x": ["x"] * 9}}),
        "annotation-invalid",
    ),
    # Samples
    "samples that are none": Case("samples", b"PK\x03\x04" + bytes(100), "input-invalid", "no readable"),
    "samples that stop": Case(
        "samples", zipped(("x.npy", npy(np.zeros(9))))[:-30], "input-invalid", "no readable"
    ),
    "samples that unpack to 4 GB": Case(
        "samples",
        claiming_size(zipped(("x.npy", npy(np.zeros(1000)))), (1 << 32) - 2),
        "input-invalid",
        "are the limit",
    ),
    "samples that overlap": Case("samples", overlapping(), "input-invalid", "overlaps"),
    "samples with a path": Case(
        "samples", zipped(("../x.npy", npy(np.zeros(3)))), "input-invalid", "../x.npy"
    ),
    "samples that are pickled": Case(
        "samples",
        zipped(("x.npy", npy(np.array([{}], object), allow_pickle=True))),
        "input-invalid",
        "objects",
    ),
    "samples that are encrypted": Case("samples", flagged(), "input-invalid", "encrypted"),
    "samples packed with LZMA": Case(
        "samples", zipped(("x.npy", npy(np.zeros(3))), kind=zipfile.ZIP_LZMA), "input-invalid", "unusual"
    ),
    "an array that claims 2^60 bytes": Case(
        "samples",
        zipped(("x.npy", headed(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 58},)}}"))),
        "input-invalid",
        "claims",
    ),
    "an array whose head is code": Case(
        "samples", zipped(("x.npy", headed("__import__('os').system('id')"))), "input-invalid", "no .npy file"
    ),
    "an array whose head is deep": Case(
        "samples", zipped(("x.npy", headed("(" * 100))), "input-invalid", "no .npy file"
    ),
}


def main(folder: Path) -> None:
    """Write every case as a file, and what is expected of it."""
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for number, (name, case) in enumerate(CASES.items()):
        (folder / f"{number:02}").write_bytes(case.data)
        expected[f"{number:02}"] = {
            "name": name,
            "sent": case.sent,
            "problem": case.problem,
            "words": case.words,
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
