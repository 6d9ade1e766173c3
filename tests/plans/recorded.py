"""The plans that the goldens hold, in groups, and how each becomes one line. No tests.

Models, ranges and targets are text or exact fractions, and sums are told to nine digits: a line is the same
on every machine. Comments in a target file move its lines, so rows are told by place and not by line.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import planner
from benchmarks.topologies import TOPOLOGIES, Draft
from planner.errors import PlannerError
from planner.ir.expand import expand
from planner.ir.graph import Graph, Op, Value, model_digest
from planner.ir.types.qtypes import EXPRESSED, Calibrated
from planner.plans.plan import Plan
from planner.plans.records import step_rows
from planner.propagation.propagate import propagate
from planner.target.load import load_target, target_ids
from planner.target.records import Target
from planner.target_tests.cases import plan_case
from tests.cases.table import CASES, TARGETS, planned, read
from tests.propagation.graphs import EVERY_RULE, TARGET, random_graph, seeded

MODELS: Final = (
    "language/stories260k",
    "language/stories260k_decode",
    "mlperf-tiny/ad01_fp32",
    "mlperf-tiny/pretrainedResnet",
    "mlperf-tiny/vww_96_float",
    "qonnx/TFC_1W1A",
    "qonnx/TFC_1W2A",
    "qonnx/TFC_2W2A",
    "qonnx/bnn_model_fc_1layer",
    "qonnx/branched_model_ch_last",
    "qonnx/espcn_subpixel_quant",
    "qonnx/kwsmlp_w3a3",
    "qonnx/qkeras_jettagging",
    "qonnx/separable_conv_model_ch_last",
    "qonnx/tfc_w1a1_finn_thresholds",
    "qonnx/unsw_nb15-mlp-w2a2",
    "sequence/bert_l4_h256",
    "sequence/bilstm_ctc",
    "sequence/silero_vad_16k_op15",
    "vision/mnist",
    "vision/mobilenetv2_100",
    "vision/squeezenet_real_fp32",
    "vision/superres_real",
    "vision/ultraface_slim320_op13",
    "vision/unet_b32_128",
    "vision/yolox_nano",
)
MOVEMENT: Final = ("MaxPool", "Reshape", "Transpose")
RELAYS: Final = (("conv",), ("conv", *MOVEMENT), ("conv", "conv", "Reshape"), MOVEMENT)
NOT_NEGATIVE: Final = ("HardSigmoid", "Relu", "Sigmoid", "Softmax", "Sqrt")
FACTS: Final = (0.0, 0.1, 0.3)
RANDOM, SKIPS, A_GROUP = 264, 24, 66
REFUSED: Final = "refused"
_AT_LINE: Final = re.compile(r"(?<=\.yaml):\d+|@\d+")


class Line(NamedTuple):
    """One plan in the golden file: its key, digests of what was decided and of how it is told, its name.

    A refusal has no key, decides nothing, and is told in the first line of its message.
    """

    key: str
    decisions: str
    log: str
    name: str


@dataclass(frozen=True)
class Asked:
    """A name, the target, and what plans."""

    name: str
    target: Target
    plan: Callable[[], Plan]

    def line(self) -> Line:
        """Plan, and digest what comes."""
        try:
            plan = self.plan()
        except PlannerError as error:
            return Line("-", REFUSED, _digest(str(error).splitlines()[0]), self.name)
        return Line(plan.key, decided(plan, self.target), told(plan), self.name)


def decided(plan: Plan, target: Target) -> str:
    """Digest of what was chosen, not of how it is told."""
    places = {row.key: [kernel, i] for kernel, rows in target.rows.items() for i, row in enumerate(rows)}
    kernels = [
        [
            kernel.name,
            kernel.row and places.get(kernel.row, kernel.row),
            [[str(port.type) for port in ports] for ports in (kernel.inputs, kernel.outputs)],
        ]
        for kernel in plan.kernels_in_order
    ]
    rescales = [[rescale.id, rescale.kind, _number(rescale.cost)] for rescale in plan.rescales]
    return _digest([kernels, rescales, _number(plan.cost), plan.optimal, _number(plan.bound)])


def told(plan: Plan) -> str:
    """Digest of the words: every step of the log, why kernels are float, warnings."""
    steps = [
        [*step[:-1], [[refused.label, _number(refused.cost)] for refused in step[-1]]]
        for step in step_rows(plan.steps)
    ]
    return _digest([steps, [kernel.reason for kernel in plan.kernels_in_order], plan.warnings])


def of_cases() -> Iterator[Asked]:
    """The cases of the specification."""
    for name, case in CASES.items():
        graph = read(case.model or name)
        yield Asked(f"case {name}", TARGETS[case.target], partial(planned, name, graph))


def of_tests(target_id: str) -> Iterator[Asked]:
    """The tests of a shipped target; some are that it refuses."""
    target = load_target(target_id)
    for case in target.tests:
        yield Asked(f"{target_id}: {case.name}", target, partial(plan_case, target, case))


def of_random(first: int) -> Iterator[Asked]:
    """Small nets of every rule, some in the RFC's order."""
    for seed in range(first, first + A_GROUP):
        target = EVERY_RULE if seed % 2 else TARGET
        graph = random_graph(seed, 4 + seed * 7 % 61, facts=FACTS[seed % 3], every_rule=target is EVERY_RULE)
        yield from _asked(f"random {seed}", graph, target, rfc=seed % 4 < 2)


