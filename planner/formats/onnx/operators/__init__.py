"""Operators, one by one: the shapes of their results, and the limits of their numbers."""
