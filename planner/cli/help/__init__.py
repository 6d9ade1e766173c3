"""What the command says of itself: groups of verbs, examples, choices of options, the schema of answers."""
