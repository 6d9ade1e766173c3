"""`minimal` beside `rfc`: price, rescales, rescaled elements, bits lost and measured SQNR, model by model.

Every model of the test folder (`QPLAN_MODELS`) and of the onnx package's `light` folder, and random graphs,
for `litert-int8`, `teaching-npu` and an NPU whose adds have one scale. Usage, from the repository root:
`python -m benchmarks.strategies [--only NAME ...] [--json FILE] [--read FILE ...] [--write]`; `--write` puts
the tables into docs/results/strategies.md.
"""

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import planner
from benchmarks.light import light_names, light_samples, write_light
from benchmarks.samples import Sample, evaluation, model_folder, models, samples
from benchmarks.topologies import TOPOLOGIES
from planner.errors import PlannerError
from planner.ir.graph import Graph
from planner.plans.plan import Plan
from planner.plans.records import Rescale
from planner.propagation.propagate import propagate
from planner.target.records import Target
from tests.propagation.graphs import TARGET as EVERY_RULE
from tests.propagation.graphs import random_graph

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "results" / "strategies.md"
STRATEGIES: Final = ("rfc", "minimal")
FREE_ADD: Final = "{kernel: add, in: {a: a8, b: a8}, out: {y: a8}, rules: [{free_scale: [a, b, y]}]}"
SHARED_ADD: Final = (
    "{kernel: add, in: {a: a8, b: a8}, out: {y: a8}, computes: true, rules: [{same_scale: [a, b, y]}]}"
)
OF_TEACHING_NPU: Final = {"conv2d": "conv", "fully_connected": "dense"}
TOPOLOGY_REGIONS: Final = 300
RANDOM_GRAPHS: Final = 200
RANDOM_KERNELS: Final = 40
LIGHT_HELD_OUT: Final = 2
HELD_OUT: Final = 8
CASTS: Final = ("quantize", "dequantize")
NAMED: Final = 3

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """An annotated model, and samples to measure on where there are any."""

    name: str
    kind: str
    model: Graph
    held_out: Sequence[Sample] = ()


def targets() -> dict[str, Target]:
    """Return the three targets; the last is the first with adds that have one scale."""
    text = (ROOT / "targets" / "litert-int8.yaml").read_text("utf-8").split("\ntests:")[0]
    if FREE_ADD not in text:
        raise RuntimeError("targets/litert-int8.yaml writes its 8-bit add in another way now")
    shared = text.replace(FREE_ADD, SHARED_ADD).replace("id: litert-int8", "id: same-scale-adds")
    return {
        "litert-int8": planner.load_target("litert-int8"),
        "teaching-npu": planner.load_target("teaching-npu"),
        "same-scale adds": planner.load_target(shared),
    }


def cases(only: Sequence[str], folder: Path) -> Iterator[Case]:
    """Yield every model once, calibrated; QONNX files bring types of their own and no samples."""
    for model in models():
        if not only or model.name in only:
            graph = planner.load_model(model.path)
            stats = planner.calibrate(graph, samples(model.name, model.path))
            held_out = evaluation(model.name, model.path, HELD_OUT)
            yield Case(model.name, "real", planner.annotate(graph, stats=stats), held_out)
    for path in sorted((model_folder() / "qonnx").glob("*.onnx")):
        if not only or path.stem in only:
            yield Case(path.stem, "qonnx", planner.load_model(path))
    for name in light_names():
        if not only or name in only:
            model = write_light(folder, name)
            graph = planner.load_model(model.path)
            stats = planner.calibrate(graph, light_samples(model, HELD_OUT, held_out=False))
            held_out = light_samples(model, LIGHT_HELD_OUT, held_out=True)
            yield Case(name, "light", planner.annotate(graph, stats=stats), held_out)
            model.path.unlink()


def compare_plans(case: Case, name: str, target: Target) -> Record:
    """Return both plans' figures and why a count rises."""
    plans = {strategy: planner.plan(case.model, target, strategy=strategy) for strategy in STRATEGIES}
    record: Record = {"model": case.name, "kind": case.kind, "target": name}
    record |= {strategy: figures(plan) for strategy, plan in plans.items()}
    if case.held_out:
        for strategy in STRATEGIES:
            again = strategy == "minimal" and port_types(plans["rfc"]) == port_types(plans["minimal"])
            record[strategy]["sqnr_db"] = record["rfc"]["sqnr_db"] if again else sqnr(case, plans[strategy])
    record["why"] = why(plans["rfc"], plans["minimal"], target.costs.max_clip)
    return record


def sqnr(case: Case, plan: Plan) -> float | None:
    """Return the worst output's SQNR in onnxruntime, dB; None where the plan has no QDQ file."""
    try:
        data = planner.export(case.model, plan, "onnx-qdq")
    except PlannerError:
        return None
    return planner.compare(case.model, data, case.held_out).worst_sqnr


