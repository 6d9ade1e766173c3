"""Input that means harm, by table: each place of a document with each value that does not belong there,
constructs of YAML that targets have none of, names that make a matcher turn back, LiteRT files cut and bent.

A family's cases have one problem; what is fine at a place after all is left out by `FINE`.
"""

import copy
import json
import struct
from collections.abc import Iterator
from typing import Any

from benchmarks.scanners import litert
from tests.api.documents import chain

WRONG: dict[str, Any] = {
    "null": None,
    "true": True,
    "a number": 7,
    "less than nothing": -1,
    "a fraction": 1.5,
    "beyond a double": float("inf"),
    "no number": float("nan"),
    "a name": "nowhere",
    "a long name": "x" * 70_000,
    "a zero byte": "a\0b",
    "no list": {},
    "a list of null": [None],
    "lists in lists": [[[[[[]]]]]],
    "an object": {"nobody": {"knows": 1}},
}
STATS = {
    "format": "qplan.stats/1",
    "model": f"sha256:{'0' * 64}",
    "method": "minmax",
    "samples": 1,
    "values": {"x": {"min": 0.0, "max": 1.0, "bins": {"exponent": 0, "first": 0, "counts": [1]}}},
}
MODEL_PLACES = (
    "format", "values", "kernels", "inputs", "outputs", "values/0", "values/0/name", "values/0/shape",
    "values/0/constraints", "values/0/constraints/0", "values/2/constant", "values/2/constant/range",
    "kernels/0",
    "kernels/0/name", "kernels/0/kernel", "kernels/0/inputs", "kernels/0/outputs", "kernels/0/outputs/0",
)  # fmt: skip
STATS_PLACES = (
    "format", "method", "samples", "values", "values/x", "values/x/min", "values/x/max",
    "values/x/bins/exponent", "values/x/bins/first", "values/x/bins/counts",
)  # fmt: skip
REQUEST_PLACES = (
    "target",
    "options",
    "options/strategy",
    "options/costs",
    "options/costs/bit_price",
    "annotations",
)
TARGET = {
    "apiVersion": "planner/v1",
    "kind": "Target",
    "id": "x-npu",
    "version": "1.0.0",
    "kernels": [{"kernel": "relu", "in": {"x": {"storage": "i8"}}, "out": {"y": {"storage": "i8"}}}],
}
TARGET_PLACES = (
    "apiVersion", "kind", "id", "version", "mode", "extends", "types", "defaults", "rescale", "costs",
    "engines",
    "fusions", "legalize", "kernels", "tests", "kernels/0/kernel", "kernels/0/in", "kernels/0/in/x",
    "kernels/0/in/x/storage", "kernels/0/when", "kernels/0/rules",
)  # fmt: skip
TARGET_WRONG = ("a number", "beyond a double", "a long name", "a list of null", "lists in lists", "an object")
YAML: dict[str, bytes] = {
    "nothing": b"",
    "a comment": b"# a\n",
    "a word": b"word",
    "a list": b"- a\n- b\n",
    "two documents": b"a: 1\n---\nb: 2\n",
    "an end and more": b"a: 1\n...\nb: 2\n",
    "a directive": b"%YAML 1.3\n---\na: 1\n",
    "a directive of tags": b"%TAG !e! tag:example.com,2000:\n---\n!e!a {a: 1}\n",
    "a key twice": b"id: a\nid: b\n",
    "a key that is a list": b"? [a, b]\n: c\n",
    "a key that is a mapping": b"{a: b}: c\n",
    "a key of null": b"~: c\n",
    "a key that is a number": b"1: c\n",
    "an alias of itself": b"a: &a [*a]\n",
    "an alias of nothing": b"a: *b\n",
    "a merge": b"a: &a {x: 1}\nb:\n  <<: *a\n",
    "a merge of itself": b"a: &a\n  <<: *a\n",
    "tabs": b"a:\n\tb: 1\n",
    "UTF-16": "id: a\n".encode("utf-16"),
    "UTF-32": "id: a\n".encode("utf-32"),
    "no UTF-8": b"id: \xff\xfe\n",
    "half of a pair": b"id: \xed\xa0\x80\n",
    "a long form of a slash": b"id: \xc0\xaf\n",
    "a bell": b"id: a\x07\n",
    "an escape": b"id: a\x1b[2J\n",
    "a mark in the middle": "id: a\n\ufeffkind: b\n".encode(),
    "a quote that stays open": b'id: "a\n',
    "a bracket that stays open": b"id: [a\n",
    "a bracket too many": b"id: a]]\n: }",
    "a text block without text": b"id: |9\n a\n",
    "a date": b"id: 2001-12-14t21:59:43.10-05:00\n",
    "a number by sixties": b"id: 190:20:30\n",
    "an octal number": b"id: 0o777\n",
    "a set": b"!!set {a, b}\n",
    "an ordered mapping": b"!!omap [a: 1]\n",
    "bytes": b"id: !!binary aGVsbG8=\n",
    "a number by its tag": b'id: !!int "9"\n',
    "a tag of one's own": b"id: !own a\n",
    "a name of Python": b"id: !!python/name:os.system\n",
    "a module of Python": b"id: !!python/module:os\n",
    "an object of Python": b"id: !!python/object:os.system {}\n",
    "a new object of Python": b"id: !!python/object/new:os.system [id]\n",
    "a tuple of Python": b"id: !!python/tuple [1]\n",
    "an include": b"id: !include /etc/passwd\n",
    "an environment": b"id: !ENV ${HOME}\n",
    "a hundred thousand keys": b"".join(b"k%d: 1\n" % i for i in range(100_000)),
    "ten thousand anchors": b"".join(b"k%d: &a%d 1\n" % (i, i) for i in range(10_000)),
    "a value of many lines": b"id: >\n" + b"  a\n" * 150_000,
    "an integer of 15,000 digits": b"id: " + b"9" * 15_000,
    "a hexadecimal integer of 15,000 digits": b"id: 0x" + b"f" * 15_000,
}
GLOBS: dict[str, str] = {
    "stars and letters": "*a" * 5000 + "b",
    "stars alone": "*" * 50_000,
    "questions and stars": "?*" * 10_000,
    "sets and stars": "[a-z]*" * 5000,
    "a set that stays open": "[" * 20_000,
    "sets turned around": "[z-a]" * 10_000,
    "everything but": "[!]" * 10_000,
    "an expression": "(a+)+$" * 5000,
    "an expression that looks back": r"(.*)\1" * 5000,
    "escapes": "\\" * 50_000,
}
PUTS: dict[str, tuple[str, str]] = {
    "another name": ("y-npu@1.0.0", "input-invalid"),
    "another version": ("x-npu@1.0.1", "input-invalid"),
    "no version": ("x-npu", "request-invalid"),
    "two versions": ("x-npu@1.0.0@1.0.0", "request-invalid"),
    "a version that is none": ("x-npu@latest", "input-invalid"),
    "a negative version": ("x-npu@-1.0.0", "input-invalid"),
    "a version of 5000 digits": ("x-npu@" + "9" * 5000 + ".0.0", "request-invalid"),
    "a long name": ("x" * 5000 + "@1.0.0", "request-invalid"),
    "capitals": ("X-NPU@1.0.0", "input-invalid"),
    "a path": ("..%2f..%2fetc@1.0.0", "not-found"),
    "a way up": ("..@1.0.0", "input-invalid"),
    "a zero byte": ("x%00npu@1.0.0", "input-invalid"),
    "a line's end": ("x-npu@1.0.0%0a", "input-invalid"),
    "a space": ("x%20npu@1.0.0", "input-invalid"),
    "letters that look alike": ("%D1%85-npu@1.0.0", "input-invalid"),
    "a shipped one": ("litert-int8@1.0.0", "input-invalid"),
}
FINE: frozenset[tuple[str, str]] = frozenset(
    (place, name)
    for place, names in {
        "model/kernels/0/inputs": ("a list of null",),
        "model/kernels/0/kernel": ("a name", "a long name", "a zero byte"),
        "model/kernels/0/name": ("a name", "a long name", "a zero byte"),
        "model/values/0/shape": ("null", "a list of null"),
        "model/values/2/constant": ("no list",),
        "annotations": ("null",),
        "options": ("no list",),
        "options/costs": ("no list",),
        "options/costs/bit_price": ("true", "a number", "a fraction"),
        "samples": ("a number",),
        "values": ("no list",),
        "values/x/bins/exponent": ("a number", "less than nothing"),
        "values/x/bins/first": ("a number", "less than nothing"),
        "values/x/max": ("a number", "a fraction"),
        "values/x/min": ("less than nothing",),
        "id": ("beyond a double",),  # `Infinity` is a word in YAML
        "kernels/0/kernel": ("beyond a double",),
    }.items()
    for name in names
)
OTHER: dict[str, str] = {
    "request: a name at target": "unknown-name",
    "request: a zero byte at target": "unknown-name",
    "request: less than nothing at options/costs/bit_price": "input-invalid",
    "request: null at options/costs/bit_price": "input-invalid",
    "request: an object at annotations": "annotation-invalid",
    "request: no list at annotations": "annotation-invalid",
    "YAML: UTF-16": "input-invalid",
    "YAML: UTF-32": "input-invalid",
    "YAML: no UTF-8": "input-invalid",
    "YAML: half of a pair": "input-invalid",
    "YAML: a long form of a slash": "input-invalid",
}
"""Cases of another problem than their family's."""


