"""Calls: the system calls that a confined process may make, as a seccomp filter; every other one is refused.

The list is what model parsers and bodies of jobs use, measured by `tests/api/test_calls.py`: memory, files
that Landlock lets it open, threads, clocks, and itself. Nothing in it reaches another process, changes a
file's owner, mode or times, or holds memory outside of the address space, which has a limit.
Source: seccomp(2); linux/{audit,filter,seccomp}.h; Linux's tables syscall_64.tbl and asm-generic/unistd.h.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

MACHINES: Final = ("x86_64", "aarch64")
_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

ALLOWED: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # memory
    "brk": (12, 214),
    "madvise": (28, 233),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    # files
    "access": (21, None),
    "close": (3, 57),
    "faccessat": (269, 48),
    "fstat": (5, 80),
    "getcwd": (79, 17),
    "getdents64": (217, 61),
    "lseek": (8, 62),
    "lstat": (6, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "newfstatat": (262, 79),
    "open": (2, None),
    "openat": (257, 56),
    "pread64": (17, 67),
    "read": (0, 63),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "rmdir": (84, None),
    "stat": (4, None),
    "statx": (332, 291),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "write": (1, 64),
    "writev": (20, 66),
    # threads
    "exit": (60, 93),
    "futex": (202, 98),
    "gettid": (186, 178),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "sched_yield": (24, 124),
    "set_robust_list": (273, 99),
    # clocks
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "gettimeofday": (96, 169),
    "nanosleep": (35, 101),
    "restart_syscall": (219, 128),
    # itself
    "exit_group": (231, 94),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
}
"""Numbers of calls that are allowed with any arguments: on x86-64, on AArch64."""

_CLONE: Final = (56, 220)
_FCNTL: Final = (72, 25)
_IOCTL: Final = (16, 29)
_PRLIMIT64: Final = (302, 261)
_SCHED_GETAFFINITY: Final = (204, 123)

COMMANDS: Final[Mapping[str, tuple[tuple[int, int], frozenset[int]]]] = {
    # F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC: no owner, to which the system would send signals, no lease,
    # no size of a pipe.
    "fcntl": (_FCNTL, frozenset({1, 2, 3, 1030})),
    "ioctl": (_IOCTL, frozenset({0x5401, 0x5451})),  # TCGETS, FIOCLEX
}
"""Calls whose second argument is what they do."""

OWN: Final[Mapping[str, tuple[int, int]]] = {
    "prlimit64": _PRLIMIT64,
    "sched_getaffinity": _SCHED_GETAFFINITY,
}
"""Calls whose first argument is a process: only itself, which they call 0."""

_THREAD: Final = 0x00010000
_OF_THREADS: Final = 0x007D0F00 | _THREAD
"""Flags of clone with which C libraries make threads. Without `_THREAD` it makes a process, with others
namespaces."""

NEW: Final = 424
"""The first number that all architectures share. C libraries do without calls from here on where the system
does not know them: clone3, whose flags a filter cannot see, and whatever comes."""

# Of struct seccomp_data.
_AT_NUMBER: Final = 0
_AT_ARCHITECTURE: Final = 4
_AT_FIRST: Final = 16
_AT_SECOND: Final = 24
# BPF: load a word; jump if equal, if at least, if a bit is set; return.
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW: Final = 0x7FFF0000
KILL: Final = 0x80000000
EPERM: Final = 0x00050000 | 1
ENOSYS: Final = 0x00050000 | 38

_Line = tuple[int, int, int, int]


def filter_of(machine: str) -> bytes | None:
    """The filter as instructions of BPF; None for a machine without a table."""
    if machine not in MACHINES:
        return None
    at = MACHINES.index(machine)
    lines: list[_Line] = [
        (_LOAD, 0, 0, _AT_ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_AT_LEAST, 0, 1, NEW),
        (_RETURN, 0, 0, ENOSYS),
    ]
    for numbers in ALLOWED.values():
        if (number := numbers[at]) is not None:
            lines += _if_called(number, [(_RETURN, 0, 0, ALLOW)])
    for numbers, commands in COMMANDS.values():
        lines += _if_called(numbers[at], _if_one_of(_AT_SECOND, sorted(commands)))
    for numbers in OWN.values():
        lines += _if_called(numbers[at], _if_one_of(_AT_FIRST, [0]))
    lines += _if_called(_CLONE[at], _if_thread())
    lines.append((_RETURN, 0, 0, EPERM))
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _if_called(number: int, then: Sequence[_Line]) -> list[_Line]:
    return [(_EQUAL, 0, len(then), number), *then]


def _if_one_of(place: int, values: Sequence[int]) -> list[_Line]:
    """Look at the lower half of an argument, which is all that the system looks at."""
    lines: list[_Line] = [(_LOAD, 0, 0, place)]
    for value in values:
        lines += _if_called(value, [(_RETURN, 0, 0, ALLOW)])
    return [*lines, (_RETURN, 0, 0, EPERM)]


def _if_thread() -> list[_Line]:
    return [
        (_LOAD, 0, 0, _AT_FIRST),
        (_HAS, 0, 2, _THREAD),
        (_HAS, 1, 0, 0xFFFFFFFF ^ _OF_THREADS),
        (_RETURN, 0, 0, ALLOW),
        (_RETURN, 0, 0, EPERM),
    ]
