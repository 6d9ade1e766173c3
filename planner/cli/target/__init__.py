"""Verbs of `qplan target`, by what they are for."""
