"""What reads strangers' bytes, under a fuzzer: it accepts, or refuses as it says; a million each in soak."""

import random
from pathlib import Path

import pytest

from api.intake.scan import scan_json
from api.intake.scan_onnx import scan_onnx
from api.intake.scan_text import scan_mlir, scan_yaml
from api.problems import Refused
from api.schemas.examples import ANNOTATED_TEXT, STATS, TARGET
from planner.errors import ModelError, TargetError
from planner.target.load import load_target
from planner.target.yamltree import read_yaml
from tests.api.documents import claiming, expanding, external, nested, relu, sparse
from tests.soak.mutation import fuzz, mutated

ROOT = Path(__file__).resolve().parents[2]
MILLION = pytest.param(1_000_000, marks=pytest.mark.soak)

ONNX = [relu(), expanding("Expand"), claiming(3, 4), external("a.bin"), sparse(3, 4), nested(5)]
ONNX_WORDS = [bytes([number << 3 | wire]) for number in (1, 2, 5, 6, 7, 8, 9, 14, 20, 25) for wire in (0, 2)]
ONNX_WORDS += [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x0b", b"\x0d", b"\x09"]
YAML = [
    TARGET.encode(),
    b"a: [1, {b: 'c', d: \"e\"}]\nf: |\n  text\n  more\ng: >-\n  folded\n",
    b"- 1\n- ~\n- true\n- 0x1F\n- 1.5e3\n- {}\n- []\n",
    b"? a\n: b\n# comment\n'x': \"\\u0041\"\n---\n",
    b"a: &a {b: 1}\nc: *a\nd: !!str 5\n",
]
YAML_WORDS = [
    b"- ",
    b"? ",
    b": ",
    b"[",
    b"]",
    b"{",
    b"}",
    b"&a ",
    b"*a",
    b"!!int ",
    b"|\n",
    b">\n",
    b"'",
    b'"',
]
YAML_WORDS += [
    b"\n",
    b"\n  ",
    b"\t",
    b"#",
    b"---\n",
    b"...\n",
    b"%YAML 1.2\n",
    b"<<: ",
    b"\\x",
    b"\xc2\x85",
    b"\xef\xbb\xbf",
]
JSON = [
    ANNOTATED_TEXT.encode(),
    str(STATS).replace("'", '"').encode(),
    b'{"a": [1, -2.5e3, "\\"", null, true]}',
]
JSON_WORDS = [b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"1" * 20, b"null", b"\\u0000"]
MLIR = [
    path.read_bytes() for path in sorted((ROOT / "tests" / "formats" / "annotated" / "golden").glob("*.mlir"))
]
MLIR_WORDS = [b"<", b">", b"(", b")", b"->", b"//", b'"', b"i999999", b"x", b"%", b"{", b"}"]


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def read(data: bytes) -> None:
    """What a child does with a target, up to its tree."""
    scan_yaml(data)
    read_yaml(text(data), "text", anchors=False)


def load(data: bytes) -> None:
    scan_yaml(data)
    load_target(text(data) + "\n", trusted=False)


@pytest.mark.parametrize("count", [5000, MILLION])
def test_wire_scanner(count, record_property):
    found = fuzz(scan_onnx, ONNX, ONNX_WORDS, count, allowed=(ModelError,), seed=1)
    noted(record_property, count, found)
    assert min(found.counts["accepted"], found.counts["ModelError"]) > count // 100


@pytest.mark.parametrize("count", [5000, MILLION])
def test_yaml_loader(count, record_property):
    found = fuzz(read, YAML, YAML_WORDS, count, allowed=(TargetError,), seed=2)
    noted(record_property, count, found)
    assert min(found.counts["accepted"], found.counts["TargetError"]) > count // 100


@pytest.mark.parametrize("count", [500, pytest.param(50_000, marks=pytest.mark.soak)])
def test_targets(count, record_property):
    found = fuzz(load, YAML[:1], YAML_WORDS, count, allowed=(TargetError,), seed=3)
    noted(record_property, count, found)
    assert found.counts["accepted"] > 0


@pytest.mark.parametrize("count", [5000, MILLION])
def test_json_scanner(count, record_property):
    found = fuzz(lambda data: scan_json(data, 100), JSON, JSON_WORDS, count, allowed=(Refused,), seed=4)
    noted(record_property, count, found)


@pytest.mark.parametrize("count", [2000, MILLION])
def test_mlir_scanner(count, record_property):
    found = fuzz(scan_mlir, MLIR, MLIR_WORDS, count, allowed=(ModelError,), seed=5)
    noted(record_property, count, found)


def noted(record_property, count: int, found) -> None:
    record_property("count", count)
    record_property("ended", ", ".join(f"{name} {number}" for name, number in sorted(found.counts.items())))
    record_property("slowest", f"{found.seconds * 1e3:.1f} ms")


def test_the_fuzzer_repeats_itself():
    first, second = (mutated(random.Random(7), ONNX, ONNX_WORDS) for _ in range(2))  # noqa: S311
    assert first == second


def test_the_fuzzer_finds_what_is_wrong():
    def broken(data: bytes) -> None:
        if b"\x0b" in data:
            raise KeyError(data)

    with pytest.raises(AssertionError, match="KeyError of "):
        fuzz(broken, ONNX, ONNX_WORDS, 1000, allowed=(ModelError,))
