"""Lint: parts of a target file that are legal and yet surely not meant."""
