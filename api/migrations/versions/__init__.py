"""Versions of the tables: one module each, numbered in their order."""
