"""The type language: quantized types, their text form, and parameters from a range."""
