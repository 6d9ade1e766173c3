"""LiteRT files that tests read: small ones of every row and operator, and those of the model folder."""

import os
from functools import cache
from pathlib import Path

import numpy as np

import planner
from planner.formats.litert.writer.write import write_litert
from planner.target_tests.probe_kit import make_kit
from tests.formats.litert.writer.test_operators import ALL, REFUSED, made

ROOT = Path(__file__).resolve().parents[4]
MODELS = Path(os.environ.get("QPLAN_MODELS", ROOT.parent / "shared" / "models"))
OFFICIAL = ("ad01_int8", "pretrainedResnet_quant", "vww_96_int8")
FLOAT = ("pretrainedResnet", "vww_96_float")


def path_of(name):
    """A file of the model folder."""
    return MODELS / ("litert" if name in FLOAT else "mlperf-tiny") / f"{name}.tflite"


@cache
def of_rows():
    """By kit item: the file of each row of litert-int8 that has one."""
    kit = make_kit(planner.load_target("litert-int8"), form="litert", seed=0)
    return {item.name: item for item in kit.items if item.file}


@cache
def of_floats():
    """By case: a float model, a sample, and its file."""
    found = {}
    for name, (text, shape, constants) in ALL.items():
        if name in REFUSED:
            continue
        graph = planner.load_model(made(text, shape, constants))
        sample = {"i": np.random.default_rng(0).uniform(-1.5, 2, shape).astype(np.float32)}
        found[name] = graph, sample, write_litert(graph, planner.plan(graph, "litert-int8"))
    return found
