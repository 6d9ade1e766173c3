"""Layer 1: StableHLO programs read as graphs of ONNX ops."""
