"""Placement of kernels and groups on the page: ranks, columns, scopes. Knows names and edges, no plan."""
