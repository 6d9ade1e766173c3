"""The report: one offline HTML file with the decisions of a plan, their reasons, and their cost in quality.

Tables, which need no script, and the graph (`view`); two scripts of ours, by digest, are all that may run.
Every name is escaped. Source: docs/plans.md; docs/service.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from planner.accuracy.losses import Losses
from planner.accuracy.metrics import score_text
from planner.accuracy.quality import decibels
from planner.calibration.statistics import Statistics
from planner.errors import expect, quantity
from planner.interpreter.compare import Comparison
from planner.ir.types.qtypes import Uniform
from planner.plan_search.search import Search
from planner.plans.explain import explain, type_text
from planner.plans.plan import Plan, require_plan
from planner.plans.records import KernelPlan, Port, Rescale
from planner.report.losses import losses_part
from planner.report.markup import Markup, element, join, table
from planner.report.plan_charts import (
    channels_chart,
    float_causes,
    histograms,
    rescale_chart,
    tradeoffs_chart,
)
from planner.report.rescale_causes import rescale_causes
from planner.report.resources import policy, script, style, table_script
from planner.report.search_results import search_part
from planner.report.summary import summary
from planner.report.totals import is_integer, port_text, row_text
from planner.report.view import view_blocks
from planner.what_if.pareto import Tradeoff

SHOWN: Final = 2_000
"""Rows that a table of the report has at most; the graph and the plan's JSON have all."""


def write_report(
    plan: Plan,
    comparisons: Mapping[str, Comparison] | None = None,
    *,
    before: Plan | None = None,
    losses: Losses | None = None,
    search: Search | None = None,
    stats: Statistics | None = None,
    tradeoffs: Mapping[str, Sequence[Tradeoff]] | None = None,
    live: bool = False,
) -> str:
    """Write the report of a plan.

    Args:
      comparisons: by name of the format, how the exported file compares with the model.
      before: another plan; the graph then shows both, and marks changes since, as `planner.diff` has it.
      losses: of the plan; a section then says where its numbers are lost.
      search: that found the plan; a section then shows its front.
      stats: of the model; where they have histograms, values are drawn with their ranges and steps.
      tradeoffs: results of `planner.pareto` by value or rescale, for a section of their own.
      live: whether a host plans again when something is edited on the page (docs/plans.md).

    Returns:
      A whole HTML document that needs nothing else.
    """
    given = {} if comparisons is None else comparisons
    _require(plan, given, before=before, losses=losses, search=search, stats=stats, tradeoffs=tradeoffs)
    title = f"{plan.graph.name} on {plan.target.id}"
    drawn, log = view_blocks(plan, before, losses=losses, live=live)
    kernels = plan.kernels_in_order
    n_float = sum(not is_integer(kernel) for kernel in kernels)
    parts = [
        *_section("Quality", _quality(given), shown=bool(given)),
        *(_section("Where the numbers are lost", losses_part(losses)) if losses is not None else ()),
        *(_section("Search", search_part(search)) if search is not None else ()),
        *_values_charts(plan, stats, losses),
        *_section("Trade-offs", tradeoffs_chart(tradeoffs or {}), shown=bool(tradeoffs)),
        *_section("Kernels", _kernels(plan), len(kernels)),
        *_section("Kernels in float, and why", join(float_causes(plan), _float_kernels(plan)), n_float),
        *_section("Rescales and casts, by cause", _rescales(plan), len(plan.rescales)),
        *_section("Values", _values(plan), len(plan.values)),
        *_section(
            "Notes on the model",
            _items(plan.graph.notes),
            len(plan.graph.notes),
            shown=bool(plan.graph.notes),
        ),
    ]
    # A live page stands below its host's heading, which says the same.
    hidden = {"class_": "unseen"} if live else {}
    name = element("h1", plan.graph.name, element("span", f" on {plan.target.id}", class_="quiet"), **hidden)
    sections = [
        element("header", name, summary(plan, given, losses, live=live)),
        element("section", id="what-if", hidden="", aria_label="what if"),
        element(
            "main",
            _warnings(plan.warnings),
            _graph(plan, before),
            _scripts(drawn),
            element("div", *parts, id="tables"),
        ),
        _footer(plan),
        element("script", Markup(table_script())),
        # Last: it is most of the page, and nothing that is seen at first waits for it.
        element("script", Markup(log), id="view-log", type="application/json"),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'),
        element("title", title),
        element("style", Markup(style())),
    )
    return (
        join(
            Markup("<!doctype html>\n"),
            element("html", head, element("body", *sections), lang="en"),
        )
        + "\n"
    )


