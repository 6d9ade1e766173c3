"""Scalar factors that constants absorb, once the ranges of a model are known."""
