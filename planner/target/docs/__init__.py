"""Pages and schemas that are generated from targets and from the target language."""
