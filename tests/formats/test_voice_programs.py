"""The voice-activity model as programs: its branches are a matter of shapes, its LSTM takes one step."""

import numpy as np
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.mlir.passes.tool import transform
from planner.interpreter.evaluate import Interpreter
from tests.formats.tosa.writer.running import agreed, fed
from tests.oracles import hlo, tosa
from tests.test_voice import FILE, chunks, speech

DIMS = {"batch": 1, "sequence": 576}
ARITHMETIC = {"stablehlo": "float32_spec", "stablehlo-int": "exact_even"}

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not FILE.exists(), reason="no model folder; set QPLAN_MODELS"),
]


@pytest.fixture(scope="module")
def annotated():
    model = planner.load_model(FILE, dims=DIMS)
    return planner.annotate(model, stats=planner.calibrate(model, chunks(speech(3, 1))))


@pytest.fixture(scope="module")
def feeds():
    return chunks(speech(2, 3))[::16]


@pytest.mark.parametrize("form", ARITHMETIC)
def test_jaxlib_computes_what_the_interpreter_does(annotated, feeds, form):
    plan = planner.plan(annotated, "stablehlo")
    text = planner.export(annotated, plan, form).decode()
    assert not hlo.printed([text])[0].startswith("ERROR")
    if form == "stablehlo":
        text, _ = transform(text, ["stablehlo-legalize-quant-to-math"])
    jobs = [(text, [feed[name] for name in annotated.inputs]) for feed in feeds]
    for feed, found in zip(feeds, hlo.evaluated(jobs), strict=True):
        wanted = planner.evaluate(annotated, plan, feed, arithmetic=ARITHMETIC[form]).outputs
        for name, got in zip(annotated.outputs, found, strict=True):
            agree(name, got, wanted[name])


def agree(name, got, wanted):
    """Integers to the bit; the states of the LSTM, which runs in float, as near as float32 comes.

    The interpreter has onnxruntime compute them, whose tanh is another on processors with AVX-512.
    """
    if name == "stateN":
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2**-20)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=name)


def test_the_lstm_of_litert_is_refused(annotated):
    with pytest.raises(UnsupportedExport, match="its row computes LSTM in 16-bit gates of LiteRT"):
        planner.export(annotated, planner.plan(annotated, "litert-int8"), "tosa")


def test_the_reference_model_computes_what_the_interpreter_does(annotated, feeds, tmp_path):
    plan = planner.plan(annotated, "tosa-int8")
    arguments = [fed(annotated, plan, feed) for feed in feeds]
    (found,) = tosa.run(tmp_path, [(planner.export(annotated, plan, "tosa"), arguments)])
    assert not isinstance(found, str), found
    for feed, got in zip(feeds, found, strict=True):
        for name, wanted, array in agreed(Interpreter(annotated, plan).run(feed), plan, got):
            agree(name, array, wanted)
