"""Kernels of the reference interpreter: ops on stored integers."""
