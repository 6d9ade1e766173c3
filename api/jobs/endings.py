"""Endings: why a child ended without an answer: because of its input, or of something outside.

A limit of the child's own shows as an error that it words itself (memory), or as SIGXCPU (time). So SIGKILL
comes from outside: from the system where the machine is short of memory, or from whoever runs it. The input
may be fine.
Source: setrlimit(2), signal(7).
"""

import signal
from typing import Final, NoReturn

from ..problems import Refused
from .forks import LOST, WorkerLost

CRASHES: Final = frozenset({
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL,
    signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP, signal.SIGXFSZ,
})  # fmt: skip
"""Signals that a process brings upon itself; any other comes from outside."""


def refuse_ending(code: int, *, is_used_up: bool) -> NoReturn:
    """Word how a child ended that did not answer.

    Args:
      code: its exit code; the signal, negative; `LOST`.
      is_used_up: it had all the processor time it may use, beyond which the system kills it.

    Raises:
      Refused: by the work's own doing.
      WorkerLost: not so.
    """
    if code == LOST:
        raise WorkerLost("the fork server ended, and how the process that reads this input ended is lost")
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and is_used_up):
        raise Refused("timeout", "the processor time that a work may use was used up")
    if code < 0 and -code not in CRASHES:
        raise WorkerLost(f"{_signal(-code)} from outside ended the process that reads this input")
    how = _signal(-code) if code < 0 else f"exit code {code}"
    raise Refused("worker-crashed", f"the process that reads this input ended with {how}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal, which has no name
        return f"signal {number}"
