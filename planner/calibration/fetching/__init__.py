"""Fetching: the values that a run of the model has to give, and those that follow from others."""
