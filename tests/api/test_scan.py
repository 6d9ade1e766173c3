"""The scans let good files through and stop the others where their limits are."""

import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from api.intake.scan import deeper_at, require_unicode, scan_json
from api.intake.scan_onnx import MAX_DEPTH, TOGETHER, scan_onnx
from api.intake.scan_text import MLIR_DEPTH, YAML_DEPTH, scan_mlir, scan_yaml
from api.problems import Refused
from planner.errors import ModelError, TargetError
from tests.api.documents import chain, external, nested, relu

ROOT = Path(__file__).resolve().parents[2]
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def depth(document) -> int:
    inner = (
        document.values() if isinstance(document, dict) else document if isinstance(document, list) else None
    )
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(PLAIN, st.booleans())
def test_json_is_let_through_to_its_depth(document, ascii_only):
    text = json.dumps(document, ensure_ascii=ascii_only, allow_nan=True).encode("utf-8", "surrogatepass")
    scan_json(text, 10_000, max_depth=depth(document))
    if depth(document):
        with pytest.raises(Refused, match="deeper"):
            scan_json(text, 10_000, max_depth=depth(document) - 1)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "[[[[[[[[[["}',
        r'{"a": "\"[[[[[[[["}',
        r'{"a\\": ["\\"], "b": "[[[["}',
        '[1.2345678901234567890123, 1e22, 123456789012345678901234.5, "123456789012345678901234"]',
    ],
)
def test_text_and_reals_do_not_count(text):
    scan_json(text.encode(), 100, max_depth=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1,2,3,4,5]", "more than 4 values"),
        ("[12345678901234567890]", "19 digits"),
        ('{"a": -12345678901234567890}', "19 digits"),
        ("[[[[", "deeper than 3"),
    ],
)
def test_json_that_is_stopped(text, words):
    with pytest.raises(Refused, match=words):
        scan_json(text.encode(), 4, max_depth=3)


def test_a_model_of_fifty_kernels_passes():
    scan_json(json.dumps(chain(50)).encode(), 10_000)


