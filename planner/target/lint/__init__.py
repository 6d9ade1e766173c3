"""Lint: what is legal in a target file and yet surely not meant."""
