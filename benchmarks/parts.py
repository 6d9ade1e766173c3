"""Where plan + check + export spend their time, by function, on one model; no wall clock decides anything.

Python's own profiler counts calls as dearer than they are, so the shares tell where to look, not how long.
"""

import cProfile
import pstats
from collections.abc import Callable, Mapping
from typing import Final

PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "fuse": ("fusion/fuse.py", "fuse"),
    "choose rows": ("selection/rows.py", "choose_rows"),
    "network": ("network/build.py", "build_network"),
    "classes": ("solver/classes.py", "build_classes"),
    "labels": ("propagation/labelling.py", "label_all"),
    "constants": ("propagation/decide.py", "_derived"),
    "records, key": ("result/plan_builder.py", "assemble"),
    "check": ("checker/check.py", "check"),
    "blocks": ("writer/qdq.py", "write_block"),
    "file": ("writer/model_builder.py", "finish"),
}
"""Part by part, the function whose calls are counted; none calls another's."""
RUNS: Final = 5


def parts(job: Callable[[], object]) -> dict[str, float]:
    """Share of each part in a job, of 1; what is left over is the job's own."""
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(RUNS):
        job()
    profile.disable()
    stats = pstats.Stats(profile)
    total = stats.total_tt  # type: ignore[attr-defined]
    shares = dict.fromkeys(PARTS, 0.0)
    for (file, _, function), figures in stats.stats.items():  # type: ignore[attr-defined]
        for part, (module, name) in PARTS.items():
            if name == function and file.endswith(f"/{module}"):
                shares[part] += figures[3] / total
    return shares
