"""Arithmetic of integers: real factors as multipliers and shifts, and integers times those."""