def test_nested_graphs_to_the_limit():
    scan_onnx(nested((MAX_DEPTH - 2) // 3))
    with pytest.raises(ModelError, match="messages deep"):
        scan_onnx(nested((MAX_DEPTH + 1) // 3))


@pytest.mark.parametrize("cut", range(1, len(relu())))
def test_a_file_cut_anywhere_is_refused_or_shorter(cut):
    try:
        scan_onnx(relu()[:cut])
    except ModelError as error:
        assert "truncated" in str(error)  # noqa: PT017 - a cut between fields is a shorter file
    else:
        onnx.ModelProto.FromString(relu()[:cut])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    try:
        scan_onnx(data)
    except ModelError:
        return


def wire(number: int, body: bytes) -> bytes:
    """A field of bytes; at most 16,383 of them in two bytes of length, more in four."""
    size = len(body)
    length = (
        bytes([size])
        if size < 128
        else b"".join(bytes([size >> shift & 127 | (128 if shift < 21 else 0)]) for shift in (0, 7, 14, 21))
    )
    return bytes([number << 3 | 2]) + length + body


def tensor(*fields: bytes) -> bytes:
    """A file whose graph has one initializer."""
    return wire(7, wire(5, b"".join(fields)))


TENSOR, NODE = b"\x2a\x00", wire(1, wire(5, b"\x08\x01"))
JUNK = {
    "tensors that are empty": wire(7, TENSOR * 1_000_000),
    "nodes of two messages in four bytes": wire(7, NODE * 400_000),
    "tensors of fields in no order": wire(7, wire(5, b"\x4a\x01a\x08\x01\x4a\x01a") * 300_000),
    "one tensor of tags that are too long": wire(7, wire(5, b"\xca\x00\x00" * 1_000_000)),
    "one tensor that is here, and elsewhere": wire(7, wire(5, b"\x70\x01\x70\x00" * 1_000_000)),
    "one sparse tensor of numbers": wire(7, wire(15, b"\x20\x00" * 1_000_000)),
    "texts of tags that are too long": wire(7, b"\x92\x00\x01a" * 1_000_000),
}


@pytest.mark.parametrize("name", JUNK)
def test_messages_of_a_few_bytes_each_are_refused_early(name):
    with pytest.raises(ModelError, match="took more steps than a file of its length may take") as caught:
        scan_onnx(JUNK[name])
    assert int(str(caught.value).split("byte ")[1].split()[0]) < 1_500_000


def test_a_graph_of_100_000_small_nodes_needs_no_weights():
    """Nodes as the densest of real exporters write them: short names, an attribute, a value each."""
    node = b"\x0a\x05n1234\x12\x05n1235\x1a\x05n1235\x22\x04Relu" + wire(
        5, b"\x0a\x04axis\x18\x01\xa0\x01\x02"
    )
    info = wire(13, b"\x0a\x05n1235" + wire(2, wire(1, b"\x08\x01\x12\x08" + b"\x0a\x02\x08\x01" * 2)))
    scan_onnx(wire(7, wire(1, node) * 100_000 + info * 100_000))


@pytest.mark.parametrize(("shape", "dtype"), [((), "float32"), ((1,), "int64"), ((2, 2), "float32")])
def test_a_graph_of_50_000_small_constants_passes(shape, dtype):
    """As PyTorch's exporter writes them, one Constant node for each number that is used."""
    nodes = [
        onnx.helper.make_node(
            "Constant",
            [],
            [f"/Constant_{i}_output_0"],
            name=f"/Constant_{i}",
            value=onnx.numpy_helper.from_array(np.ones(shape, dtype)),
        )
        for i in range(50_000)
    ]
    graph = onnx.helper.make_graph(nodes, "constants", [], [])
    scan_onnx(onnx.helper.make_model(graph).SerializeToString())


def claims(model: onnx.ModelProto) -> tuple[bool, bool]:
    """Whether a tensor lies in another file, and whether one claims more than it holds, as protobuf reads."""

    def of_nodes(nodes):
        for node in nodes:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
                for graph in (attribute.g, *attribute.graphs):
                    yield from of_graph(graph)
                for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                    yield from (sparse.values, sparse.indices)

    def of_graph(graph):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        yield from of_nodes(graph.node)

    tensors = [*of_graph(model.graph), *(t for f in model.functions for t in of_nodes(f.node))]
    outside = [t for t in tensors if t.data_location == onnx.TensorProto.EXTERNAL]
    here = [t for t in tensors if t.data_location != onnx.TensorProto.EXTERNAL]
    elements = [math.prod(t.dims) if all(d >= 0 for d in t.dims) else 0 for t in here]
    return bool(outside), any(n > 8 * t.ByteSize() and n > 1 for n, t in zip(elements, here, strict=True))


SEEDS = (
    relu(),
    external("a.bin"),
    wire(7, wire(1, wire(5, wire(5, b"\x08\x02\x08\x03\x10\x01\x4a\x18" + bytes(24))))),
    wire(7, wire(15, wire(1, b"\x08\x01\x4a\x04abcd") + wire(2, b"\x08\x01\x4a\x08abcdefgh") + b"\x18\x05")),
    wire(7, wire(5, b"\x08\x80\x01\x42\x01a\x6a\x04\x0a\x02ab\x70\x01") * 3),
    wire(
        7,
        wire(
            1,
            wire(5, b"\x0a\x04axis\x18\x01\xa0\x01\x02") * 3
            + wire(5, b"\x0a\x01t" + wire(5, b"\x08\x02\x10\x01\x70\x01"))
            + wire(5, b"\x0a\x04mode\x22\x03abc\xa0\x01\x03") * 2,
        ),
    ),
    wire(
        7,
        wire(13, b"\x0a\x01y" + wire(2, wire(1, b"\x08\x01"))) * 3
        + wire(5, b"\x08\x04\x10\x01\x4a\x10" + bytes(16)),
    ),
)
PIECES = (
    *(b"\x70\x01", b"\x70\x00", b"\x70\x05", b"\x72\x00", b"\x75\x00\x00\x00\x00", b"\x70\x81\x80\x00"),
    *(
        b"\x08\x7f",
        b"\x0a\x02\x05\x05",
        b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
        b"\x4a\x00",
        b"\x4a\x85\x01",
    ),
    *(b"\x2a\x00", b"\x2a\x02\x08\x7f", b"\x80", b"\x7a\x00", b"\x00", b"\xff"),
)


@settings(max_examples=1000)
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3), st.sampled_from(PIECES)), max_size=4),
)
def test_what_passes_is_what_protobuf_reads(seed, edits):
    """Files cut and patched anywhere: none that passes hides a reference, or a claim beyond its bytes."""
    data = seed
    for place, gone, piece in edits:
        data = data[: place % (len(data) + 1)] + piece + data[place % (len(data) + 1) + gone :]
    try:
        model = onnx.ModelProto.FromString(data)
        scan_onnx(data)
    except (DecodeError, ModelError):
        return
    outside, beyond = claims(model)
    assert not beyond
    try:
        scan_onnx(data, whole=True)
    except ModelError:
        return
    assert not outside