def port_types(plan: Plan) -> list[Any]:
    """Return what decides the file: rows and types of all ports."""
    return [(k.name, k.row, [p.type for p in (*k.inputs, *k.outputs)]) for k in plan.kernels_in_order]


def counted(plan: Plan) -> list[Rescale]:
    """Return the rescales that count: all but casts at the border of float."""
    return [rescale for rescale in plan.rescales if rescale.kind not in CASTS]


def figures(plan: Plan) -> Record:
    """Return the figures of one plan."""
    rescales = counted(plan)
    return {
        "price": plan.cost,
        "bound": plan.bound,
        "optimal": plan.optimal,
        "rescales": len(rescales),
        "elements": sum(rescale.elements for rescale in rescales),
        "bits_lost": max((value.bits_lost for value in plan.values.values()), default=0.0),
        "clip": max((value.clip for value in plan.values.values()), default=0.0),
    }


def why(rfc: Plan, minimal: Plan, max_clip: float) -> str:
    """Say what the additional rescales, or the higher price, of `minimal` buy; empty where nothing rises."""
    ours, theirs = counted(minimal), counted(rfc)
    more = sum(r.elements for r in ours) > sum(r.elements for r in theirs) or len(ours) > len(theirs)
    if not more and minimal.cost <= rfc.cost:
        return ""
    before = {(rescale.value, rescale.consumers) for rescale in theirs}
    added = [rescale for rescale in ours if (rescale.value, rescale.consumers) not in before]
    added.sort(key=lambda rescale: (-rescale.elements, rescale.id))
    named = [_bought(rfc, minimal, rescale.value, max_clip) for rescale in added[:NAMED]]
    rest = f" and {len(added) - NAMED} more" if len(added) > NAMED else ""
    clips = sum(value.clip > max_clip for value in rfc.values.values())
    cut = f"; rfc cuts more than {max_clip:.0%} off {clips} values" if clips else ""
    saved = f"price {rfc.cost:,.0f} -> {minimal.cost:,.0f}"
    return f"{'; '.join([*dict.fromkeys(named)])}{rest}{cut}; {saved}".removeprefix("; ")


def _bought(rfc: Plan, minimal: Plan, value: str, max_clip: float) -> str:
    """Say what one rescale saves: on the value, or where its type came from."""
    old, new = rfc.values[value], minimal.values[value]
    if old.bits_lost > new.bits_lost:
        return f"`{value}` is rescaled: {old.bits_lost:.2f} bits lost become {new.bits_lost:.2f}"
    if old.clip > max_clip:
        return f"`{value}` is rescaled: rfc cuts {old.clip:.0%} off it"
    return f"`{value}` is rescaled: its users' values lose less, or other rescales go"


def topology_records() -> Iterator[Record]:
    """Yield the generated graphs on each target."""
    for target_name, target in targets().items():
        for name, make in TOPOLOGIES.items():
            graph = make(TOPOLOGY_REGIONS)
            if target_name == "teaching-npu":
                kernels = [replace(r, kernel=OF_TEACHING_NPU.get(r.kernel, r.kernel)) for r in graph.regions]
                graph = replace(graph, regions=tuple(kernels))
            plans = {s: propagate(graph, target, strategy=s) for s in STRATEGIES}
            record: Record = {"model": f"{name}, {TOPOLOGY_REGIONS} kernels", "kind": "graph"}
            record |= {"target": target_name} | {s: figures(plan) for s, plan in plans.items()}
            yield record | {"why": why(plans["rfc"], plans["minimal"], target.costs.max_clip)}


def random_records() -> Record:
    """Return sums over random graphs with rules and facts of every kind."""
    total: dict[str, Record] = {s: {"price": 0.0, "rescales": 0, "elements": 0} for s in STRATEGIES}
    cheaper = equal = 0
    for seed in range(RANDOM_GRAPHS):
        graph = random_graph(seed, RANDOM_KERNELS)
        found = {s: figures(propagate(graph, EVERY_RULE, strategy=s)) for s in STRATEGIES}
        for strategy, one in found.items():
            for key in total[strategy]:
                total[strategy][key] += one[key]
        cheaper += found["minimal"]["price"] < found["rfc"]["price"]
        equal += found["minimal"]["price"] == found["rfc"]["price"]
    return {**total, "cheaper": cheaper, "equal": equal, "graphs": RANDOM_GRAPHS}


