"""Peak memory of this process; nothing is imported here that would count."""

import re
from pathlib import Path


def peak_rss_mb() -> float:
    """Return this process's peak resident memory (not its parent's, which `ru_maxrss` inherits)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match.group(1)) / 1024 if match else float("nan")
