"""StableHLO programs read as graphs of ONNX ops."""