def test_tensors_have_to_hold_what_they_claim():
    good = wire(5, b"\x08\x02\x08\x02\x10\x01\x4a\x10" + bytes(16))
    scan_onnx(wire(7, good * 5000))
    bad = wire(5, b"\x08\x7f\x08\x02\x10\x01\x4a\x10" + bytes(16))
    with pytest.raises(ModelError, match="claims 254 elements"):
        scan_onnx(wire(7, good * 3000 + bad + good * 3000))
    external_ = wire(5, b"\x08\x7f\x08\x7f\x10\x01\x70\x01")
    scan_onnx(wire(7, (good + external_) * 3000))
    with pytest.raises(ModelError, match="in another file"):
        scan_onnx(wire(7, (good + external_) * 3000), whole=True)


@pytest.mark.parametrize(
    "spelled",
    [b"\x01", b"\x81\x80\x80\x00", b"\x81\x80\x80\x80\x10", b"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x01"],
    ids=["short", "padded", "2^32 more", "2^63 more"],
)
def test_a_reference_to_another_file_is_seen_however_it_is_spelled(spelled):
    """Protobuf reads each of these as EXTERNAL."""
    named = wire(5, b"\x08\x7f\x08\x7f\x10\x01\x70" + spelled)
    found = onnx.ModelProto()
    found.ParseFromString(wire(7, named))
    assert found.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    scan_onnx(wire(7, named))
    for data in (wire(7, named), wire(7, named * 2000)):
        with pytest.raises(ModelError, match="in another file"):
            scan_onnx(data, whole=True)


@pytest.mark.parametrize(
    "behind", [b"\x72\x00", b"\x75\x00\x00\x00\x00", b"\x70\x05"], ids=["text", "real", "unknown"]
)
def test_what_protobuf_passes_over_does_not_hide_a_reference(behind):
    named = wire(7, wire(5, b"\x08\x02\x10\x01\x70\x01" + behind))
    assert onnx.ModelProto.FromString(named).graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    with pytest.raises(ModelError, match="in another file"):
        scan_onnx(named, whole=True)


def test_a_dimension_beyond_64_bits_is_what_protobuf_keeps_of_it():
    big = b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"  # 2^64
    with pytest.raises(ModelError, match="claims 127 elements"):
        scan_onnx(tensor(big.replace(b"\x08\x80", b"\x08\xff", 1), b"\x4a\x00"))


def test_a_tensor_that_readers_would_join_with_another_is_refused():
    """Protobuf joins the dimensions of both, and keeps the bytes of one."""
    held = wire(5, b"\x08\x10\x10\x03\x4a\x10" + bytes(16))
    one = wire(7, wire(1, wire(5, held)))
    scan_onnx(one)
    scan_onnx(wire(7, wire(1, wire(5, held) * 2)))
    joined = wire(7, wire(1, wire(5, held + b"\x0a\x01a" + held)))
    assert list(onnx.ModelProto.FromString(joined).graph.node[0].attribute[0].t.dims) == [16, 16]
    for data in (joined, wire(7, wire(15, wire(1, b"\x08\x01") * 2))):
        with pytest.raises(ModelError, match="a second time"):
            scan_onnx(data)


