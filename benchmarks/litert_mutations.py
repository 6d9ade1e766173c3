"""Changed and cut .tflite files: each gives a model or a ModelError; counts as they go, and time.

Usage: `python -m benchmarks.litert_mutations [--count 1000000] [--seed 0] [--step 1]`. Up to four bytes or
words are changed in the files of each row of litert-int8 and of float operators; then the official and float
files of the model folder are cut at every `--step` bytes. Any other error ends the run, with the file in
hexadecimal.
"""

import argparse
import random
import sys
import time

from planner.errors import ModelError
from planner.formats.litert.reader.read import read_litert
from tests.formats.litert.reader.files import FLOAT, OFFICIAL, path_of
from tests.formats.litert.reader.test_bad_files import changed, small

EVERY = 20_000
"""Files between two lines of counts."""


def is_read(data: bytes) -> bool:
    """Whether a file is a model; False where it is refused.

    Raises:
      AssertionError: it ended in another error.
    """
    try:
        read_litert(data)
    except ModelError:
        return False
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} of {data.hex()}") from error
    return True


def main() -> None:
    """Print counts until all is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="changed files")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    parser.add_argument("--step", type=int, default=1, help="bytes between two cuts; 0 cuts nothing")
    given = parser.parse_args()
    seeds, chance = small(), random.Random(given.seed)  # noqa: S311 - to be repeated, not to be secret
    began, read = time.perf_counter(), 0
    for done in range(1, given.count + 1):
        read += is_read(changed(chance, seeds))
        if done % EVERY == 0 or done == given.count:
            seconds = time.perf_counter() - began
            print(f"changed: {done}, {read} read, {done - read} refused, {seconds:.0f} s", flush=True)
    for name in (*OFFICIAL, *FLOAT) if given.step else ():
        data = path_of(name).read_bytes()
        cuts = range(0, len(data), given.step)
        read = sum(is_read(data[:end]) for end in cuts)
        print(f"cut: {name}, {len(cuts)} lengths, {read} read", flush=True)


if __name__ == "__main__":
    sys.exit(main())
