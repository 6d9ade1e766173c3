"""Floor 1: target descriptions. YAML text to a frozen `Target` (rows, rules, fusions), and back to words."""
