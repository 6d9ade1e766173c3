"""Analysis of models without a plan: the datatype of every tensor, its bounds, and what samples show."""
