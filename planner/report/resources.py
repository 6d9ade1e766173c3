"""What a report carries besides its text: the graph's style and script, and the policy that admits no other.

Knows no plan, so that the service can say the policy without loading what makes reports.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


@cache
def resource(name: str) -> str:
    """The text of a file beside this one: `view.css`, `view.js`."""
    return (_HERE / name).read_text("utf-8")


@cache
def policy() -> str:
    """The content security policy of a report: its own style, its one script by digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(resource("view.js").encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
