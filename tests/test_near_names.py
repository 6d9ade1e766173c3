"""Nearest names: those that a person may have meant, after a bounded number of comparisons."""

import difflib

import pytest

from planner.errors import nearest_names, unknown_name


def test_nearest_names_are_the_closest_ones():
    assert nearest_names("litert-int9", ["litert-int8", "tosa-int8", "stablehlo"], n=1) == ["litert-int8"]


def test_long_lists_of_long_names_are_compared_in_part(monkeypatch):
    """Two letters in any order pass the quick filters of `difflib`, so each pair is a long comparison."""
    names = [f"{n:011b}".replace("0", "ab").replace("1", "ba") * 5 for n in range(2000)]
    compared = []
    close = difflib.get_close_matches
    monkeypatch.setattr(
        difflib,
        "get_close_matches",
        lambda name, few, **given: compared.extend(few) or close(name, few, **given),
    )
    assert nearest_names(names[7] + "b", names)[0] == names[7]
    assert len(compared) == 50


def test_all_names_are_compared_up_to_a_million_pairs_of_letters():
    """Beyond that only those with the longest common beginning, which the nearest need not have."""
    name, nearest = "a" + "q" * 99, "b" + "q" * 99
    others = [f"a{n:099d}" for n in range(99)]
    assert nearest_names(name, [nearest, *others]) == [nearest]
    assert nearest_names(name, [nearest, *others, "c"]) == []


FEW = ["float", "int8", "onnxruntime-cpu", "tosa"]


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("int9", FEW, "did you mean 'int8'?"),
        ("onnx", FEW, "did you mean 'onnxruntime-cpu'?"),  # begun, and hardly alike
        ("habit", FEW, "known: 'float', 'int8', 'onnxruntime-cpu', 'tosa'"),  # as little alike, not begun
        ("habit", [*FEW, *"abcdefghijklmnopqrstuvwx"], "did you mean 'int8' or 'float'?"),
        (
            "zzz",
            [*FEW, *"abcdefghijklmnopqrstuvwx"],
            "known: 'a', 'b', 'c', 'd', 'e', 'f', 'float', 'g', ...",
        ),
        ("", FEW, "known: 'float', 'int8', 'onnxruntime-cpu', 'tosa'"),
        ("x", [], "there are none"),
    ],
)
def test_a_hint_is_the_nearest_names_or_a_short_list(name, known, hint):
    assert unknown_name("format", name, known).hint == hint
