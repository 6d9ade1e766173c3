"""Importers of other tools' device descriptions, and the exporter."""
