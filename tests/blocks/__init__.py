"""Blocks of norms and activations, as exporters spell them."""
