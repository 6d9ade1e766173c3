"""Walk: what users of a service have, made and looked at again around upgrades (docker/test.sh).

`walk.py fill URL FILE` calibrates, plans and exports the digits of the examples, which a cluster does in
jobs, and keeps the answers in FILE; `walk.py check URL FILE` finds all of it again, to the byte, and makes
more. The token is in QPLAN_TOKEN.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

from planner.client import Client

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
FORMS = ("onnx-qdq", "tosa")


def fill(client: Client) -> dict[str, object]:
    """Make one of each; what it was."""
    model = client.model(DIGITS / "digits.onnx")
    stats = client.calibrate(model["digest"], DIGITS / "calibration.npz")
    plan = client.plan(model["digest"], "litert-int8", stats=stats["digest"])
    files = {form: sha256(client.export(model["digest"], plan["key"], form)) for form in FORMS}
    return {"model": model["digest"], "stats": stats["digest"], "plan": plan["key"], "files": files}


def check(client: Client, kept: dict[str, object]) -> None:
    """Look for all of it, and make more."""
    require(client.get_plan(kept["plan"])["key"] == kept["plan"], "the plan")
    require(client.get_stats(kept["stats"])["format"].startswith("qplan.stats/"), "the statistics")
    for form, digest in kept["files"].items():
        require(sha256(client.download(f"sha256:{digest}")) == digest, f"the bytes of {form}")
    require({job["state"] for job in client.jobs()} == {"done"}, "the rows of jobs")
    again = fill(client)
    require((again["model"], again["stats"]) == (kept["model"], kept["stats"]), "the same made again")


def require(holds: bool, what: str) -> None:  # noqa: FBT001 - said once, beside what it is about
    """End with what is gone, or another."""
    if not holds:
        sys.exit(f"walk.py: not as before: {what}")


def sha256(data: bytes) -> str:
    """Digest of a file."""
    return hashlib.sha256(data).hexdigest()


def main(verb: str, url: str, file: Path) -> None:
    """Fill, or check."""
    with Client(url, token=os.environ["QPLAN_TOKEN"]) as client:
        if verb == "fill":
            file.write_text(json.dumps(fill(client)), encoding="utf-8")
        else:
            check(client, json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
