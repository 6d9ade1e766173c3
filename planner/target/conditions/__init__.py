"""Conditions of predicates: `grammar` reads them, `verdicts` judges them on values."""
