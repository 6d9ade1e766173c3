"""Conversion between quantized dialects of ONNX, without planning: the same numbers in another spelling."""
