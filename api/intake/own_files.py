"""Own files: what a confined process reads beside its job's: libraries, our code, a little of the system.

A checkout may hold the server's data, its secrets and its history beside the code, and a data folder may lie
anywhere. So of a folder on Python's path only packages and modules are readable, and nothing of the data
folder, wherever it lies. Source: landlock(7): rules only allow, so what is refused has to be left out.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import planner
from planner.installation import targets_folder

SYSTEM: Final = (
    "/dev/urandom",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/lib",
    "/lib64",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self",
    "/sys/devices/system/cpu",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
)
"""Files of the system that the libraries read."""
LIBRARIES: Final = ("site-packages", "dist-packages")
"""Names of folders that hold nothing but what was installed."""


def own_files(away: Path) -> Iterator[Path]:
    """Files and folders to read, without anything below `away`."""
    yield from without((*map(Path, SYSTEM), *code()), away)


@cache
def code() -> tuple[Path, ...]:
    """Folders and files of code: of Python, what is installed, and packages on its path."""
    prefixes = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    installed = [prefix / name for prefix in prefixes for name in ("lib", "lib64")]
    ours = [Path(__file__).resolve().parents[1], Path(planner.__file__).resolve().parent, targets_folder()]
    found = {path.resolve() for path in (*installed, *ours)}
    for folder in map(Path, filter(None, sys.path)):
        found |= set(_code_of(folder.resolve()))
    return tuple(path for path in found if not found & set(path.parents))


def _code_of(folder: Path) -> Iterable[Path]:
    """A folder of libraries as a whole, an archive; else its packages and modules."""
    try:
        if folder.is_file() or folder.name in LIBRARIES:
            return [folder]
        return [path for path in folder.iterdir() if _is_code(path)]
    except OSError:  # none, or one that this user may not look into
        return []


def _is_code(path: Path) -> bool:
    # Beside code, what a package says of itself: hints name the packages that an extra needs.
    if path.suffix in (".dist-info", ".egg-info", ".py", ".so"):
        return True
    try:
        return (path / "__init__.py").exists()
    except PermissionError:  # another user's: secrets, a database
        return False


def without(paths: Iterable[Path], away: Path) -> Iterator[Path]:
    """The paths, and in place of those above `away` all that lies beside the way there."""
    away = away.resolve()
    for path in paths:
        real = path.resolve()
        if real == away:
            continue
        if real in away.parents:
            yield from without(real.iterdir(), away)
        else:
            yield path
