"""Plugins: functions that `fn` rules of targets may name, from the allow-list alone (`QPLAN_FUNCTIONS`)."""

import importlib
from collections.abc import Iterable

from planner.errors import InputError
from planner.target.records import QuantFn


def load_functions(allowed: Iterable[tuple[str, str]]) -> dict[str, QuantFn]:
    """Import each function: pairs of its name and `package.module:function`.

    Raises:
      InputError: one that is not there.
    """
    found = {}
    for name, place in allowed:
        module, _, function = place.partition(":")
        try:
            found[name] = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"QPLAN_FUNCTIONS: {name} is {place!r}, which cannot be imported: {error}"
            ) from error
    return found
