"""Confine: a process gives up its rights before it reads input of strangers. For good, without privileges.

No new privileges; no sockets, no processes, no look into others, no signals to them, no new namespaces
(seccomp); of the file system only what it is given (Landlock). Linux on x86-64 and AArch64, as far as the
kernel has them.
Source: seccomp(2), prctl(2), landlock(7); linux/{audit,filter,landlock}.h; Linux's system call tables.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SET_NO_NEW_PRIVS: Final = 38
_SET_DUMPABLE: Final = 4
_SET_SECCOMP: Final = 22
_FILTER_MODE: Final = 2
# Of struct seccomp_data.
_AT_NUMBER: Final = 0
_AT_ARCHITECTURE: Final = 4
_AT_FIRST: Final = 16
# BPF: load a word; jump if equal, if at least, if a bit is set; return.
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_EPERM: Final = 0x00050000 | 1
_ENOSYS: Final = 0x00050000 | 38
_THREAD: Final = 0x00010000
# The C library makes threads with clone3, whose flags a filter cannot see; without it, with clone.
_CLONE: Final = {"x86_64": 56, "aarch64": 220}
_CLONE3: Final = 435
# The C library sets limits of its own process with it, which it calls 0.
_PRLIMIT64: Final = {"x86_64": 302, "aarch64": 261}
_X32: Final = 0x40000000

# Numbers of what is refused: (audit architecture, system calls).
_REFUSED: Final = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41,
            "connect": 42,
            "accept": 43,
            "bind": 49,
            "listen": 50,
            "fork": 57,
            "vfork": 58,
            "execve": 59,
            "kill": 62,
            "ptrace": 101,
            "rt_sigqueueinfo": 129,
            "setpriority": 141,
            "chroot": 161,
            "mount": 165,
            "umount2": 166,
            "tkill": 200,
            "tgkill": 234,
            "add_key": 248,
            "request_key": 249,
            "keyctl": 250,
            "unshare": 272,
            "rt_tgsigqueueinfo": 297,
            "perf_event_open": 298,
            "setns": 308,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "bpf": 321,
            "execveat": 322,
            "userfaultfd": 323,
            "pidfd_send_signal": 424,
            "io_uring_setup": 425,
            "pidfd_getfd": 438,
        },
    ),
    "aarch64": (
        0xC00000B7,
        {
            "umount2": 39,
            "mount": 40,
            "chroot": 51,
            "unshare": 97,
            "ptrace": 117,
            "kill": 129,
            "tkill": 130,
            "tgkill": 131,
            "rt_sigqueueinfo": 138,
            "setpriority": 140,
            "socket": 198,
            "bind": 200,
            "listen": 201,
            "accept": 202,
            "connect": 203,
            "add_key": 217,
            "request_key": 218,
            "keyctl": 219,
            "execve": 221,
            "rt_tgsigqueueinfo": 240,
            "perf_event_open": 241,
            "setns": 268,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "bpf": 280,
            "execveat": 281,
            "userfaultfd": 282,
            "pidfd_send_signal": 424,
            "io_uring_setup": 425,
            "pidfd_getfd": 438,
        },
    ),
}


# Landlock: rights on files alone, on folders too, and what came with its versions 2 and 3.
_RULESET, _RULE, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE, _READ, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 14
_READ_FOLDER: Final = 1 << 3
_OF_FILES: Final = _EXECUTE | _WRITE | _READ | _TRUNCATE
_HANDLED: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def confine(readable: Iterable[Path], writable: Iterable[Path]) -> dict[str, bool]:
    """Give it all up, except for files below some folders.

    Returns:
      What the kernel took: `privileges`, `calls`, `files`.
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
    text = _filter(platform.machine())
    if text is None:
        return False
    program = _Program(len(text) // 8, text)
    return bool(libc.prctl(_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0) == 0)


def _filter(machine: str) -> bytes | None:
    """The filter as instructions of BPF; None for a machine without a table."""
    if machine not in _REFUSED:
        return None
    architecture, calls = _REFUSED[machine]
    numbers = sorted(calls.values())
    # Behind the calls: allow, EPERM, ENOSYS, the look at clone's flags, and that at prlimit64's process.
    last = len(numbers) + 4
    lines = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_AT_LEAST, last, 0, _X32),
        (_EQUAL, last, 0, _CLONE3),
        (_EQUAL, last, 0, _CLONE[machine]),
        (_EQUAL, last + 3, 0, _PRLIMIT64[machine]),
    ]
    lines += [(_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    lines += [
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
        (_RETURN, 0, 0, _ENOSYS),
        (_LOAD, 0, 0, _AT_FIRST),
        (_HAS, 0, 1, _THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
        (_LOAD, 0, 0, _AT_FIRST),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _confine_files(libc: ctypes.CDLL, readable: Iterable[Path], writable: Iterable[Path]) -> bool:
    version = libc.syscall(_RULESET, None, 0, 1)
    if version < 1:
        return False
    handled = _HANDLED[min(version, 3)]
    rules = libc.syscall(_RULESET, ctypes.byref(ctypes.c_uint64(handled)), 8, 0)
    if rules < 0:
        return False
    for path in readable:
        _allow(libc, rules, path, _READ | _READ_FOLDER | _EXECUTE)
    for path in writable:
        _allow(libc, rules, path, handled)
    done = libc.syscall(_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(done)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, rights: int) -> None:
    """Allow something below a path; a path that is not there needs no rule."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    allowed = rights if path.is_dir() else rights & _OF_FILES
    libc.syscall(_RULE, rules, 1, struct.pack("=Qi", allowed, place), 0)
    os.close(place)
