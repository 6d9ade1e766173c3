"""Probing: what onnxruntime answers here is what the shipped target says; refusals are heard."""

from importlib.metadata import version
from pathlib import Path

import pytest

from planner.errors import UnknownName
from planner.target.lint.findings import lint
from planner.target.load import load_target
from planner.target_tests.probe import probe, probe_yaml, rows_of
from planner.target_tests.probes import PROBES, TYPES
from tests import exact_products

SHIPPED = Path(__file__).parents[2] / "targets" / "_onnxruntime-kernels.yaml"


def without_release(text):
    """The text without the lines that name the release."""
    return [line for line in text.splitlines() if not line.startswith("# Kernels that ")]


def test_the_shipped_kernels_are_what_probing_writes(monkeypatch):
    # i8 by u8 is wrong in onnxruntime on every CPU, and the shipped rows say so: it is asked as it is.
    monkeypatch.setattr(exact_products, "TURNED", frozenset({(exact_products.U8, exact_products.I8)}))
    text = probe_yaml(probe(), "onnxruntime-kernels")
    assert without_release(text) == without_release(SHIPPED.read_text(encoding="utf-8"))
    assert f"# Kernels that onnxruntime {version('onnxruntime')} really" in text


def test_a_sample_is_probed_alone():
    found = probe(kernels=["MaxPool", "add"])
    assert rows_of(found) == (
        "- {kernel: add, in: {a: u8, b: u8}, out: {y: u8}, rules: [{free_scale: [a, b, y]}]}",
        "- {kernel: add, in: {a: i8, b: i8}, out: {y: i8}, rules: [{free_scale: [a, b, y]}]}",
        "- {kernel: MaxPool, in: {x: u8}, out: {y: u8}, rules: [{same_scale: [x, y]}]}",
        "- {kernel: MaxPool, in: {x: i8}, out: {y: i8}, rules: [{same_scale: [x, y]}]}",
    )
    refused = {
        answer.storages: answer.refusal
        for _, answers in found.answers
        for answer in answers
        if not answer.runs
    }
    assert set(refused) == {
        ("u16",), ("i16",), ("u16",) * 3, ("i16",) * 3,
        ("u8", "i8", "u8"), ("i8", "u8", "i8"), ("u8", "u8", "i8"), ("i8", "i8", "u8"),
    }  # fmt: skip
    assert all("QLinearAdd" in text or "MaxPool" in text for text in refused.values())


def test_a_probed_target_loads_and_every_shipped_row_is_a_probed_one_or_float_inside():
    kernels = load_target(probe_yaml(probe(), "probed"))
    assert {f.code for f in lint(kernels)} == {"L011", "L019"}  # no tests; fused kernels without fusions
    shipped = load_target("onnxruntime-cpu")
    own = {
        kernel for kernel, rows in shipped.rows.items() if any(row.source.startswith("onnxr") for row in rows)
    }
    tables, dynamic = {"Gather"}, {"gemm", "matmul"}
    norms = {"LayerNormalization", "InstanceNormalization"}
    limited = {"conv"}  # by the groups that u8 weights bear
    assert own == norms | tables | dynamic | limited | {"Resize", "conv_transpose"}
    assert set(shipped.rows) - own <= set(kernels.rows)


def test_unknown_engines_and_kernels():
    with pytest.raises(UnknownName, match="unknown engine 'tensorrt'"):
        probe("tensorrt")
    with pytest.raises(UnknownName, match="unknown kernel 'cnov'"):
        probe(kernels=["cnov"])


def test_every_type_of_the_table_is_one():
    assert {name for found in PROBES for choice in found.choices for name in choice} <= set(TYPES)
