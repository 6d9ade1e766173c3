"""Every test model: import, write again, same numbers."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from planner.formats.onnx.dtypes import UNKNOWN
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from planner.ir.graph import structure_digest
from tests.formats.onnx.reader.runs import op_types, random_feeds, read_same

MODELS = Path(os.environ.get("QPLAN_MODELS", "../shared/models"))
FILES = sorted(
    p for folder in ("mlperf-tiny", "vision", "sequence") for p in (MODELS / folder).glob("*.onnx")
)
LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))
CLOSED = {"silero_vad_16k_op15"}


@pytest.mark.skipif(not FILES, reason="no model folder; set QPLAN_MODELS")
@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_a_model_written_again_computes_the_same(path):
    extra = {}
    if path.stem in CLOSED:
        extra = {"input": np.random.default_rng(1).standard_normal((2, 512)).astype(np.float32) / 10,
                 "sr": np.asarray(16000, dtype=np.int64)}  # fmt: skip
    graph = read_same(path, random_feeds(path, **extra))
    known = all(value.shape is not None and value.dtype != UNKNOWN for value in graph.values.values())
    assert known or path.stem in CLOSED
    again = read_onnx(write_graph(graph), name=graph.name)
    if graph.scopes:
        # Names of bodies are paths, and a path read again is one step longer.
        assert sorted(op_types(again)) == sorted(op_types(graph))
        assert len(again.scopes) == len(graph.scopes)
    else:
        assert structure_digest(again) == structure_digest(graph)


@pytest.mark.parametrize("path", LIGHT, ids=[p.stem for p in LIGHT])
def test_light_models_have_weights_once_read(path):
    graph = read_onnx(path)
    linear = [op for op in graph.ops if op.type in ("Conv", "Gemm")]
    assert linear
    assert all(name in graph.constants for op in linear for name in op.inputs[1:] if name)
    assert not {"ConstantOfShape", "Dropout", "Identity", "Sum", "Unsqueeze"}.intersection(op_types(graph))
    assert all(value.shape is not None for value in graph.values.values())
    assert len(graph.inputs) == 1


def test_light_models_are_there():
    assert len(LIGHT) >= 9


def test_external_data_is_mapped(tmp_path):
    source = next((p for p in FILES if p.stem == "vww_96_float"), None)
    if source is None:
        pytest.skip("no model folder; set QPLAN_MODELS")
    graph = read_onnx(source)
    path = tmp_path / "model.onnx"
    path.write_bytes(write_graph(graph, external=tmp_path / "model.data"))
    assert path.stat().st_size < 100_000
    again = read_onnx(path, name=graph.name)
    mapped = [c for c in again.constants.values() if isinstance(c.array, np.memmap)]
    assert len(mapped) > 20
    assert structure_digest(again) == structure_digest(graph)
    for name, constant in graph.constants.items():
        np.testing.assert_array_equal(again.constants[name].array, constant.array)