def _require(plan: Plan, comparisons: Mapping[str, Comparison], **given: object) -> None:
    """Refuse what is not what it should be.

    Raises:
      InputError: what it is instead.
    """
    require_plan(plan)
    if given["before"] is not None:
        require_plan(given["before"])
    expect(comparisons, Mapping, "comparisons are a mapping from a format to a result of compare")
    for comparison in comparisons.values():
        expect(comparison, Comparison, "a comparison is the result of compare")
    for name, kind, told in _GIVEN:
        if given[name] is not None:
            expect(given[name], kind, told)


_GIVEN: Final = (
    ("losses", Losses, "losses are the result of planner.losses"),
    ("search", Search, "a search is the result of planner.search"),
    ("stats", Statistics, "statistics are the result of planner.calibrate"),
    ("tradeoffs", Mapping, "trade-offs are a mapping from a value or rescale to a result of pareto"),
)


def _warnings(lines: Sequence[str]) -> Markup:
    """All warnings; folded where they would push the graph away."""
    if not lines:
        return Markup()
    if len(lines) == 1:
        return element("p", f"Warning: {lines[0]}", class_="warnings")
    head = element("summary", f"{quantity(len(lines), 'warning')}: {lines[0]}")
    return element("details", head, _items(lines), class_="warnings")


def _graph(plan: Plan, before: Plan | None) -> Markup:
    """The graph: hidden until its script has read its data."""
    find = element(
        "input", id="view-find", type="search", placeholder="find a kernel or value", autocomplete="off"
    )
    buttons = [
        element("button", text, type="button", data_do=do, title=told, aria_label=told)
        for text, do, told in (
            ("+", "in", "zoom in"), ("\u2212", "out", "zoom out"), ("whole", "whole", "show the whole graph"),
        )
    ]  # fmt: skip
    folds = [
        element("button", f"{do} all", type="button", data_do=do, data_groups="") for do in ("fold", "unfold")
    ]
    saves = [
        element("button", do.upper(), type="button", data_do=do, aria_label=f"save the graph as {do.upper()}")
        for do in ("svg", "png")
    ]
    other = "" if before is None else before.target.id
    bar = element(
        "div",
        element("div", element("label", "Find ", find), element("ul", id="view-hits"), class_="find"),
        element("label", "Colour ", element("select", id="view-color")),
        element("button", "before | after", id="view-both", type="button", aria_pressed="false", hidden=""),
        element("span", *folds, *buttons, *saves, class_="buttons"),
        id="view-bar",
    )
    keys = element(
        "p",
        "Drag to move, click to choose; the wheel zooms after a click on the graph. Keys: arrows follow the "
        "edges, Enter opens, + and - zoom, 0 shows all, j and k step through kernels, r goes to the next "
        "rescale, d to the next difference, u undoes an edit, f finds, Esc clears the choice. "
        "The tables below say the same as the graph.",
        id="view-keys", class_="quiet",
    )  # fmt: skip
    small, twin = (element("canvas", id=name, aria_hidden="true", class_="map") for name in _MAPS)
    panel = (
        element("div", id="view-panel", aria_live="polite"),
        element("section", id="view-edits", hidden=""),
    )
    stage = element(
        "div",
        _pane("view-before", f"before, {other}", "graph of the plan before", twin),
        _pane("view-canvas", f"after, {plan.target.id}", "graph of the plan", small),
        element("aside", *panel, aria_label="what is chosen", id="view-side", tabindex="0"),
        id="view-stage",
    )
    legend = element("ul", id="view-legend", aria_label="colours")
    return element("section", bar, stage, legend, keys, id="view", hidden="", aria_label="graph")