@pytest.mark.parametrize(
    ("signs", "most", "from_zero", "place"),
    [
        (b"[[]][[[", 2, False, 6),
        (b"]]][[[", 2, False, None),
        (b"]]][[[", 2, True, 5),
        (b"[]" * 300_000 + b"[[[", 2, False, 600_002),
        (b"]" * 300_000 + b"[[[", 2, True, 300_002),
        (b"", 0, False, None),
    ],
)
def test_the_bracket_that_is_too_deep(signs, most, from_zero, place):
    assert deeper_at(signs, most, from_zero=from_zero) == place


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((b"\x08\x04", b"\x20\x00" * 2), None),  # four numbers, and two fields of them: eight a byte
        ((b"\x08\x7f", b"\x10\x01" * 400), "claims 127 elements"),  # a type, told 400 times, holds none
        ((b"\x10\x01" * 9, b"\x08\x7f", b"\x4a\x00"), "claims 127 elements"),
        ((b"\x08\x08" * 2, b"\x4a\x08" + bytes(8)), None),
        ((b"\x08\x01" * 65,), "more than 64 dimensions"),
        ((b"\x88\x00\x7f",), "claims 127 elements"),  # a tag that takes a byte more than it needs
        ((b"\x42\x03ab",), "a truncated one"),
        ((b"\x7d\x00\x00",), "a truncated one"),
        ((b"\x08\x02" + b"\x10\x01" * 9 + b"\x70\x01",), None),  # its numbers lie in another file
    ],
)
def test_what_is_passed_in_runs_is_judged_as_if_it_were_walked(fields, words):
    data = tensor(*fields)
    if words is None:
        scan_onnx(data)
        return
    with pytest.raises(ModelError, match=words):
        scan_onnx(data)


ONE = onnx.helper.make_attribute
ROWS = {
    "attribute": (
        onnx.NodeProto(),
        "attribute",
        [
            ONE("axis", 1),
            ONE("alpha", 0.5),
            ONE("pads", [1, 0, 1, 0]),
            ONE("mode", "SAME_UPPER"),
            ONE("", 7),
            ONE("a_name_of_many_letters", 1),
            ONE("axis", -1),
            ONE("perm", [300]),
            ONE("text", "t" * 40),
            ONE("value", onnx.numpy_helper.from_array(np.ones(2, "f4"))),
            ONE("reals", [1.0, 2.0]),
        ],
    ),
    "info": (
        onnx.GraphProto(),
        "value_info",
        [
            onnx.helper.make_tensor_value_info(name, 1, shape)
            for name, shape in [
                ("x", []),
                ("x", None),
                ("longer", [1, 2]),
                ("x" * 40, [1]),
                ("x", [1000] * 6),
            ]
        ],
    ),
}
"""Of each kind the messages that come in rows: five, or three, of the usual form first, then others."""


@settings(max_examples=500)
@given(st.sampled_from(sorted(ROWS)), st.data())
def test_rows_are_passed_to_where_a_message_ends(kind, data):
    """Whatever stands in a row, no pattern passes what begins in one message and ends in another."""
    owner, field, known = ROWS[kind]
    row = type(owner)()
    getattr(row, field).extend(data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=5)))
    ends, whole = [0], row.SerializeToString()
    for message in getattr(row, field):
        ends.append(ends[-1] + 2 + message.ByteSize())
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    assert TOGETHER[kind](whole, 0, len(whole)).end() in ends
    passed = changed[: TOGETHER[kind](changed, 0, len(changed)).end()]
    try:
        every = getattr(type(owner).FromString(changed), field)
    except DecodeError:
        return
    read = getattr(type(owner).FromString(passed), field)
    assert read == every[: len(read)]
    for message in read:
        assert not {name.name for name, _ in message.ListFields()} & {"t", "g", "tensors", "graphs"}


@pytest.mark.parametrize(("kind", "usual"), [("attribute", 5), ("info", 3)])
def test_messages_of_the_usual_form_are_passed_together(kind, usual):
    owner, field, known = ROWS[kind]
    row = type(owner)()
    getattr(row, field).extend(known[:usual])
    whole = row.SerializeToString()
    assert TOGETHER[kind](whole, 0, len(whole)).end() == len(whole)


def test_a_name_behind_a_run_may_not_be_too_long():
    name = b"\x0a" + b"\x81\x80\x04" + bytes(65_537)
    with pytest.raises(ModelError, match="65537 bytes"):
        scan_onnx(wire(7, wire(1, b"\x12\x01a" * 50 + name)))


