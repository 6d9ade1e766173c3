"""Wall clocks of processes that are set forward and back while they run, as an operator or NTP does.

A library that is preloaded (`shifted_clock.c`) adds the seconds of a file. It needs a C compiler; monotonic
clocks and the times of files are the machine's.
"""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_suffix(".c")
COMPILER: Final = shutil.which("cc")
JUMPS: Final = (7, -7, 60, -60, 3600, -3600, 2 * 86_400, -2 * 86_400, 0)
"""Seconds ahead: about a lease, a minute, an hour, more than the day for which keys are kept, right again."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks that can be set, one for each machine."""

    library: Path
    files: Sequence[Path]

    @staticmethod
    def make(folder: Path, count: int) -> "Clocks | None":
        """Compile the library; None where there is no compiler."""
        if COMPILER is None:
            return None
        library = folder / "shifted_clock.so"
        line = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(line, check=True)
        clocks = Clocks(library, [folder / f"clock-{place}" for place in range(count)])
        for place in range(count):
            clocks.set(place, 0)
        return clocks

    def set(self, place: int, seconds: int) -> None:
        """Set a clock to be ahead by some seconds, from now on."""
        packed = struct.pack("=q", seconds)
        if not self.files[place].exists():
            self.files[place].write_bytes(packed)
        with self.files[place].open("rb+", buffering=0) as file:
            file.write(packed)

    def variables(self, place: int) -> dict[str, str]:
        """Variables of a process that has the clock of a machine."""
        known = self.files[place % len(self.files)]
        return {"LD_PRELOAD": str(self.library), "SHIFTED_CLOCK": str(known)}
