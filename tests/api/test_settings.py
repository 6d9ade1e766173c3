"""Settings are read from their variables, and nothing else is."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from api.planning.plugins import load_functions
from api.settings import OTHERS, VARIABLES, Settings, settings_from, unknown_variables
from planner.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def test_every_field_has_a_variable():
    found = {name for name, *_ in VARIABLES.values()} | {"tokens_file"}  # comes with the tokens in it
    assert found == {field.name for field in fields(Settings)}


def test_nothing_else_of_ours_is_read():
    named = set()
    for path in (*ROOT.glob("api/**/*.py"), *ROOT.glob("planner/**/*.py")):
        named |= set(re.findall(r"[\"'`(](QPLAN_[A-Z_]*[A-Z])\b", path.read_text(encoding="utf-8")))
    assert named - set(VARIABLES) - OTHERS == set()


def test_settings_are_read():
    found = settings_from(
        {
            "QPLAN_DATA": "/somewhere",
            "QPLAN_HOSTS": "Planner.example, other",
            "QPLAN_QUOTA": "0",
            "QPLAN_CHILDREN": " 3 ",
            "QPLAN_ACCESS_LOG": "off",
            "QPLAN_FUNCTIONS": "mine:follow=my.rules:follow",
            "QPLAN_RATE": "",
        }
    )
    assert found.data == Path("/somewhere")
    assert found.hosts == {"planner.example", "other"}
    assert (found.quota, found.children, found.access_log, found.rate) == (0, 3, False, 50)
    assert found.functions == (("mine:follow", "my.rules:follow"),)


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("QPLAN_CHILDREN", "0", "not a positive whole number"),
        ("QPLAN_MAX_BLOB", "1 MB", "not a positive whole number"),
        ("QPLAN_QUOTA", "-1", "not a whole number"),
        ("QPLAN_ACCESS_LOG", "yes", "neither on nor off"),
        ("QPLAN_FUNCTIONS", "os.system", "name=package.module:function"),
    ],
)
def test_settings_that_are_none(variable, text, words):
    with pytest.raises(InputError, match=words) as caught:
        settings_from({variable: text})
    assert variable in str(caught.value)


def test_misspelt_settings_are_found():
    assert unknown_variables({"QPLAN_TOKEN": "x", "QPLAN_DATA": "x", "PATH": "x"}) == ["QPLAN_TOKEN"]


def test_functions_are_loaded_from_the_list_alone():
    assert list(load_functions([("same", "planner.target.rules:same_scale")])) == ["same"]
    with pytest.raises(InputError, match="cannot be imported"):
        load_functions([("none", "planner.target.rules:nothing")])
