"""Geometry: which elements windows and resizing read, from sizes and attributes alone."""
