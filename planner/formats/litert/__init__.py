"""LiteRT (TensorFlow Lite): `reader` and `writer`, and the vocabulary of builtins that both use."""