def test_a_file_that_has_to_be_whole():
    scan_onnx(external("a.bin"))
    with pytest.raises(ModelError, match="in another file"):
        scan_onnx(external("a.bin"), whole=True)
    scan_onnx(relu(), whole=True)


def test_real_models_pass(models):
    files = sorted(models.rglob("*.onnx"), key=lambda path: path.stat().st_size)[:20]
    assert files
    for path in files:
        scan_onnx(path.read_bytes())


def shipped(pattern: str) -> list:
    return sorted(path for folder in ("targets", "tests") for path in (ROOT / folder).rglob(pattern))


def test_every_target_here_passes():
    refused = []
    for path in shipped("*.yaml"):
        try:
            scan_yaml(path.read_bytes(), path.name)
        except TargetError as error:
            refused.append((path.name, error.errors[0].code))
    assert refused in ([], [("T003.yaml", "T003")])


def test_all_mlir_here_passes():
    files = shipped("*.mlir")
    assert len(files) > 4
    for path in files:
        scan_mlir(path.read_bytes())


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb:\n  " + "- " * (YAML_DEPTH + 1), 3, "nested deeper"),
        ("? " * (YAML_DEPTH + 1), 1, "nested deeper"),
        ("a:\n" + "\n".join(" " * i + "a:" for i in range(1, 200)), 129, "indented deeper"),
        ("\n" * 3 + "a: " + "{a: [" * 600, 4, "open brackets"),
        ("a: 1\nb: " + "x" * 20_000, 2, "a line of 20003 bytes"),
        ("a: 1\n" * 200_001, 1, "1000005 bytes"),
    ],
)
def test_yaml_that_is_stopped(text, line, words):
    with pytest.raises(TargetError) as caught:
        scan_yaml(text.encode(), "x.yaml")
    assert (caught.value.errors[0].line, words in str(caught.value)) == (line, True)


@pytest.mark.parametrize(
    "text",
    [
        "a: '[[[[" + "[" * 2000 + "'",
        'a: "' + "[" * 2000 + '"',
        "# " + "[" * 2000,
        "a: " + "[]" * 2000,
        "text: |\n" + "".join(f"  don't [ {i}\n" for i in range(500)),
        "\n".join("- " * YAML_DEPTH + "a" for _ in range(100)),
    ],
)
def test_yaml_that_only_looks_deep(text):
    scan_yaml(text.encode())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(" * (MLIR_DEPTH + 1), "nested too deep"),
        ("x" * 4097, "word of 4097 letters"),
        ("tensor<1xui123456>", "integer type of 6 digits"),
        ("tensor<?xi1234567>", "integer type of 7 digits"),
        ("i123456", "integer type of 6 digits"),
        ("%a : si123456", "integer type of 6 digits"),
    ],
)
def test_mlir_that_is_stopped(text, words):
    with pytest.raises(ModelError, match=words):
        scan_mlir(text.encode())


@pytest.mark.parametrize(
    "text", ['"' + "(" * 500 + '"', "// " + "(" * 500, "->" * 500, '"\\"((" i32 %maxi1234567']
)
def test_mlir_that_only_looks_deep(text):
    scan_mlir(text.encode())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (rb'{"a": "\ud800"}', "half of a surrogate pair at byte 7"),
        (rb'["\uD83D\uDE00 \udc00"]', "at byte 15"),
        (rb'["\udbff\u0041"]', "at byte 2"),
        (rb'{"\\\uDFFF": 1}', "at byte 4"),
        (b'["\xed\xa0\x80"]', "not UTF-8 at byte 2"),
        ('["a"]'.encode("utf-16"), "not UTF-8 at byte 0"),
    ],
)
def test_what_is_no_unicode_is_refused(text, words):
    with pytest.raises(Refused, match=words):
        require_unicode(text)


@pytest.mark.parametrize("text", [rb'["\ud83d\ude00"]', rb'["\\ud800", "\ue000"]', '["\U0001f600"]'.encode()])
def test_whole_pairs_are_let_through(text):
    require_unicode(text)
    json.dumps(json.loads(text), ensure_ascii=False).encode()
