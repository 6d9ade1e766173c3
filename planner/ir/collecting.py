"""Collecting: Python's cycle collector, kept from walking a heap that grows and has no cycles.

Graphs, plans and targets are records by the ten thousand that hold each other one way; the collector looks at
them again and again while they are made.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the collector, unless it is already: a fifth of the time of planning. Also a decorator."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
