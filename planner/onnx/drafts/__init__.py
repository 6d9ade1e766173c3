"""Graphs of ONNX ops as readers of other formats draft and tidy them."""
