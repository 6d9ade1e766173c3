"""Layer 1: TOSA programs read as graphs of ONNX ops."""
