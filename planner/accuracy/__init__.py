"""Accuracy: where a plan loses its numbers, and what would bring them back."""