_MAPS: Final = ("view-map", "view-before-map")


def _pane(name: str, title: str, told: str, *more: Markup) -> Markup:
    canvas = element(
        "canvas", id=name, tabindex="0", role="application", aria_label=told, aria_describedby="view-keys"
    )
    return element("div", element("p", title, class_="pane-title"), canvas, *more, class_="pane")


def _scripts(data: str) -> Markup:
    """Data and script of the graph: before the tables, so that it need not wait for them."""
    block = element("script", Markup(data), id="view-data", type="application/json")
    return join(block, element("script", Markup(script())))


def _values_charts(plan: Plan, stats: Statistics | None, losses: Losses | None) -> tuple[Markup, ...]:
    """Histograms and weights per channel, where there are any."""
    drawn = Markup() if stats is None else histograms(plan, stats, losses)
    note = (
        "The values that calibration observed (bar heights are square roots), the range of the type, "
        "and its steps where they are wide enough to show."
    )
    weights = channels_chart(plan)
    told = "The largest weight that each channel's scale holds, of the weights whose channels differ most."
    return (
        *_section(
            "Values and their ranges", join(element("p", note, class_="quiet"), drawn), shown=bool(drawn)
        ),
        *_section(
            "Weights per channel", join(element("p", told, class_="quiet"), weights), shown=bool(weights)
        ),
    )


def _footer(plan: Plan) -> Markup:
    """The sources of the plan, by digest."""
    target = plan.target
    options = ", ".join(f"{name} {value}" for name, value in sorted(plan.options.items()))
    facts = {
        "Target": f"{target.id} {target.version} ({target.file})",
        "Options": options or "none",
        "Plan": plan.key,
        "Model": plan.model,
        "Target digest": target.digest,
    }
    terms = (join(element("dt", name), element("dd", text)) for name, text in facts.items())
    return element("footer", element("dl", *terms))


def _section(title: str, body: Markup, many: int | None = None, *, shown: bool = True) -> tuple[Markup, ...]:
    """A folded section; `many` is the number of its rows."""
    if not shown:
        return ()
    count = Markup() if many is None else element("span", f"{many:,}", class_="quiet")
    head = element("summary", element("h2", title), " ", count)
    return (element("details", head, body, class_="part", id=title.lower().replace(" ", "-")),)


def _quality(comparisons: Mapping[str, Comparison]) -> Markup:
    """Figures of every output, group and metric by file, and on what data they were taken."""
    measured: dict[str, list[str]] = {}
    for name, comparison in comparisons.items():
        measured.setdefault(comparison.measured_on, []).append(name)
    told = [element("p", f"Measured {on}: {', '.join(names)}.") for on, names in measured.items()]
    rows: list[tuple[object, ...]] = [
        (name, f"{output}{label}", decibels(part.sqnr), f"{part.max_error:.6g}")
        for name, comparison in comparisons.items()
        for output, quality in comparison.outputs.items()
        for label, part in quality.parts.items()
    ]
    scores: list[tuple[object, ...]] = [
        (name, metric, score_text(metric, score.quantized), score_text(metric, score.reference))
        for name, comparison in comparisons.items()
        for metric, score in comparison.scores.items()
    ]
    poor = [
        f"{name}: {text}"
        for name, comparison in comparisons.items()
        for text in (comparison.failure, *comparison.warnings)
        if text
    ]
    return join(
        *told,
        table(("file", "output", "SQNR", "largest error"), rows),
        table(("file", "metric", "the file", "the model"), scores) if scores else Markup(),
        _items(poor) if poor else Markup(),
    )


