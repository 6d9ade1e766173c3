"""Quantized dialects of ONNX, read: QONNX, FINN, QCDQ, QDQ, QOperator and integer operators."""
