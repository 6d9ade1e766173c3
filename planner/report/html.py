"""The report: one offline HTML file with the decisions of a plan, their reasons, and their cost in quality.

Tables, which need no script, and the graph (`view`), whose script is the only one that may run.
Every name is escaped. Source: design 03, `report.html`; design 06, the page.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from planner.accuracy.losses import Losses
from planner.accuracy.metrics import score_text
from planner.accuracy.quality import decibels
from planner.errors import expect
from planner.interpreter.compare import Comparison
from planner.ir.types.qtypes import Uniform
from planner.plan_search.search import Search
from planner.plans.explain import explain, type_text
from planner.plans.plan import Plan, require_plan
from planner.plans.records import KernelPlan, Port, Rescale
from planner.report.lost import losses_part
from planner.report.markup import Markup, element, join, table
from planner.report.resources import policy, script, style
from planner.report.searched import search_part
from planner.report.totals import is_integer, port_text, row_text, totals
from planner.report.view import view_json

SHOWN: Final = 2_000
"""Rows that a table of the report has at most; the graph and the plan's JSON have all."""

_STYLE: Final = Markup("""
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --mark: #b4520a; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: .9rem; margin: 1.1rem 0 .2rem; } section { break-inside: avoid; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { overflow-wrap: normal; background: var(--soft); }
td code { overflow-wrap: normal; } td:first-child { min-width: 9rem; }
@media screen { .wide { overflow-x: auto; content-visibility: auto; contain-intrinsic-size: auto 60rem; }
  .wide table { min-width: 50rem; } }
code, pre, .type { font: 12px/1.45 ui-monospace, monospace; }
pre { white-space: pre-wrap; margin: 0; } .none, .quiet { opacity: .7; } .float { color: var(--mark); }
figure { margin: 0; max-width: 48rem; } .front .best { color: var(--mark); } .front .goal { opacity: .7; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: 0; }
dt { opacity: .7; } dd { margin: 0; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } table { font-size: 9px; }
  tr { break-inside: avoid; } thead { display: table-header-group; } }
""")


def write_report(
    plan: Plan,
    comparisons: Mapping[str, Comparison] | None = None,
    *,
    before: Plan | None = None,
    losses: Losses | None = None,
    search: Search | None = None,
) -> str:
    """Write the report of a plan.

    Args:
      comparisons: by name of the format, how the exported file compares with the model.
      before: another plan; the graph then marks changes since, as `planner.diff` has it.
      losses: of the plan; a section then says where its numbers are lost.
      search: that found the plan; a section then shows its front.

    Returns:
      A whole HTML document that needs nothing else.
    """
    require_plan(plan)
    if before is not None:
        require_plan(before)
    given = {} if comparisons is None else comparisons
    expect(given, Mapping, "comparisons are a mapping from a format to what compare gives")
    for comparison in given.values():
        expect(comparison, Comparison, "a comparison is what compare gives")
    if losses is not None:
        expect(losses, Losses, "losses are what planner.losses gives")
    if search is not None:
        expect(search, Search, "a search is what planner.search gives")
    title = f"{plan.graph.name} on {plan.target.id}"
    sections = [
        element("h1", title),
        _totals(plan),
        *_section("Warnings", _items(plan.warnings), shown=bool(plan.warnings)),
        *_section("Quality", _quality(given), shown=bool(given)),
        *(_section("Where the numbers are lost", losses_part(losses)) if losses is not None else ()),
        *(_section("Search", search_part(search)) if search is not None else ()),
        _graph(),
        _scripts(plan, before),
        *_section("Kernels", _kernels(plan)),
        *_section("Kernels in float, and why", _float_kernels(plan)),
        *_section("Rescales, and why", _rescales(plan)),
        *_section("Values", _values(plan)),
        *_section("Notes of the reader", _items(plan.graph.notes), shown=bool(plan.graph.notes)),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'),
        element("title", title),
        element("style", _STYLE, Markup(style())),
    )
    return (
        join(
            Markup("<!doctype html>\n"),
            element("html", head, element("body", *sections), lang="en"),
        )
        + "\n"
    )


def _graph() -> Markup:
    """The graph: hidden until its script has read its data."""
    find = element(
        "input", id="view-find", type="search", placeholder="find a kernel or value", autocomplete="off"
    )
    label = "graph of the plan; the tables below say the same"
    return element(
        "section",
        element("label", element("span", "Find ", class_="quiet"), find, element("ul", id="view-hits")),
        element("canvas", id="view-canvas", tabindex="0", role="application", aria_label=label),
        element("aside", id="view-panel", aria_live="polite"),
        id="view",
        hidden="",
    )


def _scripts(plan: Plan, before: Plan | None) -> Markup:
    """Data and script of the graph: before the tables, so that it need not wait for them."""
    data = element("script", Markup(view_json(plan, before)), id="view-data", type="application/json")
    return join(data, element("script", Markup(script())))


def _section(title: str, body: Markup, *, shown: bool = True) -> tuple[Markup, ...]:
    return (element("h2", title), body) if shown else ()


def _totals(plan: Plan) -> Markup:
    count = totals(plan)
    target = plan.target
    options = ", ".join(f"{name} {value}" for name, value in sorted(plan.options.items()))
    facts = {
        "Target": f"{target.id} {target.version} ({target.file})",
        "Kernels on integers": f"{count.integer} of {count.kernels}",
        "Kernels in float": str(count.kernels - count.integer),
        "Rescales": f"{count.rescales}, and {count.casts} casts between float and integers",
        "Cost": f"{count.cost_text}: {count.changed:,.0f} for rescales and casts, "
        f"{count.cost - count.changed:,.0f} for lost bits",
        "Work of the device": count.work_text,
        "Fully quantized": "yes" if count.fully_quantized else "no",
        "Options": options or "none",
        "Plan": plan.key,
        "Model": plan.model,
        "Target digest": target.digest,
    }
    return element("dl", *(join(element("dt", name), element("dd", text)) for name, text in facts.items()))


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
    poor = [f"{name}: {text}" for name, comparison in comparisons.items() for text in comparison.warnings]
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
    head = ("name", "kernel", "row", "inputs", "outputs", "accumulator bits")
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
    rows: list[tuple[object, ...]] = [
        (rescale.id, rescale.kind, _types(rescale), _consumers(rescale), f"{rescale.elements:,}",
         f"{rescale.cost:,.0f}")
        for rescale in plan.rescales[:SHOWN]
    ]  # fmt: skip
    reasons = [
        element("section", element("h3", rescale.id), element("pre", explain(plan, rescale.id)))
        for rescale in plan.rescales[:SHOWN]
    ]
    head = ("rescale", "kind", "from, to", "read by", "elements", "cost")
    return join(table(head, rows), _more(len(plan.rescales)), *reasons)


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
    note = element("p", f"Values that stay in float: {n_float}.", class_="quiet") if n_float else Markup()
    head = ("value", "type at its definition", "bits lost", "clipped")
    return join(table(head, rows), _more(len(typed)), note)


def _items(lines: Iterable[str]) -> Markup:
    return element("ul", *(element("li", line) for line in lines))
