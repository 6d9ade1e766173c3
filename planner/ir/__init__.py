"""Floor 0: types, graphs and orders. Frozen data and pure functions; no file format is known here."""