HEAD: Final = (
    "| model | price | proven | rescales | rescaled elements | worst bits lost | worst clip | SQNR, dB |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def row(record: Record) -> str:
    """Return the table line of one model: rfc / minimal."""
    if "refused" in record:
        return f"| `{record['model']}` | refused: {record['refused']} | | | | | | |"
    a, b = (record[strategy] for strategy in STRATEGIES)
    proof = "least" if b["optimal"] else f"{b['price'] / b['bound'] - 1:.2%}" if b["bound"] else "no"
    cells = [
        f"`{record['model']}`",
        f"{a['price']:,.0f} / {b['price']:,.0f}",
        proof,
        *(f"{a[key]:,} / {b[key]:,}" for key in ("rescales", "elements")),
        f"{a['bits_lost']:.2f} / {b['bits_lost']:.2f}",
        f"{a['clip']:.1%} / {b['clip']:.1%}",
        f"{_db(a)} / {_db(b)}",
    ]
    return f"| {' | '.join(cells)} |"


def _db(figure: Mapping[str, Any]) -> str:
    found = figure.get("sqnr_db")
    return "-" if found is None else f"{found:.1f}"


def page(records: Sequence[Record], random: Record) -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for target in dict.fromkeys(record["target"] for record in records):
        mine = [record for record in records if record["target"] == target]
        parts.append(f"## {target}\n{HEAD}" + "\n".join(map(row, mine)))
        rising = [f"- `{record['model']}`: {record['why']}." for record in mine if record["why"]]
        if rising:
            parts.append("Where `minimal` rescales more, or costs more:\n\n" + "\n".join(rising))
    a, b = (random[strategy] for strategy in STRATEGIES)
    parts.append(
        f"## Random graphs\n{random['graphs']} graphs of {RANDOM_KERNELS} kernels with rules, pins, Any, "
        f"None and float islands of every kind (`tests/propagation`), rfc / minimal: price "
        f"{a['price']:,.0f} / {b['price']:,.0f}, rescales {a['rescales']:,} / {b['rescales']:,}, elements "
        f"{a['elements']:,} / {b['elements']:,}. `minimal` is cheaper on {random['cheaper']}, equal on "
        f"{random['equal']}, dearer on {random['graphs'] - random['cheaper'] - random['equal']}: there rfc "
        "cuts off more than `max_clip`, which `minimal` may not."
    )
    return "\n\n".join(parts) + "\n"


def measured(only: Sequence[str]) -> Iterator[Record]:
    """Yield records as they come; a model that fails says why."""
    with tempfile.TemporaryDirectory(prefix="strategies.") as folder:
        for case in cases(only, Path(folder)):
            for name, target in targets().items():
                try:
                    record = compare_plans(case, name, target)
                except PlannerError as error:
                    refused = str(error).splitlines()[0]
                    record = {"model": case.name, "target": name, "refused": refused, "why": ""}
                print(row(record), flush=True)
                yield record


def read(files: Iterable[Path]) -> Iterator[Record]:
    """Yield the records of earlier runs."""
    for file in files:
        yield from json.loads(file.read_text("utf-8"))


def main() -> None:
    """Measure, print, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--json", type=Path, help="write the records of the models here")
    parser.add_argument("--read", nargs="*", type=Path, help="records of earlier runs instead of a run")
    parser.add_argument("--write", action="store_true", help="write docs/results/strategies.md")
    options = parser.parse_args()
    found = list(read(options.read) if options.read else measured(options.only))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1), "utf-8")
    if options.write:
        order = {name: i for i, name in enumerate(targets())}
        found = sorted([*found, *topology_records()], key=lambda record: order[record["target"]])
        PAGE.write_text(page(found, random_records()), "utf-8")


INTRODUCTION: Final = """# `minimal` beside `rfc`

Made by `python -m benchmarks.strategies --write`: every model of the test folder and of the onnx package's
`light` folder, planned with the RFC's greedy order and with the least price, defaults otherwise. "same-scale
adds" is `litert-int8` with adds whose three ports have one scale. A cell is rfc / minimal. *Proven* says
whether the price is the least there is, or by how much it may be above it. Rescales leave out casts at the
border of float. SQNR is that of the worst output against the float model, `onnx-qdq` in onnxruntime with
optimisations off, on held-out samples; models of the `qonnx` folder bring types of their own and no
samples. The `light` models and those with random weights say something about structure, not about accuracy.

`minimal` pays for a rescale where it costs less than the bits it saves (design: 2 element-rescales a bit
beyond the first half); `rfc` takes what was decided first, and is not bound by `max_clip`. So a count may
rise: the lines below each table say what for.

How the least price is found: labels that no cheapest plan needs are dropped; components of small width are
solved exactly by eliminating class by class, in whole numbers, ties included; others by a linear program
whose rounded dual proves a bound, local search from its answer, and branch and bound; units of
many thousands of classes by local search alone. All limits are counts."""


if __name__ == "__main__":
    main()
