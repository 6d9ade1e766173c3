"""Choices: the values of an option, for completion in a shell and for the error where it is missing."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

Choices: TypeAlias = list[tuple[str, str]]
"""Names, each with a line on it."""


def targets() -> Choices:
    """Shipped targets with their titles."""
    import planner

    return [(name, planner.load_target(name).title) for name in planner.target_ids()]


def formats() -> Choices:
    """Formats of files that a plan is written in."""
    from planner.formats.table import EXPORTERS, file_name

    return [(name, f"written as {file_name(name)}") for name in sorted(EXPORTERS)]


CHOICES: Final[Mapping[str, tuple[str, Callable[[], Choices]]]] = {
    "--format": ("formats", formats),
    "--target": ("shipped targets, or a YAML file of your own", targets),
}
"""Of an option: what they are, and the names."""


def complete_target(incomplete: str) -> Iterator[str]:
    """Names of shipped targets for a shell; not their titles, which take a YAML file each."""
    import planner

    return (name for name in planner.target_ids() if name.startswith(incomplete))


def complete_format(incomplete: str) -> Iterator[str]:
    """Names of formats for a shell."""
    return (name for name, _ in formats() if name.startswith(incomplete))


def lines_of(option: str) -> list[str]:
    """The choices of an option as lines, names in a column; nothing for an option that has none."""
    if option not in CHOICES:
        return []
    what, names = CHOICES[option]
    found = names()
    width = max(len(name) for name, _ in found)
    return [f"{what}:", *(f"  {name:{width}}  {title}" for name, title in found)]
