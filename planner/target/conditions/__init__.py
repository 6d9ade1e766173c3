"""Conditions of predicates: `grammar` reads them, `verdicts` evaluates them on values."""
