"""QONNX and what is built on it: FINN, hls4ml."""
