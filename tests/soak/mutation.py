"""A fuzzer: seeds that are changed a little, again and again, the same every time.

It knows nothing of what it feeds; a target says what may be raised. Source: the mutations of American Fuzzy
Lop (`docs/technical_details.txt`): flips, arithmetic, interesting numbers, blocks, splices, a dictionary.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

INTERESTING = (0, 1, 16, 32, 64, 100, 127, 128, 255)
MOST = 4096


@dataclass
class Outcome:
    """How many inputs ended how, the slowest and its seconds."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: bytes = b""


def fuzz(
    target: Callable[[bytes], object],
    seeds: Sequence[bytes],
    words: Sequence[bytes],
    count: int,
    *,
    allowed: tuple[type[Exception], ...],
    seed: int = 0,
) -> Outcome:
    """Call a target with `count` inputs; what is not `allowed` is raised with the input in hexadecimal."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    found = Outcome()
    for _ in range(count):
        data = mutated(chance, seeds, words)
        start = time.perf_counter()
        try:
            target(data)
        except allowed as error:
            found.counts[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} of {data.hex()}") from error
        else:
            found.counts["accepted"] += 1
        took = time.perf_counter() - start
        if took > found.seconds:
            found.seconds, found.slowest = took, data
    return found


def mutated(chance: random.Random, seeds: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """A seed after one to eight changes."""
    data = bytearray(chance.choice(seeds))
    for _ in range(1 << chance.randrange(4)):
        chance.choice(CHANGES)(chance, data, seeds, words)
        del data[MOST:]
    return bytes(data)


def _place(chance, data):
    return chance.randrange(len(data) + 1)


def _flip(chance, data, *_):
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _add(chance, data, *_):
    if data:
        at = chance.randrange(len(data))
        data[at] = data[at] + chance.randint(-35, 35) & 255


def _set(chance, data, *_):
    if data:
        data[chance.randrange(len(data))] = chance.choice(INTERESTING)


def _cut(chance, data, *_):
    start = _place(chance, data)
    del data[start : start + chance.randrange(1, 17)]


def _repeat(chance, data, *_):
    start = _place(chance, data)
    block = data[start : start + chance.randrange(1, 33)]
    at = _place(chance, data)
    data[at:at] = block * (1 << chance.randrange(8))


def _insert(chance, data, _seeds, words):
    at = _place(chance, data)
    data[at:at] = chance.choice(words)


def _overwrite(chance, data, _seeds, words):
    word = chance.choice(words)
    at = _place(chance, data)
    data[at : at + len(word)] = word


def _splice(chance, data, seeds, _words):
    other = chance.choice(seeds)
    data[_place(chance, data) :] = other[chance.randrange(len(other) + 1) :]


CHANGES = (_flip, _add, _set, _cut, _repeat, _insert, _overwrite, _splice)
