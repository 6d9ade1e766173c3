"""Layer 2: the verifier of plans; `check` is its entry. It shares with planning what things mean alone."""
