"""Nearest names: those that a person may have meant, after a bounded number of comparisons."""

import difflib

from planner.errors import nearest_names


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
