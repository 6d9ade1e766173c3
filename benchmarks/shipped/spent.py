"""Run a command and write its seconds and its peak memory, in a process too small to count itself.

`python -S -E spent.py OUT COMMAND...`; a child's peak starts from its parent's, so a parent of hundreds of
megabytes could not measure it. Imports nothing but what is built in.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    start = time.perf_counter()
    code = subprocess.run(sys.argv[2:], check=False).returncode
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    Path(sys.argv[1]).write_text(json.dumps({"seconds": seconds, "rss_mb": peak}), encoding="utf-8")
    sys.exit(code)
