"""Floor 0: ONNX operators as other ops spell them."""
