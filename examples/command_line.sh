#!/usr/bin/env bash
# The command, verb by verb, on the digits example. Usage: examples/command_line.sh [OUT]
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
out="${1:-out/command-line}"
digits="$here/digits"
mkdir -p "$out"

# All in one: statistics, plan, check, files.
qplan plan "$digits/digits.onnx" --target litert-int8 --data "$digits/calibration.npz" \
    --format onnx-qdq --out "$out/litert"

# The same in steps. Statistics are taken once and used for every device. A plan with corrected biases is for
# the model it wrote beside itself.
qplan calibrate "$digits/digits.onnx" --data "$digits/calibration.npz" --method percentile --out "$out/stats.json"
qplan plan "$digits/digits.onnx" --target onnxruntime-cpu --stats "$out/stats.json" --out "$out/cpu"
qplan check "$out/cpu/plan.json" --model "$out/cpu/digits.corrected-float.onnx" --target onnxruntime-cpu
qplan export "$out/cpu/plan.json" --model "$out/cpu/digits.corrected-float.onnx" --format onnx-qdq --out "$out/quantized.onnx"
qplan compare "$digits/digits.onnx" "$out/quantized.onnx" --data "$digits/calibration.npz" --min-sqnr 15

# Your own constraints: the camera gives 8-bit integers, so the model's input is no float.
printf 'format: qplan.annotations/1\nvalues: {image: "!quant.uniform<i8:f32, 0.00390625:-128>"}\n' \
    > "$out/annotations.yaml"
qplan annotate "$digits/digits.onnx" --stats "$out/stats.json" --annotations "$out/annotations.yaml" \
    --out "$out/annotated.json"
qplan plan "$out/annotated.json" --target teaching-npu --out "$out/npu"

# What was decided, and why.
qplan show "$out/npu/plan.json"
qplan explain "$out/litert/plan.json" probabilities
qplan show "$out/litert/plan.json" --json > "$out/litert.json"

# Devices.
qplan target list
qplan target show teaching-npu
qplan target lint teaching-npu
