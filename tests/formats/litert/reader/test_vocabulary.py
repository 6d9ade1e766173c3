"""What maps one to one: each line is in LiteRT's schema, and what it writes is read back."""

import re
from types import SimpleNamespace

import pytest

from planner.formats.litert.reader.builder import Builder, Unread
from planner.formats.litert.vocabulary import ALONG, BINARIES, BLOCKS, COMPARISONS, POOLS, UNARIES

tflite = pytest.importorskip("tflite", reason="no tflite: pip install '.[litert]'")
BUILTINS = {**ALONG, **BINARIES, **BLOCKS, **COMPARISONS, **UNARIES}
GIVEN = {
    "DepthToSpace": {"blocksize": 2},
    "Gelu": {"approximate": "tanh"},
    "LeakyRelu": {"alpha": 0.25},
    "SpaceToDepth": {"blocksize": 3},
}


def options(numbers):
    """Options as the schema's package gives them: a method a field."""
    return SimpleNamespace(**{name: lambda number=number: number for name, number in numbers.items()})


def read(kind, numbers):
    found = SimpleNamespace(options=lambda *_: options(numbers))  # what `attributes` asks of a builder
    return Builder.attributes(found, None, BUILTINS[kind])


@pytest.mark.parametrize("kind", BUILTINS)
def test_operators_and_options_are_of_the_schema(kind):
    builtin = BUILTINS[kind]
    assert hasattr(tflite.BuiltinOperator, builtin.operator)
    table = getattr(tflite, builtin.table) if builtin.table else SimpleNamespace()
    for name in builtin.options(GIVEN.get(kind, {})):
        assert callable(getattr(table, name))
    assert hasattr(table, "FusedActivationFunction") or not builtin.fuses


def test_no_operator_is_there_twice():
    operators = [*(builtin.operator for builtin in BUILTINS.values()), *POOLS.values()]
    assert len(operators) == len(set(operators))
    assert all(re.fullmatch(r"[A-Z0-9_]+", name) for name in operators)


@pytest.mark.parametrize("kind", BUILTINS)
def test_attributes_are_read_as_they_were_written(kind):
    given = GIVEN.get(kind, {})
    assert set(given) == {field.attribute for field in BUILTINS[kind].fields}
    assert read(kind, BUILTINS[kind].options(given)) == given


def test_what_is_left_out_is_onnx_default():
    assert read("LeakyRelu", UNARIES["LeakyRelu"].options({})) == {"alpha": 0.01}
    assert read("Gelu", UNARIES["Gelu"].options({})) == {"approximate": "none"}


def test_other_functions_are_not_taken_for_it():
    assert UNARIES["Elu"].computes({})
    assert not UNARIES["Elu"].computes({"alpha": 0.5})
    assert not ALONG["LpNormalization"].computes({"axis": 1, "p": 1})
    assert not BLOCKS["DepthToSpace"].computes({"blocksize": 2, "mode": "CRD"})
    with pytest.raises(Unread, match=r"its beta is 2\.0"):
        read("Softmax", {"Beta": 2.0})
