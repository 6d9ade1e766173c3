"""constants."""
