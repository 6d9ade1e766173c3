"""Files that are cut, changed, or say what cannot be: a model, or a ModelError that says where and why."""

import random
import struct
import traceback
from contextlib import suppress

import flatbuffers
import numpy as np
import pytest

import planner
from benchmarks.scanners import litert
from planner.errors import ModelError
from planner.formats.litert.reader.builder import State
from planner.formats.litert.reader.read import read_litert
from planner.formats.litert.reader.scan import scan_litert
from planner.formats.onnx.drafts.draft import Draft
from planner.formats.onnx.drafts.simplify import tidy
from planner.ir.graph import Op, Value
from tests.formats.bodies import MODELS, prepared
from tests.formats.litert.reader.by_hand import Hand, Sparse, table
from tests.formats.litert.reader.files import FLOAT, OFFICIAL, of_floats, of_rows, path_of

MILLION = pytest.param(1_000_000, marks=pytest.mark.soak)
WORDS = (0, 1, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
CUT = r"no LiteRT file|bytes hold it|defines it|has \d+ bytes"
BYTES = (0, 1, 2, 4, 8, 127, 128, 255)


def small():
    return [item.file for item in of_rows().values()] + [data for _, _, data in of_floats().values()]


def changed(chance, seeds):
    """A file with up to four bytes or words changed, its length kept: offsets lead elsewhere."""
    data = bytearray(chance.choice(seeds))
    for _ in range(1 << chance.randrange(3)):
        at, how = chance.randrange(len(data)), chance.randrange(4)
        if how == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[at] = chance.choice(BYTES)
        elif how == 2:
            data[at] = data[at] + chance.randint(-8, 8) & 255
        else:
            data[at & ~3 : (at & ~3) + 4] = struct.pack("<I", chance.choice(WORDS))
    return bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2000, MILLION])
def test_changed_files(count, record_property):
    chance, seeds = random.Random(0), small()  # noqa: S311 - to be repeated, not to be secret
    read, refused, wrong = 0, 0, {}
    for _ in range(count):
        data = changed(chance, seeds)
        try:
            read_litert(data)
            read += 1
        except ModelError as error:
            refused += bool(str(error))
        except Exception as error:  # noqa: BLE001 - one file of each kind is told, when all were read
            wrong.setdefault(repr(traceback.extract_tb(error.__traceback__)[-1]), (repr(error), data.hex()))
    record_property("changed", f"{count} files, {read} read, {refused} refused")
    assert not wrong
    assert read + refused == count
    assert min(read, refused) > count // 20


def test_changed_files_with_loops_and_branches():
    """Subgraphs that run each other, bodies whose operands are others."""
    chance, seeds = random.Random(5), []  # noqa: S311 - to be repeated, not to be secret
    for name in ("branch", "collected", "until"):
        graph, _ = prepared(*MODELS[name], count=1)
        seeds.append(planner.export(graph, planner.plan(graph, "litert-int8"), "litert"))
    read = 0
    for _ in range(400):
        with suppress(ModelError):
            read_litert(changed(chance, seeds))
            read += 1
    assert 20 < read < 380


@pytest.mark.parametrize("name", [*OFFICIAL, *FLOAT])
def test_the_last_byte_is_missed(name):
    """So every shorter cut is refused: the scan looks at the same bytes in order until one is missing."""
    if not path_of(name).exists():
        pytest.skip(f"no {path_of(name)}")
    with pytest.raises(ModelError, match="or a truncated one"):
        scan_litert(path_of(name).read_bytes()[:-1])


