"""Help of the command: groups of verbs, examples, choices of options, the schema of answers."""
