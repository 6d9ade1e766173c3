"""Annotated models as JSON: `qplan.annotated/1`, also the structure part of a plan file."""
