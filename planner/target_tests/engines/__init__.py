"""Engines that the rows of a target are probed against: how each takes a file and inputs, and answers.

`run_litert.py`, `run_qnn.py` and `run_tosa.py` are scripts for the engine's own Python; nothing here imports
them.
"""
