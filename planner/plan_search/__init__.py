"""Plan search: the plan of least work that keeps a model as good as is asked (docs/search.md)."""