def put_in(document: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    """A copy of a document with a value at a place, which is made where it is not there."""
    made = copy.deepcopy(document)
    *path, last = place.split("/")
    inner: Any = made
    for part in path:
        inner = inner[int(part)] if isinstance(inner, list) else inner.setdefault(part, {})
    if isinstance(inner, list):
        inner[int(last)] = value
    else:
        inner[last] = value
    return made


def placed(
    document: dict[str, Any], places: tuple[str, ...], names: Any = WRONG
) -> Iterator[tuple[str, bytes]]:
    for place in places:
        for name in names:
            if (place, name) not in FINE:
                yield f"{name} at {place}", json.dumps(put_in(document, place, WRONG[name])).encode()


def bent_litert() -> Iterator[tuple[str, bytes]]:
    """A file of ten operators: cut at each word, and with each of its first words turned to others."""
    whole = litert(10)
    for end in range(8, len(whole), 8):
        yield f"LiteRT of {end} bytes", whole[:end]
    for at in (0, 8, 10, 20, 22, 36, 40, 44, 48, 52, 56, 60, 64, 68):
        for number in (0x7FFFFFFF, 0xFFFFFFFF):
            data = bytearray(whole)
            data[at : at + 4] = struct.pack("<I", number)
            yield f"LiteRT with {number:#x} at {at}", bytes(data)


def _families() -> Iterator[tuple[str, str, bytes, str]]:
    """Of each case its name, how it is sent, its bytes and the problem of its family."""
    request = {"model": chain(1), "target": "litert-int8"}
    for name, data in placed(request, tuple(f"model/{place}" for place in MODEL_PLACES)):
        yield f"annotated: {name}", "plan", data, "model-invalid"
    for name, data in placed(request, REQUEST_PLACES):
        yield f"request: {name}", "plan", data, "request-invalid"
    for name, data in placed(STATS, STATS_PLACES):
        yield f"statistics: {name}", "stats", data, "stats-invalid"
    for name, data in placed(TARGET, TARGET_PLACES, TARGET_WRONG):
        yield f"target: {name}", "target", data, "target-invalid"
    for name, data in YAML.items():
        yield f"YAML: {name}", "target", data, "target-invalid"
    for name, glob in GLOBS.items():
        annotations = {"format": "qplan.annotations/1", "values": {glob: ["i8"]}}
        yield (
            f"pattern: {name}",
            "plan",
            json.dumps({**request, "annotations": annotations}).encode(),
            "annotation-invalid",
        )
        described = put_in(TARGET, "kernels/0/when", f'name == "{glob[:200]}"')
        yield f"pattern in a target: {name}", "target", json.dumps(described).encode(), "target-invalid"
    for name, (address, problem) in PUTS.items():
        yield f"target put as {name}", f"put:{address}", json.dumps(TARGET).encode(), problem
    for name, data in bent_litert():
        yield name, "model", data, "model-invalid"


def families() -> dict[str, tuple[str, bytes, str]]:
    """By name: how a case is sent, its bytes and its problem."""
    return {name: (sent, data, OTHER.get(name, problem)) for name, sent, data, problem in _families()}
