"""The support table of a target as one offline HTML file, to show colleagues; records: `target.support`."""

from typing import Final

from planner.report.markup import Markup, element, join, table
from planner.report.resources import digest
from planner.target.docs.support import HEAD, support_of
from planner.target.records import Target

_STYLE: Final = Markup("""
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 90rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
th { background: var(--soft); position: sticky; top: 0; }
code { font: 12px/1.45 ui-monospace, monospace; } .wide { overflow-x: auto; }
""")
_POLICY: Final = f"default-src 'none'; style-src 'sha256-{digest(_STYLE)}'"


def support_html(target: Target) -> str:
    """Write the support table as a whole HTML document that needs nothing else."""
    support = support_of(target)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", support.title),
        element("style", _STYLE),
    )
    rows: list[tuple[object, ...]] = [tuple(map(_cell, row.cells())) for row in support.rows]
    body = [
        element("h1", support.title),
        table(("", ""), [tuple(fact) for fact in support.facts]),
        element("h2", "Kernels"),
        table(HEAD, rows),
    ]
    if support.unserved:
        body.append(element("p", f"In float, without a row: {', '.join(support.unserved)}."))
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"


def _cell(texts: tuple[str, ...]) -> Markup:
    parts: list[object] = []
    for text in texts:
        parts += [element("br"), element("code", text)] if parts else [element("code", text)]
    return join(*parts)
