"""Fork server: a process with the child's imports done, which forks a child for each work.

Imports take most of a second of processor time, a fork milliseconds. This process has one thread, reads
nothing but names of folders from its parent, and ends with it; children limit and confine themselves as ever
(`api.child`). The parent's side is `forks`. Source: fork(2), on threads; unix(7), SCM_RIGHTS.
"""

import errno
import gc
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from typing import Final

from .. import child
from ..intake.own_files import code

LONGEST: Final = 1 << 16
"""Bytes of a folder's name."""
GIVEN: Final = 3
"""Files of a child: its standard input and output, and the one that reports how it ended."""


def main() -> None:
    """Fork a child for each message of the parent until there is none; in the child, be one."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    ended, ending = os.pipe()
    os.set_blocking(ending, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ending, warn_on_full_buffer=False)
    code()  # looked up once, for all children
    gc.collect()
    gc.freeze()  # what is imported stays, and its pages stay shared
    telling: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if ended in ready:
                os.read(ended, LONGEST)
                _tell_ends(telling)
            if control in ready:
                folder, files, _, _ = socket.recv_fds(control, LONGEST, GIVEN)
                if not folder:
                    for running in telling:  # one that was taken over might not end by itself
                        os.kill(running, signal.SIGKILL)
                    return
                pid = _forked(files)
                if pid == 0:
                    break
                if pid is not None:
                    _note(pid, files, telling)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control.close()
    for file in (ended, ending, *telling.values()):
        os.close(file)
    _become(folder, files)
    child.main()
    os._exit(0)


def _forked(files: list[int]) -> int | None:
    """Fork; None where that fails, and the reason is reported to the caller: the others go on."""
    try:
        if len(files) == GIVEN:
            return os.fork()
    except OSError as error:
        with suppress(BrokenPipeError):
            os.write(files[-1], f"{-(error.errno or errno.EAGAIN)}\n".encode())
    for file in files:
        os.close(file)
    return None


def _note(pid: int, files: list[int], telling: dict[int, int]) -> None:
    """Say which process it is; it has its own group by then, which its parent may end."""
    with suppress(OSError):
        os.setpgid(pid, pid)
    read, write, telling[pid] = files
    os.close(read)
    os.close(write)
    with suppress(BrokenPipeError):
        os.write(telling[pid], f"{pid}\n".encode())


def _tell_ends(telling: dict[int, int]) -> None:
    """Say of each child that ended how it did, and how many seconds of the processor it had."""
    while telling:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        file = telling.pop(pid)
        seconds = used.ru_utime + used.ru_stime
        with suppress(BrokenPipeError):
            os.write(file, f"{os.waitstatus_to_exitcode(status)} {seconds:.3f}\n".encode())
        os.close(file)


def _become(folder: bytes, files: list[int]) -> None:
    """Take the place, the files and the group of a child."""
    with suppress(OSError):
        os.setpgid(0, 0)
    os.dup2(files[0], 0)
    os.dup2(files[1], 1)
    for file in files:
        os.close(file)
    os.chdir(folder)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - of the process


if __name__ == "__main__":
    main()
