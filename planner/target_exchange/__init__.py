"""Targets from other tools' descriptions of devices, and back: what a file there says becomes rows here."""
