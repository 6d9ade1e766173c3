"""The voice-activity model of the model folder: planned inside its `If`, exported, run on a minute of sound.

Its first layers square what they hear, so quiet parts vanish in eight bits; with sixteen it keeps 20 dB.
"""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import planner
from planner.formats.onnx.sessions import open_session

FILE = Path(os.environ.get("QPLAN_MODELS", "../shared/models")) / "sequence" / "silero_vad_16k_op15.onnx"
RATE, CHUNK, CONTEXT = 16_000, 512, 64
FRONT = {"format": "qplan.annotations/1", "values": {"/model/stft/*": "!quant.any<i16>"}}

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="no model folder; set QPLAN_MODELS")


def speech(seconds: float, seed: int) -> np.ndarray:
    """Speech-like sound: gliding harmonics in bursts of syllables, pauses, and noise; float32 in [-1, 1]."""
    random = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    pitch = 120 * (1 + 0.1 * np.sin(2 * np.pi * 0.3 * t) + 0.02 * np.sin(2 * np.pi * 3 * t))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(k * phase) / k for k in range(1, 24))
    syllables = np.clip(np.sin(2 * np.pi * 4 * t) + 0.3, 0, 1) * (np.sin(2 * np.pi * 0.25 * t) > -0.3)
    return (0.2 * voice * syllables + 0.003 * random.normal(size=t.size)).astype(np.float32)


def chunks(sound: np.ndarray) -> list[dict[str, np.ndarray]]:
    """What the model hears, chunk by chunk, with the state that the float model hands on."""
    session = open_session(str(FILE))
    state, before = np.zeros((2, 1, 128), np.float32), np.zeros((1, CONTEXT), np.float32)
    found = []
    for start in range(0, sound.size - CHUNK + 1, CHUNK):
        heard = np.concatenate([before, sound[None, start : start + CHUNK]], axis=1)
        feed = {"input": heard, "state": state, "sr": np.asarray(RATE)}
        found.append(feed)
        _, state = session.run(None, feed)
        before = heard[:, -CONTEXT:]
    return found


@pytest.fixture(scope="module")
def annotated():
    model = planner.load_model(FILE)
    return planner.annotate(model, stats=planner.calibrate(model, chunks(speech(10, 1))))


def test_the_branches_are_planned(annotated):
    plan = planner.plan(annotated, "litert-int8")
    planner.check(plan, annotated, planner.load_target("litert-int8"))
    inside = [k for k in plan.kernels_in_order if "If_1/then" in k.name and k.row is not None]
    assert "LSTM" in {kernel.kernel for kernel in inside}
    # Nobody ran the branch for 8 kHz, so nothing is known of its results.
    aside = [k for k in plan.kernels_in_order if k.kernel == "LSTM" and "If_1/else" in k.name]
    assert [kernel.row for kernel in aside] == [None]


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator"])
def test_a_minute_of_sound(annotated, form):
    model = planner.annotate(annotated, annotations=FRONT)
    plan = planner.plan(model, "onnxruntime-cpu")
    quality = planner.compare(model, planner.export(model, plan, form), chunks(speech(60, 2)))
    assert {name: output.sqnr > 20 for name, output in quality.outputs.items()} == {
        "output": True,
        "stateN": True,
    }


def test_onnxruntime_computes_what_the_interpreter_does(annotated):
    plan = planner.plan(annotated, "onnxruntime-cpu")
    session = open_session(planner.export(annotated, plan, "onnx-qdq"))
    for feed in chunks(speech(2, 3))[::8]:
        got = session.run(["output", "stateN"], feed)
        wanted = planner.evaluate(annotated, plan, feed, arithmetic="float32_qdq").outputs
        assert all(np.array_equal(a, wanted[name]) for a, name in zip(got, ("output", "stateN"), strict=True))


@pytest.mark.parametrize("target", ["teaching-npu", "litert-int8"])
def test_no_pair_crosses_the_border_of_a_body(annotated, target):
    """Carried over it by onnxruntime, they ended the process for one and opened no session for the other."""
    data = planner.export(annotated, planner.plan(annotated, target), "onnx-qdq")
    graph = onnx.load_from_string(data).graph
    assert not [*crossing(graph, {})]
    open_session(data)


def crossing(graph, outer):
    """Names that a body reads from outside, or an If gives, behind a DequantizeLinear."""
    inner = {name: node for node in graph.node for name in node.output}
    makers = {**outer, **inner}
    for node in graph.node:
        for name in node.input:
            if name not in inner and is_pair(makers, name):
                yield name
        for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            yield from crossing(body, makers)
            yield from (
                out.name
                for out in body.output
                if is_pair({n: m for m in body.node for n in m.output}, out.name)
            )


def is_pair(makers, name):
    node = makers.get(name)
    while node is not None and node.op_type in ("Squeeze", "Unsqueeze", "Reshape", "Transpose", "Identity"):
        node = makers.get(node.input[0])
    # Of a constant it stays where it is.
    return node is not None and node.op_type == "DequantizeLinear" and node.input[0] in makers
