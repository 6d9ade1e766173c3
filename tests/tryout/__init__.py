"""Tests of planner/tryout."""
