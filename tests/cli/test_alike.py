"""Warnings that differ in names and numbers alone are shown once or twice, and counted."""

from planner.cli.console import ALIKE, warn_all


def lost(k):
    return f"p2o.Add.{k}.out[0] has steps of 0.0{k}23, and 'w_{k}' is -{k}.5e-05 to 0.1: it is lost there"


def test_many_of_a_kind_are_summed_up(capsys):
    warn_all([*map(lost, range(9)), "no range is known of 'x'"])
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"qplan: warning: {lost(0)}",
        f"qplan: warning: {lost(1)}",
        "qplan: warning: 7 more like the last one: plan.json and the report have them",
        "qplan: warning: no range is known of 'x'",
    ]


def test_one_more_is_shown_rather_than_counted(capsys):
    warn_all(map(lost, range(ALIKE + 1)))
    assert "more" not in capsys.readouterr().err


def test_other_words_are_another_kind(capsys):
    warn_all([f"'a' {word} 3" for word in ("wraps at", "saturates at", "clips", "rounds to")])
    assert len(capsys.readouterr().err.splitlines()) == 4
