"""Shipped target descriptions, as package data: one YAML a device."""
