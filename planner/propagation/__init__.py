"""propagation."""
