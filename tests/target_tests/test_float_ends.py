"""Engines whose files take and give reals: the kit's stored integers are handed over by their types."""

import planner
from planner.target_tests.engines.answers import Answer
from planner.target_tests.engines.table import ENGINES, Engine
from planner.target_tests.row_probe import probe_rows


def in_float(_, jobs):
    """Answer with our own runner of QONNX files."""
    return [Answer(outputs=planner.run(job.file, job.inputs)) for job in jobs]


def test_rows_of_fpgas_hold_on_a_runner_of_reals():
    target = planner.load_target("finn-fpga")
    engine = Engine("qonnx", in_float, float_ends=True)
    found = probe_rows(target, engine, kernels=["MaxPool", "add_streams"])
    verdicts = {finding.name: finding.verdict for finding in found}
    assert verdicts["MaxPool-1"] == verdicts["add_streams-1"] == "integers"


def test_the_engines_of_fpgas_have_float_ends():
    assert {name for name, engine in ENGINES.items() if engine.float_ends} == {"finn", "hls4ml"}
