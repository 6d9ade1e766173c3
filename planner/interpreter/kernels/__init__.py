"""Kernels of the reference interpreter: what each op computes on stored integers."""
