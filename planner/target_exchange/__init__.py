"""Targets from other tools' descriptions of devices, and back: entries of a file become rows."""
