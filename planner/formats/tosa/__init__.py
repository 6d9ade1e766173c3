"""TOSA: `reader` and `writer`, and the vocabulary of operators that both use."""
