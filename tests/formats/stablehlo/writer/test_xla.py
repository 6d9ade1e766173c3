"""`stablehlo-int` compiled by XLA, a compiler that fuses and reorders: no integer differs from `exact_even`.

Inputs are pinned where integers read them: XLA divides by a constant as a product with its reciprocal, and so
quantizes a float now and then to the neighbour.
"""

import numpy as np
import pytest

import planner
from benchmarks.samples import SAMPLERS, Draw
from planner.constants.quantize import quantize_array
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.ir.types.qtypes import Uniform
from planner.target_tests.probe_kit import make_kit
from tests.formats.stablehlo.writer.running import static, with_all_results
from tests.formats.stablehlo.writer.test_models import LONG, REAL, SHORT
from tests.oracles import hlo

FORM = "stablehlo-int"
DYNAMIC = frozenset({"bert_l4_h256", "silero_vad_16k_op15"})  # of open dimensions, which a program takes as 1


def differing(graph, plan, sample, found):
    """Integers that differ from the interpreter's, integers in all, and the largest float error."""
    off = total = 0
    error = 0.0
    wanted = Interpreter(graph, plan, arithmetic="exact_even").run(sample).outputs
    for name, got in zip(graph.outputs, found, strict=True):
        if got.dtype.kind == "f":
            error = max(error, float(np.abs(got - wanted[name]).max(initial=0.0)))
        else:
            off, total = off + np.count_nonzero(got != wanted[name]), total + got.size
    return off, total, error


def pinned(path, samples):
    """A model whose inputs and stored results are integers, its plan, and the samples as it takes them."""
    model = planner.load_model(path)
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    first = planner.plan(ready, "stablehlo")
    read = {port.value: port.type for kernel in first.kernels_in_order for port in kernel.inputs}
    kinds = {name: kind for name in model.inputs if isinstance(kind := read.get(name), Uniform)}
    stored = {
        p.value: p.type for k in first.kernels_in_order for p in k.outputs if isinstance(p.type, Uniform)
    }
    pins = {name: str(kind) for name, kind in {**stored, **kinds}.items()}
    ready = planner.annotate(ready, annotations={"format": "qplan.annotations/1", "values": pins})
    graph, plan = with_all_results(ready, planner.plan(ready, "stablehlo"))
    fed = [
        {name: quantize_array(x, kinds[name]) if name in kinds else x for name, x in sample.items()}
        for sample in samples
    ]
    return graph, plan, fed


@pytest.mark.parametrize(("name", "count"), [*SHORT, *LONG])
def test_xla_computes_every_value(name, count):
    path, inputs, _ = REAL[name]
    if not path.is_file():
        pytest.skip(f"no {path.name}: set QPLAN_MODELS")
    graph, plan, samples = pinned(path, inputs(count))
    program = EXPORTERS[FORM](graph, plan).decode()
    fed = [static(graph, sample) for sample in samples]
    for sample, found in zip(fed, hlo.compiled([(program, [*one.values()]) for one in fed]), strict=True):
        off, total, error = differing(graph, plan, sample, found)
        assert total > 500
        assert (off, error < 1e-5) == (0, True)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in SAMPLERS if name not in DYNAMIC])
def test_xla_computes_every_model(name, models):
    (path,) = models.glob(f"*/{name}.onnx")
    samples = SAMPLERS[name](Draw(path, 3, held_out=False))
    graph, plan, fed = pinned(path, samples)
    one = static(graph, fed[0])
    (found,) = hlo.compiled([(EXPORTERS[FORM](graph, plan).decode(), [*one.values()])])
    off, total, error = differing(graph, plan, one, found)
    assert total > 500
    assert (off, error < 1e-5) == (0, True)


def test_xla_computes_every_row():
    """All rows of the target, on its own test model each, in programs with stored inputs and results."""
    kit = make_kit(planner.load_target("stablehlo"), form=FORM)
    graphs = [planner.load_model(item.model) for item in kit.items]
    fed = [
        {name: item.inputs[name] for name in graph.inputs}
        for item, graph in zip(kit.items, graphs, strict=True)
    ]
    jobs = [(item.file.decode(), [*one.values()]) for item, one in zip(kit.items, fed, strict=True)]
    integers = 0
    for item, graph, sample, found in zip(kit.items, graphs, fed, hlo.compiled(jobs), strict=True):
        off, total, error = differing(graph, item.plan, sample, found)
        assert (item.name, off, error < 1e-5) == (item.name, 0, True)
        integers += total
    assert integers > 1000
