"""Graphs of ONNX ops under construction, for importers of other formats."""
