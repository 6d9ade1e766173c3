"""Floor 2: the independent checker. It shares no judgement with what it checks; one module a noun."""
