"""The figures of the design that a bench run can judge: what is wanted, what was found, reached or not.

Pure functions over the records of `main_job`; nothing is measured here and nothing typed in but the limits.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.comparison import Record, mac_share
from benchmarks.growth import exponent

PLANNING: Final = ("plan_s", "export_s")  # `export` checks the plan first
WORST: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """One wanted figure; `reached` is None where the run says nothing about it."""

    what: str
    found: str
    reached: bool | None


def planning_s(ours: Record, keys: Sequence[str] = PLANNING) -> float:
    """Plan + check + export, seconds."""
    return float(sum(ours[key] for key in keys))


def net_mb(side: Record) -> float:
    """Peak memory beyond what the imports took."""
    return float(side["rss_mb"] - side["import_rss_mb"])


def their_quantize_s(record: Record, records: Sequence[Record]) -> tuple[float, bool] | None:
    """Their quantize phase in seconds, and whether it was measured.

    A chain on which theirs was not run gets the power law of the two longest that it was run on.
    """
    if "quantize_s" in record.get("theirs", {}):
        return float(record["theirs"]["quantize_s"]), True
    measured = sorted(
        (item["nodes"], item["theirs"]["quantize_s"])
        for item in records
        if item["kind"] == "chain" and "quantize_s" in item.get("theirs", {})
    )
    if record["kind"] != "chain" or len(measured) < 2:
        return None
    (small, short), (large, long) = measured[-2:]
    power = math.log(long / short) / math.log(large / small)
    return long * (record["nodes"] / large) ** power, False


def gains_db(record: Record) -> list[float]:
    """Ours minus theirs for every output; equal infinities are equal."""
    mine, other = record["ours"]["sqnr_db"], record["theirs"]["sqnr_db"]
    return [0.0 if mine[name] == other[name] else mine[name] - other[name] for name in mine]


def more_in_float(record: Record) -> dict[str, int]:
    """Ops by type that ours leaves in float beyond theirs."""
    mine, other = record["ours"]["float_ops"], record["theirs"]["float_ops"]
    return {kind: count - other.get(kind, 0) for kind, count in mine.items() if count > other.get(kind, 0)}


def latency_ratio(record: Record) -> float:
    """Ours over theirs, runs in turn."""
    return float(record["ours_ms"] / record["theirs_ms"])


def verdicts(
    records: Sequence[Record], growth: Sequence[Record], starts: Mapping[str, float]
) -> list[Verdict]:
    """Judge every figure; the order is that of the design."""
    judged = [verdict for judge in JUDGES for verdict in judge(records)]
    return [*judged, *_growth(growth), *_starts(starts)]


def _at_most(what: str, ratios: Mapping[str, float], limit: float) -> Verdict:
    """Every ratio at or below the limit; the worst are named."""
    if not ratios:
        return Verdict(what, "nothing to compare", None)
    over = {name: ratio for name, ratio in ratios.items() if not ratio <= limit}
    worst = sorted(ratios.items(), key=lambda item: -item[1])[:WORST]
    shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in worst)
    middle = statistics.median(ratios.values())
    found = f"{len(ratios) - len(over)} of {len(ratios)}; most: {shown}; median {middle:.2f}"
    return Verdict(what, found, not over)


def _planning(records: Sequence[Record]) -> Iterator[Verdict]:
    pairs = {r["model"]: (r, their_quantize_s(r, records)) for r in records}
    ratios = {
        name: planning_s(r["ours"]) / other[0] for name, (r, other) in pairs.items() if other and other[1]
    }
    what = "plan + check + export over their quantize phase, at most {} on each model"
    yield _at_most(what.format("1/3"), ratios, 1 / 3)
    yield _at_most(what.format("1/2 (first step)"), ratios, 1 / 2)
    chains = [(r, other) for r, other in pairs.values() if r["kind"] == "chain" and other]
    if not chains:
        yield Verdict("chain of 1k nodes at least 50 times faster", "no chain was run", None)
        return
    found = ", ".join(
        f"{r['nodes']} nodes {other[0] / planning_s(r['ours']):.0f}x"
        + ("" if other[1] else " (extrapolated)")
        for r, other in chains
    )
    shortest, theirs = min(chains, key=lambda pair: pair[0]["nodes"])
    faster = theirs[0] / planning_s(shortest["ours"])
    yield Verdict("chain of 1k nodes at least 50 times faster", found, faster >= 50)
    yield Verdict("chain of 1k nodes at least 20 times faster (first step)", found, faster >= 20)


def _whole_job(records: Sequence[Record]) -> Iterator[Verdict]:
    both = {r["model"]: (r["ours"], r["theirs"]) for r in records if "static_s" in r.get("theirs", {})}
    seconds = {name: ours["total_s"] / theirs["static_s"] for name, (ours, theirs) in both.items()}
    yield _at_most("whole job, same samples, same method: seconds over theirs below 1", seconds, 1.0)
    peaks = {name: ours["rss_mb"] / theirs["rss_mb"] for name, (ours, theirs) in both.items()}
    yield _at_most("peak memory over theirs at most 1", peaks, 1.0)
    net = {name: net_mb(ours) / max(net_mb(theirs), 1.0) for name, (ours, theirs) in both.items()}
    yield _at_most("the same without what imports take", net, 1.0)
    others = {
        name: ours["percentile_rss_mb"] / theirs["rss_mb"]
        for name, (ours, theirs) in both.items()
        if "percentile_rss_mb" in ours
    }
    yield _at_most("peak memory of our percentile job over their MinMax at most 1", others, 1.0)


def _rescales(records: Sequence[Record]) -> Iterator[Verdict]:
    greedy = {
        r["model"]: r["ours"]["cost"] / r["ours"]["greedy_cost"]
        for r in records
        if r["ours"].get("greedy_cost")
    }
    yield _at_most("price over the greedy strategy's at most 1", greedy, 1.0 + 1e-9)
    gaps = {r["model"]: r["ours"]["cost"] / r["ours"]["bound"] for r in records if r["ours"]["bound"] > 0}
    yield _at_most("price over its proven lower bound at most 1.05", gaps, 1.05)


def _accuracy(records: Sequence[Record]) -> Iterator[Verdict]:
    compared = [r for r in records if "sqnr_db" in r.get("theirs", {})]
    worse = {r["model"]: {kind: float(n) for kind, n in more_in_float(r).items()} for r in compared}
    named = [
        f"{name}: " + ", ".join(f"{k} {n:.0f}" for k, n in kinds.items())
        for name, kinds in worse.items()
        if kinds
    ]
    found = f"{len(compared) - len(named)} of {len(compared)}" + "".join(f"; {text}" for text in named)
    yield Verdict("no type of op more often in float than theirs", found, not named if compared else None)
    shares = {r["model"]: mac_share(r["ours"]["macs"]) for r in records}
    low = {name: share for name, share in shares.items() if share < 0.99}
    listed = "".join(f"; {name} {100 * share:.1f} %" for name, share in low.items())
    yield Verdict(
        "99 % of the multiply-adds in integer", f"{len(shares) - len(low)} of {len(shares)}{listed}", not low
    )
    gains = {r["model"]: gains_db(r) for r in compared}
    behind = {name: min(values) for name, values in gains.items() if min(values) < 0}
    listed = "".join(f"; {name} {gain:+.1f} dB" for name, gain in behind.items())
    found = f"{len(gains) - len(behind)} of {len(gains)}{listed}"
    yield Verdict("SQNR of every output at least theirs", found, not behind if gains else None)
    better = sum(min(values) > 0 for values in gains.values())
    worst = min((min(values) for values in gains.values()), default=0.0)
    yield Verdict(
        "SQNR nowhere more than 0.5 dB below theirs, better on half of the models (first step)",
        f"better on every output of {better} of {len(gains)}, worst {worst:+.1f} dB",
        worst >= -0.5 and 2 * better >= len(gains) if gains else None,
    )


def _latency(records: Sequence[Record]) -> Iterator[Verdict]:
    ratios = {r["model"]: latency_ratio(r) for r in records if "ours_ms" in r and "theirs_ms" in r}
    yield _at_most("latency in onnxruntime over their file's at most 1.05", ratios, 1.05)


def _growth(records: Sequence[Record]) -> Iterator[Verdict]:
    what = "growth of plan + check with regions: exponent at most 1.1"
    if len(records) < 2:
        yield Verdict(what, "not measured", None)
        return
    sizes = [record["regions"] for record in records]
    power = exponent(records)
    yield Verdict(what, f"{power:.2f} over {min(sizes)} to {max(sizes)} regions", power <= 1.1)
    largest = max(records, key=lambda record: record["regions"])
    seconds = largest["plan_s"] + largest["check_s"]
    if largest["regions"] >= 100_000:
        yield Verdict("100k regions planned and checked under 12 s", f"{seconds:.1f} s", seconds < 12)


def _starts(starts: Mapping[str, float]) -> Iterator[Verdict]:
    for what, limit in START_LIMITS.items():
        if what in starts:
            yield Verdict(f"`{what}` under {limit} s", f"{starts[what]:.2f} s", starts[what] < limit)


JUDGES: Final[tuple[Callable[[Sequence[Record]], Iterator[Verdict]], ...]] = (
    _planning,
    _whole_job,
    _rescales,
    _accuracy,
    _latency,
)
START_LIMITS: Final[Mapping[str, float]] = {"import planner": 0.4, "qplan --help": 0.5}
