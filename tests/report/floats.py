"""A plan whose kernels mostly run in float, for long and different reasons."""

import json

import planner
from planner.formats.annotated.document import read_annotated

KINDS = ("LayerNormalization", "conv2d", "Div", "fully_connected", "Erf", "Relu")
"""Of an encoder layer; litert-int8 has the half of them, with other ports."""


def float_plan(layers=5):
    """A chain of encoder layers in float, and one quantized kernel, with names as exporters write them."""
    names = [f"/encoder/layer.{i}/attention/output/{kind}" for i in range(layers) for kind in KINDS]
    values = [
        {"name": f"encoder_layer_{i}_attention_output", "shape": [1, 8, 8, 4],
         "constraints": ["!quant.calibrated<f32<-1.0:1.0>>"]}
        for i in range(len(names) + 2)
    ]  # fmt: skip
    kernels = [
        {"name": name, "kernel": name.rpartition("/")[2], "inputs": [values[i]["name"]],
         "outputs": [values[i + 1]["name"]]}
        for i, name in enumerate(names)
    ]  # fmt: skip
    ends = values[-2]["name"], values[-1]["name"]
    kernels.append({"name": "/head/softmax", "kernel": "Softmax", "inputs": [ends[0]], "outputs": [ends[1]]})
    document = {
        "format": "qplan.annotated/1", "name": "an_encoder_with_a_rather_long_name", "values": values,
        "kernels": kernels, "inputs": [values[0]["name"]], "outputs": [ends[1]],
    }  # fmt: skip
    return planner.plan(read_annotated(json.dumps(document)), "litert-int8")
