"""Resources of a report besides its text: the graph's style and script, and the policy that admits no other.

Knows no plan, so that the service can say the policy without loading the rest of reports.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parent / "page"
_SCRIPT: Final = ("draw.js", "panel.js", "hands.js")


@cache
def style() -> str:
    """The graph's style sheet."""
    return (_PAGE / "view.css").read_text("utf-8")


@cache
def script() -> str:
    """The graph's script: its files as one."""
    return "\n".join((_PAGE / name).read_text("utf-8") for name in _SCRIPT)


@cache
def policy() -> str:
    """The content security policy of a report: its own style, its one script by digest, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