@pytest.mark.parametrize("name", [*OFFICIAL, *FLOAT])
@pytest.mark.parametrize("step", [1499, pytest.param(1, marks=pytest.mark.soak)])
def test_files_that_are_cut(name, step):
    if not path_of(name).exists():
        pytest.skip(f"no {path_of(name)}")
    data = path_of(name).read_bytes()
    for end in (*range(0, min(600, len(data)), max(1, step // 100)), *range(0, len(data), step)):
        with pytest.raises(ModelError, match=CUT):
            read_litert(data[:end])


@pytest.mark.slow
def test_small_files_that_are_cut():
    """The last bytes may be a layout's, of fields that are not read: then it is a model."""
    for data in small()[::8]:
        whole = 0
        for end in range(0, len(data), 3):
            with suppress(ModelError):
                read_litert(data[:end])
                whole += 1
        assert whole <= 8


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no LiteRT file: bytes 4 to 8 are not TFL3"),
        (b"\0\0\0\0TFL3", "no LiteRT file: the layout at byte 0 is none of a table"),
        (
            b"\xff\0\0\0TFL3",
            "no LiteRT file, or a truncated one: byte 255 should begin 4 bytes of the 8 there are",
        ),
    ],
)
def test_what_a_scan_says(data, words):
    with pytest.raises(ModelError) as caught:
        scan_litert(data)
    assert str(caught.value) == words


def test_a_missing_extra_says_what_to_install(monkeypatch):
    file = small()[0]  # written with what is missing then
    monkeypatch.setitem(__import__("sys").modules, "tflite", None)
    with pytest.raises(ModelError, match="litert files are read with the packages") as caught:
        planner.load_model(file)
    assert caught.value.hint == "pip install 'flatbuffers>=24.3' 'tflite>=2.18'"


def test_a_quantized_tensor_without_elements():
    hand = Hand()
    hand.tensor((0, 4), "INT8", scales=[0.5], zeros=[1])
    hand.tensor((2,), "INT32", np.array([1, 1], np.int32).tobytes())
    hand.tensor((0, 4), "INT8", scales=[0.5], zeros=[1])
    hand.operator("TILE", 3, (0, 1), (2,))
    graph = read_litert(hand.file([], [2]))
    assert graph.values[graph.outputs[0]].shape == (0, 4)


@pytest.mark.parametrize("axes", [(2,), (-3,), (0, 4)])
def test_axes_that_an_operand_behind_a_transpose_has_not(axes):
    """Rewrites move ops in front of transposes, and axes with them: no shape was inferred by then."""
    draft = Draft(State())
    for name in ("x", "t", "y"):
        draft.read.values[name] = Value(name, (4, 6), "f32")
    ends = [draft.integers(numbers) for numbers in ([0] * len(axes), [1] * len(axes), axes)]
    turn = Op("t", "Transpose", ("x",), ("t",), {"perm": (1, 0)})
    draft.read.ops = [turn, Op("y", "Slice", ("t", *ends), ("y",))]
    with pytest.raises(ModelError, match="Slice at 'y': no axis"):
        tidy(draft, ["y"])


def test_weights_beyond_float32():
    """Of a scale whose exponent was changed; numpy warned of the product."""
    hand = Hand()
    hand.tensor((1, 2), "FLOAT32")
    hand.tensor((2,), "INT8", np.array([-100, 3], np.int8).tobytes(), scales=[3e38], zeros=[0])
    hand.tensor((2,), "FLOAT32")
    hand.tensor((1, 2), "FLOAT32")
    hand.operator("DEQUANTIZE", 1, (1,), (2,))
    hand.operator("ADD", 1, (0, 2), (3,), "AddOptions")
    with pytest.raises(ModelError, match="has numbers beyond float32: 3e\\+38 is a step of its grid"):
        read_litert(hand.file([0], [3]))


def test_a_bias_beyond_float32():
    hand = Hand()
    hand.tensor((1, 2), "INT8", scales=[0.5], zeros=[0])
    hand.tensor((1, 2), "INT8", np.array([[1, 3]], np.int8).tobytes(), scales=[0.5], zeros=[0])
    hand.tensor((1,), "INT32", np.array([2302], np.int32).tobytes(), scales=[1.7e38], zeros=[0])
    hand.tensor((1, 1), "INT8", scales=[0.5], zeros=[0])
    hand.operator("FULLY_CONNECTED", 1, (0, 1, 2), (3,), "FullyConnectedOptions")
    graph = read_litert(hand.file([0], [3]))
    assert any("bias 't2' has numbers beyond float32" in note for note in graph.notes), graph.notes


def test_a_rank_that_a_transpose_in_front_does_not_give():
    hand = Hand()
    hand.tensor((1, 4, 9, 11), "FLOAT32")
    hand.tensor((4,), "INT32", np.array([0, 2, 3, 1], np.int32).tobytes())
    hand.tensor((1, 9, 11, 4, 1), "FLOAT32")
    hand.tensor((1, 9, 11, 4, 1), "FLOAT32")
    hand.operator("TRANSPOSE", 1, (0, 1), (2,), "TransposeOptions")
    hand.operator("SOFTMAX", 1, (2,), (3,), "SoftmaxOptions", {"Beta": 1.0})
    with suppress(ModelError):
        read_litert(hand.file([0], [3]))


def test_operators_of_one_table_and_layouts_that_overlap():
    scan_litert(litert(1000))
    scan_litert(litert(1000, shared=True))
    with pytest.raises(ModelError, match="at most 2000000 tables"):
        scan_litert(litert(2_000_001, shared=True))
    crowded = bytearray(litert(1))
    # Layouts of 65,534 bytes at every second byte, each of a table of its own.
    count = 3000
    crowded[60:64] = struct.pack("<I", count)
    tables = [64 + 4 * count + 4 * i for i in range(count)]
    offsets = b"".join(struct.pack("<I", at - (64 + 4 * i)) for i, at in enumerate(tables))
    layouts = 64 + 8 * count
    backs = b"".join(struct.pack("<i", at - (layouts + 2 * i)) for i, at in enumerate(tables))
    data = bytes(crowded[:64]) + offsets + backs + struct.pack("<H", 0xF0F0) * 40_000
    with pytest.raises(ModelError, match="share their bytes"):
        scan_litert(data)


def of_two(data=None, shape=(2,), element="FLOAT32", ends=((0,), (1,)), operands=(0,), **more):
    """A file of one RELU on two floats, with a constant beside it where there are `data`."""
    hand = Hand(**more)
    hand.tensor((2,), "FLOAT32")
    hand.tensor((2,), "FLOAT32")
    if data is not None:
        hand.tensor(shape, element, data, name="k", sparse=more.get("sparse", {}).get(2))
    hand.operator("RELU", 1, operands, (1,))
    return hand.file(*ends)


NUMBERS = np.ones(2, np.float32).tobytes()
SIZES = "accepted: at most 8 sizes, not below 0, of at most 1099511627776 elements"
MISFITS = {
    "an input of none": (of_two(ends=((2,), (1,))), "an input names tensor 2; there are 2"),
    "an input below all": (of_two(ends=((-1,), (1,))), "an input names tensor -1; there are 2"),
    "an output of none": (of_two(ends=((0,), (2,))), "an output names tensor 2; there are 2"),
    "an operand of none": (of_two(operands=(2,)), "an operator names tensor 2; there are 2"),
    "an operand below all": (of_two(operands=(-2,)), "an operator names tensor -2; there are 2"),
    "no output": (of_two(ends=((0,), ())), "a LiteRT file without outputs, so there is nothing to compute"),
    "a code of none": (
        of_two(instead={("Operator", 0): {"OpcodeIndex": 1}}),
        "operator 0 has code 1; there are 1",
    ),
    "a buffer of none": (
        of_two(NUMBERS, instead={("Tensor", 2): {"Buffer": 2}}),
        "tensor 'k' names buffer 2; there are 2",
    ),
    "a rank": (
        of_two(NUMBERS, (1,) * 8 + (2,)),
        f"tensor 'k' has shape [1, 1, 1, 1, 1, 1, 1, 1, 2]; {SIZES}",
    ),
    "a size below 0": (
        of_two(NUMBERS, (-1, -2)),
        f"tensor 'k' has shape [-1, -2]; {SIZES}",
    ),
    "elements": (
        of_two(NUMBERS, (1 << 20, (1 << 20) + 1)),
        f"tensor 'k' has shape [1048576, 1048577]; {SIZES}",
    ),
    "bytes": (
        of_two(NUMBERS, (3,)),
        "tensor 'k' of f32 and shape [3] has 8 bytes; 12 hold it",
    ),
    "halves of bytes": (
        of_two(b"\1", (3,), "INT4"),
        "tensor 'k' of i4 and shape [3] has 1 bytes; 2 hold it",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_parts_that_do_not_fit_are_named_with_their_numbers(name):
    data, words = MISFITS[name]
    with pytest.raises(ModelError) as caught:
        read_litert(data)
    assert str(caught.value) == words


def test_a_file_without_a_subgraph():
    made = flatbuffers.Builder(64)
    made.Finish(table(made, "Model", Version=3), file_identifier=b"TFL3")
    with pytest.raises(ModelError, match="a LiteRT file without a subgraph, so there is nothing to compute"):
        read_litert(bytes(made.Output()))


def behind(offset, size):
    """A file whose constant lies behind the tables."""
    return of_two(NUMBERS, instead={("Buffer", 1): {"Offset": offset, "Size": size}})


def test_numbers_behind_the_tables_end_with_the_file():
    start = len(behind(1, 8))
    data = behind(start, 8) + NUMBERS
    assert len(data) == start + 8
    read_litert(data)
    with pytest.raises(ModelError) as caught:
        read_litert(data[:-1])
    assert str(caught.value) == (
        f"the numbers of tensor 'k' end at byte {start + 8}; the file has {start + 7}"
    )


def test_constants_grow_to_sixteen_times_the_file_and_a_megabyte():
    """A sparse constant of one number may say any size."""

    def said(count):
        return of_two(NUMBERS[:4], (count,), sparse={2: Sparse((0,), (), ((0, (0, 1), (0,)),))})

    most = (16 * len(said(1)) + (1 << 20)) // 4
    read_litert(said(most))
    with pytest.raises(ModelError) as caught:
        read_litert(said(most + 1))
    assert str(caught.value) == (
        f"constants up to 'k' have {4 * most + 4} bytes in memory; accepted: at most 16 times the file's "
        f"{len(said(1))}, and 1048576"
    )


@pytest.mark.parametrize(
    ("scales", "zeros", "axis", "words"),
    [
        ((0.5,) * 3, (0,), 0, "it has 3 scales along axis 0 of [2]"),
        ((0.5,) * 2, (0,), 1, "it has 2 scales along axis 1 of [2]"),
        ((0.5,) * 2, (0,), -1, "it has 2 scales along axis -1 of [2]"),
        ((0.5,) * 2, (0,) * 3, 0, "it has 2 scales and 3 zero points"),
        ((0.5,), (0, 0), 0, "it has 1 scales and 2 zero points"),
    ],
)
def test_scales_that_no_type_says_are_noted(scales, zeros, axis, words):
    hand = Hand()
    for _ in range(2):
        hand.tensor((2,), "FLOAT32")
    hand.tensor((2,), "INT8", scales=scales, zeros=zeros, axis=axis)
    hand.operator("RELU", 1, (0,), (1,))
    assert read_litert(hand.file([0], [1])).notes == (f"tensor 't2' has no fixed type: {words}",)
