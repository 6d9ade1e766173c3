"""Composites: operators that stand for many, as those many; one body each, by noun."""
