"""Models that people install from wheels, quantized by us and by others: metric of the task, latency, size.

`python -m benchmarks.shipped --help`; the results are docs/results/shipped.md. Measured, never shipped: a
wheel's files stay in a cache outside the repository.
"""
