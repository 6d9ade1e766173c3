"""ONNX files: Q and DQ around float ops, QLinear operators, integer ops, blocks of few bits."""
