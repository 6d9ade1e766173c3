"""Scalar factors that annotating absorbs."""
