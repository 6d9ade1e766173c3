"""AWKWARD: a generator for each kind of model that trips tools up, by name; it gives the bytes of a file."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.awkward import control, naming, old, operators, tensors

_FAMILIES: Final = (old, control, naming, tensors, operators)

AWKWARD: Final[Mapping[str, Callable[[], bytes]]] = {
    name: make
    for family in _FAMILIES
    for name, make in vars(family).items()
    if getattr(make, "__module__", "") == family.__name__ and not name.startswith("_")
}
