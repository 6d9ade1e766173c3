"""Tests of operators' definitions."""
