"""Operators: what is known of them one by one: the shapes of their results, what their numbers may be."""
