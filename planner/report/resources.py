"""Resources of a report besides its text: the graph's style and script, and the policy that admits no other.

Knows no plan, so that the service can say the policy without loading the rest of reports.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parent / "page"
_SCRIPT: Final = (
    "graph.js", "color.js", "scene.js", "draw.js", "export.js", "panel.js", "host.js", "hands.js", "start.js",
)  # fmt: skip


@cache
def style() -> str:
    """The page's style sheet."""
    return "\n".join((_PAGE / name).read_text("utf-8") for name in ("page.css", "view.css"))


@cache
def script() -> str:
    """The graph's script: its files as one."""
    return "\n".join((_PAGE / name).read_text("utf-8") for name in _SCRIPT)


@cache
def table_script() -> str:
    """The script of the tables, which runs when they have been read."""
    return (_PAGE / "tables.js").read_text("utf-8")


@cache
def policy() -> str:
    """The content security policy of a report: its style and two scripts by digest, and nothing else."""
    digests = " ".join(f"'sha256-{digest(text)}'" for text in (script(), table_script()))
    return f"default-src 'none'; style-src 'sha256-{digest(style())}'; script-src {digests}"


def digest(text: str) -> str:
    """The sha256 of a style or script as a policy names it, base64."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
