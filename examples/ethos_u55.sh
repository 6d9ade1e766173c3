#!/usr/bin/env bash
# A float model becomes a binary for Arm's Ethos-U55 in two commands. Usage: examples/ethos_u55.sh [OUT]
# Vela (pip install ethos-u-vela) has an environment of its own; VELA names its command.
set -euo pipefail
digits="$(cd "$(dirname "$0")" && pwd)/digits"
out="${1:-out/ethos-u55}"

qplan plan "$digits/digits.tflite" --target ethos-u55 --data "$digits/calibration.npz" \
    --annotations "$digits/integer-interface.yaml" --format litert --out "$out"
"${VELA:-vela}" "$out/litert.tflite" --accelerator-config ethos-u55-128 --output-dir "$out"
