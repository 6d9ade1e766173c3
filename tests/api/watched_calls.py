"""Watched calls: a fork server whose children tell which system calls they make once they are confined.

Each child has a filter below its own that hands every call to a process beside it, which notes the number and
lets it go on; what the child's own filter refuses never comes there. Run as `python -m ... FOLDER`: each
child leaves a file of numbers there. Source: seccomp_unotify(2).
"""

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

from api import child
from api.jobs import fork_server
from planner.formats.onnx import sessions
from planner.interpreter import reference

SECCOMP = {"x86_64": 317, "aarch64": 277}
PRCTL = {"x86_64": 157, "aarch64": 167}
MACHINE = os.uname().machine
NO_NEW_PRIVILEGES, SET_SECCOMP, MAY_TRACE = 38, 22, 0x59616D61
SET_FILTER, LISTEN = 1, 8
RETURN, TO_LISTENER = 0x06, 0x7FC00000
RECEIVE, SEND = 0xC0502100, 0xC0182101
ASKED, CONTINUE = 80, 1
PIDFD_GETFD = 438
PATIENCE = 10.0


class Program(ctypes.Structure):
    """A filter, as the kernel wants it."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def watch(folder: Path) -> None:
    """Have all further calls of this process noted by another one."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(1, struct.pack("=HBBI", RETURN, 0, 0, TO_LISTENER))
    listener = os.dup(0)  # the number that the listener will have
    watched = os.getpid()
    watcher = os.fork()
    if watcher == 0:
        os.setsid()
        note(libc, watched, listener, folder / str(watched))
        os._exit(0)
    libc.prctl(MAY_TRACE, watcher, 0, 0, 0)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.close(listener)
    if libc.syscall(SECCOMP[MACHINE], SET_FILTER, LISTEN, ctypes.byref(program)) != listener:
        os._exit(3)


def note(libc: ctypes.CDLL, watched: int, listener: int, path: Path) -> None:
    """Note numbers of calls, from the one on that confines the process, until nobody is left to make one."""
    for file in (0, 1, listener):
        os.close(file)
    process = os.pidfd_open(watched)
    found: set[int] = set()
    is_confined = False
    file = -1
    until = time.monotonic() + PATIENCE
    while file < 0 and time.monotonic() < until:
        with suppress(OSError):
            if "seccomp" in str(Path(f"/proc/{watched}/fd/{listener}").readlink()):
                file = libc.syscall(PIDFD_GETFD, process, listener, 0)
        time.sleep(0.001)
    events = select.poll()
    events.register(file, select.POLLIN)
    while not events.poll()[0][1] & select.POLLHUP:
        asked = bytearray(ASKED)
        try:
            fcntl.ioctl(file, RECEIVE, asked)
        except FileNotFoundError:  # it was killed meanwhile
            continue
        id_, number, first = struct.unpack("=Q8xi12xQ40x", asked)
        with suppress(FileNotFoundError):
            fcntl.ioctl(file, SEND, struct.pack("=QqiI", id_, 0, 0, CONTINUE))
        if is_confined and number not in found:
            found.add(number)
            path.write_text(" ".join(map(str, sorted(found))))
        is_confined = is_confined or (number == PRCTL[MACHINE] and first == SET_SECCOMP)


def main() -> None:
    """Be a fork server of watched children."""
    run, folder = child.main, Path(sys.argv[1])
    reference.MAX_INLINE_BYTES = sessions.LARGE = 0  # weights lie in files, as those of gigabytes do

    def watched() -> None:
        watch(folder)
        run()

    child.main = watched
    fork_server.main()


if __name__ == "__main__":
    main()
