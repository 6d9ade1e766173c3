"""The recorded walks of three roles: few commands to the first file, and the commands of the how-tos."""

import re

import pytest

from benchmarks.roles import EDGE, HOWTO, PAGE, STEPS, TITLES, followed

ROLES = {title: body for title, _, body in (part.partition("\n") for part in PAGE.read_text().split("\n## "))}
MOST_OF_EDGE = 2


def commands(role: str) -> list[str]:
    return [
        found.replace("\\|", "|")
        for found in re.findall(r"^\| `(.+?)` \|", ROLES[TITLES[role]], re.MULTILINE)
    ]


def test_a_pytorch_model_becomes_a_file_in_two_commands():
    assert commands("edge") == list(EDGE)
    assert f"First file after {MOST_OF_EDGE} commands" in ROLES[TITLES["edge"]]


@pytest.mark.parametrize("role", STEPS)
def test_a_role_types_what_its_how_to_shows(role):
    name, last = STEPS[role]
    lines = [
        " ".join(line.split())
        for block in followed(HOWTO / name, last)
        if block.language == "sh"
        for line in block.text.replace("\\\n", " ").strip().splitlines()
    ]
    assert commands(role) == lines
