"""onnx-integer: kernels in plain integer ONNX ops."""
