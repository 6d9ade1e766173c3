"""The exporter to AIMET: the round trip of AIMET's own files, and what it says it cannot say."""

import json
import re
from pathlib import Path

import pytest

from planner.target.load import load_target, target_ids
from planner.target_exchange.aimet import ALIASES, LESS, import_aimet
from planner.target_exchange.aimet_config import read_config
from planner.target_exchange.aimet_export import export_aimet
from tests.target_exchange import facts

ROOT = Path(__file__).resolve().parents[2]


def round_trip(document):
    text = import_aimet(json.dumps(document), "f.json").text
    return json.loads(export_aimet(load_target(text)).text)


def said(document):
    """A configuration in ONNX's names, groups in order, without operators that inference has not."""
    ops = {ALIASES.get(op, op): entry for op, entry in document["op_type"].items() if op not in LESS}
    # A weight of one dimension has one scale, whatever is asked.
    ops.pop("LayerNormalization", None)
    groups = sorted(tuple(group["op_list"]) for group in document["supergroups"])
    return {**document, "op_type": ops, "supergroups": groups}


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_default_configuration_comes_back(per_channel):
    document = facts.aimet_default(per_channel=per_channel)
    made = said(round_trip(document))
    # The one factor a channel of a normalization stays real here, and is a parameter there.
    assert made["op_type"].pop("BatchNormalization", {}) == {}
    assert made == said(document)


def test_widths_fixed_ends_and_symmetry_come_back():
    document = facts.aimet_default(per_channel=True)
    int8, int16 = ({"bitwidth": bits, "dtype": "int"} for bits in (8, 16))
    document["defaults"]["strict_symmetric"] = "True"
    document["defaults"]["supported_kernels"] = [
        {"activation": int16, "param": int8},
        {"activation": int8, "param": int8},
    ]
    document["params"]["bias"] = {"is_quantized": "True"}
    document["op_type"] |= {
        "Softmax": {"encoding_constraints": {"min": 0.0, "max": 1.0}},
        "Tanh": {"supported_kernels": [{"activation": int8}]},
        "Add": {"is_symmetric": "True"},
        "Gemm": {"params": {"weight": {"is_symmetric": "False"}}, "per_channel_quantization": "False"},
    }
    made = round_trip(document)
    assert made["defaults"] == document["defaults"]
    assert made["params"]["bias"]["is_quantized"] == "True"
    assert made["op_type"]["Softmax"] == document["op_type"]["Softmax"]
    assert made["op_type"]["Tanh"] == document["op_type"]["Tanh"]
    assert made["op_type"]["Add"] == document["op_type"]["Add"]
    assert made["op_type"]["Gemm"] == document["op_type"]["Gemm"]


@pytest.mark.parametrize("bits", [16, 32])
def test_widths_of_floats_come_back(bits):
    document = facts.aimet_default(per_channel=True)
    of_floats = {"bitwidth": bits, "dtype": "float"}
    document["defaults"]["supported_kernels"] = [{"activation": of_floats, "param": of_floats}]
    kernels = round_trip(document)["defaults"]["supported_kernels"]
    assert kernels == document["defaults"]["supported_kernels"]


@pytest.mark.parametrize("name", target_ids())
def test_every_shipped_target_is_a_configuration(name):
    """AIMET's own rules on its file hold (they are those of `read_config`), and what is left out is told."""
    made = export_aimet(load_target(name))
    config = read_config(made.text, "f.json")
    assert config.ops
    assert any(sentence.startswith("requantize: ") for sentence in made.unsaid)


def test_shipped_targets_say_the_reviewed_words(golden):
    """Each entry of a configuration and each sentence of what it leaves out, by the targets that have it."""
    found = {}
    for name in target_ids():
        made = export_aimet(load_target(name))
        for section, entries in json.loads(made.text).items():
            for key, entry in entries.items() if isinstance(entries, dict) else enumerate(entries):
                told = entry["op_list"] if section == "supergroups" else {key: entry}
                found.setdefault(f"{section}: {json.dumps(told)}", []).append(name)
        for sentence in made.unsaid:
            found.setdefault(f"unsaid: {re.sub(r'yaml:[0-9]+', 'yaml', sentence)}", []).append(name)
    golden("aimet.txt", "".join(f"{line}\n    {', '.join(names)}\n" for line, names in sorted(found.items())))


def test_what_litert_says_in_aimets_words():
    made = export_aimet(load_target("litert-int8"))
    document = json.loads(made.text)
    assert document["defaults"]["strict_symmetric"] == "True"
    assert document["defaults"]["per_channel_quantization"] == "True"
    assert document["op_type"]["Gemm"] == {"per_channel_quantization": "False"}
    assert document["op_type"]["Softmax"]["encoding_constraints"] == {"min": 0.0, "max": 255 / 256}
    assert document["op_type"]["Reshape"] == {"is_output_quantized": "False"}
    assert document["op_type"]["Erf"] == {"is_output_quantized": "False"}
    assert {"op_list": ["Conv", "Relu"]} in document["supergroups"]
    assert "Softmax: fixed scales that differ by width; that of the first row is written" in made.unsaid
    assert "LSTM: no operator of AIMET's" in made.unsaid
    assert "conv2d: what its fusion asks of Conv.group, w.rank and Clip.range" in made.unsaid


def test_fixed_scales_may_be_expressions():
    text = (ROOT / "targets" / "litert-int8.yaml").read_text("utf-8")
    assert export_aimet(load_target(text.replace("scale: 1/256", "scale: 2 ** -8"))).text == (
        export_aimet(load_target(text)).text
    )


def test_what_aimet_has_no_word_for_is_told():
    made = export_aimet(load_target("dpuczdx8g"))
    told = "\n".join(made.unsaid)
    for words in (
        "power_of_two at port x",
        "the range of multipliers",
        "one scale of several ports (Concat)",
    ):
        assert words in told
