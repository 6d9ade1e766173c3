"""Confine: a process gives up its rights before it reads untrusted input. For good, without privileges.

No new privileges; of the system calls only those of `calls` (seccomp); of the file system only what it is
given, no TCP, no signals to other processes (Landlock). Linux on x86-64 and AArch64, as far as the kernel has
them. Source: seccomp(2), prctl(2), landlock(7); linux/{landlock,prctl}.h.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .calls import filter_of

_SET_DUMPABLE: Final = 4
_SET_SECCOMP: Final = 22
_SET_NO_NEW_PRIVS: Final = 38
_FILTER_MODE: Final = 2

# Landlock: its calls, rights on files and on folders, and what came with its versions.
_RULESET, _RULE, _RESTRICT = 444, 445, 446
_WRITE, _READ, _TRUNCATE = 1 << 1, 1 << 2, 1 << 14
_READ_FOLDER, _REMOVE_FOLDER, _REMOVE, _MAKE_FOLDER, _MAKE = 1 << 3, 1 << 4, 1 << 5, 1 << 7, 1 << 8
_REFER: Final = 1 << 13
_OF_FILES: Final = _WRITE | _READ | _TRUNCATE
_READABLE: Final = _READ | _READ_FOLDER
_WRITABLE: Final = _READABLE | _WRITE | _TRUNCATE | _REMOVE_FOLDER | _REMOVE | _MAKE_FOLDER | _MAKE | _REFER
"""Neither links nor pipes, sockets or devices; nothing runs a program."""
_HANDLED: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP_SINCE, _TCP = 4, 3
"""Binding and connecting."""
_SCOPES_SINCE, _SCOPES = 6, 3
"""Abstract sockets and signals of other processes."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(readable: Iterable[Path], writable: Iterable[Path]) -> dict[str, bool]:
    """Give it all up, except for files below some folders.

    Returns:
      The restrictions that the kernel took: `privileges`, `calls`, `files`.
    """
    if sys.platform != "linux":
        return {"privileges": False, "calls": False, "files": False}
    libc = ctypes.CDLL(None, use_errno=True)
    privileges = libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    files = _confine_files(libc, readable, writable)
    return {"privileges": privileges, "calls": _confine_calls(libc), "files": files}


def peak_memory() -> int:
    """The most memory this process ever had resident, in bytes; 0 where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = status.partition("VmHWM:")[2].split()
    return int(found[0]) * 1024 if found else 0


def _confine_calls(libc: ctypes.CDLL) -> bool:
    text = filter_of(platform.machine())
    if text is None:
        return False
    program = _Program(len(text) // 8, text)
    return bool(libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0) == 0)


def _confine_files(libc: ctypes.CDLL, readable: Iterable[Path], writable: Iterable[Path]) -> bool:
    version = libc.syscall(_RULESET, None, 0, 1)
    if version < 1:
        return False
    handled = _HANDLED[min(version, max(_HANDLED))]
    rules = _ruleset(libc, version, handled)
    if rules < 0:
        return False
    for path in readable:
        _allow(libc, rules, path, _READABLE)
    for path in writable:
        _allow(libc, rules, path, _WRITABLE & handled)
    done = libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(done)


def _ruleset(libc: ctypes.CDLL, version: int, handled: int) -> int:
    """The scope of the rules: no rule allows anything of the network or of other processes."""
    about = [handled]
    if version >= _TCP_SINCE:
        about.append(_TCP)
    if version >= _SCOPES_SINCE:
        about.append(_SCOPES)
    text = struct.pack(f"={len(about)}Q", *about)
    return int(libc.syscall(_RULESET, text, len(text), 0))


def _allow(libc: ctypes.CDLL, rules: int, path: Path, rights: int) -> None:
    """Allow something below a path; a path that is not there needs no rule."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    allowed = rights if path.is_dir() else rights & _OF_FILES
    libc.syscall(_RULE, rules, 1, struct.pack("=Qi", allowed, place), 0)
    os.close(place)
