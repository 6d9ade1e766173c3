"""A search in a report: its front as a chart and as a table, and the parts that could not be measured.

Words and figures are `plan_search.search_text`'s. Source: docs/search.md.
"""

from planner.plan_search.chart import chart
from planner.plan_search.search import Search
from planner.plan_search.search_text import FRONT_HEAD, front_rows, sentence, work_text
from planner.report.markup import Markup, element, join, table


def search_part(search: Search) -> Markup:
    """The body of the section."""
    failed = [element("li", f"{trial.origin}: {trial.error}") for trial in search.trials if trial.error]
    shown = "Full points are the front: no other trial is as good for less work. Hollow ones are the rest."
    return join(
        element("p", f"{sentence(search)}."),
        element("figure", chart(search), element("figcaption", shown, class_="quiet")),
        table(FRONT_HEAD, list(front_rows(search))),
        *((element("p", text, class_="quiet"),) if (text := _proof(search)) else ()),
        *((element("h3", "Trials that could not be measured"), element("ul", *failed)) if failed else ()),
    )


def _proof(search: Search) -> str:
    """How far the last proposal is from the least work; "" where the program proposed nothing."""
    if search.bound is None or search.gap is None:
        return ""
    least = work_text(search, search.bound)
    return (
        f"By predicted noise no plan as good as the last proposal takes less work than {least}; "
        f"the proposal is {search.gap:.1%} above that."
    )
