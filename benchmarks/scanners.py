"""Scanners: MB a second at which what strangers send is scanned before any parser has it.

Files of junk, each of one tiny thing, so that there is most to scan in a byte, and of messages that are as
short as they may be. Processor time of one core. Usage, from the repository root:
`python -m benchmarks.scanners [--mb 22]`
"""

import argparse
import io
import json
import os
import struct
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from api.intake.scan import scan_json
from api.intake.scan_onnx import scan_onnx
from api.intake.scan_text import scan_mlir, scan_yaml
from api.intake.scan_zip import scan_npz
from api.problems import Refused
from planner.errors import PlannerError
from planner.formats.litert.reader.scan import scan_litert

MODEL, NODES, ATTRIBUTES, TENSORS, INFOS = 7, 1, 5, 5, 13
MOST_OPERATORS: Final = 1_999_990
MOST_VALUES: Final = 20_000_000


def wire(number: int, body: bytes) -> bytes:
    """A field of bytes, as protobuf writes it."""
    left, length = len(body), bytearray()
    while left >= 128:
        length.append(left & 127 | 128)
        left >>= 7
    return bytes([number << 3 | 2, *length, left]) + body


def files(size: int) -> Mapping[str, tuple[Callable[[bytes], None], bytes]]:
    """Junk by name, each with its scanner."""

    def filled(part: bytes) -> bytes:
        return part * (size // len(part))

    attribute = wire(ATTRIBUTES, b"\x0a\x04axis\x18\x01\xa0\x01\x02")
    node = wire(NODES, b"\x0a\x01a\x22\x04Relu" + attribute)
    tensor = wire(TENSORS, b"\x08\x02\x08\x02\x10\x01\x42\x03abc\x4a\x10" + bytes(16))
    info = wire(INFOS, b"\x0a\x06abcdef" + wire(2, b"\x0a\x08" + b"\x08\x01" * 4))
    entry = b"\x0a\x08location\x12\x0aweights.da"
    elsewhere = wire(
        TENSORS, b"\x08\x80\x06\x08\x80\x18\x10\x01\x42\x10model.layers.0.w" + wire(13, entry) + b"\x70\x01"
    )
    onnx = {
        "whole numbers": filled(b"\x08\x01"),
        "whole numbers in an attribute": wire(MODEL, wire(NODES, wire(ATTRIBUTES, filled(b"\x40\x01")))),
        "reals": filled(b"\x0d\x01\x02\x03\x04"),
        "empty names": wire(MODEL, wire(NODES, filled(b"\x0a\x00"))),
        "fields nobody knows": filled(b"\x7a\x05hello"),
        "empty tensors": wire(MODEL, filled(b"\x2a\x00")),
        "empty attributes": wire(MODEL, wire(NODES, filled(b"\x2a\x00"))),
        "short attributes": wire(MODEL, wire(NODES, filled(attribute))),
        "attributes of no usual form": wire(
            MODEL, wire(NODES, filled(wire(ATTRIBUTES, b"\xa0\x01\x02\x0a\x04axis\x18\x01")))
        ),
        "infos of no usual form": wire(
            MODEL, filled(wire(INFOS, wire(2, b"\x0a\x08" + b"\x08\x01" * 4) + b"\x0a\x06abcdef"))
        ),
        "infos, every other one as usual": wire(
            MODEL, filled(info + wire(INFOS, wire(2, b"\x0a\x08" + b"\x08\x01" * 4) + b"\x0a\x06abcdef"))
        ),
        "short nodes": wire(MODEL, filled(node)),
        "short tensors": wire(MODEL, filled(tensor)),
        "short infos": wire(MODEL, filled(info)),
        "tensors elsewhere": wire(MODEL, filled(elsewhere)),
        "tensors in odd order": wire(MODEL, filled(wire(TENSORS, b"\x4a\x01a\x08\x01\x4a\x01a"))),
        "fields between infos": wire(MODEL, filled(b"\x6a\x00\x12\x00")),
        "optional types": wire(MODEL, filled(wire(INFOS, wire(2, wire(9, wire(1, b"\x0a\x00")))))),
        "long nodes that open late": wire(MODEL, filled(wire(NODES, b"\x0a\x00" * 55 + b"\x2a\x00"))),
        "long tensors of padded tags": wire(MODEL, filled(wire(TENSORS, b"\x10\x01" * 58 + b"\xca\x00\x00"))),
        "padded tags": wire(MODEL, filled(b"\x92\x00\x01a")),
        "padded lengths": wire(MODEL, filled(b"\x6a\x80\x00")),
        "zeros": bytes(size),
        "random bytes": os.urandom(size),
    }
    found: dict[str, tuple[Callable[[bytes], None], bytes]] = {
        f"ONNX: {name}": (scan_onnx, data) for name, data in onnx.items()
    }
    found["JSON: numbers"] = (
        lambda data: scan_json(data, MOST_VALUES),
        json.dumps([1] * (size // 3)).encode(),
    )
    found["JSON: brackets"] = (lambda data: scan_json(data, MOST_VALUES), filled(b"[],"))
    found["MLIR: brackets"] = (scan_mlir, filled(b"(<>) "))
    found["MLIR: long words"] = (scan_mlir, filled(b"a" * 4096 + b" "))
    found["YAML: lines"] = (scan_yaml, b"a: 1\n" * 199_999)
    found["YAML: lines of two depths"] = (scan_yaml, b"a:\n b: 1\n" * 111_110)
    found["YAML: lines of many depths"] = (
        scan_yaml,
        b"".join(b" " * (i % 200) + b"a:\n" for i in range(9500)),
    )
    found["YAML: brackets"] = (scan_yaml, b"a: [{}]\n" * 124_999)
    found["YAML: brackets and quotes"] = (scan_yaml, b"a: [{''}, '#'] # [\n" * 52_000)
    found["YAML: dashes"] = (scan_yaml, b"- - a\n" * 166_665)
    found["YAML: quotes"] = (scan_yaml, b"a: ''\n" * 142_850)
    found["samples: short arrays"] = (_scan_samples, arrays(size // 340))
    found["LiteRT: operators"] = (scan_litert, litert(min(size // 8, MOST_OPERATORS)))
    found["LiteRT: one operator"] = (scan_litert, litert(MOST_OPERATORS, shared=True))
    found["LiteRT: zeros"] = (scan_litert, b"\x08\x00\x00\x00TFL3" + bytes(size))
    return found


def arrays(count: int) -> bytes:
    """An `.npz` of so many arrays of one number."""
    array, file = io.BytesIO(), io.BytesIO()
    np.save(array, np.zeros(1, np.int8))
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(count):
            archive.writestr(f"{number}.npy", array.getvalue())
    return file.getvalue()


def _scan_samples(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        file.write(data)
        file.flush()
        scan_npz(Path(file.name))


def litert(count: int, *, shared: bool = False) -> bytes:
    """A LiteRT file of one graph of so many operators without a field, or of one that is named so often."""
    # Layouts at 8, 20 and 32: of a model with graphs, of a graph with operators, of an operator.
    layouts = struct.pack("<6H", 10, 8, 0, 0, 4, 0) + struct.pack("<6H", 12, 8, 0, 0, 0, 4)
    layouts += struct.pack("<2H", 4, 4)
    model, graph = 36, 52
    parts = [struct.pack("<iIII", model - 8, 4, 1, 4), struct.pack("<iII", graph - 20, 4, count)]
    places = graph + 12 + 4 * np.arange(count)
    tables = graph + 12 + 4 * count + 4 * np.arange(1 if shared else count)
    parts += [(tables - places).astype("<u4").tobytes(), (tables - 32).astype("<i4").tobytes()]
    return struct.pack("<I4s", model, b"TFL3") + layouts + b"".join(parts)


def main() -> None:
    """Scan and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=22.0)
    options = parser.parse_args()
    print(f"{'of ' + str(options.mb) + ' MB each':34}{'s':>8}{'MB/s':>8}  ending")
    for name, (scan, data) in files(int(options.mb * 1e6)).items():
        start, ending = time.process_time(), "let through"
        try:
            scan(data)
        except (PlannerError, Refused) as error:
            ending = str(error)[:60]
        seconds = max(time.process_time() - start, 1e-4)
        print(f"{name:34}{seconds:8.2f}{len(data) / 1e6 / seconds:8.0f}  {ending}")


if __name__ == "__main__":
    main()