def of_topologies() -> Iterator[Asked]:
    """The shapes that planning is measured on."""
    target = load_target("litert-int8")
    for shape, make in TOPOLOGIES.items():
        for regions in (60, 300, 1000):
            yield from _asked(f"{shape} {regions}", make(regions), target, rfc=True)


def of_skips() -> Iterator[Asked]:
    """Chains of relays with skips."""
    target = load_target("litert-int8")
    for seed in range(SKIPS):
        regions = (100, 200, 300)[seed % 3]
        yield from _asked(f"skips {regions}, {seed}", skips(regions, seed), target, rfc=seed % 4 == 0)


def of_model(name: str, folder: Path) -> Iterator[Asked]:
    """A real model on every shipped target."""
    graph = ranged(expand(planner.load_model(folder / f"{name}.onnx")))
    for target in map(load_target, target_ids()):
        yield Asked(f"{name} on {target.id}", target, partial(planner.plan, graph, target))


def skips(regions: int, seed: int) -> Graph:
    """Relays with ranges of their own; every third kernel is a Concat with the value three back.

    Relays compute, or move as well, or only move.
    """
    draft = Draft()
    draft.random = seeded(seed)
    relays = RELAYS[seed // 3 % len(RELAYS)]
    known = [draft.first]
    while len(draft.regions) < regions:
        if len(draft.regions) % 3 == 2:
            known.append(draft.kernel("Concat", known[-1], known[-3]))
            continue
        relay = draft.random.choice(relays)
        known.append(draft.conv(known[-1]) if relay == "conv" else draft.kernel(relay, known[-1]))
    return draft.graph("skips")


def ranged(graph: Graph) -> Graph:
    """Give every float value without facts a range that its name says, so that nothing is run."""
    written = {name: op for op in graph.ops for name in op.outputs}
    return replace(
        graph,
        values={
            name: value
            if not value.is_float or value.facts or name in graph.constants
            else _ranged(value, written.get(name))
            for name, value in graph.values.items()
        },
    )


def _ranged(value: Value, op: Op | None) -> Value:
    sha = hashlib.sha256(value.name.encode()).digest()
    below, above = (0.5 + int.from_bytes(sha[i : i + 2]) % 61440 / 8192 for i in (0, 2))
    lo = 0.0 if op is not None and op.type in NOT_NEGATIVE else -below
    expressed = value.dtype if value.dtype in EXPRESSED else "f32"
    return replace(value, facts=(Calibrated((lo,), (above,), expressed),))


def _asked(name: str, graph: Graph, target: Target, *, rfc: bool) -> Iterator[Asked]:
    for strategy in ("minimal", "rfc") if rfc else ("minimal",):
        plan = partial(propagate, graph, target, strategy=strategy, model=model_digest(graph))
        yield Asked(f"{name}, {strategy}", target, plan)


def _number(number: float) -> str:
    return f"{number:.9g}"


def _digest(data: object) -> str:
    return hashlib.sha256(_AT_LINE.sub("", json.dumps(data)).encode()).hexdigest()[:16]


GROUPS: Final[Mapping[str, Callable[[], Iterator[Asked]]]] = {
    "cases": of_cases,
    **{f"tests of {name}": partial(of_tests, name) for name in target_ids()},
    **{f"random from {first}": partial(of_random, first) for first in range(0, RANDOM, A_GROUP)},
    "topologies": of_topologies,
    "skips": of_skips,
}