def _kernels(plan: Plan) -> Markup:
    rows: list[tuple[object, ...]] = [
        (_shown(kernel), element("code", kernel.kernel), _row(plan, kernel), _ports(kernel.inputs),
         _ports(kernel.outputs), "" if kernel.accumulator_bits is None else kernel.accumulator_bits)
        for kernel in plan.kernels_in_order[:SHOWN]
    ]  # fmt: skip
    head = ("name", "kernel", "kernel variant", "inputs", "outputs", "accumulator bits")
    return join(table(head, rows), _more(len(plan.kernels_in_order)))


def _shown(kernel: KernelPlan) -> Markup:
    """A kernel's name, where the graph's script puts a way to its box."""
    return element("span", kernel.name, data_kernel=kernel.name)


def _more(rows: int) -> Markup:
    """A line about rows that a table leaves out."""
    text = f"And {rows - SHOWN:,} more, which the graph and the plan's JSON have."
    return element("p", text, class_="quiet") if rows > SHOWN else Markup()


def _row(plan: Plan, kernel: KernelPlan) -> Markup:
    if kernel.row is None:
        return element("span", "float", class_="float")
    return element("code", row_text(plan, kernel))


def _ports(ports: Iterable[Port]) -> Markup:
    return join(*(element("div", port_text(port), class_="type") for port in ports))


def _float_kernels(plan: Plan) -> Markup:
    kernels = [kernel for kernel in plan.kernels_in_order if not is_integer(kernel)]
    rows: list[tuple[object, ...]] = [
        (_shown(kernel), element("code", kernel.kernel), row_text(plan, kernel)) for kernel in kernels[:SHOWN]
    ]
    return join(table(("name", "kernel", "reason"), rows), _more(len(kernels)))


def _rescales(plan: Plan) -> Markup:
    """All rescales and casts, those of one cause together, most expensive causes first."""
    if not plan.rescales:
        return element("p", "(none)", class_="none")
    left, parts = SHOWN, [rescale_chart(plan)]
    for cause in rescale_causes(plan):
        cost, many = f"{cause.cost:,.0f}", len(cause.rescales)
        head = element(
            "summary", element("h3", cause.text), " ",
            element("span", f"{many:,}, cost {cost}", class_="quiet"),
        )  # fmt: skip
        mine = [plan.rescales[at] for at in cause.rescales[: max(left, 0)]]
        left -= len(mine)
        body = _rescale_table(plan, mine) if mine else element("p", "Too many to list here.", class_="quiet")
        parts.append(element("details", head, body, class_="cause"))
    return join(*parts, _more(len(plan.rescales)))


def _rescale_table(plan: Plan, rescales: Sequence[Rescale]) -> Markup:
    rows: list[tuple[object, ...]] = [
        (rescale.id, rescale.kind, _types(rescale), _consumers(rescale), f"{rescale.elements:,}",
         f"{rescale.cost:,.0f}")
        for rescale in rescales
    ]  # fmt: skip
    reasons = [
        element("details", element("summary", f"Why {rescale.id}"), element("pre", explain(plan, rescale.id)))
        for rescale in rescales
    ]
    return join(table(("rescale", "kind", "from, to", "consumers", "elements", "cost"), rows), *reasons)


def _types(rescale: Rescale) -> Markup:
    ends = (rescale.from_type, rescale.to_type)
    return join(*(element("div", type_text(end), class_="type") for end in ends))


def _consumers(rescale: Rescale) -> str:
    return ", ".join(f"{kernel}.in[{index}]" for kernel, index in rescale.consumers)


def _values(plan: Plan) -> Markup:
    typed = [(name, value) for name, value in plan.values.items() if isinstance(value.type, Uniform)]
    rows: list[tuple[object, ...]] = [
        (name, element("span", type_text(value.type), class_="type"), f"{value.bits_lost:.2f}",
         f"{value.clip:.2%}")
        for name, value in typed[:SHOWN]
    ]  # fmt: skip
    n_float = len(plan.values) - len(typed)
    note = element("p", f"Values in float: {n_float}.", class_="quiet") if n_float else Markup()
    head = ("value", "type at its definition", "bits lost", "clipped")
    return join(table(head, rows), _more(len(typed)), note)


def _items(lines: Iterable[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines))
