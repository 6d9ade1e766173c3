"""Memory of a server: all threads have one heap, so that free memory of one serves the next."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

COUNT = """
import ctypes, sys, threading
from api.server.run import share_one_heap

def use():
    kept = [bytes(1000 + k) for k in range(100)]
    barrier.wait()  # none ends before all have begun, and leaves its heap to the next

{call}
barrier = threading.Barrier(4)
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="heaps are glibc's")
@pytest.mark.parametrize(("call", "heaps"), [("", 5), ("share_one_heap()", 1)])
def test_threads_share_a_heap(tmp_path, call, heaps):
    told = tmp_path / "heaps.xml"
    subprocess.run([sys.executable, "-c", COUNT.format(call=call), str(told)], check=True, cwd=ROOT)
    assert told.read_text("utf-8").count("<heap nr=") == heaps
