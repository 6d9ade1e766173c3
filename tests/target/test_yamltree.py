"""Strict YAML 1.2 core: scalars, places, limits."""

import pytest

from planner.errors import TargetError
from planner.target.yamltree import MAX_BYTES, MAX_NODES, locate, plain, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),  # YAML 1.1 says True
        ("no", "no"),
        ("y", "y"),
        ("true", True),
        ("True", True),
        ("tRue", "tRue"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'null'", "null"),
        ('"1"', "1"),
        ("-128", -128),
        ("+7", 7),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),  # YAML 1.1 says 90
        ("2001-01-01", "2001-01-01"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.e-3", 0.001),
        ("1/256", "1/256"),
        ("1.0.0", "1.0.0"),
        ("i8", "i8"),
        ("=", "="),
        ("<<", "<<"),
        ("[a, 1]", ["a", 1]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
    ],
)
def test_scalars_are_core(text, value):
    found = plain(read_yaml(f"k: {text}\n", "f.yaml"))["k"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["010", "0o17", "-07", ".inf", "-.inf", ".nan", "1e999", "9" * 40])
def test_doubtful_numbers_are_refused(text):
    with pytest.raises(TargetError, match=r"^f\.yaml:2:4: T007 number"):
        read_yaml(f"a: 1\nb: {text}\n", "f.yaml")


def test_merge_keys_mean_nothing():
    """`<<` is YAML 1.1; here it is a key like any other."""
    tree = read_yaml("base: &b {x: 1}\nmore: {<<: *b, y: 2}\n", "f.yaml")
    assert plain(tree)["more"] == {"<<": {"x": 1}, "y": 2}


def test_every_node_and_key_has_its_place():
    tree = read_yaml("a: 1\nkernels:\n  - {kernel: conv,\n     in: {x: i8}}\n", "f.yaml")
    node, path = locate(tree, ("kernels", 0, "in", "x"))
    assert (path, node.data, node.line, node.column) == ("kernels[0].in.x", "i8", 4, 14)
    entry, _ = locate(tree, ("kernels", 0))
    assert (entry.line, entry.column, entry.where) == (3, 5, "f.yaml:3")
    assert entry.keys == {"kernel": (3, 6), "in": (4, 6)}


def test_columns_count_characters():
    tree = read_yaml("ä: {ö: 1, ü: 2}\n", "f.yaml")
    assert tree.get("ä").keys == {"ö": (1, 5), "ü": (1, 11)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 400_000, "f.yaml:1:65: T003 nested deeper than 64"),
        ("{a: " * 100_000, "f.yaml:1:257: T003 nested deeper than 64"),
        ("- " * 200_000, "f.yaml:1:129: T003 nested deeper than 64"),
        ("a" * (MAX_BYTES + 1), f"f.yaml:1:1: T002 {MAX_BYTES + 1} bytes; a target has at most {MAX_BYTES}"),
        ("é" * (MAX_BYTES // 2 + 1), f"f.yaml:1:1: T002 {MAX_BYTES + 2} bytes"),
        ("[" + "a," * (MAX_NODES + 1) + "]", f"T002 more than {MAX_NODES} values"),
        ("", "f.yaml:1:1: T008 the file is empty"),
        ("# only a comment\n", "f.yaml:1:1: T008 the file is empty"),
        ("? [a]\n: 1", "f.yaml:1:3: T008 a key must be text"),
        ("? {a: 1}\n: 1", "f.yaml:1:3: T008 a key must be text"),
        (
            "a: b: c",
            "f.yaml:1:5: T001 not YAML: text with ': ' goes in quotes; else the indent is wrong | a: b: c",
        ),
        (
            "a:\n  - b\n c: 1",
            "f.yaml:3:2: T001 not YAML: this line is indented otherwise than its list or mapping | c: 1",
        ),
        (
            "a: >= 1",
            "f.yaml:1:5: T001 not YAML: a text that begins with > or | goes in quotes | a: >= 1",
        ),
        (
            "a: 1\nb 2\nc: 3",
            "f.yaml:3:1: T001 not YAML: there is no ': ' behind a key, here or in the line above | c: 3",
        ),
        ("a: 1\nb: \x01", "f.yaml:2:4: T001 not YAML: control characters are not allowed | b: \x01"),
        ("a: \ud800", "f.yaml:1:4: T001 not YAML: surrogates not allowed"),
        ("a: &x [*x]", "f.yaml:1:8: T006 alias '*x' of an anchor that is not complete before it"),
        ("null: 1", "f.yaml:1:1: T008 a key must be text; quote it"),
        ("true: 1", "f.yaml:1:1: T008 a key must be text; quote it"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(TargetError) as caught:
        read_yaml(text, "f.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_aliases_are_counted_expanded():
    """A billion laughs: small text, large tree."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(TargetError, match="T002 more than"):
        read_yaml("\n".join(lines), "f.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1", "f.yaml:1:4: T006 anchor '&x'; anchors are not allowed here | a: &x 1"),
        ("a: *x", "f.yaml:1:4: T006 alias '*x'; anchors are not allowed here | a: *x"),
        ("a: &x [1]", "f.yaml:1:4: T006 anchor '&x'; anchors are not allowed here | a: &x [1]"),
    ],
)
def test_anchors_can_be_forbidden(text, message):
    with pytest.raises(TargetError) as caught:
        read_yaml(text, "f.yaml", anchors=False)
    assert str(caught.value) == message
