"""What the processes of a server count together: locks of several files, held and waited for by threads."""

import os
import subprocess
import sys
import threading

from api.server.limits import SharedBytes
from api.server.metrics import SHARED
from tests.conftest import ROOT

OTHER = """
import sys, threading
from api.server.limits import SharedBytes
mine, theirs = SharedBytes("own", 8), SharedBytes("whole", 8)

def wait():
    print("waits", flush=True)
    with theirs.locked():
        print("has both", flush=True)

with mine.locked():
    thread = threading.Thread(target=wait)
    thread.start()
    sys.stdin.readline()
thread.join()
"""


def test_threads_that_wait_for_two_files_are_no_deadlock(tmp_path, monkeypatch):
    """A process holds the first file and waits for the second one with another thread, its peer the other way
    round: record locks, which are a process's, end in EDEADLK there, which was a 500 of an upload.
    """
    monkeypatch.setenv(SHARED, str(tmp_path))
    whole, own = SharedBytes("whole", 8), SharedBytes("own", 8)
    found: list[object] = []

    def take() -> None:
        try:
            with own.locked():
                found.append("taken")
        except OSError as error:
            found.append(error)

    line = [sys.executable, "-c", OTHER]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    peer = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    thread = threading.Thread(target=take, daemon=True)
    try:
        with whole.locked():
            assert peer.stdout.readline() == "waits\n"
            thread.start()
            thread.join(1.0)  # long enough for the kernel to see who waits for whom
            assert found == []
            peer.stdin.close()
            thread.join(20)
            assert found == ["taken"]
        assert peer.wait(20) == 0
    finally:
        peer.kill()
        peer.stdout.close()
        peer.wait()
