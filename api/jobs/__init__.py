"""Jobs: the service's long work as rows that are leased, run in child processes, and finished once."""
